"IMAGINE: the scores against the paper's printed numbers and direct formulas; sums with metrics, their gains and learned weights; texts to scores."
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from commands import cli

from invariant_metrics.experiments.command import _parse_options
from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.data.judgment_tables import metric_table
from invariant_metrics.encoders.cache import cached_rows, list_cache
from invariant_metrics.encoders.image_text import TextTokens, image_text
from invariant_metrics.files import digest
from invariant_metrics.generators.generator import derived_seeds, get_generator
from invariant_metrics.generators.kept_pictures import imagined
from invariant_metrics.imagine.combine import _CIDER_SCALES, combination_gains, combine, correlation_over_seeds, unit_scale
from invariant_metrics.metrics.metric import extract, get_metric, metric_cards
from invariant_metrics.metrics.imagined import IMAGE_RANGE, TEXT_IMAGE_RANGE, ImagineModel, _best_references, generator_options, image_scores
from invariant_metrics.metrics.imagined import imagine_vectors, imagined_vectors, seed_deviation, stretch_cosines, text_image_scores
from invariant_metrics.scoring.score import score
from invariant_metrics.worlds.foils import foil_rows
from invariant_metrics.worlds.scene_captions import scenes_with_captions, relation_captions

NAMES = ("imagine-image", "imagine-text-image")
BALL, AGAIN, WRONG = "a red ball is left of a boat", "there is a boat right of a red ball", "a green car is behind a house"


def unit(*shape, seed=0) -> torch.Tensor:
    x = torch.from_numpy(rng(seed, "unit vectors", *shape).standard_normal(shape))
    return x/x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("cosine, ends, printed", [(0.9208, IMAGE_RANGE, 91.2), (0.2911, TEXT_IMAGE_RANGE, 63.7), (0.1716, TEXT_IMAGE_RANGE, 23.85)])
def test_printed_numbers_of_the_paper(cosine, ends, printed):
    assert 100*stretch_cosines(torch.tensor(cosine), ends).item() == pytest.approx(printed, abs=0.05)
    swapped = TEXT_IMAGE_RANGE if ends == IMAGE_RANGE else IMAGE_RANGE # as the appendix has them
    assert abs(100*stretch_cosines(torch.tensor(cosine), swapped).item() - printed) > 10


def test_scores_are_their_formulas():
    v1, v2, t1, t2 = unit(6, 3, 8), unit(6, 3, 8, seed=1), unit(6, 8, seed=2), unit(6, 8, seed=3)
    pictures, crossed = image_scores(v1, v2), text_image_scores(v1, v2, t1, t2)
    for i in range(6):
        for s in range(3):
            assert pictures[i, s] == pytest.approx((float(v1[i, s] @ v2[i, s]) - 0.1)/0.9, abs=1e-12)
            mean = (float(t1[i] @ v2[i, s]) + float(t2[i] @ v1[i, s]))/2
            assert crossed[i, s] == pytest.approx((mean - 0.1)/0.3, abs=1e-12)
    assert image_scores(v1, v1).sub(1).abs().max() < 1e-12
    assert torch.allclose(text_image_scores(v2, v1, t2, t1), crossed)     # neither side is special


def test_clipping_is_a_choice_and_comes_after_the_mean_of_the_cosines():
    far, near = torch.tensor([[[1., 0.]]]), torch.tensor([[1., 0.]])
    against = torch.tensor([[-1., 0.]])
    assert text_image_scores(far, far, near, against).item() == pytest.approx(-1/3, abs=1e-6) # cosines 1 and −1: their mean is 0
    assert text_image_scores(far, far, near, against, clip=True).item() == 0
    assert text_image_scores(far, far, near, near).item() == pytest.approx(3, abs=1e-6)
    assert text_image_scores(far, far, near, near, clip=True).item() == 1
    assert image_scores(far, -far).item() == pytest.approx(-1.1/0.9, abs=1e-6)


def test_one_reference_is_kept_for_all_seeds():
    draws = torch.from_numpy(rng(0, "references").standard_normal((50, 4, 5)))
    best = _best_references([*draws])
    for i in range(50):
        means = draws[i].mean(1)
        assert torch.equal(best[i], draws[i, int(means.argmax())])
    lucky = draws.amax(1) # another reference for each seed
    assert (best.mean(1) <= lucky.mean(1)).all() and best.mean() < lucky.mean() - 0.3
    assert torch.allclose(seed_deviation(best), torch.from_numpy(best.numpy().std(1, ddof=1)))


