"""Which metric of captions notices an edit, and which one a foil that people wrote: COCO captions, SugarCrepe, VALSE.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/text_probe.py [WORKERS]     (writes nbs/results/text_probe.csv; some minutes)

200 of the 1,000 pictures of val2017 that have five captions each: one caption is edited, one is another right answer, three are
references. The edits are those of edits.word_edits and edits.word_families at levels 1 to 5, each proved by reading it again. Foils:
at most 200 of each kind of SugarCrepe and VALSE whose picture is among the 1,000, held against what else was said of it. The table
keeps the shares of all levels together with their intervals over pictures. Set OMP_NUM_THREADS=1; metrics that read with MiniLM need
its package."""
import os
import sys
import time
from pathlib import Path

from invariant_metrics.files import atomic_write
from invariant_metrics.probes.own_texts import own_probe

TABLE = Path(__file__).parent.parent/"nbs"/"results"/"text_probe.csv"


def main() -> None:
    if "INVARIANT_METRICS_DATA" not in os.environ: raise SystemExit("set INVARIANT_METRICS_DATA to the folder of the real data")
    place, began = Path(os.environ["INVARIANT_METRICS_DATA"]), time.perf_counter()
    found = own_probe("captioning", place/"coco_captions"/"val2017_1000.jsonl.gz", workers=int(sys.argv[1]) if len(sys.argv) > 1 else 1,
                      foils=[place/"sugarcrepe"/"sugarcrepe.jsonl.gz", place/"valse"/"valse.jsonl.gz"])
    table = found.auc[found.auc["level"] == "all"].drop(columns="level")
    ledger = found.ledger.groupby(["source", "family", "kind"], sort=False)[["matched", "not_applicable", "unmatched"]].sum().reset_index()
    table = table.merge(ledger, on=["source", "family"])
    dose = found.dose.groupby(["source", "metric", "family"], sort=False)["trend"].first().reset_index()
    table = table.merge(dose, on=["source", "metric", "family"])
    table = table[(table["view"] != "set") | (table["metric"] == "fbd")] # over sets only what has no other view
    print(table[table["view"] == "paired"].pivot_table(index="family", columns="metric", values="auc", sort=False).to_string(float_format="%.2f"))
    print(f"{time.perf_counter() - began:.0f} s, {time.process_time():.0f} s of this process; parts: {found.seconds}; {found.signatures}")
    with atomic_write(TABLE) as path: table.to_csv(path, index=False, float_format="%.3g")


if __name__ == "__main__": main()
