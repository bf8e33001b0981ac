"Captioners that a CLIP supervises: rewards by hand, the mixture and its baseline, the alarm, and runs that go on."
import json
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from commands import check_output, cli
from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.encoders.encoder import CLIP, Preprocess
from invariant_metrics.encoders.image_text import ImageText, TextTokens
from invariant_metrics.encoders.lclip_student import save_lclip
from invariant_metrics.files import load_results
from invariant_metrics.lclip import reward_study as study
from invariant_metrics.lclip import supervision as runs
from invariant_metrics.models.colorizer import seeded
from invariant_metrics.models.multiplexed import LClip, tiny_lclip
from invariant_metrics.models.text_networks import EOS, Generated, TextGenerator, Vocabulary
from invariant_metrics.training.loop import Optim, Turn, fit
from invariant_metrics.training.rewards import ClipReward, mixed_reward
from invariant_metrics.training.self_critical import RepetitionAlarm, SelfCriticalLoss, mix_rewards, _reward_texts, self_critical
from invariant_metrics.training.text_training import text_batches
from invariant_metrics.worlds.scene_captions import caption_truth, relation_captions, scene_relations
from invariant_metrics.worlds.scenes import make_scenes

WORDS = Vocabulary.of(["red red red blue blue ball"])
AXES = {"red": 0, "blue": 1, "ball": 2}


def compass(limit=8):
    "A CLIP of three dimensions: a text is the sum of its words' axes, a picture its first three numbers."
    def ids(texts): return [[0, *(AXES.get(w, 3) + 2 for w in t.split()), 1] for t in texts]
    def text(rows): return torch.tensor([[row.count(k + 2) + 1e-6 for k in range(3)] for row in rows], dtype=torch.float64)
    return ImageText("lclip", "by hand", Preprocess(), TextTokens(ids, limit, "compass"), lambda x: x.flatten(1)[:, :3], text)


def view(*numbers): return torch.tensor(numbers, dtype=torch.float32)[:, None, None]


class Chain(TextGenerator):
    "The next entry depends on the last one and on a number of the input."
    def __init__(self):
        super().__init__(WORDS)
        self.table = nn.Parameter(torch.randn(2, len(WORDS), len(WORDS), generator=torch_rng(0)))
    def memory(self, inputs): return inputs["which"].float()[:, None, None], torch.ones(len(inputs["which"]), 1, dtype=torch.bool)
    def decode(self, tokens, memory, mask): return self.table[memory[:, 0, 0].long()[:, None], tokens]


PEOPLE = [["red ball", "red red ball"], ["blue ball", "blue"]]
VIEWS = [view(1, 0, 1), view(0, 1, 1)]
BATCH = {"which": torch.tensor([0, 1]), "references": PEOPLE, "pictures": VIEWS}


def test_a_caption_that_is_too_long_is_cut_and_counted_or_refused():
    reward, model = ClipReward(compass(limit=6)), compass(limit=6)
    long, same = "red ball " * 4, "red"
    assert reward([long, same], PEOPLE, VIEWS)[0] > 0 and reward.cut == 1
    reward([long], PEOPLE[:1], VIEWS[:1])
    assert reward.cut == 2
    with pytest.raises(InputError, match="1 texts have more than 6 tokens"): ClipReward(model, long="refuse")([long], PEOPLE[:1], VIEWS[:1])


@pytest.mark.parametrize("references", [False, True])
def test_the_mixture_goes_from_cider_to_the_clip(references):
    name, texts = ("refl-clipscore" if references else "l-clipscore"), ["red blue", "blue ball"]
    found = {a: mix_rewards(mixed_reward(a, compass(), PEOPLE, references=references), texts, PEOPLE, [True, False], VIEWS) for a in (0, 0.3, 1)}
    assert np.array_equal(found[0]["reward"], found[0]["cider-d"]) and np.array_equal(found[1]["reward"], found[1][name])
    assert np.allclose(found[0.3]["reward"], 0.7*found[0.3]["cider-d"] + 0.3*found[0.3][name])
    direct = ClipReward(compass(), references)(texts, PEOPLE, VIEWS)
    assert np.array_equal(found[1][name], direct) and direct.std() > 0.05


