"The paper's two frozen networks as invariants, from files: what reaches the first convolution, gradients, zeros, kept targets."
import copy
from dataclasses import replace

import pytest
import torch
from filled import filled, ramp
from tiny_networks import save_san
from torch import nn

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import CLIP, IMAGENET
from invariant_metrics.invariants.depth import silog
from invariant_metrics.invariants.invariant import get_invariant, invariant_weight_names
from invariant_metrics.invariants.segmentation import _query_maps, dice
from invariant_metrics.models.midas import MiDaS, MiDaSConfig
from invariant_metrics.training.augmented import TargetCache


def midas_file(folder, config: MiDaSConfig, name: str):
    with torch.device("meta"): shapes = MiDaS(config).state_dict()
    state = {key: torch.zeros(()) if "num_batches" in key else torch.from_numpy(filled(key, tuple(value.shape))) for key, value in shapes.items()}
    state["scratch.output_conv.4.bias"] = torch.full((1,), .5)
    torch.save(state, folder/name)
    return folder/name


@pytest.fixture(scope="module")
def midas(tmp_path_factory):
    return get_invariant("midas", midas_file(tmp_path_factory.mktemp("midas"), MiDaSConfig(False, 16, (1, 1, 1, 1), 2, 4), "midas_v21_384.pt"))


@pytest.fixture(scope="module")
def quick_midas(midas): # on smaller pictures
    quick = copy.deepcopy(midas)
    quick.network.prepare = replace(midas.network.prepare, size=96)
    return quick


@pytest.fixture(scope="module")
def picture(): return torch.from_numpy(ramp(2, 3, 48, 64))


def first_input(invariant, rgb) -> torch.Tensor:
    "What reaches the first convolution."
    seen = []
    first = next(module for module in invariant.modules() if isinstance(module, nn.Conv2d))
    handle = first.register_forward_pre_hook(lambda module, given: seen.append(given[0].detach()))
    invariant.value(rgb)
    handle.remove()
    return seen[0]


COLORS = {"gray": (.5, .5, .5), "black": (0., 0., 0.), "white": (1., 1., 1.), "red": (1., 0., 0.), "blue": (0., 0., 1.)}


def plain(color) -> torch.Tensor: return torch.tensor(color).view(1, 3, 1, 1).expand(1, 3, 48, 64)


@pytest.mark.parametrize("color", COLORS.values(), ids=COLORS)
def test_input_of_midas(midas, color):
    "Each channel less ImageNet's mean, over its deviation, at 384 pixels a side."
    found = first_input(midas, plain(color))
    expected = torch.tensor([(c - m)/s for c, m, s in zip(color, *IMAGENET)]).view(1, 3, 1, 1)
    assert found.shape == (1, 3, 384, 384) and torch.allclose(found, expected.expand_as(found), atol=1e-5)


def test_the_small_midas_is_recognized(tmp_path, picture):
    small = get_invariant("midas", midas_file(tmp_path, MiDaSConfig(True, 64), "any name.pt"))
    assert first_input(small, picture[:1]).shape == (1, 3, 256, 256)
    assert "256-squash-bicubic-imagenet" in str(small.signature)
    assert small.violation(picture[:1], picture[:1]).item() == 0


def check_gradients(invariant, picture):
    pred = (picture*.8).requires_grad_()
    loss = invariant.loss(pred, picture)
    loss.sum().backward()
    assert loss.shape == (2,) and (loss > 0).all() and pred.grad.isfinite().all() and (pred.grad.abs().sum((1, 2, 3)) > 0).all()
    assert not any(p.requires_grad or p.grad is not None for p in invariant.parameters())
    assert not invariant.train().training


def test_gradients_of_midas(quick_midas, picture): check_gradients(quick_midas, picture)


def check_kept_targets(invariant, picture):
    "The targets are read once, whatever is looked up after; the loss is that of fresh ones but for half precision."
    calls = []
    handle = invariant.network.register_forward_pre_hook(lambda module, given: calls.append(len(given[0])))
    kept = TargetCache(invariant, picture)
    read = sum(calls)
    for index in ([0, 1], [1, 0], [1]): kept[torch.tensor(index)]
    assert sum(calls) == read
    handle.remove()
    again = invariant.loss(picture*.8, target_value=kept[torch.tensor([0, 1])])
    assert torch.allclose(again, invariant.loss(picture*.8, picture), atol=5e-3)


