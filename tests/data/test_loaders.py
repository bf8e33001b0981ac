"Loaders, datasets, generators, PIL pictures and arrays give the same scores as one tensor, and what cannot be meant is refused."
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.data.items import collect_items

TARGET = (255*torch.rand(9, 3, 16, 16, generator=torch.Generator().manual_seed(0))).byte()
PRED = (0.9*TARGET).byte()


class Labeled(Dataset):
    def __init__(self, images): self.images = images
    def __len__(self): return len(self.images)
    def __getitem__(self, i):
        if i >= len(self): raise IndexError(i)
        return self.images[i], i % 3


class Stream(IterableDataset):
    def __init__(self, items): self.items = items
    def __iter__(self): return iter(self.items)


def pictures(images) -> list: return [Image.fromarray(x.movedim(0, -1).numpy()) for x in images]


FORMS = {"loader": lambda x: DataLoader(Labeled(x), batch_size=4), "loader of tensors": lambda x: DataLoader(TensorDataset(x), batch_size=5),
         "loader of mappings": lambda x: DataLoader([{"label": i, "image": y} for i, y in enumerate(x)], batch_size=2),
         "loader of pictures": lambda x: DataLoader(pictures(x), batch_size=4, collate_fn=list), "dataset": Labeled, "iterable dataset": Stream,
         "generator": lambda x: (y for y in x), "batches": lambda x: iter(x.split(4)), "pictures": pictures,
         "pictures and labels": lambda x: zip(pictures(x), range(9)), "numpy": lambda x: x.movedim(1, -1).numpy(),
         "rows of numpy": lambda x: iter(x.numpy()), "list": list}


def test_pictures_score_alike_in_every_form():
    wanted = im.score(PRED, TARGET, ["psnr", "fd"], encoder="mean-color", reps=50)
    for form, make in FORMS.items():
        found = im.score(make(PRED), make(TARGET), ["psnr", "fd"], encoder="mean-color", reps=50)
        for name in wanted: assert (found[name].value, found[name].ci) == (wanted[name].value, wanted[name].ci), form
    several = im.score({"a": iter(PRED), "b": DataLoader(Labeled(TARGET))}, Labeled(TARGET), "psnr", ci=False)
    assert several["a"]["psnr"].value == wanted["psnr"].value < several["b"]["psnr"].value
    mixed = [Image.new(mode, (16, 16)) for mode in ("L", "RGB", "RGBA", "P")]
    assert im.score(mixed, mixed, "psnr", ci=False)["psnr"].n == 4


def test_features_come_in_batches():
    x, y = torch.randn(2, 40, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = float(im.score(x, y, "fd", ci=False)["fd"])
    assert float(im.score(iter(x.split(7)), DataLoader(TensorDataset(y, torch.arange(40)), batch_size=6), "fd", ci=False)["fd"]) == wanted
    assert float(im.score(iter(x), (row.numpy() for row in y), "fd", ci=False)["fd"]) == wanted


def test_texts_score_alike_in_every_form():
    pred, target = ["a red cat sat", "the dog ran", "two birds", "old boats lie there"], [["a red cat sat down"], ["the dog ran off", "a dog ran"], ["two birds"], ["boats lie there"]]
    wanted = float(im.score(pred, target, "bleu", ci=False)["bleu"])
    forms = {"loader": (DataLoader(pred, batch_size=2), DataLoader(target, batch_size=2)), "generator": (iter(pred), iter(target)),
             "mappings": (DataLoader([{"caption": t, "id": i} for i, t in enumerate(pred)], batch_size=3), Stream([{"references": r} for r in target])),
             "labels": (zip(pred, range(4)), target), "own batches": (DataLoader(pred, batch_size=3, collate_fn=list), DataLoader(target, batch_size=3, collate_fn=list))}
    for form, (p, t) in forms.items(): assert float(im.score(p, t, "bleu", ci=False)["bleu"]) == wanted, form


@pytest.mark.parametrize("source, says", [
    (lambda: DataLoader(Labeled(PRED), shuffle=True), "shuffle=False"),
    (lambda: DataLoader(Labeled(PRED), sampler=DistributedSampler(Labeled(PRED), 1, 0)), "shuffle=False"),
    (lambda: DataLoader(TensorDataset(PRED, TARGET), batch_size=4), "holds 2 pictures"),
    (lambda: zip(pictures(PRED), pictures(TARGET)), "holds 2 pictures"), (lambda: iter(["a.png", "b.png"]), "str is no picture"),
    (lambda: (i for i in range(3)), "int is no picture"), (lambda: iter([]), "empty"), (lambda: list, "type"), (lambda: object(), "object"),
    (lambda: torch.nn.Sequential(torch.nn.ReLU()), "no picture"), (lambda: iter([*PRED[:8], PRED[0, :, :4]]), "16×4 against 16×16")])
def test_what_cannot_be_meant_is_refused_in_one_line(source, says):
    with pytest.raises(InputError, match=says) as error: im.score(source(), TARGET, "psnr")
    assert "\n" not in str(error.value)


def test_what_is_no_stream_comes_back_untouched():
    for source in ("folder", TARGET, TARGET.numpy(), [1, 2], {"a": 1}, ("a", "b"), {1, 2}, None, 3, np.zeros(2), Image.new("RGB", (2, 2))):
        assert collect_items(source) is source
