"The commands that judge metrics, end to end in one process: what they print, what they leave, and how they refuse."
import json

import numpy as np
import pandas as pd
import pytest

from invariant_metrics.core import rng
from invariant_metrics.people.labels import answer_sheet, write_answers
from invariant_metrics.commands.shell import main

THINGS, PLACES = ["dog", "cat", "horse", "child", "boat"], ["the beach", "a street", "the grass", "a wall"]


def run(*words, code=0) -> int:
    found = main([str(w) for w in words])
    assert found == code
    return found


def refused(capsys, *words) -> str:
    "The one line of an error with exit code 2."
    run(*words, code=2)
    said = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in said if line.startswith("error: ")]) == 1 and "Traceback" not in "".join(said)
    return said[-1]


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    "Five systems on forty items: people, a good metric, a random one, a constant one."
    folder, draw = tmp_path_factory.mktemp("judged"), rng(0, "judged")
    truth = np.linspace(0, 2, 5)[None] + draw.standard_normal((40, 1)) + 0.5*draw.standard_normal((40, 5))
    items, systems = (x.ravel() for x in np.indices(truth.shape))
    rows = pd.DataFrame({"item": [f"i{i:02d}" for i in items], "system": [f"s{s}" for s in systems]})
    people = pd.concat([rows.assign(rater=f"r{r}", score=(truth + 0.5*draw.standard_normal(truth.shape)).ravel().round(2)) for r in range(3)])
    people.to_csv(folder/"people.csv", index=False)
    rows.assign(good=truth.ravel() + 0.3*draw.standard_normal(truth.size), random=draw.standard_normal(truth.size)).to_csv(folder/"scores.csv", index=False)
    rows.assign(same=1.0).to_csv(folder/"constant.csv", index=False)
    return folder


