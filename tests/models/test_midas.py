"""MiDaS 2.1: equal to the authors' code on weights filled by rule, under the published names of tensors.

midas.json holds what the published MidasNet and MidasNet_small give for the picture and weights of `filled`: the large one, the small one,
and a large one with a ResNet of depths 1, 2, 1, 1 with two groups of width 4 and 16 features ("narrow")."""
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from filled import filled, ramp, sample
from torch.nn import functional as F

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import IMAGENET
from invariant_metrics.models.midas import MiDaS, MiDaSConfig, _Fuse, _Refine, read_midas

PUBLISHED = json.loads((Path(__file__).parent/"midas.json").read_text())
CONFIGS = {"large": MiDaSConfig(), "narrow": MiDaSConfig(False, 16, (1, 2, 1, 1), 2, 4), "small": MiDaSConfig(True, 64)}


def tensors(config: MiDaSConfig) -> dict:
    with torch.device("meta"): names = MiDaS(config).state_dict()
    state = {name: torch.from_numpy(filled(name, tuple(value.shape))) for name, value in names.items() if "num_batches" not in name}
    return state | {"scratch.output_conv.4.bias": torch.full((1,), .5)} # or most of the map is 0


@pytest.mark.parametrize("kind", [pytest.param("large", marks=pytest.mark.slow), "narrow", "small"])
def test_forward_equals_the_original(kind):
    network = read_midas(tensors(CONFIGS[kind]))
    assert network.config == CONFIGS[kind] and not any(p.requires_grad for p in network.parameters())
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in IMAGENET)
    depth = network((torch.from_numpy(ramp(1, 3, 96, 96)) - mean)/std)
    assert depth.shape == (1, 96, 96) and depth.std() > .1
    assert np.abs(np.array(sample(depth)) - PUBLISHED[kind]).max() < 1e-5


def test_published_counts():
    with torch.device("meta"): networks = {kind: MiDaS(CONFIGS[kind]) for kind in ("large", "small")}
    assert {kind: sum(p.numel() for p in network.parameters()) for kind, network in networks.items()} == {"large": 105_362_945,
                                                                                                          "small": 21_320_545}


def test_published_names():
    "Of each part of both files one, as the published modules name them."
    with torch.device("meta"): large, small = ({k: tuple(v.shape) for k, v in MiDaS(CONFIGS[kind]).state_dict().items()} for kind in ("large", "small"))
    assert large["pretrained.layer1.0.weight"] == (64, 3, 7, 7) and large["pretrained.layer1.4.0.conv2.weight"] == (256, 8, 3, 3)
    assert large["pretrained.layer3.22.bn3.running_var"] == (1024,) and large["scratch.layer4_rn.weight"] == (256, 2048, 3, 3)
    assert large["scratch.refinenet4.resConfUnit1.conv1.bias"] == (256,) and large["scratch.output_conv.4.weight"] == (1, 32, 1, 1)
    assert "scratch.refinenet1.out_conv.weight" not in large and len(large) == 666
    assert small["pretrained.layer1.3.0.conv_dw.weight"] == (32, 1, 3, 3) and small["pretrained.layer1.1.running_mean"] == (32,)
    assert small["scratch.refinenet4.out_conv.weight"] == (256, 512, 1, 1) and small["scratch.layer4_rn.weight"] == (512, 384, 3, 3)
    assert len(small) == 482


def test_shortcuts_of_the_two_sizes():
    x = torch.randn(1, 3, 5, 5)
    for clipped in (False, True):
        unit = _Refine(3, clipped)
        positive = x.clamp(min=0)
        inner = F.conv2d(F.conv2d(positive, unit.conv1.weight, unit.conv1.bias, padding=1).clamp(min=0), unit.conv2.weight, unit.conv2.bias,
                         padding=1)
        assert torch.allclose(unit(x), inner + (positive if clipped else x))
    with torch.no_grad(): # doubled with corners kept: the first and last values stay
        fuse = _Fuse(1, None)
        for p in fuse.parameters(): p.zero_()
        assert torch.allclose(fuse(torch.tensor([[[[1., 4.]]]]))[0, 0, 0], torch.tensor([1., 2., 3., 4.]))


def test_what_is_no_file_of_midas_says_so():
    state = tensors(CONFIGS["narrow"])
    assert read_midas({"optimizer": {}, "model": state}).config == CONFIGS["narrow"]
    with pytest.raises(InputError, match="opens from its folder of transformers"): read_midas({"pretrained.model.pos_embed": torch.zeros(1)})
    with pytest.raises(InputError, match="1 tensors are missing, scratch.layer2_rn.weight among them"):
        read_midas({name: value for name, value in state.items() if name != "scratch.layer2_rn.weight"})
    with pytest.raises(InputError, match="1 tensors have no place in it: more"): read_midas(state | {"more": torch.zeros(1)})
