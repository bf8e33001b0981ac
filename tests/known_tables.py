"""One known table of judgments written in every form that people have, with the mistakes that such files have; read back, it
is the same or it is refused. `python tests/fuzz.py 10000 --family tables` draws them from a seed."""
import csv
import gzip
import io
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from invariant_metrics.core import InputError
from invariant_metrics.data.judgment_tables import Choices, metric_table
from invariant_metrics.data.judgments import load_judgments

Key = tuple[str, str] # item, system
LABELS = {1: "Very bad", 2: "Bad", 3: "Ok", 4: "Good", 5: "Excellent"}
PLAIN = ("a cat on a mat", "the dog runs", "two birds fly away", "Schöne Grüße", "空 の 猫", "it is 5 o'clock")
NASTY = ('"Yes, he said, and left', 'He left."', 'he said "yes"', '"Ja"', '"', '"" is nothing', 'one, two; three', '“typographic”', "'=1+1", '"a" and "b"', "5,0", "#1", "\\")


@dataclass
class Known:
    "A table, and how it was written."
    rows: list[tuple[str, str, str, float]]      # item, system, rater, rating
    texts: dict[Key, str]
    path: Path = Path()
    told: list[str] = field(default_factory=list) # how it was written
    options: dict = field(default_factory=dict)   # of the reader
    all: list[tuple] = field(default_factory=list) # the rows before some were left blank
    texts_too: bool = False                        # the texts can be compared as well

    def means(self) -> dict[Key, float]:
        found = {}
        for item, system, _, rating in self.rows: found.setdefault((item, system), []).append(rating)
        return {key: sum(values)/len(values) for key, values in found.items()}


def known_table(draw: random.Random) -> Known:
    "Three to five items by two to four systems by two or three raters, who give 1 to 5."
    name = draw.choice((str, "q{}".format, "img_{}.jpg".format, "{}-de".format))
    items = [name(i) for i in range(1, draw.randint(4, 6))]
    systems = [f"sys{c}" for c in "ABCD"[:draw.randint(2, 4)]]
    raters = [f"w{k}" for k in range(draw.randint(2, 3))]
    rows = [(i, s, r, float(draw.randint(1, 5))) for i in items for s in systems for r in raters]
    texts = {(i, s): draw.choice(NASTY if draw.random() < 0.3 else PLAIN) for i in items for s in systems}
    return Known(rows, {key: draw.choice((text, f"{text} {k}", f"{k} {text}")) for k, (key, text) in enumerate(texts.items())})


# ---- cells

def rating_cells(known: Known, draw: random.Random, separator: str = ",") -> list[str]: # of known.all
    "The ratings as cells of one kind; the table changes where the kind holds less."
    known.all = list(known.rows)
    kind = draw.choice(("numbers", "points", "labels", "labels last", "parts", "yes and no", "words", "wrapped", "blanks", "decimal commas"))
    ratings = [r for *_, r in known.rows]
    known.told.append(kind)
    if kind == "decimal commas" and separator != ";": kind = "numbers"
    if kind == "numbers": return [f"{r:g}" for r in ratings]
    if kind == "points": return [f"{r:.1f}" for r in ratings]
    if kind == "labels": return [f"{r:g} - {LABELS[int(r)]}" for r in ratings]
    if kind == "labels last": return [f"{LABELS[int(r)]} ({r:g})" for r in ratings]
    if kind == "parts": return [f"{r:g}/5" for r in ratings]
    if kind == "words": return [LABELS[int(r)].lower() for r in ratings]
    if kind == "wrapped": return [json.dumps([{"rating": int(r)}]) for r in ratings]
    if kind == "yes and no":
        known.rows = [(*row[:3], float(row[3] > 2)) for row in known.rows]
        return [("no", "yes")[int(row[3])] for row in known.rows]
    if kind == "decimal commas":
        known.rows = [(*row[:3], row[3] + 0.5) for row in known.rows]
        return [f"{row[3]:g}".replace(".", ",") for row in known.rows]
    cells = [f"{r:g}" if draw.random() > 0.15 else draw.choice(("", "n/a", "NA")) for r in ratings]
    known.rows = [row for row, cell in zip(known.rows, cells) if cell not in ("", "n/a", "NA")]
    return cells


