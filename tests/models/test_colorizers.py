"Published colorizers: numbers of the authors' own code, names of their tensors, layers against plain formulas and torch's own."
import csv
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from published_state import FIXED, filled, lightness, sampled
from torch import nn
from torch.nn import functional as F
from torchvision.models.swin_transformer import shifted_window_attention

from invariant_metrics.color import split_lab
from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import read_tensors, resolve
from invariant_metrics.models import colorformer, ddcolor
from invariant_metrics.models.colorformer import (ColorFormer, ColorFormerConfig, ColorMemory, _strangers, _WindowAttention, build_color_memory,
                                                  load_colorformer)
from invariant_metrics.models.colorizer import colorizers, load_published, published_name, seeded
from invariant_metrics.models.colorizer_blocks import GrayInput, PatchCritic, PixelShuffleBlur, SpectralConv2d, _PlaceAttention
from invariant_metrics.models.ddcolor import DDColor, DDColorConfig, load_ddcolor, sine_positions
from invariant_metrics.training.augmented import AugmentedLoss, color_batches, fork
from invariant_metrics.training.loop import Optim, Turn, fit
from invariant_metrics.worlds.scenes import make_scenes

HERE = Path(__file__).parent
ORIGINALS = json.loads((HERE/"colorizer_originals.json").read_text())
MAKE = {"ddcolor": lambda size: DDColor(DDColorConfig.of(size)), "colorformer": lambda size: ColorFormer(ColorFormerConfig.of(size)),
        "critic": lambda size: PatchCritic(8 if size == "tiny" else 64)}
RULES = {"ddcolor": ddcolor._RULES, "colorformer": colorformer._RULES, "critic": ()}
LOAD = {"ddcolor": load_ddcolor, "colorformer": load_colorformer,
        "critic": lambda tensors, size: load_published(MAKE["critic"](size), tensors, "critic")}
PARAMETERS = {("ddcolor", "tiny"): 90_452, ("ddcolor", "full"): 55_006_640, ("ddcolor", "large"): 227_869_328,
              ("colorformer", "tiny"): 438_962, ("colorformer", "full"): 44_816_990, ("critic", "tiny"): 93_937, ("critic", "full"): 5_919_617}


def published_tensors(network: str, size: str) -> dict[str, tuple[tuple[int, ...], str]]:
    "Name -> shape and kind of number, of the original's own state."
    with gzip.open(HERE/"colorizer_names.csv.gz", "rt") as file:
        return {row["name"]: (tuple(map(int, row["shape"].split())), row["dtype"]) for row in csv.DictReader(file)
                if (row["network"], row["size"]) == (network, size)}


def loaded(network: str, size: str) -> nn.Module:
    "Our network with the weights of the rule, through the loader of published files."
    shapes = {name: shape for name, (shape, _) in published_tensors(network, size).items()}
    own = {published_name(k, RULES[network]): v for k, v in MAKE[network](size).state_dict().items() if k.split(".")[-1] in FIXED}
    return LOAD[network]({"params": filled(shapes) | own}, size)


def drawn(*shape, seed: int = 0): return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("network, size", PARAMETERS)
def test_parameters_and_names_are_those_of_the_original(network, size):
    with torch.device("meta"): made = MAKE[network](size)
    assert sum(p.numel() for p in made.parameters()) == PARAMETERS[network, size]
    ours = {published_name(k, RULES[network]): (tuple(v.shape), str(v.dtype).split(".")[1]) for k, v in made.state_dict().items()}
    assert ours == published_tensors(network, size)


def test_what_no_gradient_reaches_is_frozen():
    frozen = {kind: sum(p.numel() for p in MAKE[kind]("tiny").parameters() if not p.requires_grad) for kind in ("ddcolor", "colorformer")}
    assert frozen == {"ddcolor": 2*32, "colorformer": 16*8 + 4*16*2}
    for kind in frozen:
        net = MAKE[kind]("tiny")
        net(lightness(2, 64, 64)).square().sum().backward()
        assert [k for k, p in net.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if "large" in c else []) for c in ORIGINALS])