def test_every_metric_has_a_scale_or_a_reason():
    texts = [c for c in metric_cards() if c["inputs"] == "texts" and c["kind"] != "set"]
    scales, reasons = {}, {}
    for card in texts:
        try: scales[card["name"]] = unit_scale(card["name"])
        except InputError as error: reasons[card["name"]] = str(error)
    assert {"bleu-4", "rouge-l", "meteor-nltk", "cider", "bertscore", "div-2", "chrf", "distinct-2"} <= set(scales)
    assert scales["chrf"].top == 100 and scales["bleu-1"].top == 1 and scales["cider"].top == 10
    assert {"ter", "bleurt", "comet", "violation-entities"} <= set(reasons)
    assert all("tops={" in why for name, why in reasons.items())
    given = {name: unit_scale(name, tops={name: 2.}) for name in reasons}
    assert all(scale.top == 2 for scale in given.values()) and given["ter"].turned


def test_a_sum_is_refused_where_it_would_mean_nothing():
    for values, metric, says in ([21.5], "bleu-4", "multiplied by 100"), ([np.nan], "bleu-4", "nan is outside"), ([-0.1], "rouge-l", "-0.1 is outside"):
        with pytest.raises(InputError, match=says): combine(metric, values, [0.5])
    with pytest.raises(InputError, match="not finite"): combine("bleu-4", [0.5], [np.inf])
    with pytest.raises(InputError, match="one of each"): combine("bleu-4", [0.5, 0.1], [[0.5, 0.2]])
    with pytest.raises(InputError, match="compares sets"): combine("fbd", [0.5], [0.5])


def test_raw_cider_hardly_notices_what_is_added():
    "As in the paper's first table, where its deviation over seeds is a fraction of the others'."
    draw = rng(0, "cider")
    quality = draw.standard_normal(400)
    people, cider = quality + draw.standard_normal(400), (2 + 2*quality + 2*draw.standard_normal(400)).clip(0, 10)
    imagine = 0.6 + 0.1*(quality[:, None] + draw.standard_normal((400, 5)))
    found = {scale: correlation_over_seeds(people, combine("cider", cider, imagine, cider=scale)) for scale in _CIDER_SCALES}
    assert found["raw"].deviation < 0.2*found["tenth"].deviation
    alone = np.corrcoef(people, cider)[0, 1]
    assert abs(found["raw"].mean - alone) < 0.2*abs(found["tenth"].mean - alone)


def test_correlation_of_a_sum_is_that_of_its_parts():
    "r(h, a + b) = (r_a·s_a + r_b·s_b)/s_{a+b}"
    draw = rng(1, "parts")
    human, a, b = draw.standard_normal(60), draw.uniform(0, 1, 60), draw.standard_normal((60, 3))
    found = correlation_over_seeds(human, combine("bleu-4", a, b))
    for s in range(3):
        r = [np.corrcoef(human, x)[0, 1]*x.std() for x in (a, b[:, s])]
        assert found.each[s] == pytest.approx(sum(r)/(a + b[:, s]).std(), abs=1e-12)
    assert str(found) == f"{100*found.each.mean():.2f}±{100*found.each.std(ddof=1):.2f}"
    assert "±" not in str(correlation_over_seeds(human, b[:, :1]))


def test_gains_are_found_where_they_are_and_rarely_where_they_are_not():
    wrong, right = 0, 0
    for k in range(40):
        draw = rng(k, "gains")
        quality = draw.standard_normal(300)
        people, metric = quality + draw.standard_normal(300), quality + 1.5*draw.standard_normal(300)
        idle = 0.5*draw.standard_normal(300) # knows nothing, and is small
        useful = quality + 1.5*draw.standard_normal(300)
        found = combination_gains(people, {"m": metric}, {("m", "idle"): metric + idle, ("m", "useful"): metric + useful}, reps=200, seed=k)
        verdict = dict(zip(found.added, found.verdict))
        wrong, right = wrong + (verdict["idle"] == "better"), right + (verdict["useful"] == "better")
    assert wrong <= 3 and right >= 28, (wrong, right)