def test_targets_of_midas_are_read_once(quick_midas, picture): check_kept_targets(quick_midas, picture)


def test_a_map_of_zeros_has_a_finite_loss():
    "The last ReLU gives exact zeros; against a map of ones the distance is log(1.001/.001), less what a common factor is forgiven."
    zeros, ones = torch.zeros(1, 4, 4, requires_grad=True), torch.ones(1, 4, 4)
    loss = silog(zeros, ones)
    loss.sum().backward()
    assert loss.item() == pytest.approx(6.908755*(1 - .85)**.5, abs=1e-3) and zeros.grad.isfinite().all()


def test_files_that_are_no_midas_say_so(tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path/"a.pt")
    with pytest.raises(InputError, match="no MiDaS 2.1"): get_invariant("midas", tmp_path/"a.pt")
    (tmp_path/"b.pt").write_text("text")
    with pytest.raises(InputError, match="not a readable weights file"): get_invariant("midas", tmp_path/"b.pt")
    with pytest.raises(InputError, match="run: curl -LO https://github.com/isl-org/MiDaS"): get_invariant("midas", "midas-v21-small")
    assert invariant_weight_names("midas") == ("midas",)


@pytest.fixture(scope="module")
def san(tmp_path_factory):
    folder = tmp_path_factory.mktemp("san")
    save_san(folder)
    return get_invariant("san", folder)


@pytest.mark.parametrize("color", COLORS.values(), ids=COLORS)
def test_input_of_san(san, color):
    "255 times RGB, less CLIP's mean, over its deviation; the side network gets 64 pixels here (640 in full), CLIP half of that."
    convs = {"clip": san.network.model.clip_visual_extractor.conv1, "side": san.network.model.side_adapter_network.vit_model.patch_embed.proj}
    seen = {}
    handles = [conv.register_forward_pre_hook(lambda m, given, name=name: seen.update({name: given[0]})) for name, conv in convs.items()]
    san.value(plain(color))
    for handle in handles: handle.remove()
    expected = torch.tensor([(255*c - 255*m)/(255*s) for c, m, s in zip(color, *CLIP)]).view(1, 3, 1, 1)
    assert (seen["side"].shape, seen["clip"].shape) == ((1, 3, 64, 64), (1, 3, 32, 32))
    for x in seen.values(): assert torch.allclose(x, expected.expand_as(x), atol=1e-4)


def test_maps_and_distance_of_san(san, picture):
    "Class maps, divided by their sum over classes; Dice per class that is there."
    model, square = san.network.model, san.network.prepare.resized(picture)
    maps = model(255*square)
    value = san.value(picture)
    assert torch.allclose(value, maps/maps.sum(1, keepdim=True), atol=1e-5) and torch.allclose(value.sum(1), torch.ones(2, 4, 4), atol=1e-5)
    other = san.value(picture*.8)
    assert torch.allclose(san.loss(picture*.8, picture), dice(other, value))
    hard = torch.eye(3)[:, :2].T.reshape(1, 2, 1, 3) # two classes, three pixels, the last of neither
    assert torch.allclose(_query_maps(torch.tensor([[[30., 0, 0], [0, 30., 0]]]), 60*hard - 30).exp()[..., :2], torch.eye(2).reshape(1, 2, 1, 2), atol=1e-4)


def test_gradients_of_san(san, picture): check_gradients(san, picture)


def test_targets_of_san_are_read_once(san, picture): check_kept_targets(san, picture)


def test_files_that_are_no_san_say_so(tmp_path):
    (tmp_path/"whole").mkdir()
    state = save_san(tmp_path/"whole")
    torch.save({key: value for key, value in state.items() if not key.startswith("clip_")}, tmp_path/"san.pth")
    with pytest.raises(InputError, match="no whole SAN: the file has no CLIP"): get_invariant("san", tmp_path/"san.pth")
    torch.save(state, tmp_path/"san_2.pth")
    with pytest.raises(InputError, match="expected a folder with san_vit_b_16.pth"): get_invariant("san", tmp_path)
    torch.save(state, tmp_path/"san_vit_b_16.pth")
    assert get_invariant("san", tmp_path, kind="cross-entropy").name == "san"
    assert invariant_weight_names("san") == ("san",)
    with pytest.raises(InputError, match="weights fetch san@COMMIT"): get_invariant("san")