HEADINGS = {"item": ("item", "Item", "seg_id", "image_id", "Input.item", "question_id"), "system": ("system", "model", "System", "system_id"),
            "rater": ("rater", "annotator", "WorkerId", "participant_id", "PROLIFIC_PID"), "score": ("score", "rating", "Answer.rating", "Score (1-5)"),
            "output": ("output", "hypothesis", "translation")}


def named(columns, draw: random.Random) -> dict[str, str]:
    return {c: draw.choice(HEADINGS[c]) if draw.random() < 0.5 else c for c in columns}


def text_table(frame: pd.DataFrame, draw: random.Random, separator: str, raw: bool) -> str:
    if raw: return "\n".join("\t".join(row) for row in [list(frame), *frame.astype(str).values.tolist()]) + "\n"
    out = io.StringIO()
    frame.to_csv(out, index=False, sep=separator, quoting=draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)))
    return out.getvalue()


def mistaken(text: str, draw: random.Random, known: Known) -> str: # what is in it stays the same
    how = draw.choice(("nothing", "nothing", "nothing", "blank lines", "returns", "a mark", "no last return"))
    known.told.append(how)
    lines = text.split("\n")
    if how == "blank lines": return text + "\n\n"
    if how == "returns": return text.replace("\r\n", "\n").replace("\n", "\r\n")
    if how == "no last return": return text.rstrip("\n")
    if how == "a mark": # that opens a text and does not close it
        for k in draw.sample(range(1, len(lines)), min(2, len(lines) - 1)):
            for plain in PLAIN: lines[k] = lines[k].replace(plain, f'"{plain}', 1) if f"\t{plain}" in lines[k] or f",{plain}" in lines[k] or f";{plain}" in lines[k] else lines[k]
    return "\n".join(lines)


def put(folder: Path, name: str, text: str, draw: random.Random) -> Path:
    data = (b"\xef\xbb\xbf" if draw.random() < 0.1 else b"") + text.encode()
    path = folder/(name + ".gz" if draw.random() < 0.1 else name)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# ---- ratings

def long_frame(known: Known, draw: random.Random, separator: str = ",") -> pd.DataFrame:
    cells = rating_cells(known, draw, separator)
    frame = pd.DataFrame([row[:3] for row in known.all], columns=["item", "system", "rater"]).assign(score=cells)
    if draw.random() < 0.6: frame["output"] = [known.texts[i, s] for i, s, *_ in known.all]
    if draw.random() < 0.2: frame["remark"] = [draw.choice(NASTY) for _ in known.all]
    if draw.random() < 0.2:
        more = frame.assign(AssignmentStatus="Approved")
        frame = pd.concat([more, more.head(3).assign(rater="bad", AssignmentStatus="Rejected")], ignore_index=True)
    frame = frame.rename(columns=named([c for c in frame if c in HEADINGS], draw))
    frame = frame[draw.sample(list(frame), len(frame.columns))]
    return frame.sample(frac=1, random_state=draw.randrange(2**31)) if draw.random() < 0.5 else frame


def in_cells(known: Known, folder: Path, draw: random.Random) -> Known:
    separator = draw.choice(",;\t")
    raw = separator == "\t" and draw.random() < 0.5
    frame = long_frame(known, draw, separator)
    known.told.insert(0, f"cells between {separator!r}{', raw' if raw else ''}")
    known.path = put(folder, "judged.tsv" if separator == "\t" else "judged.csv", mistaken(text_table(frame, draw, separator, raw), draw, known), draw)
    return known


