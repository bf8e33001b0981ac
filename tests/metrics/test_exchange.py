"""Judges elsewhere: what is asked is written once and tells nothing, what comes back is checked, and answers by file are worth those of the same judge here."""
import json
import random

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from invariant_metrics.core import InputError, Signature
from invariant_metrics.metrics.exchange import ask_for, read_answers, told_of_answers, unasked_note
from invariant_metrics.metrics.judge import Replies, judge_metric
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.probes.own_images import image_probe
from invariant_metrics.probes.own_texts import own_probe
from invariant_metrics.probes.tables import summarize_probe
from invariant_metrics.probes.worlds import text_probe
from invariant_metrics.scoring.inference import score_rows

HOSTILE = ["=HYPERLINK(\"http://x\")", "+1", "-1", "@SUM(A1)", "\ttab", "'quoted", "''=twice", " blanks around ", "two\nlines", "a \"quote\", and a comma", "Ünïcödé 🙂 \u2028 line", "", "[\"no list\"]", "nan", "1e5", "0012", "id,score", "<b>x</b>"]
THINGS, PLACES = ["dog", "cat", "horse", "child", "boat"], ["the beach", "a street", "the grass", "a wall"]
REFERENCES = {f"{t}-{k}": [f"A {t} is standing near {p}.", f"There is one {t} close to {p}.", f"The {t} stands not far from {p}."] for t in THINGS for k, p in enumerate(PLACES)}
BASES = [f"text number {k} of a system" for k in range(40)]


def call_of(pred, target, source=None):
    def call(metrics): return extract([get_metric(name) for name in metrics], pred, target, source)
    return call


def items_in(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def value(q) -> float: # what a judge says that is the same here and elsewhere
    if not isinstance(q["prediction"], np.ndarray): return float(len(q["prediction"]) + 3*len({*q["prediction"].split()} & {*" ".join(q["references"]).split()}))
    return float(np.abs(q["prediction"].astype(float) - q["reference"]).mean())


def here(inputs: str, name: str = "judge"):
    return judge_metric(name, lambda asked: Replies(np.array([value(q) for q in asked]), np.zeros(len(asked), bool)), Signature.of(metric=name), inputs=inputs, higher_is_better=inputs == "texts")


def answer(items, place, share: float = 1.0, **header):
    "Answers of that judge to a random part of the items."
    rows = [row for row in items_in(items) if random.Random(row["id"]).random() < share]
    seen = [{k: np.asarray(Image.open(items.parent/v)) for k, v in row.items() if k != "id"} if "reference" in row else row for row in rows]
    lines = [*([header] if header else []), *({"id": row["id"], "score": value(q)} for row, q in zip(rows, seen))]
    place.write_text("\n".join(map(json.dumps, lines)))
    return place


@pytest.fixture
def asked(tmp_path):
    "Items of forty texts."
    call = call_of(BASES, [["a reference"]]*40)
    ask_for(tmp_path/"items.jsonl", call)
    return tmp_path/"items.jsonl", call


def wrong(path, *rows, name="scores.jsonl") -> str:
    place = path.with_name(name)
    place.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError) as found: get_metric(f"answers:{place}")
    said = str(found.value)
    assert "\n" not in said and name in said
    return said


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_hostile_texts_come_back_as_they_were(tmp_path, ending):
    target = [[text, "="] for text in reversed(HOSTILE)]
    call = call_of(HOSTILE, target, HOSTILE[1:] + HOSTILE[:1])
    items = tmp_path/f"items{ending}"
    assert ask_for(items, call).items == len(HOSTILE)
    if ending == ".csv":
        table = pd.read_csv(items, dtype=str, keep_default_na=False)
        assert not any(cell[:1] in tuple("=+-@\t\r") for column in table for cell in table[column])
        table.assign(score=range(len(table))).to_csv(tmp_path/"back.csv", index=False)
    else:
        rows = items_in(items)
        (tmp_path/"back.jsonl").write_text("\n".join(json.dumps({**row, "score": k}) for k, row in enumerate(rows)))
    values = call([f"answers:{tmp_path/f'back{ending}'}"])["back"].pred
    assert sorted(values.tolist()) == list(range(len(HOSTILE))) # each has one, and its texts have their names


