"""IMAGINE of painted scenes on texts that people have judged, and on captions of scenes.

Usage: python benchmarks/imagine_texts.py DATA [--store] [--n 300] [--seeds 2] [--folder PICTURES]
DATA holds wmt/newstest2017_deen_seg_da.jsonl and summarization/realsumm_outputs.jsonl.gz; what is missing is left out and said. --store writes
nbs/results/imagine_texts_levels.csv and imagine_texts_table.csv. --folder keeps the pictures, so that a run may go on after an interruption.
Run it with OMP_NUM_THREADS=1; the learned generator takes most of the time."""
import argparse
import sys
import tempfile
from pathlib import Path

import pandas as pd

from imagine import caption_pairs
from invariant_metrics.data.judgment_tables import Judgments
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.files import atomic_write
from invariant_metrics.imagine.real_texts import judged_pairs
from invariant_metrics.worlds.scene_captions import caption_truth, judge_captions, scenes_with_captions

sys.path.append(str(Path(__file__).parent.parent/"tests"))
from open_cells import open_cells  # noqa: E402

RESULTS = Path(__file__).parent.parent/"nbs"/"results"
SETS = { # name -> file, format, metrics
    "translations": ("wmt/newstest2017_deen_seg_da.jsonl", "wmt-da-seg", "bleu,chrf,rouge-l"),
    "summaries": ("summarization/realsumm_outputs.jsonl.gz", "realsumm", "rouge-1-f,rouge-2-f,chrf"),
    "captions of scenes": ("", "", "bleu,chrf,rouge-l")}


def scene_judgments(n: int) -> Judgments:
    "Captions of which every other one says something false; people's place is taken by the share of true claims."
    pred, target, _ = caption_pairs(n)
    scenes = scenes_with_captions(n, seed=7)
    true = judge_captions(pred, [caption_truth(scenes, i) for i in range(n)])["all"]
    items = [str(i) for i in range(n)]
    outputs = pd.DataFrame({"item": items, "system": "", "output": pred, "references": [(text,) for text in target]})
    return Judgments("captions of scenes", pd.DataFrame({"item": items, "system": "", "score": true}), outputs=outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--store", action="store_true", help="write the tables")
    parser.add_argument("--n", type=int, default=300, help="outputs of each collection")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where pictures are kept")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for name, (file, kind, metrics) in SETS.items():
            if file and not (options.data/file).is_file():
                print(f"{file} is not in {options.data}: {name} are left out", flush=True)
                continue
            judgments = load_judgments(options.data/file, kind) if file else scene_judgments(options.n)
            pairs = judged_pairs(judgments, options.n)
            found[name] = open_cells("imagine/80_real_texts").imagine_real_texts(pairs, metrics, seeds=options.seeds, folder=options.folder or home)
            print(name, found[name].levels.drop(columns="notes").round(3).to_string(index=False), sep="\n", flush=True)
            print(found[name].table[["generator", "metric", "added", "mean", "gain", "gain_low", "gain_high", "verdict"]].round(3).to_string(index=False), flush=True)
    for part in ("levels", "table"):
        frame = pd.concat([getattr(one, part).assign(data=name) for name, one in found.items()])
        if not options.store: continue
        with atomic_write(RESULTS/f"imagine_texts_{part}.csv") as path: frame.to_csv(path, index=False, float_format="%.4g")


if __name__ == "__main__": main()
