"The studies of L-CLIP: graded captions by hand, answers and draws, one tiny study from start to page, what goes on and what is refused."
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kendalltau

from tiny_networks import save_clip
from invariant_metrics.commands import lclip_commands as lclip, score_commands as score # they put `lclip` and `report` on the application
from invariant_metrics.core import InputError
from invariant_metrics.experiments.contrast import difference_verdict
from invariant_metrics.lclip import compression_study as study, reward_study, run_lclip as run
from invariant_metrics.lclip.compress import STUDY_SEEDS
from invariant_metrics.lclip.run_lclip import lclip_study, save_csv
from invariant_metrics.lclip.lclip_report import _collapse_answers, _lclip_message, lclip_report, _preference_answers, _relation_answer, write_lclip_page
from invariant_metrics.training.image_text_training import right_ranks
from invariant_metrics.worlds.scene_captions import SceneTruth, judge_captions
from commands import cli

TINY = study.CompressionSize(scenes=12, steps=2, pair_steps=2, batch=4, test=12, graded=10, reps=30, rounds=1)
EVIL = "<script>alert(1)</script>"


def test_the_quality_of_a_graded_caption_is_the_share_of_its_claims_that_is_true():
    truth = SceneTruth(frozenset({"ball", "car"}), frozenset({("ball", "red"), ("car", "blue")}), frozenset({("ball", "left of", "car")}))
    texts = {"a red ball is to the left of a blue car": 5/5, "a red ball is to the left of a green car": 4/5, # a color
             "a red ball is to the right of a blue car": 4/5,                                               # the relation
             "a red ball is to the left of a blue boat": 2/5, "a red tree is to the right of a green car": 1/5} # a thing; all three
    assert judge_captions([*texts], [truth]*5)["all"] == pytest.approx([*texts.values()])
    graded = study._graded_captions(30, seed=3)
    assert set(graded.broken) == {0, 1, 2, 3} and (graded.quality[graded.broken == 0] == 1).all() and (graded.quality[graded.broken > 0] < 1).all()
    assert len(graded.pictures) == graded.scene.max() + 1 and (np.bincount(graded.scene) >= 3).all() and len(set(graded.texts)) > len(graded.texts)*.9
    means = [graded.quality[graded.broken == level].mean() for level in range(4)]
    assert means == sorted(means, reverse=True)
    again = study._graded_captions(30, seed=3)
    assert again.texts == graded.texts and (again.quality == graded.quality).all()


def test_ranks_count_equal_captions_as_right_and_ties_against():
    similarity = torch.tensor([[.5, .9, .5], [.2, .2, .1], [.1, .2, .3]])
    assert right_ranks(similarity, ["a", "b", "a"]) == [2, 2, 1]
    assert right_ranks(similarity.T, ["a", "b", "a"]) == [1, 3, 1]


