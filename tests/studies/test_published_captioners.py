"Studies of published captioners: what they read and begin with, whole studies in miniature, and what is refused."
from dataclasses import replace

import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.encoders.caption_store import retrieve, token_vectors
from invariant_metrics.models.gpt2 import new_gpt2
from invariant_metrics.models.text_networks import PAD, UNK
from invariant_metrics.studies.corpora import picture_encoder
from invariant_metrics.studies.plan import StudySize
from invariant_metrics.studies.search import train_systems
from invariant_metrics.studies.tasks import make_plan
from invariant_metrics.studies.writers import Captioning

TINY = StudySize(side=32, train=24, validation=8, test=10, pretrain=4, steps=4, batch=4, reps=10)
MODELS = ("smallcap", "clipcap")


def task_of(model, weights=None, size=TINY, **settings):
    return Captioning(make_plan({"task": "captioning", "model": model, "alphas": [0.1], "seeds": 1, "weights": weights, **settings}, size))


@pytest.mark.parametrize("model", MODELS)
def test_a_study_runs(model, tmp_path, one_thread):
    settings = {"task": "captioning", "model": model, "alphas": [1.0], "seeds": 1, "systems": ["entities"]}
    result = train_systems(tmp_path/"a", settings, size=TINY, workers=0)
    assert set(result.results["system"]) >= {"baseline", "+entities", "+entities-random"}


def test_no_training_picture_is_told_its_own_captions(one_thread):
    task = task_of("smallcap")
    corpus = task.corpora["train"]
    found = retrieve(task.store, token_vectors(picture_encoder(task.plan), corpus.features), corpus.names)
    for name, row in zip(corpus.names, found):
        others = {c for c, owner in zip(task.store.captions, task.store.owners) if owner != name}
        assert 4 <= len(row) <= 7 and set(row) <= others
    for part in ("train", "validation", "test"):
        prompt = task.inputs(part)["prompt"]
        assert len(prompt) == len(task.corpora[part]) and UNK not in prompt and (prompt[:, 0] != PAD).all()
    assert set(task.store.owners) == set(corpus.names) # no caption of validation or test


def test_invariants_read_positions_of_the_caption_alone(one_thread):
    task = task_of("smallcap")
    loss, batches = task.training(["entities"], 0.1, 0)
    batch = batches(0)
    logits = task.recipe.logits(task.recipe.predict(task.network(0), batch))
    view = loss.view(logits, batch)
    assert view.probs.shape[:2] == (4, batch["tokens"].shape[1] - 1) and batch["prompt"].shape[1] > 30
    words = (batch["tokens"][:, 1:] > UNK)
    assert torch.equal(view.mask, words)


@pytest.mark.parametrize("model", MODELS)
def test_it_begins_with_the_words_of_the_small_gpt2(model, one_thread):
    one, same, other = (task_of(model).network(seed) for seed in (0, 0, 1))
    states = [torch.cat([v.flatten() for v in net.state_dict().values()]) for net in (one, same, other)]
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])
    row = one.vocabulary.encode("balloon")
    assert torch.equal(one.gpt.transformer.wte.weight[row], other.gpt.transformer.wte.weight[row]) # pretrained, whatever the seed


def test_what_cannot_work_is_refused(tmp_path, one_thread):
    with pytest.raises(InputError, match="leave --encoder out"): task_of("smallcap", encoder="dinov2").check()
    with pytest.raises(InputError, match="--weights gpt2=FOLDER"): task_of("clipcap", scale="full").check()
    new_gpt2(30).save_pretrained(tmp_path/"gpt")
    with pytest.raises(InputError, match="put GPT-2.s own tokenizer into its folder"): task_of("clipcap", {"gpt2": str(tmp_path/"gpt")}).check()
    task = task_of("smallcap")
    task.corpora["train"] = replace(task.corpora["train"], references=[("",)]*24)
    with pytest.raises(InputError, match="store of captions is empty"): task.store


def test_long_captions_stay_out_of_prompts_which_fit_into_the_positions(one_thread):
    task = task_of("smallcap")
    references = [(" ".join(["a red boat is here"]*n),) for n in (4, 5) for _ in range(12)]
    task.corpora["train"] = replace(task.corpora["train"], references=references)
    assert {len(text.split()) for text in task.store.captions} == {20} # 25 words are more than it writes
    room = task.network(0).gpt.config.n_positions
    assert task.inputs("train")["prompt"].shape[1] + task.longest + 1 <= room


@pytest.mark.parametrize("model", MODELS)
def test_a_graph_may_weight_the_likelihood(model, one_thread):
    task = task_of(model, systems=["scene-graph-weighted"])
    loss, batches = task.training(["scene-graph-weighted"], 0.5, 0)
    network = task.network(0).eval()
    terms = loss(network, batches(0))
    task_alone = task.training([], 0.0, 0)[0](network, batches(0))["task"][1]
    assert set(terms) == {"task", "violation"} and 0 < terms["violation"][1] <= 1 and terms["task"][1] > task_alone