def test_holm_covers_all_sums_and_groups_are_drawn_together():
    draw = rng(5, "holm")
    people = draw.standard_normal(80)
    alone = {name: people + draw.standard_normal(80) for name in "ab"}
    sums = {(m, what): (alone[m] + 0.2*people)[:, None] + 0.3*draw.standard_normal((80, 4)) for m in "ab" for what in "xyz"}
    found = combination_gains(people, alone, sums, reps=300)
    order = np.argsort(found.p.to_numpy())
    expected = np.minimum(np.maximum.accumulate(found.p.to_numpy()[order]*np.arange(6, 0, -1)), 1)
    assert np.allclose(found.p_holm.to_numpy()[order], expected)
    twins = combination_gains(np.tile(people, 2), {m: np.tile(x, 2) for m, x in alone.items()}, {k: np.tile(x, (2, 1)) for k, x in sums.items()},
                              reps=300, group=np.tile(np.arange(80), 2))
    apart = combination_gains(np.tile(people, 2), {m: np.tile(x, 2) for m, x in alone.items()}, {k: np.tile(x, (2, 1)) for k, x in sums.items()}, reps=300)
    width = lambda frame: (frame.gain_high - frame.gain_low).mean()
    assert width(twins) == pytest.approx(width(found), rel=0.15) and width(apart) < 0.8*width(found)


class Patches:
    "Colored patches that say nothing; counts what it is asked, and reads six words."
    name, size, language = "patches", (8, 8), ""
    tokens = TextTokens(lambda texts: [[0, *(2 + len(w) for w in t.split()), 1] for t in texts], 8, "words")
    def __init__(self): self.asked = []
    def describe(self): return {"generator": self.name, "recipe": "1"}
    def __call__(self, texts, seeds):
        self.asked += zip(texts, seeds)
        return torch.stack([torch.from_numpy(rng(s, t).integers(0, 256, (3, 8, 8), dtype=np.uint8)) for t, s in zip(texts, seeds)])


@pytest.fixture(scope="module")
def judge(): return image_text("embedded-clip")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_vectors_are_those_of_the_pictures_of_each_side(judge, tmp_path):
    "Everything by hand: pictures of the derived seeds, the judge's vectors, the two formulas."
    exact = get_generator("exact")
    model = ImagineModel(exact, judge, seeds=2, folder=tmp_path)
    made = imagine_vectors(model, [AGAIN, WRONG], [[BALL], [BALL]])
    pred, target = (derived_seeds(0, 2, side) for side in ("pred", "target"))
    v1 = torch.stack([judge.images([p.float()/255 for p in exact([t]*2, pred)]) for t in (AGAIN, WRONG)])
    v2 = judge.images([p.float()/255 for p in exact([BALL]*2, target)])
    t1, t2 = judge.texts([AGAIN, WRONG])[0], judge.texts([BALL])[0]
    for i in range(2):
        for s in range(2):
            assert made.image_scores()[i, s] == pytest.approx((float(v1[i, s] @ v2[s]) - 0.1)/0.9, abs=1e-5)
            assert made.text_image_scores()[i, s] == pytest.approx((float(t1[i] @ v2[s] + t2[0] @ v1[i, s])/2 - 0.1)/0.3, abs=1e-5)


def test_nothing_is_drawn_or_looked_at_twice(judge, tmp_path, monkeypatch):
    patches, looked = Patches(), []
    model = ImagineModel(patches, judge, seeds=3, folder=tmp_path)
    original = type(judge).images
    monkeypatch.setattr(type(judge), "images", lambda self, pictures: (looked.append(len(pictures)), original(self, pictures))[1])
    first = imagine_vectors(model, ["a b", "c d", "a b"], [["e f"], ["a b", "c"], ["e f"]])
    assert len(patches.asked) == len(set(patches.asked)) == sum(looked) == 3*2 + 3*3
    again = imagine_vectors(model, ["a b", "c d", "a b"], [["e f"], ["a b", "c"], ["e f"]], texts=False)
    assert len(patches.asked) == 15 and sum(looked) == 15 and torch.equal(again.image_scores(), first.image_scores())
    more = ImagineModel(patches, judge, seeds=4, folder=tmp_path)       # another seed costs its own pictures
    wider = imagine_vectors(more, ["a b", "c d", "a b"], [["e f"], ["a b", "c"], ["e f"]])
    assert len(patches.asked) == 20 and torch.equal(wider.pred[:, :3], first.pred)
    imagine_vectors(ImagineModel(patches, judge, seeds=3, seed=1, folder=tmp_path), ["a b"], [["e f"]])
    assert len(patches.asked) == 26


