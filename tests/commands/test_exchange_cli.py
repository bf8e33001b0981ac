"Judges elsewhere from the shell: five commands ask in a file and go on with the answers; the line that says how is the one that works."
import json
import shlex

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from commands import check_output, cli

THINGS, PLACES = ["dog", "cat", "horse", "child", "boat"], ["the beach", "a street", "the grass", "a wall"]
PAIRS = {f"{t}-{k}": (t, p) for t in THINGS for k, p in enumerate(PLACES)}
TEXTS = {"refs.json": {k: [f"A {t} is standing near {p}.", f"There is one {t} close to {p}.", f"The {t} stands not far from {p}."] for k, (t, p) in PAIRS.items()},
         "sysA.json": {k: f"A {t} stands near {p}." for k, (t, p) in PAIRS.items()}, "sysB.json": {k: f"There is a {THINGS[i % 5]} near {p}." for i, (k, (_, p)) in enumerate(PAIRS.items())}}
SIDES = "--pred sysA.json --pred sysB.json --target refs.json"
CALLS = {"score": (f"score {SIDES}", "items.csv"), "power": (f"power {SIDES} --wish 0.5", "items.jsonl"),
         "agree": ("agree judged/judgments.jsonl --statistic tau-c --reps 40", "items.jsonl"),
         "advice": ("advise captioning --target refs.json --families phrase-removed,shuffle --cases 20 --scale quick", "items.jsonl"),
         "probe": ("probe captioning --target refs.json --families phrase-removed,shuffle --scale quick --workers 2", "items.jsonl")}


@pytest.fixture
def data(tmp_path):
    for name, texts in TEXTS.items(): (tmp_path/name).write_text(json.dumps(texts))
    (tmp_path/"judged").mkdir()
    (tmp_path/"judged"/"images.jsonl").write_text("\n".join(json.dumps({"image_id": f"{k}.jpg", "references": v}) for k, v in TEXTS["refs.json"].items()))
    rows = [{"image_id": f"{k}.jpg", "candidate": text, "ratings": [1 + (i + j) % 4 for j in range(3)]} for i, (k, text) in enumerate(TEXTS["sysB.json"].items())]
    (tmp_path/"judged"/"judgments.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def overlap(row) -> int: # a judge: words that the text shares with the references
    return len({*row["prediction"].split()} & {*str(row["references"]).replace('"', " ").replace("'", " ").split()})


def judge_file(items, scores, lost=()) -> int: # how many were answered
    if items.suffix == ".csv":
        table = pd.read_csv(items, dtype=str, keep_default_na=False)
        table = table.assign(score=[overlap(row) for row in table.to_dict("records")]).drop(index=list(lost))
        if lost: table = table[["id", "score"]]
        table.to_csv(scores, index=False)
        return len(table)
    rows = [json.loads(line) for line in items.read_text().splitlines()[1:]]
    rows = [{"id": row["id"], "score": overlap(row)} for k, row in enumerate(rows) if k not in lost]
    scores.write_text("\n".join(map(json.dumps, rows)))
    return len(rows)


def said(data, words, code=0):
    done = cli(*words, cwd=data)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize("kind", CALLS)
def test_a_command_asks_and_goes_on_with_the_answers(kind, data):
    line, file = CALLS[kind]
    done = said(data, [*shlex.split(line), "--ask", file])
    told = done.stdout.splitlines()
    assert "items to be judged, with" in told[0] and "characters" in told[0] and f"are in {file}; nothing was sent anywhere" in told[0]
    assert told[2] == f"invariant-metrics {line} --answers scores{file[file.index('.'):]}" and len(told) == 3
    assert not (data/"runs").exists() # a temporary one
    again = shlex.split(told[2])[1:]
    scores = data/again[-1]
    judge_file(data/file, scores)
    whole = json.loads(said(data, [*again, "--json"]).stdout)
    check_output(whole)
    assert whole["kind"] == kind and "scores" in json.dumps(whole["result"])
    n = judge_file(data/file, scores, lost=range(0, 40, 13))
    with open(scores, "a") as out: out.write("tslip,5\n" if scores.suffix == ".csv" else '\n{"id": "tslip", "score": 5}')
    if kind == "probe": # a changed file is another run
        assert "holds another run" in said(data, again, 2).stderr
        again.append("--overwrite")
    half = said(data, [*again, "--json"])
    notes = half.stdout + half.stderr + ("" if kind == "probe" else said(data, again).stderr)
    if kind != "probe": assert f"1 of {n + 1} answers in {scores.name} are to questions that were not asked: tslip" in notes
    assert {"score": "have no value and are left out", "power": "have no value and are left out", "agree": "judged outputs", "advice": "scores answered", "probe": "scores answered"}[kind] in notes


def test_asking_as_json_and_refusing(data):
    words = shlex.split(CALLS["score"][0])
    found = json.loads(said(data, [*words, "--ask=items.jsonl", "--json"]).stdout)
    check_output(found)
    assert found["kind"] == "asked" and found["result"]["items"] == 40 and found["result"]["command"].endswith("--answers scores.jsonl --format=json")
    def refused(*more): return said(data, [*words, *more], 2).stderr.splitlines()[-1]
    assert "items.jsonl is there already" in refused("--ask", "items.jsonl")
    assert "--ask is in the place of metrics; leave bleu out" in refused("bleu", "--ask", "new.jsonl")
    assert "no file or folder at lost.jsonl" in refused("--answers", "lost.jsonl")
    (data/"scores.jsonl").write_text('{"id": "t1", "score": 1}')
    assert "scores.jsonl holds answers to other questions" in refused("--answers", "scores.jsonl")
    assert "--ask goes with --pred" in said(data, ["power", "--values", "x.parquet", "--ask", "new.jsonl"], 2).stderr


def test_pictures_are_files_beside_the_items(data):
    draw = np.random.default_rng(0)
    for side, noise in (("truth", 0), ("pred", 20)):
        (data/side).mkdir()
        for k in range(5): Image.fromarray(np.clip(np.random.default_rng(k).integers(0, 256, (16, 16, 3)) + draw.integers(0, noise + 1, (16, 16, 3)), 0, 255).astype(np.uint8)).save(data/side/f"{k}.png")
    words = ["score", "--pred", "pred/", "--target", "truth/", "--ask", "items.jsonl"]
    assert "5 items to be judged, with 10 pictures in items_pictures" in said(data, words).stdout
    rows = [json.loads(line) for line in (data/"items.jsonl").read_text().splitlines()[1:]]
    def shown(row): return [np.asarray(Image.open(data/row[side])).astype(float) for side in ("prediction", "reference")]
    (data/"mse.jsonl").write_text("\n".join([json.dumps({"better": "lower"}), *(json.dumps({"id": row["id"], "score": float(np.square(np.subtract(*shown(row))).mean())}) for row in rows)]))
    found = json.loads(said(data, [*words[:-2], "--answers", "mse.jsonl", "--metrics", "psnr", "--per-item", "values.parquet", "--json"]).stdout)["result"]["scores"]
    by = pd.read_parquet(data/"values.parquet").pivot(index="item", columns="metric", values="value")
    np.testing.assert_allclose(by["psnr"], 10*np.log10(255**2/by["mse"]), rtol=1e-5)
    assert next(iter(found.values()))["mse"]["higher_is_better"] is False