def test_items_stand_in_an_order_of_the_seed_and_say_nothing_of_where_they_come_from(tmp_path):
    pred = [f"answer {k}" for k in range(60)]
    files = [ask_for(tmp_path/f"{k}.jsonl", call_of(texts, [["r"]]*60), seed=seed).path for k, (texts, seed) in enumerate([(pred, 0), (pred[::-1], 0), (pred, 1)])]
    first, turned, other = (items_in(path) for path in files)
    assert first == turned and first != other and sorted(map(str, first)) == sorted(map(str, other))
    places = [pred.index(row["prediction"]) for row in first]
    assert abs(np.corrcoef(places, range(60))[0, 1]) < 0.3
    assert {*first[0]} == {"id", "prediction", "references"}
    head = json.loads(files[0].read_text().splitlines()[0])
    assert (head["n"], head["inputs"], head["seed"], head["better"]) == (60, "texts", 0, "higher") and head["seal"] == json.loads(files[2].read_text().splitlines()[0])["seal"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx"])
def test_every_table_is_read(asked, ending):
    items, call = asked
    if ending == ".xlsx": pytest.importorskip("openpyxl")
    rows = items_in(items)
    table = pd.DataFrame({"id": [row["id"] for row in rows], "score": [len(row["prediction"])/4 for row in rows]})
    place = items.with_name(f"scores{ending}")
    write = {".csv": lambda: table.to_csv(place, index=False), ".tsv": lambda: table.to_csv(place, index=False, sep="\t"), ".json": lambda: table.to_json(place, orient="records"),
             ".jsonl": lambda: table.to_json(place, orient="records", lines=True), ".parquet": lambda: table.to_parquet(place), ".xlsx": lambda: table.to_excel(place, index=False)}
    write[ending]()
    assert call([f"answers:{place}"])["scores"].pred.tolist() == [len(text)/4 for text in BASES]


def test_repeats_are_averaged_and_are_the_noise_of_the_judge(asked):
    items, call = asked
    draw = np.random.default_rng(0)
    rows = [{"id": row["id"], "score": 5 + 0.3*draw.normal()} for row in items_in(items) for _ in range(4)]
    place = items.with_name("noisy.jsonl")
    place.write_text("\n".join(map(json.dumps, rows)))
    found = call([f"answers:{place}"])["noisy"]
    by = pd.DataFrame(rows).groupby("id")["score"]
    order = [name for text in BASES for name in [next(row["id"] for row in items_in(items) if row["prediction"] == text)]]
    np.testing.assert_allclose(found.pred, by.mean()[order])
    np.testing.assert_allclose(found.deviation, by.std()[order])
    pooled = np.sqrt(by.var().mean())
    assert f"between repeats of one item the judge moves by {pooled:.2g} (SD, 40 items 4 times)" in found.notes and 0.25 < pooled < 0.35
    assert score_rows(get_metric(f"answers:{place}"), found).deviation is not None and told_of_answers(place)[0].endswith(found.notes[-1])


def test_refusals_are_an_outcome_of_their_own(asked):
    items, call = asked
    rows = items_in(items)
    told = [{"id": row["id"], "score": 1.0} for row in rows[:20]] + [{"id": row["id"], "refused": True} for row in rows[20:24]] + [{"id": row["id"], "why": "a policy"} for row in rows[24:30]]
    place = items.with_name("shy.jsonl")
    place.write_text("\n".join(map(json.dumps, told)))
    notes = call([f"answers:{place}"])["shy"].notes
    assert "the judge refused 10 of 40 answers" in notes and "10 of 40 answers are missing" in notes
    rate = score_rows(get_metric(f"refusals:{place}"), call([f"refusals:{place}"])["shy-refusals"])
    assert (rate.value, rate.n) == (10/30, 30) and rate.ci.low > 0 and not rate.higher_is_better
    assert "10 of 30 items" in told_of_answers(place)[0]


def test_what_is_wrong_with_answers_is_said_in_one_line(asked):
    items, call = asked
    head, *rows = (json.loads(line) for line in items.read_text().splitlines())
    one = {"id": rows[0]["id"], "score": 1}
    assert "no column score; it has id, rating" in wrong(items, {"id": "t1", "rating": 3})
    assert "no column id; it has name, score" in wrong(items, {"name": "t1", "score": 3})
    assert "line 2: score is good, not a number" in wrong(items, one, {"id": "t1", "score": "good"})
    assert "line 1: score is nan, not a number" in wrong(items, {"id": "t1", "score": float("nan")})
    assert "line 3: score is 11, outside of the scale 1 to 10" in wrong(items, {"scale": [1, 10]}, one, {"id": "t1", "score": 11})
    assert "scale is the lowest and the highest score" in wrong(items, {"scale": "1-10"}, one)
    assert "better is higher or lower" in wrong(items, {"better": "more"}, one)
    assert "holds no answer" in wrong(items, head)
    assert f"items {rows[0]['id']} changed since they were written" in wrong(items, {**rows[0], "prediction": "another text", "score": 1})
    assert "the seal in its header is of other items" in wrong(items, {**head, "n": 1}, one)
    broken = items.with_name("broken.jsonl")
    broken.write_text('{"id": "t1", "score": 1}\n{"id": ')
    with pytest.raises(InputError, match="line 2: not JSON"): read_answers(broken)
    with pytest.raises(InputError, match="no file of answers"): get_metric(f"answers:{items.with_name('lost.csv')}")


def test_answers_to_other_questions(asked, tmp_path):
    items, call = asked
    other = call_of([f"{text}!" for text in BASES], [["a reference"]]*40)
    scores = answer(items, tmp_path/"scores.jsonl")
    found = other([f"answers:{scores}"])["scores"]
    with pytest.raises(InputError, match="scores has no value for any of 40 items; .*answers to other questions"): score_rows(get_metric(f"answers:{scores}"), found)
    assert unasked_note(scores).startswith("40 of 40 answers")
    call([f"answers:{scores}"])
    other([f"answers:{scores}"])
    assert unasked_note(scores) == ""
    scores.write_text(scores.read_text() + '\n{"id": "tslip", "score": 2}')
    call([f"answers:{scores}"])
    assert unasked_note(scores) == f"1 of 41 answers in {scores} are to questions that were not asked: tslip"


def test_directions(asked, tmp_path):
    items, _ = asked
    plain, lower = answer(items, tmp_path/"plain.jsonl"), answer(items, tmp_path/"lower.jsonl", better="lower")
    assert [get_metric(f"answers:{f}").higher_is_better for f in (plain, lower)] == [True, False]
    assert get_metric(f"answers:{plain}", better="lower").higher_is_better is False and get_metric(f"answers:{lower}", better="higher").higher_is_better
    with pytest.raises(InputError, match="better is higher or lower"): get_metric(f"answers:{plain}", better="less")


def test_asking(asked, tmp_path):
    items, call = asked
    with pytest.raises(InputError, match="is there already, perhaps with answers"): ask_for(items, call)
    with pytest.raises(InputError, match="written as .jsonl or .csv"): ask_for(tmp_path/"items.txt", call)
    with pytest.raises(InputError, match="nothing was asked"): ask_for(tmp_path/"none.jsonl", lambda metrics: None)
    with pytest.raises(InputError, match="only ask_for"): extract([get_metric("asking:texts")], ["a"], ["b"])
    def fails(metrics):
        call(metrics)
        raise InputError("the call fails")
    with pytest.raises(InputError, match="the call fails"): ask_for(tmp_path/"fails.jsonl", fails)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["items.jsonl"] # nothing half is left
    with pytest.raises(InputError, match="only ask_for"): extract([get_metric("asking:texts")], ["a"], ["b"])


def test_a_source_that_was_not_shown_does_not_hide_an_answer(asked, tmp_path):
    items, _ = asked
    scores = answer(items, tmp_path/"scores.jsonl")
    shown = call_of(BASES, [["a reference"]]*40, [f"Quelle {k}" for k in range(40)])
    assert shown([f"answers:{scores}"])["scores"].pred.isfinite().all()


FAMILIES = ["phrase-removed", "misspelling", "question", "shuffle"]
CALLS = {"texts": lambda metrics: own_probe("captioning", REFERENCES, metrics=metrics, families=FAMILIES, scale="quick", progress=False),
         "world": lambda metrics: text_probe("translation", metrics=metrics, families=["entity-replaced", "number-changed"], scale="quick", progress=False),
         "images": lambda metrics: image_probe("photos", metrics=metrics, families=["swirl"], scale="quick", progress=False)}


@pytest.mark.parametrize("name", [name if name == "texts" else pytest.param(name, marks=pytest.mark.slow) for name in CALLS])
def test_a_probe_by_file_is_the_probe_of_the_same_judge_here(name, tmp_path):
    inputs = "images" if name == "images" else "texts"
    call = CALLS[name]
    items = ask_for(tmp_path/"items.jsonl", call, inputs).path
    own = call([here(inputs)])
    header = {"better": "lower"} if name == "images" else {}
    away = call([f"answers:{answer(items, tmp_path/'judge.jsonl', **header)}"])
    for table in ("auc", "dose", "profile", "ledger"): pd.testing.assert_frame_equal(own.tables[table], away.tables[table])
    half = call([f"answers:{answer(items, tmp_path/'half.jsonl', 0.6, **header)}"])
    rows, some = (found.auc[(found.auc["metric"] == metric) & (found.auc["level"] == "all")] for found, metric in ((own, "judge"), (half, "half")))
    both = rows.merge(some, on=["family", "view"], suffixes=("", "_half")).dropna(subset=["auc_half"])
    assert len(both) > 1 and (both["n_half"] < both["n"]).all()
    inside = (both["auc"] >= both["ci_low_half"] - 1e-9) & (both["auc"] <= both["ci_high_half"] + 1e-9)
    assert inside[both["view"] != "set"].mean() >= 0.9, both[~inside]
    assert ((both["ci_low"] <= both["ci_high_half"]) & (both["ci_low_half"] <= both["ci_high"])).all() # sets of few pictures, too
    assert not any("with an answer" in what for lines in summarize_probe(own).sentences.values() for what, _ in lines)
    assert all(any("with an answer" in what for what, _ in lines) for lines in summarize_probe(half).sentences.values())


def test_a_family_without_answers_has_no_share_and_is_named(tmp_path):
    items = ask_for(tmp_path/"items.jsonl", CALLS["texts"]).path
    lines = [row for row in items_in(items) if not row["prediction"].endswith("?")] # what questions end with
    (tmp_path/"judge.jsonl").write_text("\n".join(json.dumps({"id": row["id"], "score": value(row)}) for row in lines))
    found = CALLS["texts"]([f"answers:{tmp_path/'judge.jsonl'}"])
    rows = found.auc[(found.auc["metric"] == "judge") & (found.auc["family"] == "question")]
    assert set(rows["level"]) == {"all"} and rows["auc"].isna().all() and (rows["n"] == 0).all()
    summary = summarize_probe(found)
    assert "question" not in set(summary.verdicts.loc[summary.verdicts["metric"] == "judge", "family"])
    said, = (sentence for what, sentence in summary.sentences["captioning"] if "with an answer" in what)
    assert "and none of question" in said and "judge answered" in said
