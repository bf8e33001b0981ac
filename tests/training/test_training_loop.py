"The code that the page of training loops shows is run as it stands there."
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torchmetrics
from torch.utils.data import DataLoader, TensorDataset

import invariant_metrics as im

ROOT = Path(__file__).parents[2]
IMAGES = torch.rand(2, 160, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def blocks() -> dict[str, str]:
    "By a word of theirs: the blocks of Python in its prose, and the open cell of a loop."
    cells = json.loads((ROOT/"nbs"/"tutorials"/"080_training_loops.ipynb").read_text(encoding="utf-8"))["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    loop, = ("".join(cell["source"]) for cell in cells if "metrics.update" in "".join(cell["source"]) and cell["cell_type"] == "code")
    found = [loop[loop.index("metrics ="):], *re.findall(r"```\s*python\n(.*?)```", prose, re.S)]
    assert len(found) == 3
    return {word: next(block for block in found if word in block) for word in ("MetricCollection", "LightningModule", "batch_decode")}


def fade(x): return 0.9*x


def test_torchmetrics(capsys):
    space = {"im": im, "MetricCollection": torchmetrics.MetricCollection, "model": fade, "validation": DataLoader(TensorDataset(IMAGES[0], IMAGES[0]), batch_size=40)}
    exec(blocks()["MetricCollection"], space)
    found = space["metrics"].compute()
    wanted = im.score(fade(IMAGES[0]), IMAGES[0], ["psnr", "fd"], ci=False)
    assert set(found) == {"psnr", "fd"}
    for name, score in wanted.items(): assert float(found[name]) == pytest.approx(float(score), rel=1e-5)
    score = space["metrics"]["psnr"].score()
    assert score.ci.low < score.value < score.ci.high and str(score) in capsys.readouterr().out


class Stand(torch.nn.Module):
    "What a LightningModule is to a metric: it takes the object that is logged, computes it when the epoch ends, and resets it."
    def log(self, name: str, value) -> None:
        assert isinstance(value, torchmetrics.Metric) and value in [*self.modules()]
        self.logged = {name: value}


def test_lightning_logs_it():
    space = {"im": im, "LightningModule": Stand}
    exec(blocks()["LightningModule"], space)
    model = space["Colorizer"]()
    model.forward = fade
    for start in (0, 80): model.validation_step((IMAGES[0][start:start + 80], IMAGES[0][start:start + 80]), start)
    (name, metric), = model.logged.items()
    assert name == "val/psnr" and float(metric) == pytest.approx(float(im.score(fade(IMAGES[0]), IMAGES[0], "psnr", ci=False)["psnr"]), rel=1e-6)
    assert not [*model.parameters()] and not model.state_dict()  # nothing of the metric goes into checkpoints


def test_lightning_itself():
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")
    space = {"im": im, "LightningModule": lightning.LightningModule}
    exec(blocks()["LightningModule"], space)
    class Trained(space["Colorizer"]):
        def forward(self, x): return fade(x)
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    found, = trainer.validate(Trained(), DataLoader(TensorDataset(*IMAGES[[0, 0]]), batch_size=40), verbose=False)
    assert found["val/psnr"] == pytest.approx(float(im.score(fade(IMAGES[0]), IMAGES[0], "psnr", ci=False)["psnr"]), rel=1e-5)


class Words:
    "A tokenizer as Trainer users have it."
    pad_token_id = 0
    words = "<pad> a red cat dog sat ran".split()

    def batch_decode(self, ids, skip_special_tokens): return [" ".join(self.words[i] for i in row if i or not skip_special_tokens) for row in ids]


def test_the_trainer_of_transformers():
    from transformers import EvalPrediction
    space = {"im": im, "np": np, "tokenizer": Words()}
    exec(blocks()["batch_decode"], space)
    found = space["text_metrics"](EvalPrediction(predictions=np.array([[1, 2, 3, 5], [1, 4, 6, 0]]), label_ids=np.array([[1, 2, 3, 5], [1, 2, 4, -100]])))
    wanted = im.score(["a red cat sat", "a dog ran"], ["a red cat sat", "a red dog"], ["bleu", "chrf"], ci=False)
    assert found == {name: float(score) for name, score in wanted.items()} and all(type(x) is float for x in found.values())