def test_another_list_of_texts_costs_only_what_is_new(judge, tmp_path, monkeypatch):
    patches, looked, read = Patches(), [], []
    images, texts = type(judge).images, type(judge).texts
    monkeypatch.setattr(type(judge), "images", lambda self, pictures: (looked.append(len(pictures)), images(self, pictures))[1])
    monkeypatch.setattr(type(judge), "texts", lambda self, some, **how: (read.append(len(some)), texts(self, some, **how))[1])
    model = ImagineModel(patches, judge, seeds=2, folder=tmp_path)
    first = imagine_vectors(model, ["a b", "c d"], ["e f", "g h"])
    assert (len(patches.asked), sum(looked), sum(read)) == (8, 8, 4)
    again = imagine_vectors(model, ["c d", "i j", "a b"], ["g h", "e f", "e f"]) # one more text, and another order
    assert (len(patches.asked), sum(looked), sum(read)) == (10, 10, 5)
    assert torch.equal(again.pred[[2, 0]], first.pred) and torch.equal(again.target_texts[[1, 0]], first.target_texts)
    kinds = {row["kind"].rsplit("-", 1)[0]: row["files"] for row in list_cache(tmp_path)}
    assert kinds == {"pictures": 3, "imagine-pictures": 3, "imagine-texts": 2}


def test_rows_of_other_settings_are_not_believed_under_any_name(tmp_path):
    make = lambda value: lambda rows: torch.full((len(rows), 2), value)
    cached_rows("vectors", {"judge": "one"}, ["a", "b"], make(1.), tmp_path)
    file, = tmp_path.iterdir()
    file.rename(tmp_path/file.name.replace(digest({"judge": "one"}), digest({"judge": "two"})))
    with pytest.warns(UserWarning, match="damaged"): other = cached_rows("vectors", {"judge": "two"}, ["b", "a"], make(2.), tmp_path)
    assert torch.equal(other, torch.full((2, 2), 2.)) and len([*tmp_path.iterdir()]) == 1
    assert torch.equal(cached_rows("vectors", {"judge": "two"}, ["a"], make(3.), tmp_path), torch.full((1, 2), 2.))


def test_sides_that_do_not_match_are_refused_before_anything_is_drawn(judge, tmp_path):
    patches = Patches()
    model = ImagineModel(patches, judge, seeds=1, folder=tmp_path)
    for wrong, says in ((lambda: imagine_vectors(model, ["a"], ["b", "c"]), "1 predictions against references of 2"),
                        (lambda: imagine_vectors(model, "a", ["b"]), "not one string"), (lambda: imagine_vectors(model, ["a"], [[]]), "1 items have no reference"),
                        (lambda: imagine_vectors(model, ["a"], ["b"], side="pred"), "unknown side"), (lambda: imagine_vectors(model, [], []), "no texts"),
                        (lambda: imagine_vectors(model, ["a", "b"], [["c", "d"], ["e", "?"]]), r"targets: 1 of 4 texts say nothing that can be drawn: 1 \(")):
        with pytest.raises(InputError, match=says): wrong()
    assert not patches.asked and not [*tmp_path.iterdir()]
    alone = imagine_vectors(model, ["a"], ["b c"])
    assert torch.equal(alone.target, imagine_vectors(model, ["a"], [["b c"]]).target) and alone.many == (1,) # a text is one reference, not letters


def test_long_texts_are_refused_cut_or_split_and_counted(judge, tmp_path):
    texts = ["one two. three four five six seven", "eight nine"]
    ways = {long: ImagineModel(Patches(), judge, seeds=2, long=long, folder=tmp_path) for long in ("refuse", "cut", "split")}
    with pytest.raises(InputError, match="1 texts have more than 8 tokens"): imagined_vectors(ways["refuse"], texts)
    cut = imagined_vectors(ways["cut"], texts)
    assert torch.allclose(cut[0], judge.images(imagined(Patches(), texts[:1], derived_seeds(0, 2), tmp_path, long="cut")[0].float()/255), atol=1e-6)
    split = imagined_vectors(ways["split"], texts)
    pieces = imagined(Patches(), ["one two.", "three four five six seven"], derived_seeds(0, 2), tmp_path).float()/255
    for s in range(2):
        mean = judge.images([*pieces[:, s]]).mean(0)
        assert torch.allclose(split[0, s], mean/mean.norm(), atol=1e-6)
    made = imagine_vectors(ways["split"], texts, [[t] for t in texts[::-1]])
    assert made.notes == ("1 of 2 texts have more than the generator's 8 tokens and were split, and the vectors of their parts averaged",)
    assert not imagine_vectors(ways["split"], texts[1:], [texts[1:]]).notes