def test_numbers_are_those_of_the_original(case):
    network, size, mode = case.split()
    made = loaded(network, size).train(mode == "train")
    for m in made.modules():
        if type(m).__name__ == "StochasticDepth": m.p = 0. # which draws at random
    n = 2 if mode == "train" else 1
    x = {"ddcolor": lambda: lightness(n, 64, 96), "colorformer": lambda: lightness(n, 64, 64),
         "critic": lambda: lightness(6, 96, 96).view(2, 3, 96, 96)/100}[network]()
    with torch.no_grad(): found = made(x)
    assert found.numel() == math.prod(ORIGINALS[case]["shape"])
    wanted = torch.tensor(ORIGINALS[case]["numbers"], dtype=torch.float64)
    assert wanted.abs().max() > .1
    assert torch.allclose(sampled(found), wanted, rtol=0, atol=1e-5), (sampled(found) - wanted).abs().max()


def test_files_open_without_running_code(tmp_path):
    net = colorizers["ddcolor"](seed=3).eval()
    state = {published_name(k, ddcolor._RULES): v for k, v in net.state_dict().items()}
    torch.save({"params": state, "epoch": 7}, tmp_path/"net_g.pth")
    again = colorizers["ddcolor"](size="tiny", weights=read_tensors(resolve(tmp_path/"net_g.pth"))).eval()
    L = lightness(1, 40, 40)
    with torch.no_grad():
        assert torch.equal(again(L), net(L))
        mean = {k: v + 1 if k == "refine_net.0.0.bias" else v for k, v in state.items()}
        assert torch.allclose(load_ddcolor({"params": state, "params_ema": mean}, "tiny").eval()(L), net(L) + 1, atol=1e-5)


def test_a_file_of_another_size_says_what_does_not_fit():
    state = {published_name(k, colorformer._RULES): v for k, v in MAKE["colorformer"]("tiny").state_dict().items()}
    lost = {k: v for k, v in state.items() if "color_center" not in k}
    with pytest.raises(InputError, match=r"no ColorFormer of size tiny: 4 tensors are missing, seg_decoder.layers.3.color_center1, .* among them$"):
        load_colorformer(lost, "tiny")
    with pytest.raises(InputError, match=r"1 tensors have no place in it: more$"): load_colorformer(state | {"more": torch.zeros(1)}, "tiny")
    with pytest.raises(InputError, match=r"another shape: encoder.arch.patch_embed.proj.weight is \(12, 3, 4, 4\), not \(96, 3, 4, 4\), "):
        load_colorformer(state)


@pytest.mark.parametrize("name", ["unet", "ddcolor", "colorformer"])
def test_sizes_and_seeds_by_name(name):
    one, same, other = (colorizers[name](seed=s, size="tiny") for s in (0, 0, 1))
    states = [torch.cat([v.flatten().double() for v in net.state_dict().values()]) for net in (one, same, other)]
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])
    with pytest.raises(InputError, match=f"unknown size of {name} 'huge'"): colorizers[name](size="huge")
    with torch.device("meta"): assert colorizers[name](size="full").multiple in (8, 32)


@pytest.mark.parametrize("name", ["ddcolor", "colorformer"])
def test_a_new_network_takes_any_size_and_answers_in_lab_units(name):
    net = colorizers[name](seed=0).eval()
    with torch.no_grad():
        for side in ((1, 1), (5, 40), (33, 64)):
            ab = net(lightness(1, *side))
            assert ab.shape == (1, 2, *side) and ab.abs().max() < 100