def test_the_baseline_is_that_of_the_mixture():
    "The loss of the mixture is the mixture of the losses, each with its own greedy baseline; without one part in the baseline it is not."
    net, mixture = Chain().double(), mixed_reward(0.4, compass(), PEOPLE)
    def loss(rewards): return self_critical(net, BATCH, rewards, torch_rng(3), "greedy", 4, 5)["self-critical"]
    apart = sum(weight*loss({name: (reward, 1.0)}) for name, (reward, weight) in mixture.items())
    assert torch.isclose(loss(mixture), apart, atol=1e-6)
    greedy = net.generate(BATCH, 5)
    both = _reward_texts(net, greedy, PEOPLE, mixture, VIEWS)
    assert all(abs(both[name]).sum() > 0 for name in mixture) # the greedy texts get something from either part
    half_blind = dict(mixture)
    clip, weight = half_blind["l-clipscore"]
    # the clip judges the eight drawn texts alone, and gives the two greedy ones nothing
    def silent(texts, references, pictures): return clip(texts, references, pictures)*(1.0 if len(texts) == 8 else 0.0)
    silent.sees_pictures = True
    assert not torch.isclose(loss(mixture), loss({**half_blind, "l-clipscore": (silent, weight)}), atol=1e-6)


def test_rewards_that_see_pictures_need_them_and_batches_bring_them():
    tokens = WORDS.batch(["red ball", "red", "blue ball"], 6)
    make = text_batches({"which": torch.tensor([0.0, 1.0])}, tokens, WORDS, 3, owner=torch.tensor([0, 0, 1]), references=PEOPLE, pictures=VIEWS)
    batch = make(0)
    for which, refs, picture in zip(batch["which"], batch["references"], batch["pictures"]):
        assert refs == PEOPLE[int(which)] and torch.equal(picture, VIEWS[int(which)])
    with pytest.raises(InputError, match="'pictures' has 1 items"):
        text_batches({"which": torch.tensor([0.0, 1.0])}, tokens, WORDS, 3, owner=torch.tensor([0, 0, 1]), pictures=VIEWS[:1])
    blind = {k: v for k, v in BATCH.items() if k != "pictures"}
    with pytest.raises(InputError, match="'l-clipscore' looks at pictures, and there are none"):
        self_critical(Chain(), blind, mixed_reward(1, compass(), PEOPLE), torch_rng(0))


def test_no_gradient_and_no_memory_of_drawn_captions():
    model = compass()
    reward = ClipReward(model, references=True)
    first = reward(["red ball", "blue"], PEOPLE, VIEWS)
    assert len(model.held) == len(VIEWS) and len(reward.known) == 4 # pictures and references are kept, captions are not
    assert np.array_equal(reward(["red ball", "blue"], PEOPLE, VIEWS), first)
    assert np.array_equal(reward(["red ball", "blue"], PEOPLE, [model.images([v])[0].float() for v in VIEWS]).round(5), first.round(5))


def test_the_alarm_rings_where_a_captioner_is_made_to_repeat(capfd):
    def stammers(texts, references): return np.array([t.split().count("red")/3 for t in texts])
    alarm = RepetitionAlarm(WORDS, PEOPLE)
    loss = SelfCriticalLoss({"stammers": (stammers, 1.0)}, samples=8, length=8, baseline="leave-one-out", alarm=alarm)
    log = fit(Turn(Chain(), loss, Optim(lr=0.2)), lambda i: BATCH, 40)
    report = alarm.report(log)
    assert report["rang"] and report["usual"] == 0 and report["last"] > report["limit"] == 0.1
    rang = log[(log["term"] == "collapse") & (log["value"] == 1)]["step"]
    assert len(rang) == report["steps above"] and rang.iloc[0] == report["first step"] and report["steps"] == 40
    assert capfd.readouterr().err.count("warning: generated texts repeat themselves") == 1
    still = RepetitionAlarm(WORDS, [["red red red red", "ball"]]) # people who repeat themselves as much
    assert still.usual > 0.3 and not still(0.3)
    with pytest.raises(InputError, match="margin is 0 to 1"): RepetitionAlarm(WORDS, PEOPLE, margin=2)