def test_measures_are_those_of_scipy_and_of_counting():
    bench, draw = study._make_bench(20, 15), np.random.default_rng(0)
    scores, leads = draw.random(len(bench.graded.texts)), draw.normal(0, 1, len(bench.foils))
    vectors = draw.standard_normal((20, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    answers = {"image-to-text": np.arange(1, 21), "text-to-image": np.full(20, 3), "foils": leads, "graded": scores, "graded-blind": -scores,
               "images": vectors, "texts": -vectors}
    teacher = {"images": vectors, "texts": vectors}
    draws = study._scene_draws(bench, 50)
    found = {name: held for name, held in study.measure(answers, teacher, bench, draws).items()}
    first = {name: held[0] for name, held in found.items()}
    assert first["image-to-text@1"] == .05 and first["image-to-text@5"] == .25 and (found["text-to-image@5"] == 1).all()
    assert first["tau-b"] == pytest.approx(kendalltau(bench.graded.quality, scores).statistic)
    assert first["tau-c"] == pytest.approx(kendalltau(bench.graded.quality, scores, variant="c").statistic)
    assert [first[f"{tau}-blind"] for tau in ("tau-b", "tau-c", "tau-b-within")] == pytest.approx([-first[tau] for tau in ("tau-b", "tau-c", "tau-b-within")])
    kinds = [np.mean(leads[bench.foils["kind"] == kind] > 0) for kind in study.FOIL_KINDS]
    assert first["foils"] == pytest.approx(np.mean(kinds)) and first["foils-side"] == pytest.approx(kinds[3])
    assert first["teacher-images"] == pytest.approx(1) and first["teacher-texts"] == pytest.approx(-1)
    weights = draws[0][7]                                     # one draw, counted by hand: each scene as often as it was drawn
    assert found["image-to-text@5"][7] == pytest.approx(weights[:5].sum()/20) and (draws[0].sum(1) == 20).all()


def test_a_difference_is_sure_only_where_interval_and_seeds_agree():
    def shown(low, high, *seeds): return difference_verdict(dict(ci_low=low, ci_high=high, seed_low=min(seeds), seed_high=max(seeds)))
    assert [shown(.1, .3, .1, .2), shown(-.3, -.1, -.4, -.1)] == ["better", "worse"]
    assert [shown(-.1, .3, .1, .2), shown(.1, .3, -.1, .4)] == ["not shown"]*2


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    "The part of compression, tiny, in this process; the sizes stay tiny while these tests run."
    place = tmp_path_factory.mktemp("l-clip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(study._COMPRESSION_SIZES, "quick", TINY)
        patch.setenv("INVARIANT_METRICS_QUIET", "1")
        teacher = save_clip(place/"teacher")
        lclip_study(["compression"], out=place/"run", teacher=teacher, seeds=1, scale="quick", workers=0)
        yield SimpleNamespace(place=place, out=place/"run", teacher=teacher)


def test_a_tiny_study_has_a_row_for_every_student(ran):
    found = study.CompressionStudy.load(ran.out/"compression")
    systems = [study.TEACHER, *(row.name for row in study.STUDENT_ROWS)]
    assert list(found.summary["system"].unique()) == systems and list(found.summary["measure"].unique()) == list(study.CLIP_MEASURES)
    assert set(found.results["system"]) == set(systems) and found.results["signature"].str.contains("teacher:").all()
    assert [tuple(pair) for pair in found.differences[["system", "against"]].drop_duplicates().to_numpy()] == list(study._CONTRASTS)
    assert list(found.sizes["system"]) == ["teacher", "WP", "WP+MD"] and (found.sizes[["ms_128", "ms_1", "megabytes"]] > 0).all(axis=None)
    alike = found.summary[(found.summary["system"] == study.TEACHER) & found.summary["measure"].str.startswith("teacher")]
    assert alike["value"].to_numpy() == pytest.approx(1)
    steps = found.losses.groupby("system")["step"].max()
    assert set(steps) == {TINY.pair_steps - 1} and len(steps) == 8 # all rows with a second stage take the same steps
    begun = pd.concat(pd.read_parquet(path) for path in (ran.out/"compression"/"towers").glob("*/log.parquet"))
    assert set(begun["tower"]) == {"vision", "text-full", "text-factorized"} # shared by all rows


def test_students_are_folders_that_commands_take(ran):
    from invariant_metrics.encoders.image_text import image_text
    model = image_text(ran.out/"compression"/"students"/"l-clip-s0"/"weights")
    vectors, over = model.texts(["a red ball is on green grass"])
    assert vectors.shape == (1, 32) and over == 0


def test_rows_begin_from_the_same_towers(ran):
    from safetensors.torch import load_file
    def stored(name): return load_file(ran.out/"compression"/"students"/name/"weights"/"lclip.safetensors")
    full, factorized, trained = stored("wp-before-stage-2-s0"), stored("wp-md-before-stage-2-s0"), stored("l-clip-s0")
    vision = [name for name in full if name.startswith("vision.")]
    assert all(torch.equal(full[name], factorized[name]) for name in vision)
    assert not all(torch.equal(full[name], trained[name]) for name in vision)
    assert all(torch.equal(factorized[name], trained[name]) for name in factorized if name.startswith("text.")) # frozen in stage 2


def test_the_page_is_written_again_from_stored_results(ran):
    page = write_lclip_page(ran.out)
    text = page.read_text(encoding="utf-8")
    for heading in ("What was found, in sentences", "Does the similarity regulator help?", "What is saved?", "What is lost, and what is kept?", "Glossary"):
        assert heading in text
    assert "invariant-metrics lclip study" in text and "contrastive ×100" in text and text.count("<svg") == 3
    page.unlink()
    done = cli("report", ran.out, cwd=ran.place)
    assert done.returncode == 0 and page.read_text(encoding="utf-8") == text, done.stderr
    assert not re.search(r'(src|href)="(?!#|data:|compression/|rewards/|run\.json)', text) # nothing comes from elsewhere


def test_a_finished_part_is_read_and_a_lost_piece_is_made_again(ran):
    before = study.CompressionStudy.load(ran.out/"compression")
    meta = json.loads((ran.out/"run.json").read_text())
    again = lclip_study(["compression"], out=ran.out, teacher=ran.teacher, seeds=1, scale="quick", workers=0)
    assert again.meta["parts"] == meta["parts"]
    for lost in ("compression.json", "students/l-clip-s0/answers.safetensors", "students/l-clip-s0/training/checkpoint.safetensors"):
        (ran.out/"compression"/lost).unlink()
    steps, done = study.CompressionWork(ran.out/"compression", ran.teacher, TINY).steps()
    assert steps - done == TINY.pair_steps
    made = study.compression_study(ran.out/"compression", teacher=ran.teacher, size=TINY, seeds=1, workers=0)
    pd.testing.assert_frame_equal(made.summary, before.summary)
    pd.testing.assert_frame_equal(made.differences, before.differences)


def test_tables_are_written_as_csv(ran, tmp_path):
    files = save_csv(ran.out, tmp_path/"tables")
    assert [f.name for f in files] == ["compression_sizes.csv", "compression_summary.csv", "compression_differences.csv"]
    assert len(pd.read_csv(files[1])) == 11*len(study.CLIP_MEASURES)


def test_wrong_arguments_are_refused_before_anything_is_written(ran, tmp_path):
    out = tmp_path/"new"
    for options, says in (({"parts": ["speed"]}, "unknown part"), ({"parts": []}, "no part to run"), ({"scale": "huge"}, "unknown scale"),
                          ({"seeds": 0}, "seeds"), ({"teacher": str(tmp_path)}, str(tmp_path)[:20]), ({"device": "tpu"}, "tpu")):
        with pytest.raises(InputError, match=re.escape(says)): lclip_study(out=out, **{"teacher": ran.teacher, **options})
    assert not out.exists()
    with pytest.raises(InputError, match="holds another run"): lclip_study(["compression"], out=ran.out, teacher=ran.teacher, seeds=2, scale="quick")
    with pytest.raises(InputError, match="other settings"): study.compression_study(ran.out/"compression", teacher=ran.teacher, size=replace(TINY, steps=3))
    with pytest.raises(InputError, match="no run folder"): write_lclip_page(tmp_path)


def answer_rows(question, metric, **systems): # system -> (value, base, low, high)
    return [dict(question=question, system=name.replace("_", "-"), against="likelihood" if question == "collapse" else "cider-d", metric=metric, value=v, base=b,
                 difference=v - b, ci_low=low, ci_high=high, seed_low=low, seed_high=high, n=50) for name, (v, b, low, high) in systems.items()]


def test_sentences_about_rewards_say_what_is_sure():
    rows = answer_rows("collapse", "repetition", l_clipscore=(.4, .1, .25, .35), refl_clipscore=(.12, .1, -.01, .05))
    rows += [{**row, "system": "mix-0.5"} for row in answer_rows("collapse", "repetition", x=(.1, .1, -.01, .01))]
    alone, both, mixes = _collapse_answers(pd.DataFrame(rows))
    assert alone[1].startswith("yes, in all seeds: 40 %") and "+30.0 points [25.0, 35.0]" in alone[1] and both[1].startswith("not surely") and "none of the 1 does" in mixes[1]
    rows = [{**row, "system": name} for name, value in (("mix-0.3", 1.2), ("mix-0.7", 1.5)) for row in answer_rows("relations", "kept-relations", x=(value, 1, value - 1.1, value - .9))]
    (said,) = _relation_answer(pd.DataFrame(rows))
    assert ".7 L-CLIPScore" in said[1] and "1.50 true relations" in said[1] and "surely more than CIDEr-D" in said[1]
    rows = answer_rows("self-preference", "own-judge-advantage", l_clipscore=(.1, .2, -.2, -.05)) + answer_rows("self-preference", "l-clipscore", l_clipscore=(.9, .8, .05, .2))
    rows += answer_rows("self-preference-exact", "true-all", l_clipscore=(.5, .6, -.2, -.05))
    both, own = _preference_answers(pd.DataFrame(rows))
    assert both[1].startswith("no, the contrary") and "better than that of CIDEr-D: +0.10 [0.05, 0.20]" in own[1] and "−10.0 points [−20.0, −5.0]" in own[1]


def made_up_rewards(name="mix-0.5") -> SimpleNamespace:
    rows = [dict(system=system, alpha=alpha, seed=seed, metric=metric, value=.2 + alpha/2 + seed/50, ci_low=.1, ci_high=.5, n=50, higher_is_better=True, signature="s")
            for system, alpha in (("cider-d", 0.), (name, .5), ("l-clipscore", 1.)) for seed in (0, 1) for metric in ("cider-d", "repetition", "kept-relations", "true-all")]
    answers = answer_rows("collapse", "repetition", l_clipscore=(.4, .1, .25, .35)) + answer_rows("self-preference", "own-judge-advantage", l_clipscore=(.4, .1, .25, .35))
    cross = [dict(trained_on=system, judge=judge, gain=.1, ci_low=.05, ci_high=.2, seed_low=.1, seed_high=.1) for system in (name, "l-clipscore") for judge in ("student", "exact")]
    shown = [{"picture": np.full((3, 64, 64), 90, np.uint8), "captions": {"cider-d": "a red ball", name: EVIL}}]
    return SimpleNamespace(results=pd.DataFrame(rows), answers=pd.DataFrame(answers), cross=pd.DataFrame(cross), examples=shown)


def test_the_page_shows_both_studies_and_escapes_what_it_shows(ran):
    run = {"settings": {"command": "lclip study", "scale": "quick"}, "parts": {"rewards": {"seconds": 60.}}}
    page = lclip_report(study.CompressionStudy.load(ran.out/"compression"), made_up_rewards(EVIL), run).page()
    assert EVIL not in page and "&lt;script&gt;alert(1)" in page
    assert "Does L-CLIPScore alone collapse?" in page and "captioners trained on it alone collapse" in page.lower() and "Training captioners on it" in page
    alone = lclip_report(None, made_up_rewards(), run).page()
    assert "lclip study --scale quick --parts rewards" in alone and "--parts" not in page
    assert "Compressing a CLIP" not in alone and ".5 L-CLIPScore + .5 CIDEr-D" in alone
    with pytest.raises(InputError, match="neither part"): lclip_report(run=run)


def test_the_command_runs_a_part_and_prints_the_page(ran):
    words = ["lclip", "study", "--parts", "compression", "--out", ran.out, "--teacher", ran.teacher, "--seeds", 1, "--scale", "quick", "--quiet"]
    done = cli(*words, "--csv", ran.place/"csv", cwd=ran.place)
    assert done.returncode == 0 and "The similarity regulator (L-CLIP against WP+MD&single)" in done.stdout, done.stderr
    assert Path(done.stdout.split("page: ")[1].strip()) == ran.out/"index.html" and (ran.place/"csv"/"compression_summary.csv").is_file()
    told = json.loads(cli(*words, "--json", cwd=ran.place).stdout)["result"]
    assert told["status"] == "finished" and len(told["answers"]) == 5
    for wrong, says in ((["--parts", "speed"], "unknown part 'speed'"), (["--scale", "huge"], "unknown scale 'huge'"), (["--seeds", "2"], "holds another run")):
        done = cli(*words, *wrong, cwd=ran.place)
        assert done.returncode == 2 and says in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_the_headline_says_in_how_many_measures_the_regulator_helps(ran):
    sentence, _ = _lclip_message(study.CompressionStudy.load(ran.out/"compression"), None)
    assert re.search(r"surely better in \d+ and surely worse in \d+ of 12 measures", sentence)


def test_a_twin_is_distilled_as_the_package_s_own_student_was(monkeypatch):
    "At the full scale too: two students may differ in nothing but their seed."
    asked = []
    monkeypatch.setattr(reward_study, "run_study", lambda work, workers: asked.append(work.like))
    for scale in ("quick", "default", "full"): reward_study.reward_study("x", scale)
    assert asked == ["quick", "default", "default"]


def test_rewards_are_of_students_of_the_teacher_that_was_asked_for(ran, monkeypatch):
    "With both parts the students of the first; alone, the package's own only for its own teacher, and else distilled ones."
    asked, begun = [], []
    def rewarded(folder, **options):
        asked.append(options)
        (folder/"captioners").mkdir(parents=True)
    monkeypatch.setattr(reward_study, "reward_study", rewarded)
    monkeypatch.setattr(run, "compression_study", lambda folder, **options: begun.append(options))
    same = dict(teacher=ran.teacher, scale="quick", workers=0)
    place = ran.place/"judges"
    lclip_study(["rewards", "compression"], out=place/"both", **same)
    assert begun[0]["teacher"] == asked[0]["teacher"] == ran.teacher and begun[0]["seeds"] == asked[0]["seeds"] == 2
    assert asked[0]["student"] == place/"both"/"compression"/"students"/"l-clip-s0"/"weights" and asked[0]["twin"].parent.name == "l-clip-s1"
    assert asked[0]["systems"] == tuple(reward_study.REWARD_ARMS)
    lclip_study(out=place/"one seed", seeds=1, **same)
    assert "twin" not in asked[1] and {*reward_study.REWARD_ARMS} - {*asked[1]["systems"]} == {"twin-l-clipscore"}
    done = lclip_study(["rewards"], out=place/"alone", **same)
    assert not {"student", "twin", "systems"} & {*asked[2]} and done.meta["judges"] == "own"
    lclip_study(out=place/"alone", **same)
    assert json.loads((place/"alone"/"run.json").read_text())["judges"] == "own" and len(asked) == 3 # what was done with its judges stays
    lclip_study(["compression"], out=place/"later", **same)
    assert lclip_study(["rewards"], out=place/"later", **same).meta["judges"] == "compression" and "student" in asked[3]
    assert reward_study._own_student("embedded-clip") == "embedded-lclip" and reward_study._own_student(ran.teacher) is None
    assert [study.compression_study.__kwdefaults__["seeds"], STUDY_SEEDS] == [None, {"quick": 2, "default": 2, "full": 5}]


def test_whom_nobody_gives_is_distilled_from_the_teacher(ran, monkeypatch):
    asked = []
    monkeypatch.setattr(reward_study, "distill", lambda data, folder, teacher, **options: asked.append((folder.name, teacher, options["seed"])))
    monkeypatch.setattr(reward_study, "_study_parts", lambda *about: {})
    weights = {name: str(ran.place/name/"student") for name in ("student", "twin")} | {"teacher": ran.teacher}
    work = reward_study.RewardWork(ran.place, None, tuple(weights.items()))
    for judge in weights: reward_study._see_pictures(work, judge)
    assert asked == [("student", ran.teacher, 0), ("twin", ran.teacher, 1)]