def in_records(known: Known, folder: Path, draw: random.Random) -> Known:
    frame = long_frame(known, draw)
    how = draw.choice(("list", "lines", "lines in .json", "wrapped", "parquet", "parquet with named rows", "xlsx"))
    known.told.insert(0, f"records, {how}")
    rows = frame.to_dict("records")
    if how == "xlsx":
        known.path = folder/"judged.xlsx"
        frame.to_excel(known.path, index=False)
        return known
    if how.startswith("parquet"):
        known.path = folder/"judged.parquet"
        (frame.set_index(list(frame)[0]) if how.endswith("rows") else frame).to_parquet(known.path, index=how.endswith("rows"))
    elif how in ("list", "wrapped"): known.path = put(folder, "judged.json", json.dumps(rows if how == "list" else {"data": rows}, indent=draw.choice((None, 1))), draw)
    else: known.path = put(folder, "judged.json" if how.endswith("json") else "judged.jsonl", "\n".join(map(json.dumps, rows)) + "\n", draw)
    return known


def by_column(known: Known, folder: Path, draw: random.Random) -> Known:
    "A column for each rater, or for each system."
    each = draw.choice(("rater", "system"))
    at = 2 if each == "rater" else 1
    keys = ("item", "system") if each == "rater" else ("item", "rater")
    cells = rating_cells(known, draw)
    names = list(dict.fromkeys(row[at] for row in known.all))
    word = draw.choice(("rater_", "annotator ", "Rater", "score_rater") if each == "rater" else ("Answer.",))
    column = {n: f"{word}{k + 1}" if each == "rater" else f"{word}{n}" for k, n in enumerate(names)}
    table = {}
    for row, cell in zip(known.all, cells): table.setdefault((row[0], row[3 - at]), {})[column[row[at]]] = cell
    frame = pd.DataFrame([dict(zip(keys, key)) | row for key, row in table.items()]).rename(columns=named(("item", "rater", "system"), draw))
    if draw.random() < 0.3: frame["bleu"] = 0.25
    if each == "system" and draw.random() < 0.5: frame["Answer.comment"] = "so, so"
    known.told.insert(0, f"a column for each {each}")
    known.path = put(folder, "wide.csv", mistaken(text_table(frame, draw, ",", False), draw, known), draw)
    return known


def several_of_a_hit(known: Known, folder: Path, draw: random.Random) -> Known:
    cells = rating_cells(known, draw)
    dash = draw.choice(("", "_", "."))
    groups = {}
    for row, cell in zip(known.all, cells): groups.setdefault((row[0], row[2]), []).append((row[1], cell))
    rows = [{"HITId": f"H{item}", "WorkerId": rater, "Input.item": item} | {k: v for n, (system, cell) in enumerate(pairs, 1) for k, v in
            ((f"Input.system{dash}{n}", system), (f"Answer.rating{dash}{n}", cell))} for (item, rater), pairs in groups.items()]
    known.told.insert(0, "several of a HIT")
    known.path = put(folder, "batch.csv", text_table(pd.DataFrame(rows), draw, ",", False), draw)
    return known


def of_a_form(known: Known, folder: Path, draw: random.Random) -> Known:
    "A column for each possible answer, or the JSON of a crowd form."
    rows = []
    form = draw.choice(("columns", "json"))
    for item, system, rater, rating in known.rows:
        on = {str(k): k == rating for k in range(1, 6)}
        answer = ({f"Answer.quality.{k}": str(v).lower() for k, v in on.items()} if form == "columns" else
                  {"Answer.taskAnswers": json.dumps([{"quality": on}])})
        rows.append({"Input.item": item, "Input.system": system, "WorkerId": rater, "AssignmentStatus": "Approved", **answer})
    known.told.insert(0, f"a form, {form}")
    known.path = put(folder, "batch.csv", text_table(pd.DataFrame(rows), draw, ",", False), draw)
    return known