def test_unfinished_texts_are_judged_without_an_end():
    tokens = torch.tensor([[4, 5, EOS], [4, 5, 5]])
    texts = Generated(tokens, torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool))
    found = _reward_texts(Chain(), texts, [PEOPLE[0]]*2, mixed_reward(0.5, compass(), PEOPLE), VIEWS[:1]*2)
    assert set(found) == {"cider-d", "l-clipscore", "reward"} and np.isfinite(found["reward"]).all()


# runs

def letters_clip(place, seed=0, **changes):
    "A light CLIP of random weights that reads letters."
    import transformers
    letters = [*"abcdefghijklmnopqrstuvwxyz.,", *(c + "</w>" for c in "abcdefghijklmnopqrstuvwxyz.,")]
    words = {w: i for i, w in enumerate(["<|startoftext|>", *letters, "<|endoftext|>"])}
    transformers.CLIPTokenizer(vocab=words, merges=[]).save_pretrained(place)
    config = tiny_lclip(**{"vocabulary": len(words), "context": 96, **changes})
    with seeded(seed): return save_lclip(place, LClip(config), place, Preprocess(32, "crop", "bicubic", CLIP))


@pytest.fixture(scope="module")
def judge(tmp_path_factory): return letters_clip(tmp_path_factory.mktemp("judge"))


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    "A quick recipe that is quicker still."
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    quick = runs.RECIPES["quick"]
    small = replace(quick, likelihood=replace(quick.likelihood, steps=8), reward=replace(quick.reward, steps=5), scenes=(24, 8), longest=14)
    monkeypatch.setitem(runs.RECIPES, "quick", small)
    study._study_parts.cache_clear()
    return tmp_path


def interrupt_at(monkeypatch, step):
    "Ctrl-C while batch `step` of the reward is made."
    plain = runs.text_batches
    def text_batches(*words, **options):
        make = plain(*words, **options)
        def at(i):
            if i == step and "pictures" in options: signal.raise_signal(signal.SIGINT)
            return make(i)
        return at
    monkeypatch.setattr(runs, "text_batches", text_batches)


@pytest.mark.parametrize("references", [False, True])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(references, tiny, judge, monkeypatch):
    options = dict(judge=judge, clip_weight=0.7, references=references, recipe="quick", reps=20)
    whole = runs.supervise(tiny/"whole", **options)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(KeyboardInterrupt): runs.supervise(tiny/"halves", **options)
    halves = runs.supervise(tiny/"halves", **options, resume=True)
    for name in ("captioner.safetensors", "supervised.txt", "likelihood.txt"):
        assert (tiny/"whole"/"training"/name).read_bytes() == (tiny/"halves"/"training"/name).read_bytes()
    pd.testing.assert_frame_equal(whole.log, halves.log)
    pd.testing.assert_frame_equal(whole.results, halves.results)
    assert whole.alarm == halves.alarm and whole.alarm["cut by the judge"] == 0
    name = "refl-clipscore" if references else "l-clipscore"
    assert {name, "cider-d", "collapse"} <= {*whole.log["term"]}


def test_the_judge_of_a_run_may_not_change(tiny, judge):
    runs.supervise(tiny/"run", judge=judge, recipe="quick", reps=20)
    other = letters_clip(tiny/"other", seed=1)
    with pytest.raises(InputError, match="holds another run .*judge"): runs.supervise(tiny/"run", judge=other, recipe="quick", reps=20)


def test_the_command_prints_json(tiny, judge):
    done = cli("lclip", "supervise", "--judge", judge, "--clip-weight", 1, "--recipe", "quick", "--out", "run", "--json", cwd=tiny)
    assert done.returncode == 0, done.stderr
    said, kept = json.loads(done.stdout), load_results(tiny/"run"/"training"/"results.parquet")
    check_output(said)
    scores = said["result"]["scores"]
    assert [(row["system"], row["metric"]) for row in scores] == [*zip(kept.system, kept.metric)]
    assert {row["alpha"] for row in scores} == {None, 1.0} and [row["value"] for row in scores] == pytest.approx(kept.value.tolist(), nan_ok=True)
    assert runs.load_captioner(tiny/said["result"]["captioner"])[1]["model"] == "small"
    assert "alarm for repetition" in cli("lclip", "supervise", "--judge", judge, "--clip-weight", 1, "--recipe", "quick", "--out", "run", cwd=tiny).stdout


