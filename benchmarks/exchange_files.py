"""Files of items and answers: processor seconds to write 100,000 items of text for a judge, and to read its answers.

Usage: OMP_NUM_THREADS=1 python benchmarks/exchange_files.py [--items 100000]      (writes nbs/results/exchange_files.csv)

An item has a text of 12 words, two references and a source. It is written through `ask_for`, from the call of a metric to the file on the
disk, and answered by the number of its letters: in a file of ids and scores, and in the file of items with scores added, whose texts are
then checked. Reading goes from the file to the values of all items, by the metric of its name. Seconds are processor time, medians of
three runs; what is read must equal what was given. `required` holds for writing and for reading."""
import argparse
import csv
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.files import atomic_write
from invariant_metrics.metrics.exchange import ask_for
from invariant_metrics.metrics.metric import extract, get_metric

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"exchange_files.csv"
ALLOWED = 10.0 # seconds
RUNS = 3


def sides(n: int) -> tuple[list[str], list[list[str]], list[str]]:
    words = np.array([f"{a}{b}" for a in "bcdfghklmn" for b in ("oat", "ed", "ill", "ane", "ock", "ure")])
    draw = rng(0, "exchange_files").integers(len(words), size=(4, n, 12))
    told = [[" ".join(row) for row in words[part]] for part in draw]
    return told[0], [list(pair) for pair in zip(told[1], told[2])], told[3]


def answered(items: Path, place: Path, whole: bool) -> Path:
    "A file of answers to a file of items: with all of its columns, or with ids and scores alone."
    if items.suffix == ".csv":
        table = pd.read_csv(items, dtype=str, keep_default_na=False)
        table = table.assign(score=table["prediction"].str.len())
        table[[*table] if whole else ["id", "score"]].to_csv(place, index=False, quoting=csv.QUOTE_MINIMAL)
        return place
    head, *lines = items.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    rows = [{**(row if whole else {"id": row["id"]}), "score": len(row["prediction"])} for row in rows]
    place.write_text("\n".join([head, *(json.dumps(row, ensure_ascii=False) for row in rows)]), encoding="utf-8")
    return place


def timed(call) -> tuple[float, object]:
    began = time.process_time()
    made = call()
    return time.process_time() - began, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    n = parser.parse_args().items
    pred, target, source = sides(n)
    def judge(metrics): return extract([get_metric(name) for name in metrics], pred, target, source, tensors=False)
    judge([]) # what is imported on the way is not counted
    rows = []
    for ending in (".jsonl", ".csv"):
        seconds = {}
        for run in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                items = Path(folder)/f"items{ending}"
                took, asked = timed(lambda: ask_for(items, judge))
                seconds.setdefault(("write", "items", items.stat().st_size), []).append(took)
                assert asked.items == len({*zip(pred, map(tuple, target), source)})
                for whole, what in ((False, "id and score"), (True, "items with scores")):
                    scores = answered(items, Path(folder)/f"scores-{whole}{ending}", whole)
                    took, found = timed(lambda: judge([f"answers:{scores}"]))
                    assert (found[scores.stem].pred == [len(text) for text in pred]).all()
                    seconds.setdefault(("read", what, scores.stat().st_size), []).append(took)
        rows += [{"work": f"{work} {what}, {ending}", "items": n, "megabytes": round(size/1e6, 1), "runs": RUNS, "seconds": round(statistics.median(took), 2),
                  "quantity": "seconds", "required": f"<= {ALLOWED:g}", "found": round(statistics.median(took), 2), "ok": statistics.median(took) <= ALLOWED}
                 for (work, what, size), took in seconds.items()]
        print(pd.DataFrame(rows).to_string(), flush=True)
    with atomic_write(TABLE) as path: pd.DataFrame(rows).to_csv(path, index=False)


if __name__ == "__main__": main()