def label_studio(known: Known, folder: Path, draw: random.Random) -> Known:
    words = draw.random() < 0.5
    tasks = {}
    for item, system, rater, rating in known.rows:
        value = {"choices": [f"{rating:g} - {LABELS[int(rating)]}"]} if words else {"rating": int(rating)}
        task = tasks.setdefault((item, system), {"id": len(tasks), "data": {"item": item, "system": system}, "annotations": []})
        task["annotations"].append({"completed_by": draw.choice((rater, {"email": rater})), "was_cancelled": False,
                                    "result": [{"from_name": "quality", "to_name": "t", "type": "choices" if words else "rating", "value": value}]})
    if draw.random() < 0.5: next(iter(tasks.values()))["annotations"].append({"completed_by": "bad", "was_cancelled": True, "result": [
        {"from_name": "quality", "type": "rating", "value": {"rating": 1} if not words else {"choices": ["1 - Very bad"]}}]})
    known.told.insert(0, "label studio")
    known.path = put(folder, "export.json", json.dumps([*tasks.values()]), draw)
    return known


def mqm(known: Known, folder: Path, draw: random.Random) -> Known:
    "Marks whose number is that of the points that a rating lacks."
    segment = draw.choice(("seg_id", "globalSegId"))
    head = ["system", "doc", "doc_id" if segment == "seg_id" else "docSegId", segment, "rater", "source", "target", "category", "severity"]
    people = draw.choice(((), ("refA",), ("Human-A.0", "Human-B.0")))
    rows = []
    for item, system, rater, rating in [*known.rows, *((i, p, "w0", 5.0) for p in people for i in dict.fromkeys(r[0] for r in known.rows))]:
        text = known.texts.get((item, system), "von Hand")
        start = [system, "d", item, item, rater, "src", text]
        marks = [["Accuracy/Mistranslation", draw.choice(("Minor", "minor"))]]*int(5 - rating) or [["No-error", draw.choice(("No-error", "no-error"))]]
        if draw.random() < 0.1: marks = [*marks, ["Found", "HOTW-test"]]
        rows += [[*start, *mark] for mark in marks]
    if draw.random() < 0.3: rows = draw.sample(rows, len(rows))
    known.rows = [(i, s, r, v - 5) for i, s, r, v in known.rows]
    raw = draw.random() < 0.6
    text = text_table(pd.DataFrame(rows, columns=head), draw, "\t", raw)
    if draw.random() < 0.3: text = text.replace("\n", "\t# Documentation: https://example.org\n", 1) if raw else text
    known.told.insert(0, f"mqm, {segment}{', raw' if raw else ''}")
    known.path = put(folder, "mqm.tsv", mistaken(text, draw, known), draw)
    known.texts_too = raw and "a mark" not in known.told # the texts are as they were as well
    return known


def summeval(known: Known, folder: Path, draw: random.Random) -> Known:
    lines = []
    for item, system in known.means():
        rated = [dict.fromkeys(("coherence", "consistency", "fluency", "relevance"), int(r)) for i, s, _, r in known.rows if (i, s) == (item, system)]
        row = {"id": item, "model_id": system, "decoded": known.texts[item, system], "references": ["a", "b"], "expert_annotations": rated, "turker_annotations": []}
        lines.append(json.dumps(dict(draw.sample(list(row.items()), len(row)))))
    known.told.insert(0, "summeval")
    known.path = put(folder, "model_annotations.aligned.jsonl", "\n".join(lines), draw)
    return known


def xsum(known: Known, folder: Path, draw: random.Random) -> Known:
    known.rows = [(i, s, r, float(v > 2)) for i, s, r, v in known.rows]
    frame = pd.DataFrame([(i, s, known.texts[i, s], ("no", "yes")[int(v)], r) for i, s, r, v in known.rows], columns=["bbcid", "system", "summary", "is_factual", "worker_id"])
    known.told.insert(0, "xsum")
    known.path = put(folder, "factuality.csv", mistaken(text_table(frame, draw, ",", False), draw, known), draw)
    return known


