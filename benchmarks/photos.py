"""What the tiles of real photographs look like, and how near graph segmentation comes to regions drawn by people.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/photos.py      (writes nbs/results/photos.csv)
FOLDER holds bsds500/images, bsds500/segmentations and imagenet_sample/images."""
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from invariant_metrics.files import atomic_write
from invariant_metrics.data.photos import Photo, folder_photos, found_regions, given_regions, label_maps
from invariant_metrics.data.photos import packaged_photos, shrink, cut_tiles


def survey(name: str, photos: list[Photo], regions: Path | None = None) -> dict:
    "One row: how many tiles eight tries a photograph give, what was left out, and the regions in a tile."
    cut = cut_tiles(photos, size=64, per_photo=8, seed=0, regions=regions)
    ledger, count = cut.ledger, cut.regions.flatten(1).amax(1) + 1
    return {"photographs": name, "regions": "people" if regions else "graph", "n": len(photos), "without a tile": int((ledger["used"] == 0).sum()),
            "tiles": len(cut), "colorless tries": int(ledger["colorless"].sum()), "one-region tries": int(ledger["one_region"].sum()),
            "regions per tile": float(count.float().median())}


def agreement(photos: list[Photo], regions: Path) -> dict[str, float]:
    "Adjusted Rand index (1 same partition, 0 chance), mean over photographs: graph against a person, a person against another."
    graph, people = [], []
    for photo in photos:
        small, maps = shrink(photo.rgb, 192), list(label_maps(photo, regions).values())
        drawn = [given_regions(photo, file, small.shape[:2]).ravel() for file in maps[:2]]
        graph.append(adjusted_rand_score(drawn[0], found_regions(small).ravel()))
        if len(drawn) == 2: people.append(adjusted_rand_score(*drawn))
    return {"graph": float(np.mean(graph)), "people": float(np.mean(people))}


def table(root: Path) -> pd.DataFrame:
    "All rows: packaged photographs, ImageNet sample, BSDS500 with graph regions and with people's."
    bsds, labels = folder_photos(root/"bsds500"/"images"), root/"bsds500"/"segmentations"
    rows = [survey("packaged", packaged_photos()), survey("imagenet_sample", folder_photos(root/"imagenet_sample"/"images")),
            survey("bsds500", bsds), survey("bsds500", bsds, labels)]
    agree = agreement(bsds, labels)
    return pd.DataFrame(rows).assign(**{"agreement with a person": [np.nan, np.nan, agree["graph"], agree["people"]]})


if __name__ == "__main__":
    found = table(Path(os.environ["INVARIANT_METRICS_DATA"]))
    with atomic_write(Path(__file__).parent.parent/"nbs"/"results"/"photos.csv") as path: found.to_csv(path, index=False, float_format="%.4g")
    print(found.to_string(index=False))
