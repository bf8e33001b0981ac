"""ConSE on photographs with captions: how often a caption finds its photograph.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/conse.py
FOLDER holds coco_mini. Writes nbs/results/conse.csv: one row a model, recall at 1 and 5 and the median rank of the right
photograph for each caption, and the recall at 1 of captions for each photograph."""
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from invariant_metrics.encoders.conse import conse
from invariant_metrics.encoders.image_text import ImageText, image_text
from invariant_metrics.files import atomic_write

RESULTS = Path(__file__).parent.parent/"nbs"/"results"


def shown(root: Path) -> tuple[list[torch.Tensor], list[str], np.ndarray]: # pictures, captions, the picture of each
    "Photographs with their captions."
    images = json.loads((root/"instances.json").read_text())["images"]
    pictures = [torch.from_numpy(np.array(Image.open(root/"images"/i["file_name"]).convert("RGB"))).permute(2, 0, 1).float()/255 for i in images]
    return pictures, [c for i in images for c in i["captions"]], np.repeat(np.arange(len(images)), [len(i["captions"]) for i in images])


def retrieval(model: ImageText, pictures: list, captions: list[str], own: np.ndarray) -> dict[str, float]:
    "Recall and ranks from the cosines of all pairs."
    cosine = (model.texts(captions, long="cut")[0] @ model.images(pictures).T).numpy()
    rank = (cosine > cosine[np.arange(len(own)), own][:, None]).sum(1) + 1
    best = own[cosine.argmax(0)]
    return {"R@1": (rank == 1).mean(), "R@5": (rank <= 5).mean(), "median rank": np.median(rank), "captions R@1": (best == np.arange(len(pictures))).mean(),
            "photographs": len(pictures), "captions": len(captions)}


def main() -> None:
    pictures, captions, own = shown(Path(os.environ["INVARIANT_METRICS_DATA"])/"coco_mini")
    n = len(pictures)
    rows = {"chance": {"R@1": 1/n, "R@5": 5/n, "median rank": (n + 1)/2, "captions R@1": 1/n, "photographs": n, "captions": len(captions)},
            "embedded-clip": retrieval(image_text("embedded-clip"), pictures, captions, own)}
    for most in (1, 10, 1000): rows[f"conse, {most} class{'es'*(most > 1)}"] = retrieval(conse(most=most), pictures, captions, own)
    table = pd.DataFrame(rows).T.rename_axis("model").astype({"photographs": int, "captions": int})
    with atomic_write(RESULTS/"conse.csv") as path: table.to_csv(path, float_format="%.4g")
    print(table)


if __name__ == "__main__": main()