@pytest.mark.parametrize("name", ["ddcolor", "colorformer"])
def test_a_tiny_network_learns_from_scenes(name):
    scenes = make_scenes(8, size=32)
    net = colorizers[name](seed=0)
    if name == "colorformer":
        net.memorize(*split_lab(make_scenes(16, size=64, seed=1).rgb))
        assert max((table - 128).abs().max().item() for table in net.memory.colors) < 110 # colors a screen can show
    frozen = {k: p.clone() for k, p in net.named_parameters() if not p.requires_grad}
    log = fit(Turn(net, AugmentedLoss(), Optim(lr=1e-2)), color_batches(scenes.rgb, 8), 40)
    losses = log[log["term"] == "task"]["value"].tolist()
    assert np.mean(losses[-4:]) < .7*losses[0]
    for k, p in net.named_parameters():
        if k in frozen: assert torch.equal(p, frozen[k])
    twin = fork(net) # right after a step
    with torch.no_grad(): assert torch.equal(twin.eval()(scenes.L[:1]), net.eval()(scenes.L[:1]))


def test_gray_input_is_the_gray_picture():
    gray = GrayInput()
    x = gray(lightness(2, 4, 4))*gray.std + gray.mean
    assert x.min() >= 0 and x.max() <= 1 and (x - x.mean(1, keepdim=True)).abs().max() < 1e-4
    with torch.autocast("cpu", torch.bfloat16): assert torch.equal(gray(lightness(1, 4, 4)), gray(lightness(1, 4, 4).clone()))


def test_spectral_normalization_is_that_of_torch():
    ours = SpectralConv2d(3, 8, 3)
    plain = nn.utils.spectral_norm(nn.Conv2d(3, 8, 3, padding=1))
    plain.load_state_dict(ours.state_dict())
    for i in range(4):
        x = drawn(2, 3, 6, 6, seed=i)
        gradients = []
        for layer in (ours, plain):
            layer.zero_grad()
            out = layer(x) + layer(2*x) # two passes before one gradient
            out.square().sum().backward()
            gradients.append((out.detach(), layer.weight_orig.grad.clone()))
        for a, b in zip(*gradients): assert torch.allclose(a, b, rtol=1e-4, atol=1e-4)
        assert torch.allclose(ours.weight_u, plain.weight_u, atol=1e-5)
    sizes = torch.linalg.svdvals(SpectralConv2d(16, 16).normalized().flatten(1))
    assert .9 < sizes[0] < 1.2


def test_blocks_of_pixels_begin_equal():
    up = PixelShuffleBlur(6, 5, scale=4)
    kernel = up.conv[0].weight_orig.view(5, 16, -1)
    assert torch.equal(kernel, kernel[:, :1].expand_as(kernel)) and kernel[:, 0].unique().numel() == 30


def test_attention_of_the_critic_against_the_plain_formula():
    layer = _PlaceAttention(16).double().eval()
    nn.init.constant_(layer.gamma, .7)
    x = drawn(2, 16, 3, 5).double()
    f, g, h = (part(x.flatten(2)) for part in (layer.query, layer.key, layer.value))
    shares = torch.einsum("nci,ncj->nij", f, g).softmax(1)
    assert torch.allclose(layer(x), x + .7*torch.einsum("nci,nij->ncj", h, shares).view_as(x), atol=1e-12)


def test_shifted_windows_are_those_of_torchvision():
    layer = _WindowAttention(12, 4, 3)
    x = drawn(2, 8, 12, 12)
    bias = layer.relative_position_bias_table[layer.relative_position_index].movedim(-1, 0)[None]
    theirs = shifted_window_attention(x, layer.qkv.weight, layer.proj.weight, bias, [4, 4], 3, [2, 2], qkv_bias=layer.qkv.bias,
                                      proj_bias=layer.proj.bias)
    assert torch.allclose(layer(x), theirs, atol=1e-6)