def score_file(known: Known, folder: Path, draw: random.Random) -> Known:
    items = list(dict.fromkeys(row[0] for row in known.rows))
    means = known.means()
    systems = list(dict.fromkeys(row[1] for row in known.rows))
    known.rows = [(str(items.index(i) + 1), s, "", v) for (i, s), v in means.items()]
    known.path = folder/"en-de.mqm.seg.score"
    known.path.write_text("".join(f"{s}\t{means[i, s]!r}\n" for s in systems for i in items))
    known.told.insert(0, "a file of scores")
    return known


# ---- metrics and votes

def metric_file(known: Known, folder: Path, draw: random.Random) -> tuple[Known, str, bool]: # name of the metric, whether less is better
    "The means as scores of a metric."
    means = known.means()
    items, systems = list(dict.fromkeys(i for i, _ in means)), list(dict.fromkeys(s for _, s in means))
    how = draw.choice(("blocks", "comet json", "comet text", "metricx", "blanks", "wide", "long", "parquet", "semicolons", "named"))
    number = {i: str(k) for k, i in enumerate(items, 1)}
    counted = how in ("blocks", "comet json", "comet text")
    known.rows = [(number[i] if counted else i, s, "", v) for (i, s), v in means.items()]
    frame = pd.DataFrame([(i, s, v) for (i, s), v in means.items()], columns=["item", "system", "bleu"])
    known.told.insert(0, f"metric, {how}")
    if how == "blocks":
        known.path = folder/"bleu.seg.score"
        known.path.write_text("".join(f"{s}\t{means[i, s]!r}\n" for s in systems for i in items))
    elif how == "comet json":
        known.path = put(folder, "comet.json", json.dumps({f"out/{s}.txt": [{"src": "s", "mt": known.texts[i, s], "COMET": means[i, s], "errors": []} for i in items] for s in systems}), draw)
    elif how == "comet text":
        known.rows = [(*row[:3], round(row[3], 4)) for row in known.rows]
        lines = [line for s in systems for line in (*(f"{s}.txt\tSegment {k}\tscore: {means[i, s]:.4f}" for k, i in enumerate(items)), f"{s}.txt\tscore: 0.5")]
        known.path = put(folder, "comet.txt", "\n".join(lines), draw)
    elif how == "metricx":
        known.path = put(folder, "mx.jsonl", "\n".join(json.dumps({"source": "s", "hypothesis": known.texts[i, s], "reference": "r", "system_id": s, "segment_id": i, "prediction": v})
                                                        for (i, s), v in means.items()), draw)
    elif how == "blanks": known.path = put(folder, "avg.tsv", "system bleu seg_id\n" + "".join(f"{s} {v!r} {i}\n" for (i, s), v in means.items()), draw)
    elif how == "wide": known.path = put(folder, "bleu.csv", text_table(frame.assign(text=[known.texts[key] for key in means]), draw, ",", False), draw)
    elif how == "long": known.path = put(folder, "bleu.csv", text_table(frame.rename(columns={"bleu": "value"}).assign(metric="bleu"), draw, draw.choice(",;\t"), False), draw)
    elif how == "semicolons":
        known.rows = [(*row[:3], round(row[3], 4)) for row in known.rows]
        known.path = put(folder, "bleu.csv", frame.assign(bleu=[f"{v:.4f}".replace(".", ",") for v in frame["bleu"]]).to_csv(index=False, sep=";"), draw)
    elif how == "named":
        known.options = {"item": "nr", "value": "bleu"}
        known.path = put(folder, "bleu.csv", text_table(frame.rename(columns={"item": "nr"}).assign(remark="x", year=1999), draw, ",", False), draw)
    else:
        known.path = folder/"bleu.parquet"
        frame.to_parquet(known.path)
    return known, "MetricX" if how == "metricx" else "COMET" if how.startswith("comet") else "bleu", how == "metricx"