def own_pictures(place, n=24, drawn=True):
    scenes = make_scenes(n, 32, seed=8)
    place.mkdir()
    for i, rgb in enumerate(scenes.rgb if drawn else ()): Image.fromarray((255*rgb).byte().permute(1, 2, 0).numpy()).save(place/f"{i}.png")
    rows = [{"image": f"{i}.png", "captions": relation_captions(scenes, i), "split": "test" if i < 4 else "train"} for i in range(n)]
    (place/"captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return place


def test_own_pictures_with_regions_of_a_detector(tiny, judge):
    place = own_pictures(tiny/"own")
    (tiny/"regions").mkdir()
    draw = np.random.default_rng(0)
    for i in range(24): np.savez(tiny/"regions"/f"{i}.npz", feat=draw.normal(size=(3 + i % 4, 12)).astype(np.float32))
    done = runs.supervise(tiny/"run", place, judge, recipe="quick", region_features=tiny/"regions", reps=20)
    assert set(done.results["dataset"]) == {"own"} and set(done.results["n"]) == {4} and "true-all" not in set(done.results["metric"])
    assert runs.load_captioner(tiny/"run"/"training"/"captioner.safetensors")[1]["features"] == 12
    (tiny/"regions"/"7.npz").unlink()
    with pytest.raises(InputError, match="7"): runs.supervise(tiny/"again", place, judge, recipe="quick", region_features=tiny/"regions")
    assert not (tiny/"again").exists()


def test_captions_under_other_names_are_read_by_field_and_id(tiny, judge):
    place = own_pictures(tiny/"renamed")
    rows = [json.loads(line) for line in (place/"captions.jsonl").read_text().splitlines()]
    again = [{"shot": row["image"], "told": row["captions"], "split": row["split"]} for row in rows]
    (place/"captions.jsonl").write_text("\n".join(map(json.dumps, again)))
    (tiny/"regions-of-renamed").mkdir()
    draw = np.random.default_rng(0)
    for i in range(24): np.savez(tiny/"regions-of-renamed"/f"{i}.npz", feat=draw.normal(size=(3, 12)).astype(np.float32))
    words = ["lclip", "supervise", "--data", place, "--judge", judge, "--recipe", "quick", "--region-features", tiny/"regions-of-renamed"]
    refused = cli(*words, "--out", tiny/"by-name", cwd=tiny)
    assert refused.returncode == 2 and "name it: --field target=NAME" in refused.stderr and not (tiny/"by-name").exists()
    done = cli(*words, "--field", "told", "--id", "shot", "--out", tiny/"by-name", cwd=tiny)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tiny/"by-name"/"run.json").read_text())["settings"]
    assert (settings["field"], settings["key"]) == (["told"], ["shot"])
    with pytest.raises(InputError, match="--id has no effect without captions of your own"): runs.supervise(tiny/"run", judge=judge, key=["shot"])


def test_own_pictures_need_a_judge_that_knows_them(tiny):
    with pytest.raises(InputError, match="--data needs a --judge that knows your pictures"): runs.supervise(tiny/"unjudged", tiny, recipe="quick")
    assert not (tiny/"unjudged").exists()


def test_what_cannot_be_supervised_is_refused_in_one_line(tiny, judge):
    without = own_pictures(tiny/"without", drawn=False)
    stranger = letters_clip(tiny/"stranger")
    for path in stranger.glob("*token*"): path.write_text(path.read_text().replace("<|endoftext|>", "<|end|>"))
    cases = [({"clip_weight": 1.5}, "clip_weight is 0 to 1, not 1.5"), ({"clip_weight": -0.1}, "clip_weight is 0 to 1"),
             ({"data": without}, "captioned images are not under"), ({"judge": stranger}, "token"), ({"judge": tiny/"nowhere"}, "nowhere"),
             ({"scales": "equal"}, "unknown scale of rewards"), ({"recipe": "papr"}, "did you mean paper"), ({"model": "smal"}, "did you mean small"),
             ({"region_features": tiny}, "those of your own pictures")]
    for given, says in cases:
        with pytest.raises(InputError, match=says) as refused: runs.supervise(tiny/"run", **{"judge": judge, "recipe": "quick", **given})
        assert "\n" not in str(refused.value) and not (tiny/"run").exists(), given