def test_windows_with_a_summary_against_the_plain_formula():
    layer = _WindowAttention(4, 2, 1, pooled=2).double()
    nn.init.normal_(layer.relative_position_bias_table)
    x = drawn(1, 4, 6, 4).double()
    found = layer(x)
    summary = F.adaptive_avg_pool2d(x.movedim(-1, 1), 2).flatten(2).mT[0]
    far_keys, far_values = layer.kv(layer.norm(summary)).chunk(2, -1)
    for row, column in ((0, 0), (2, 4), (3, 1)):
        top, left = row//2*2, column//2*2
        places = [(top + i, left + j) for i in range(2) for j in range(2)]
        q, _, _ = layer.qkv(x[0, row, column]).chunk(3)
        near = torch.stack([x[0, i, j] for i, j in places])
        _, k, v = layer.qkv(near).chunk(3, -1)
        bias = torch.stack([layer.relative_position_bias_table[(row - i + 1)*3 + column - j + 1, 0] for i, j in places])
        logits = torch.cat([k @ q/2 + bias, far_keys @ q/2])
        assert torch.allclose(found[0, row, column], layer.proj(logits.softmax(0) @ torch.cat([v, far_values])), atol=1e-10)


def test_strangers_are_pairs_from_opposite_sides():
    apart = _strangers(4, 4, 4)[0].view(4, 4, 4, 4) # rolled by two: rows 2 and 3 come from the top
    for i, j, k, m in np.ndindex(4, 4, 4, 4): assert apart[i, j, k, m] == ((i < 2) != (k < 2) or (j < 2) != (m < 2))


def test_positions_against_the_plain_formula():
    at = sine_positions(5, 3, 12).view(5, 3, 12)
    for row, column, i in np.ndindex(5, 3, 3):
        angles = [2*math.pi*n/(many + 1e-6)/10000**(2*i/6) for n, many in ((row + 1, 5), (column + 1, 3))]
        wanted = [f(angle) for angle in angles for f in (math.sin, math.cos)]
        assert at[row, column, [2*i, 2*i + 1, 6 + 2*i, 7 + 2*i]].tolist() == pytest.approx(wanted, abs=1e-6)


def test_memory_does_not_depend_on_the_order_of_its_slots():
    with seeded(0, "memory"): memory = ColorMemory(ColorFormerConfig.of("tiny"))
    x, mixture = drawn(2, 16, 3, 4), drawn(2, 4, seed=1).softmax(-1)
    with torch.no_grad():
        before = memory(x, mixture)
        order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
        for table in (memory.semantic_centers, *memory.colors): table.copy_(table[order])
        assert torch.allclose(memory(x, mixture), before, atol=1e-5)
        memory.colors[0].copy_(255 - memory.colors[0])
        assert (memory(x, mixture) - before).abs().max() > 1e-3


def test_memory_is_built_by_its_two_steps():
    draw = np.random.default_rng(0)
    kind = np.repeat(np.arange(5), 30)
    features = 20*np.eye(5)[kind] + draw.normal(size=(150, 5))
    ab = draw.integers(-60, 60, (5, 4, 2))[kind, draw.integers(0, 4, 150)].astype(float)
    keys, colors = build_color_memory(features, ab, slots=5, semantic=5, colors=4)
    assert keys.shape == (5, 5) and keys.dtype == np.float32 and colors.shape == (4, 5, 2)
    found = {frozenset(map(tuple, colors[:, slot].tolist())) for slot in range(5)}
    assert found == {frozenset(map(tuple, ab[kind == k].astype(int).tolist())) for k in range(5)}
    few = build_color_memory(features, np.round(features[:, :2]*0 + kind[:, None]), slots=5, semantic=2, colors=4)[1]
    assert sorted(few[0, :, 0].tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="150 features, but 149 colors"): build_color_memory(features, ab[1:], 5, 5)
    with pytest.raises(InputError, match="make it smaller"): build_color_memory(features, ab)


def test_critic_judges_patches():
    critic = PatchCritic(8).eval()
    assert critic(torch.zeros(2, 3, 64, 80)).shape == (2, 1, 1, 2)
    with pytest.raises(InputError, match=r"64 pixels or more, not \(63, 64\)"): critic(torch.zeros(1, 3, 63, 64))