def test_agree_prints_and_keeps(judged, capsys):
    "The default command of the group; a table, JSON, and a folder that can be read again."
    run("agree", judged/"people.csv", "--metrics", judged/"scores.csv", "--statistic", "pearson", "--reps", 100, "--out", judged/"run", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "agree" and (judged/"run"/"agree.json").exists()
    by = {row["metric"]: row for row in found["result"]["table"]}
    assert by["good"]["value"] > 0.8 and by["good"]["ci_low"] > by["random"]["ci_high"] and by["good"]["unit"] == "item"
    run("agree", "people", judged/"people.csv", "--metrics", judged/"scores.csv", "--unit", "system", "--generalize", "both", "--reps", 100)
    said = capsys.readouterr().out
    assert "unit system, for new both" in said and "good" in said
    assert "metrics that share a letter do not differ significantly" in said and "differences between metrics" not in said
    run("agree", judged/"people.csv", "--metrics", judged/"scores.csv", "--statistic", "pearson", "--reps", 100, "--pairs")
    assert "differences between metrics" in capsys.readouterr().out


def test_agree_refuses(judged, capsys, tmp_path):
    "Unknown units and files, constant scores, missing items: one line each."
    people, scores = judged/"people.csv", judged/"scores.csv"
    assert "did you mean" in refused(capsys, "agree", people, "--metrics", scores, "--unit", "items")
    assert "no file" in refused(capsys, "agree", people, "--metrics", judged/"lost.csv")
    assert "constant" in refused(capsys, "agree", people, "--metrics", judged/"constant.csv")
    pd.read_csv(scores).iloc[:-3].to_csv(tmp_path/"part.csv", index=False)
    assert "--intersect" in refused(capsys, "agree", people, "--metrics", tmp_path/"part.csv")
    run("agree", people, "--metrics", tmp_path/"part.csv", "--intersect", "--reps", 50)
    assert "197" in capsys.readouterr().err
    double = pd.read_csv(scores)
    pd.concat([double, double.iloc[:1]]).to_csv(tmp_path/"twice.csv", index=False)
    assert "twice" in refused(capsys, "agree", people, "--metrics", tmp_path/"twice.csv")


def test_agree_without_metrics_says_what_to_give(judged, capsys, tmp_path):
    "Nothing is printed of people alone: not of realism, not of a table, not of outputs that metrics could be run on."
    (tmp_path/"participants.csv").write_text("id,model,err_rt\n" + "".join(f"p{k},M{k % 5},0.{k % 7}\n" for k in range(40)))
    (tmp_path/"images.csv").write_text("model,generated,image_path,number_guesses,number_guesses_generated\n" + "".join(f"M{k % 5},1,{k}.png,3,{k % 4}\n" for k in range(40)))
    pd.read_csv(judged/"people.csv").assign(output="a dog").to_csv(tmp_path/"outputs.csv", index=False)
    for file, wanted in ((tmp_path/"participants.csv", "columns system and"), (tmp_path/"images.csv", "columns item, system and"), (judged/"people.csv", "columns item, system and"),
                         (tmp_path/"outputs.csv", "name metrics to be run on its outputs (--metrics bleu,chrf)")):
        for unit in ("item", "system"):
            assert main(["agree", str(file), "--unit", unit]) == 2
            said = capsys.readouterr()
            assert said.out == "" and wanted in said.err and "nothing to compare with people" in said.err and "--metrics scores.csv" in said.err
    assert "choice has one question" in refused(capsys, "agree", "collect", tmp_path/"outputs.csv", "--task", "choice", "--aspect", "x", "--out", tmp_path/"page.html")
    assert "evaluators" in refused(capsys, "agree", "collect", tmp_path/"outputs.csv", "--task", "likert", "--aspect", "x", "--evaluators", 100_000, "--out", tmp_path/"page.html")
    assert not (tmp_path/"page.html").exists()


def test_choices_by_name_of_their_statistic(capsys, tmp_path):
    "The unit of choices need not be named: a statistic of choices is asked of them as it is."
    draw = rng(0, "votes")
    rows = [dict(image=f"{k}.jpg", first="a dog", second="a cat", category="HC" if k % 2 else "MM", votes_first=int(draw.integers(0, 12)), votes=11) for k in range(40)]
    (tmp_path/"pascal.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pd.DataFrame([dict(item=f"{k}.jpg#1", system=s, m=(r["votes_first"] if s == "first" else 5) + draw.normal()) for k, r in enumerate(rows) for s in ("first", "second")]).to_csv(tmp_path/"scores.csv", index=False)
    run("agree", tmp_path/"pascal.jsonl", "--metrics", tmp_path/"scores.csv", "--statistic", "choice", "--reps", 50, "--format", "json")
    table = json.loads(capsys.readouterr().out)["result"]["table"]
    assert [row["unit"] for row in table] == ["choice", "choice, MM", "choice, HC"] and table[0]["value"] > 0.8
    assert "has no unit choice" in refused(capsys, "agree", tmp_path/"pascal.jsonl", "--metrics", tmp_path/"scores.csv", "--statistic", "pearson")


def test_collect_label_agree(tmp_path, capsys):
    "A page is written, answered, read, and held against a metric."
    rows = [dict(item=f"{t}-{p}", system=s, output=f"a {t} near {p}" if s == "A" else f"{t} {t} {p}") for t in THINGS for p in PLACES for s in "AB"]
    pd.DataFrame(rows).to_csv(tmp_path/"items.csv", index=False)
    run("agree", "collect", tmp_path/"items.csv", "--task", "likert", "--aspect", "fluency=Does it read well?", "--out", tmp_path/"page.html", "--evaluators", 6,
        "--per-evaluator", 20, "--tutorial", 0)
    assert "page.html" in capsys.readouterr().out and "<script>alert" not in (tmp_path/"page.html").read_text()
    (tmp_path/"answers").mkdir()
    key = json.loads((tmp_path/"page.html.key.json").read_text())
    for k in range(6):
        sheet = answer_sheet(tmp_path/"page.html", str(k + 1), f"rater {k}")
        good = [key["entries"][c]["system"] == "A" for c in sheet["item"]]
        write_answers(sheet.assign(answer=[4 + (i + k) % 2 if g else 1 + (i + k) % 2 for i, g in enumerate(good)], seconds=3.0), tmp_path/"answers"/f"{k}.csv")
    run("agree", "labels", tmp_path/"answers", "--page", tmp_path/"page.html", "--json")
    found = json.loads(capsys.readouterr().out)["result"]
    assert len(found["raters"]) == 6 and all(r["kept"] for r in found["raters"])
    scores = pd.DataFrame([dict(item=r["item"], system=r["system"], words=len(r["output"].split()) + 0.01*len(r["output"])) for r in rows])
    scores.to_csv(tmp_path/"scores.csv", index=False)
    run("agree", tmp_path/"answers", "--page", tmp_path/"page.html", "--metrics", tmp_path/"scores.csv", "--statistic", "pearson", "--reps", 50, "--json")
    assert json.loads(capsys.readouterr().out)["result"]["table"][0]["value"] > 0.5
    assert ".html" in refused(capsys, "agree", "collect", tmp_path/"items.csv", "--task", "likert", "--out", tmp_path/"page")
    assert "did you mean" in refused(capsys, "agree", "collect", tmp_path/"items.csv", "--task", "likerd", "--out", tmp_path/"page.html")


def test_labels_write_a_table_that_agree_reads(tmp_path, capsys):
    "One aspect of two, named; a dropped rater once on the terminal and in the notes of results; choices and ticked classes."
    rows = [dict(item=f"{t}-{p}", system=s, output=f"a {t} near {p}" if s == "A" else f"{t} {t} {p}") for t in THINGS for p in PLACES for s in "AB"]
    pd.DataFrame(rows).to_csv(tmp_path/"items.csv", index=False)
    pd.DataFrame([dict(item=r["item"], system=r["system"], words=len(r["output"].split()) + 0.01*len(r["output"])) for r in rows]).to_csv(tmp_path/"scores.csv", index=False)
    def asked(task, *words):
        (folder := tmp_path/task).mkdir()
        run("agree", "collect", tmp_path/"items.csv", "--task", task, *words, "--out", tmp_path/f"{task}.html", "--evaluators", 4, "--per-evaluator", 20, "--tutorial", 0)
        key = json.loads((tmp_path/f"{task}.html.key.json").read_text())
        for k in range(4):
            sheet = answer_sheet(tmp_path/f"{task}.html", str(k + 1), ("=Ada", "Ben", "Eva", "Tim")[k])
            good = [key["entries"][c]["system"] == "A" for c in sheet["item"]]
            said = {"choice": ["first"]*len(sheet), "failures": ["0" if g else "1" for g in good]}.get(task, [4 + (i + k) % 2 if g else 1 + (i + k) % 2 for i, g in enumerate(good)])
            write_answers(sheet.assign(answer=said, seconds=0.1 if k == 3 else 3.0), folder/f"{k}.csv")
        capsys.readouterr()
        return "agree", "labels", folder, "--page", tmp_path/f"{task}.html"
    likert, out = asked("likert", "--aspect", "fluency", "--aspect", "truth"), tmp_path/"table.csv"
    assert "2 aspects were rated: fluency, truth" in refused(capsys, *likert, "--out", out) and not out.exists()
    assert "name that table too" in refused(capsys, *likert, "--aspect", "truth")
    run(*likert, "--aspect", "truth", "--out", out)
    said = capsys.readouterr()
    assert "dropped" not in said.err and "Tim" in said.out and "'=Ada" in out.read_text() and "Tim" not in out.read_text()
    run(*likert, "--format", "csv")
    assert "\n'=Ada," in (said := capsys.readouterr().out) and "\n=" not in said, "what is printed for a spreadsheet holds no formula"
    how = ["--metrics", tmp_path/"scores.csv", "--statistic", "pearson", "--reps", 20, "--intersect"]
    run("agree", out, *how, "--json")
    table = json.loads(capsys.readouterr().out)["result"]["table"]
    run("agree", likert[2], *likert[3:], "--aspect", "truth", *how, "--json")
    direct = json.loads(capsys.readouterr().out)["result"]
    assert direct["table"][0]["value"] == pytest.approx(table[0]["value"]) and sum(n.startswith("dropped Tim: 0.1 s") for n in direct["notes"]) == 1
    run("agree", likert[2], *likert[3:], "--aspect", "truth", *how)
    assert capsys.readouterr().err.count("dropped Tim") == 1
    assert "choices have no table of scores" in refused(capsys, *asked("choice"), "--out", tmp_path/"choice.csv") and not (tmp_path/"choice.csv").exists()
    run(*asked("failures", "--aspect", "size", "--aspect", "color"), "--out", out)
    assert "--reader higher_is_better=false" in capsys.readouterr().err
    run("agree", out, *how, "--reader", "higher_is_better=false", "--json")
    assert json.loads(capsys.readouterr().out)["result"]["table"][0]["value"] > 0.5


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    "Twenty items with three references, and two systems."
    folder = tmp_path_factory.mktemp("captions")
    refs = {f"{t}-{p}": [f"A {t} is standing near {p}.", f"There is one {t} close to {p}.", f"The {t} stands not far from {p}."] for t in THINGS for p in PLACES}
    (folder/"refs.json").write_text(json.dumps(refs))
    (folder/"sysA.json").write_text(json.dumps({k: f"A {k.split('-')[0]} stands near {k.split('-')[1]}." for k in refs}))
    (folder/"sysB.json").write_text(json.dumps({k: f"There is a {THINGS[i % 5]} near {k.split('-')[1]}." for i, k in enumerate(refs)}))
    return folder


def test_power_says_it_in_words(captions, capsys):
    "Two systems, a wished difference, one sentence; and the ways to ask wrongly."
    where = ["--pred", captions/"sysA.json", "--pred", captions/"sysB.json", "--target", captions/"refs.json"]
    run("power", "chrf", *where, "--wish", 1, "--figure", captions/"power.png")
    said = capsys.readouterr().out
    assert "With these 20" in said and "you need about" in said and (captions/"power.png").stat().st_size > 2000
    run("power", "chrf", *where, "--json")
    plan = json.loads(capsys.readouterr().out)["result"][0]
    assert plan["n"] == 20 and plan["mdd"] > 0 and plan["paired"] is True
    assert "one of them" in refused(capsys, "power", "chrf")
    assert "no metric named" in refused(capsys, "power", *where)
    run("score", "chrf", *where)
    assert "With these 20" in capsys.readouterr().out


def test_probe_of_own_captions(captions, capsys):
    "References and predictions of one's own; the page; the same command again; another one in the same folder."
    words = ["probe", "captioning", "--target", captions/"refs.json", "--pred", captions/"sysA.json", "--pred", captions/"sysB.json", "--metrics", "bleu,chrf",
             "--families", "negation,noun-swapped", "--scale", "quick", "--workers", 1, "--out", captions/"run"]
    run(*words)
    said = capsys.readouterr().out
    assert "constant" in said and (captions/"run"/"index.html").exists()
    run(*words, "--json")
    rows = json.loads(capsys.readouterr().out)["result"]["auc"]
    assert all(row["auc"] == 0.5 for row in rows if row["metric"] == "constant" and row["auc"] is not None)
    assert "holds another run" in refused(capsys, *words[:-2], "--seed", 1, "--out", captions/"run")
    assert "did you mean" in refused(capsys, "probe", "captionning")
    assert "give --target" in refused(capsys, "probe", "images", "--pred", captions)
    assert "did you mean" in refused(capsys, "probe", "captioning", "--target", captions/"refs.json", "--metrics", "bleuu", "--out", captions/"other")
    assert not (captions/"other").exists()


@pytest.mark.parametrize("command", ["probe", "probe metrics", "probe encoder", "agree", "agree people", "agree collect", "agree labels", "power", "advise", "styles", "styles rank", "styles draw", "styles simulate"])
def test_help_has_an_example(command, capsys):
    run(*command.split(), "--help")
    assert "Example: invariant-metrics" in " ".join(capsys.readouterr().out.split())
