"""The exported student at the size of the paper, with random weights: size, speed, and what 8 bits do to its scores.

    python benchmarks/lclip_export.py [THREADS]     (default 1; needs the extra onnx)

Kept in nbs/results/lclip_export.csv. On one thread times are those of the processor, which other programs do not change much. Forms: PyTorch in inference mode, ONNX in single precision, ONNX with weights of 8 bits.
Changes are of 2.5 times the cosine, over all pairs of 48 random pictures with 48 random texts, against PyTorch.
"""
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import torch

from invariant_metrics.lclip.exported import _TOWERS, _session, _to_int8, _onnx_model
from invariant_metrics.metrics.caption import WEIGHT
from invariant_metrics.models.multiplexed import LClip, LClipConfig
from invariant_metrics.people.statistics import kendall_b

ITEMS, BATCH = 48, 16


def inputs(config: LClipConfig) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, config.vocabulary - 2, (ITEMS, config.context), generator=draw)
    for row, length in zip(tokens, torch.randint(8, 30, (ITEMS,), generator=draw).tolist()): # captions of usual length
        row[length:] = 0
        row[length - 1] = config.vocabulary - 1
    return {"vision": torch.randn(ITEMS, 3, config.image, config.image, generator=draw), "text": tokens}


def seconds(run, towers: dict) -> float: # of both towers on these items
    run(towers)
    clock, spent = time.process_time if torch.get_num_threads() == 1 else time.perf_counter, []
    for _ in range(3):
        start = clock()
        run(towers)
        spent.append(clock() - start)
    return min(spent)


def measured(name: str, megabytes: float, run, given: dict, first: dict | None) -> tuple[dict, dict]:
    found = {}
    for i in range(0, ITEMS, BATCH):
        for tower, x in run({tower: x[i:i + BATCH] for tower, x in given.items()}).items(): found.setdefault(tower, []).append(x)
    unit = {tower: (y := np.concatenate(x))/np.linalg.norm(y, axis=1, keepdims=True) for tower, x in found.items()}
    scores = WEIGHT*(unit["vision"] @ unit["text"].T).ravel()
    base = scores if first is None else first
    one, many = ({tower: x[:n] for tower, x in given.items()} for n in (1, BATCH))
    row = {"form": name, "megabytes": round(megabytes, 1), "pairs per second": round(BATCH/seconds(run, many), 1), "ms for one pair": round(1e3*seconds(run, one), 1),
           "largest change": round(float(np.abs(scores - base).max()), 6), "mean change": round(float(np.abs(scores - base).mean()), 6), "tau": round(kendall_b(base, scores), 4)}
    print(row, flush=True)
    return row, base


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = LClipConfig()
    student = LClip(config).eval()
    given, axes = inputs(config), {"vision": {0: ("batch", None)}, "text": {0: ("batch", None), 1: ("length", config.context)}}

    def by_torch(items):
        with torch.inference_mode(): return {tower: getattr(student, tower)(x).numpy() for tower, x in items.items()}

    weights = sum(p.numel() for p in student.parameters())*4/1e6
    row, first = measured("PyTorch, float32", weights, by_torch, given, None)
    rows = [row]
    with tempfile.TemporaryDirectory() as folder:
        for tower, name in _TOWERS.items():
            onnx.save(_onnx_model(getattr(student, tower), given[tower][:2], name, axes[tower]), Path(folder, f"{tower}-float32.onnx"))
            _to_int8(Path(folder, f"{tower}-float32.onnx"), Path(folder, f"{tower}-int8.onnx"))
        for form in ("float32", "int8"):
            files = {tower: Path(folder, f"{tower}-{form}.onnx") for tower in _TOWERS}
            sessions = {tower: _session(file, threads) for tower, file in files.items()}
            def by_onnx(items): return {tower: sessions[tower].run(None, {_TOWERS[tower]: x.numpy()})[0] for tower, x in items.items()}
            rows.append(measured(f"ONNX, {form}", sum(f.stat().st_size for f in files.values())/1e6, by_onnx, given, first)[0])
    pd.DataFrame(rows).to_csv(Path(__file__).parents[1]/"nbs/results/lclip_export.csv", index=False)


if __name__ == "__main__": main()