@pytest.mark.parametrize("name", NAMES)
def test_the_contract_of_a_metric_on_scenes(name):
    scenes = scenes_with_captions(12, seed=3)
    said = [relation_captions(scenes, i) for i in range(12)]
    target, same, light = [(s[0],) for s in said], [s[0] for s in said], [s[1] for s in said]
    heavy = [s[0] for s in [*said[1:], said[0]]]
    metric = get_metric(name, generator="exact", seeds=2)
    rows = {k: extract([metric], pred, target)[name] for k, pred in dict(same=same, light=light, heavy=heavy).items()}
    same_v, light_v, heavy_v = (metric.statistic(rows[k]) for k in ("same", "light", "heavy"))
    assert min(same_v, light_v) > heavy_v + 0.2 and abs(same_v - light_v) < 0.1, (same_v, light_v, heavy_v) # other words, the same scene
    if name == "imagine-image":
        shared = get_metric(name, generator="exact", seeds=2, shared=True)
        assert shared.statistic(extract([shared], same, target)[name]) == pytest.approx(1, abs=1e-6)
    order = [7, 3, 11, 0, 1, 2, 4, 5, 6, 8, 9, 10]
    shuffled = extract([metric], [light[i] for i in order], [target[i] for i in order])[name].pred
    assert np.allclose(shuffled, rows["light"].pred[order], atol=1e-6)
    alone = extract([metric], light[4:5], target[4:5])[name].pred
    assert np.allclose(alone, rows["light"].pred[4:5], atol=1e-6)
    parts = dict(metric.signature.items)
    assert Signature.parse(str(metric.signature)) == metric.signature
    assert (parts["generator"], parts["seeds"], parts["long"], parts["side"]) == ("exact", "2", "refuse", "target")
    assert all(metric.card.get(k) for k in ("measures", "range", "inputs", "weights", "cite")) and metric.card["target"] == "references"


def test_everything_that_shapes_a_number_is_in_its_signature():
    usual = get_metric("imagine-image", generator="exact")
    others = dict(seeds=3, seed=1, shared=True, long="cut", clip=True, size=32)
    for option, value in others.items():
        other = get_metric("imagine-image", generator="exact", **{option: value})
        assert usual.signature.differences(other.signature), option
        assert option == "clip" or usual.phi_key != other.phi_key, option
    assert usual.signature.differences(get_metric("imagine-image", generator="noise").signature)
    assert {"size", "of", "number"} <= set(generator_options()) and not {"device", "weights"} & set(generator_options())


def test_controls_say_nothing_of_texts():
    scenes = scenes_with_captions(10, seed=4)
    said = [relation_captions(scenes, i) for i in range(10)]
    target, true, false = [(s[0],) for s in said], [s[1] for s in said], [s[0] for s in [*said[1:], said[0]]]
    def value(name, pred, **options):
        metric = get_metric(name, seeds=2, **options)
        return metric.statistic(extract([metric], pred, target)[name])
    assert value("imagine-image", false, generator="one-picture") == pytest.approx(1, abs=1e-6)
    assert abs(value("imagine-image", true, generator="noise") - value("imagine-image", false, generator="noise")) < 0.05
    assert value("imagine-image", true, generator="exact") > value("imagine-image", false, generator="exact") + 0.2


def test_the_other_side_may_be_the_source():
    free = [get_metric(f"{name}-source", generator="exact", seeds=2) for name in NAMES]
    found = extract(free, [AGAIN, WRONG], source=[BALL, BALL])
    for metric in free:
        assert found[metric.name].pred[0] > found[metric.name].pred[1] and not metric.compares and metric.card["source"] == "texts"
        assert dict(metric.signature.items)["side"] == "source"
    with pytest.raises(InputError, match="needs the texts"): extract(free, [AGAIN])
    assert score([AGAIN, WRONG], metrics=["imagine-image-source"], source=[BALL, BALL], metric_options={"seeds": 2}, ci=False)["imagine-image-source"].n == 2