def test_the_exact_judge_counts_what_is_kept_and_what_is_false():
    scenes = make_scenes(40, 32, seed=3)
    for i in range(40):
        truth, told, stands = caption_truth(scenes, i), relation_captions(scenes, i), scene_relations(scenes, i)
        found = runs._exact_judgments([told[0], f"{told[0]} and {told[1]}", f"{told[0]} and a zebra", "the the"], [truth]*4, [stands]*4)
        assert found["kept-relations"][0] >= 1 and found["kept-relations"][3] == 0 and found["false-claims"].tolist()[:2] == [0, 0]
        assert found["kept-relations"][1] == found["kept-relations"][0] # the same relation from the other side is the same relation
        assert found["true-all"][0] == 1 and found["true-all"][3] == 0
    thing = next(n for n in ("car", "boat", "ball", "tree") if n not in truth.objects)
    assert runs._exact_judgments([f"a red {thing}"], [truth], [stands])["false-claims"][0] == 2 # neither the thing nor its color


def test_a_relation_is_true_of_the_thing_that_is_named():
    "By noun, any ball left of any boat would do; by thing, the color counts where the caption gives one."
    scenes = make_scenes(200, 32, seed=3)
    wrong = 0
    for i in range(200):
        truth, stands = caption_truth(scenes, i), scene_relations(scenes, i)
        nouns = {(s[0], relation, o[0]) for s, relation, o in stands}
        assert nouns == truth.relations
        for noun, relation, other in sorted(r for r in nouns if r[1] in ("left of", "above") and r[0] != "orange"):
            of_noun = {color for n, color in truth.attributes if n == noun}
            right = {s[1] for s, r, o in stands if (s[0], r, o[0]) == (noun, relation, other)}
            texts = [f"a {color} {noun} is {relation} a {other}" for color in sorted(of_noun)]
            judged = runs._exact_judgments(texts, [truth]*len(texts), [stands]*len(texts))
            assert judged["kept-relations"].tolist() == [float(color in right) for color in sorted(of_noun)]
            assert judged["false-claims"].tolist() == [float(color not in right) for color in sorted(of_noun)]
            wrong += len(of_noun - right)
    assert wrong > 20 # there are such captions


def test_a_study_goes_on_where_it_stopped(tiny, judge, monkeypatch):
    twin = letters_clip(tiny/"twin", seed=1)
    options = dict(scale="quick", seeds=1, workers=0, student=judge, twin=twin, teacher=judge, systems=("l-clipscore", "twin-l-clipscore"))
    whole = study.reward_study(tiny/"whole", **options)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        with pytest.raises(KeyboardInterrupt): study.reward_study(tiny/"halves", **options)
    assert not (tiny/"halves"/"rewards.json").exists()
    halves = study.reward_study(tiny/"halves", **options)
    for name in ("results", "answers", "cross"): pd.testing.assert_frame_equal(getattr(whole, name), getattr(halves, name))
    assert len(halves.examples) == 6 and {*halves.examples[0]["captions"]} == {"people", "likelihood", "l-clipscore", "twin-l-clipscore"}
    alarms = halves.meta["alarms"]
    assert set(alarms) == {"l-clipscore-s0", "twin-l-clipscore-s0"} and all(a["steps"] == 5 for a in alarms.values())


def test_own_judge_advantage_cancels_what_both_judges_see():
    "Two judges, two captioners: what makes one captioner better for everybody drops out, what each judge grants its own stays."
    class Told:
        seeds, n = range(1), 4
        def values(self, system, metric):
            better = {study._LIKELIHOOD: 0.0, "one": 3.0, "other": 1.0}[system]
            return np.full((1, 3), better + (0.25 if system == metric else 0.0))
    own, others = study._advantage(Told(), "one", "other")
    assert np.allclose(own - others, 0.25)
    found = study._compared(own, others, 4)
    assert np.isclose(found["difference"], 0.25) and found["seed_low"] == found["seed_high"]
