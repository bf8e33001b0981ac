"""ChromaGAN: equal to the authors' Keras network on weights filled by rule, its file format, sizes, units.

chromagan.json holds what the published code (its `colorization_model` and `discriminator`, in Keras 3) gives for the picture and weights
of `filled`, all widths but the thousand classes divided by 16."""
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from filled import filled, ramp, sample

from invariant_metrics.core import InputError
from invariant_metrics.models.chromagan import (CHROMAGAN_SIZES, ChromaGAN, ChromaGANConfig, ChromaGANCritic, _keras_order,
                                                read_chromagan)
from invariant_metrics.models.colorizer import Colorizer, colorizers

PUBLISHED = json.loads((Path(__file__).parent/"chromagan.json").read_text())
VGG = [f"block{block}_conv{i}" for block, n in enumerate((2, 2, 3, 3), 1) for i in range(1, n + 1)]


def narrow(sizes): return tuple(size if size == "M" else size//16 for size in sizes)


def narrow_config() -> ChromaGANConfig:
    c = ChromaGANConfig()
    return ChromaGANConfig(narrow(c.trunk), c.side, narrow(c.middle), narrow(c.color), narrow(c.hidden), c.classes, narrow(c.decoder),
                           narrow(c.critic))


def keras_shape(value) -> tuple[int, ...]:
    sizes = tuple(value.shape)
    return (*sizes[2:], sizes[1], sizes[0]) if len(sizes) == 4 else sizes[::-1]


def keras_tensors(network) -> dict[str, np.ndarray]:
    "Keras' name -> numbers by rule, in Keras' layout."
    state, out = network.state_dict(), {}
    for kind, ours in _keras_order(network).items():
        for number, name in enumerate(ours, 1):
            layer = VGG[number - 1] if kind == "block" else f"{kind}_{number}"
            names = dict(weight="kernel", bias="bias")
            if kind == "batch_normalization":
                names = dict(weight="gamma", bias="beta", running_mean="moving_mean", running_var="moving_variance")
            for tensor, keras in names.items():
                out[f"{layer}/{keras}"] = filled(f"{layer}/{keras}", keras_shape(state[f"{name}.{tensor}"]), 1.4)
    return out


def write(path: Path, tensors: dict, prefix: str = "model_weights", suffix: str = ":0") -> Path:
    with h5py.File(path, "w") as file:
        for name, value in tensors.items():
            layer = name.split("/")[0]
            outer = "model_2" if layer.startswith("block") else layer # VGG is a model in the model
            file["/".join(filter(None, (prefix, outer, name))) + suffix] = value
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> ChromaGAN:
    with torch.device("meta"): empty = ChromaGAN(narrow_config())
    return read_chromagan(write(tmp_path_factory.mktemp("keras")/"a.h5", keras_tensors(empty)), narrow_config())


@torch.no_grad()
def test_generator_equals_the_original(published):
    ab, logits = published.ab_and_classes(100*torch.from_numpy(ramp(1, 1, 224, 224)))
    assert np.abs(np.array(sample((ab + 128)/255)) - PUBLISHED["ab"]).max() < 1e-5
    assert np.abs(np.array(sample(logits.log_softmax(-1))) - PUBLISHED["log_classes"]).max() < 3e-5 # logarithms down to -8


@torch.no_grad()
def test_critic_equals_the_original():
    critic = ChromaGANCritic(narrow_config())
    for i, conv in enumerate(critic.convs, 1):
        conv.weight.copy_(torch.from_numpy(filled(f"conv2d_{i}/kernel", keras_shape(conv.weight), 1.4)).permute(3, 2, 0, 1))
        conv.bias.copy_(torch.from_numpy(filled(f"conv2d_{i}/bias", tuple(conv.bias.shape))))
    ab = 255*torch.from_numpy(ramp(1, 224, 224, 2)[:, ::-1].copy()).permute(0, 3, 1, 2) - 128
    judged = critic(100*torch.from_numpy(ramp(1, 1, 224, 224)), ab)
    assert judged.shape == (1, 1, 28, 28)
    assert np.abs(np.array(sample(judged)) - PUBLISHED["critic"]).max() < 1e-5


def test_published_counts():
    "Keras counts running means and variances as parameters."
    def count(network): return sum(v.numel() for name, v in network.state_dict().items() if "num_batches" not in name)
    with torch.device("meta"): generator, critic = ChromaGAN(), ChromaGANCritic()
    assert (count(generator), count(critic)) == (171_171_722, 2_764_737)
    assert count(generator) + count(critic) == 173_936_459


@pytest.mark.parametrize("prefix, suffix, first", [("model_weights", ":0", 6), ("", "", 0), ("model_weights", ":0", 98)])
def test_layouts_of_keras_files(tmp_path, prefix, suffix, first):
    "Whole models and weights alone, old and new names, any first number (also one that changes its digits on the way)."
    with torch.device("meta"): empty = ChromaGAN(CHROMAGAN_SIZES["tiny"])
    names = {name: f"block1_conv{i}" for i, name in enumerate(VGG[:4], 1)}
    tensors = {}
    for name, value in keras_tensors(empty).items():
        layer, tensor = name.split("/")
        kind, _, number = layer.rpartition("_")
        if layer in names: layer = names[layer]
        else: layer = f"{kind}_{int(number) - 1 + first}" if int(number) - 1 + first else kind
        tensors[f"{layer}/{tensor}"] = value
    path = write(tmp_path/"a.h5", tensors, prefix, suffix)
    if prefix:
        with h5py.File(path, "a") as file: file["optimizer_weights/dense_1/kernel:0"] = np.zeros((3, 3), np.float32)
    network = read_chromagan(path, CHROMAGAN_SIZES["tiny"])
    first_dense = torch.from_numpy(filled("dense_1/kernel", (64, 64), 1.4)).T
    assert torch.equal(network.color[0].weight, first_dense)
    last = torch.from_numpy(filled("conv2d_12/kernel", (3, 3, 8, 2), 1.4))
    assert torch.equal(network.decoder[-1].weight[1, 5, 0, 2], last[0, 2, 5, 1])
    assert torch.equal(network.middle[1].norm.running_var, torch.from_numpy(filled("batch_normalization_6/moving_variance", (32,))))


def test_flattening_is_place_by_place():
    "A color branch that picks one number of the global map, by Keras' count of places and channels."
    network = ChromaGAN(ChromaGANConfig((2, "M", 3), 16, (4, 4), (1,), (2,), 3, (4, 4, 4, 4, 4), (4, 4))).eval()
    x = torch.rand(1, 1, 16, 16)*100
    whole = network.whole(network.features((x/100).expand(-1, 3, -1, -1))) # (1, 3, 2, 2)
    row, column, channel = 1, 0, 2
    with torch.no_grad():
        network.color[0].weight.zero_()[0, (row*2 + column)*3 + channel] = 1
        network.color[0].bias.zero_()
    seen = []
    network.color.register_forward_hook(lambda module, given, out: seen.append(out))
    network(x)
    assert torch.allclose(seen[0], whole[0, channel, row, column])


def test_what_is_no_published_file_says_so(tmp_path, monkeypatch):
    with torch.device("meta"): empty = ChromaGAN(CHROMAGAN_SIZES["tiny"])
    tensors = keras_tensors(empty)
    def fails(changed, words):
        with pytest.raises(InputError, match=words): read_chromagan(write(tmp_path/"a.h5", changed), CHROMAGAN_SIZES["tiny"])
    fails({name: value for name, value in tensors.items() if not name.startswith("dense_3")}, "5 layers called dense, not 6")
    fails({name: value for name, value in tensors.items() if name != "dense_3/bias"}, "color.2.bias among them")
    fails(tensors | {"dense_3/bias": np.zeros(7, np.float32)}, r"color.2.bias is \(7,\), not \(16,\)")
    with pytest.raises(InputError, match="as a Keras .h5 file"): read_chromagan(tmp_path/"none.h5")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(InputError, match=r"pip install 'invariant_metrics\[keras\]'"): read_chromagan(tmp_path/"a.h5")


def test_the_registered_colorizer():
    network = colorizers["chromagan"](seed=3)
    assert isinstance(network, Colorizer) and network.config == CHROMAGAN_SIZES["tiny"]
    assert torch.equal(network.color[1].weight, ChromaGAN(CHROMAGAN_SIZES["tiny"], 3).color[1].weight)
    with pytest.raises(InputError, match="size of ChromaGAN"): colorizers["chromagan"](size="medium")
    L = torch.rand(2, 1, 40, 24)*100
    ab = network(L)
    assert ab.shape == (2, 2, 40, 24) and ab.min() > -128 and ab.max() < 127
    (ab.mean() + network.ab_and_classes(L)[1].logsumexp(-1).sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    assert network.colorize(L).shape == (2, 3, 40, 24)


def test_slope_of_the_critic_has_another_unit():
    "One unit of the network is 255 Lab units of ab; a penalty on the slope has to know."
    critic = ChromaGANCritic(CHROMAGAN_SIZES["tiny"])
    L, ab = torch.rand(1, 1, 32, 32)*100, (50*torch.randn(1, 2, 32, 32)).requires_grad_()
    slope, = torch.autograd.grad(critic(L, ab).mean(), ab)
    units = ((ab.detach() + 128)/255).requires_grad_()
    in_units, = torch.autograd.grad(critic(L, 255*units - 128).mean(), units)
    assert torch.allclose(255*slope, in_units, rtol=1e-3, atol=1e-8)