def test_bad_input_is_a_line():
    for options, says in (dict(generator="exakt"), "did you mean exact"), (dict(steps=9), "takes no option 'steps'"), (dict(seeds=0), "seeds is 1"), \
            (dict(long="crop"), "unknown way with long texts"), (dict(language="warm"), "unknown way with other"), (dict(generator_weights="sd"), "has no weights"), \
            (dict(size=4), "size is 8"):
        with pytest.raises(InputError, match=says): get_metric("imagine-image", **{"generator": "exact", **options})
    metric = get_metric("imagine-image", generator="exact", seeds=1)
    with pytest.raises(InputError, match=re.escape("predictions: 1 of 2 texts say nothing that can be drawn: 1 (counted from 0)")): extract([metric], [BALL, "?!"], [BALL, BALL])
    with pytest.raises(InputError, match="targets: 1 of 3 texts"): extract([metric], [BALL, BALL], [(BALL, ""), (BALL,)])
    german = ["ein roter Ball liegt links von einem Boot"]
    assert "probably not English" in " ".join(extract([metric], german, [BALL])["imagine-image"].notes)
    with pytest.raises(InputError, match="probably not English"): extract([get_metric("imagine-image", generator="exact", seeds=1, language="refuse")], german, [BALL])


def own_generator(level: int = 0):
    "A gray picture, as somebody's own package might draw it."
    class Gray:
        name, size, tokens, language = "gray", (8, 8), None, ""
        def describe(self): return {"generator": self.name, "level": str(level)}
        def __call__(self, texts, seeds): return torch.full((len(texts), 3, 8, 8), level, dtype=torch.uint8)
    return Gray()


def test_options_reach_the_generator_as_a_command_gives_them():
    for given, part in ((["generator=diffusion", "steps=2", "scheduler=dpm-solver", "guidance=1"], ("generator-steps", "2")),
                        (["generator=test_imagine_scores:own_generator", "level=7"], ("generator-level", "7")), (["generator=noise", "of=scenes"], ("generator-of", "scenes"))):
        found = score([AGAIN], [BALL], "imagine-image", metric_options=_parse_options([*given, "seeds=1"]), ci=False)["imagine-image"]
        assert dict(found.signature.items)[part[0]] == part[1]
    with pytest.raises(InputError, match="stps has no effect on imagine-image; leave it out, they take generator, .*steps"):
        score([AGAIN], [BALL], "imagine-image", metric_options={"generator": "diffusion", "stps": "2"})
    with pytest.raises(InputError, match="unknown generator 'difusion'; did you mean diffusion"):
        score([AGAIN], [BALL], "imagine-image", metric_options={"generator": "difusion"})


def test_a_command_prints_the_deviation_and_writes_it_for_each_item(tmp_path):
    (tmp_path/"hyp.txt").write_text(f"{AGAIN}\n{WRONG}\nThe council met.\n")
    (tmp_path/"ref.txt").write_text(f"{BALL}\n{BALL}\n{BALL}\n")
    line = ["score", ",".join([*NAMES, "bleu-1"]), "--pred", "hyp.txt", "--target", "ref.txt", *(w for o in ("generator=exact", "seeds=3", "size=32") for w in ("--option", o))]
    done = cli(*line, "--per-item", "values.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert re.search(r"imagine-image: over 3 seeds: the mean -?\d\.\d{4} ± 0\.\d{4}, one item ± 0\.\d{4}", told.replace("\n", " ")), told
    assert "of the words, none in 1 of 4 texts" in told.replace("\n", " ")
    table = pd.read_parquet(tmp_path/"values.parquet").set_index("metric")
    assert (table.loc["imagine-image", "deviation"] > 0).all() and table.loc["bleu-1", "deviation"].isna().all()
    assert set(metric_table(tmp_path/"values.parquet")["metric"]) == {*NAMES, "bleu-1"}
    kept = json.loads(cli(*line, "--json", cwd=tmp_path).stdout)["result"]["scores"]["hyp"]
    found = score([AGAIN, WRONG, "The council met."], [BALL]*3, NAMES, metric_options=dict(generator="exact", seeds=3, size=32), ci=False)
    for name in NAMES:
        assert kept[name]["value"] == pytest.approx(found[name].value, abs=1e-6)
        assert found[name].deviation == pytest.approx(table.loc[name, "deviation"].to_numpy(), abs=1e-6)