def vote_file(known: Known, folder: Path, draw: random.Random) -> dict: # (item, pair) -> system -> votes
    "Votes of each rater between the first two systems of an item: who was rated higher."
    a, b = list(dict.fromkeys(row[1] for row in known.rows))[:2]
    rating = {row[:3]: row[3] for row in known.rows}
    how = draw.choice(("models", "outputs", "one column each", "names"))
    rows, won = [], {}
    for item, rater in dict.fromkeys((row[0], row[2]) for row in known.rows):
        first, second = (a, b) if draw.random() < 0.5 else (b, a)
        lead = rating[item, first, rater] - rating[item, second, rater]
        at = 0 if lead > 0 else 1 if lead < 0 else 2
        for s, share in zip((first, second), ((1, 0), (0, 1), (0.5, 0.5))[at]): won[item, s] = won.get((item, s), 0) + share
        texts = known.texts[item, first], known.texts[item, second]
        if how == "outputs": rows.append(dict(question_id=item, output_1=texts[0], output_2=texts[1], generator_1=first, generator_2=second, annotator=rater, preference=(1, 2, 1.5)[at]))
        elif how == "one column each": rows.append(dict(question_id=item, model_a=first, model_b=second, winner_model_a=int(at == 0), winner_model_b=int(at == 1), winner_tie=int(at == 2)))
        else: rows.append(dict(question_id=item, model_a=first, model_b=second, answer_a=texts[0], answer_b=texts[1], judge=rater,
                               winner=(first, second, "tie")[at] if how == "names" else ("model_a", "model_b", draw.choice(("tie", "tie (bothbad)")))[at]))
    known.told.insert(0, f"votes, {how}")
    if draw.random() < 0.5: known.path = put(folder, "votes.json", json.dumps(rows), draw)
    else: known.path = put(folder, "votes.csv", mistaken(text_table(pd.DataFrame(rows), draw, draw.choice(",;\t"), False), draw, known), draw)
    return won


WRITERS = (in_cells, in_cells, in_records, by_column, several_of_a_hit, of_a_form, label_studio, mqm, mqm, summeval, xsum, score_file)


def close(one: dict, other: dict) -> bool: return one.keys() == other.keys() and all(abs(one[k] - other[k]) < 1e-6 for k in one)


def check(seed: int, number: int, folder: Path) -> tuple[str, str]: # "same", "refused" or "different", and how it was written
    "The same file for the same seed and number, read back."
    draw = random.Random(f"tables:{seed}:{number}")
    known = known_table(draw)
    what = draw.choices(("ratings", "metric", "votes"), (7, 2, 2))[0]
    try:
        if what == "metric":
            known, name, less = metric_file(known, folder, draw)
            table = metric_table(known.path, **known.options)
            found = {(i, s): v for i, s, m, v in table.itertuples(index=False) if m == name}
            same = close(found, known.means()) and set(table["metric"]) == {name} and (table.attrs.get("lower", ()) == ("MetricX",)) == less
        elif what == "votes":
            won = vote_file(known, folder, draw)
            table = load_judgments(known.path).table
            found = {}
            for row in table.to_dict("records"):
                for s, v in ((row["first_system"], row["votes_first"]), (row["second_system"], row["votes"] - row["votes_first"])):
                    found[row["group"], s] = found.get((row["group"], s), 0) + v
            same = close(found, won)
        else:
            known = draw.choice(WRITERS)(known, folder, draw)
            judged = load_judgments(known.path, **known.options)
            same = not isinstance(judged, Choices) and close(judged.scores.groupby(["item", "system"])["score"].mean().to_dict(), known.means())
            if same and known.texts_too:
                same = {(r.item, r.system): r.output for r in judged.outputs.itertuples()} == {k: v for k, v in known.texts.items() if k in known.means()}
        return "same" if same else "different", "; ".join(known.told)
    except InputError as error: return "refused", f"{'; '.join(known.told)}: {error}"
