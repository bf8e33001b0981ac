"L-CLIP's towers give the numbers of the plainest form whatever they leave out, split or hand to another library."
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from plain_lclip import plain_text, plain_vision
from invariant_metrics.models import multiplexed
from invariant_metrics.models.multiplexed import LClip, PART, TowerConfig, _fast_linear, _is_cpu_inference, tiny_lclip

CONFIGS = {"as published": {}, "full table": dict(factor=None), "padding hidden": dict(mask_padding=True), "causal": dict(causal=True),
           "both hidden": dict(causal=True, mask_padding=True), "mean": dict(mean_pool=True), "mean, padding hidden": dict(mean_pool=True, mask_padding=True),
           "own end": dict(end=7)}
TOWERS = {"plain heads": dict(mix_heads=False), "biases": dict(mix_bias=True, qkv_bias=True), "no biases": dict(qkv_bias=False), "one layer": dict(blocks=1, repeats=1),
          "three repeats": dict(blocks=2, repeats=3)}


def drawn(config, seed: int = 0) -> LClip:
    "A student none of whose parameters is zero or one."
    torch.manual_seed(seed)
    student = LClip(config).eval()
    with torch.no_grad():
        for p in student.parameters(): p.add_(torch.randn_like(p)*.1)
    return student


def items(config, n: int, seed: int = 1):
    "Pictures and texts, with ends at different places and padding after them."
    torch.manual_seed(seed)
    tokens = torch.randint(10, 60, (n, config.context - 2))
    for row, end in zip(tokens, torch.randint(1, config.context - 2, (n,)).tolist()):
        row[end], row[end + 1:] = 63 if config.end is None else config.end, 0
    return torch.randn(n, 3, config.image, config.image), tokens


def configs():
    for name, changes in CONFIGS.items(): yield name, tiny_lclip(**changes)
    for name, changes in TOWERS.items():
        yield name, tiny_lclip(vision=replace(tiny_lclip().vision, **changes), text=replace(tiny_lclip().text, **changes))
    odd = TowerConfig(width=36, heads=3, blocks=2, repeats=1, ratio=2)
    yield "odd sizes", tiny_lclip(vision=odd, text=odd, image=40, patch=20, context=7, factor=5, dim=3)


def apart(student, pixels, tokens) -> float:
    "The largest difference from the plain form, over the largest number."
    pairs = [(student.vision(pixels), plain_vision(student.vision, pixels)), (student.text(tokens), plain_text(student.text, tokens))]
    assert all(fast.shape == plain.shape for fast, plain in pairs)
    return max(float((fast - plain).abs().max()/plain.abs().max().clamp(min=1)) for fast, plain in pairs)


@pytest.mark.parametrize("name,config", configs(), ids=lambda x: x if isinstance(x, str) else "")
def test_towers_give_the_numbers_of_the_plain_form(name, config):
    "In single precision to 1e-5 and in double precision to 1e-12, with and without gradients, for one item, some, and more than a part."
    single, double = drawn(config), drawn(config).double()
    for n, gradients in product((1, 3, PART + 2), (False, True)):
        pixels, tokens = items(config, n)
        with torch.set_grad_enabled(gradients):
            assert apart(single, pixels, tokens) < 1e-5, n
            assert apart(double, pixels.double(), tokens) < 1e-12, n


@pytest.mark.parametrize("changes", [{}, dict(mask_padding=True), dict(mean_pool=True)])
def test_gradients_are_those_of_the_plain_form(changes):
    "What is left out of the last layer has no part in the loss either."
    config = tiny_lclip(**changes)
    pixels, tokens = items(config, 4)
    found = []
    for vision, text in ((lambda s, x: s.vision(x), lambda s, x: s.text(x)), (lambda s, x: plain_vision(s.vision, x), lambda s, x: plain_text(s.text, x))):
        student = drawn(config).double()
        (vision(student, pixels.double()).square().sum() + text(student, tokens).sin().sum()).backward()
        found.append({name: p.grad for name, p in student.named_parameters()})
    for name, gradient in found[0].items(): assert (gradient - found[1][name]).abs().max() < 1e-10, name


def test_a_part_of_a_batch_is_the_same_alone():
    config = tiny_lclip()
    student, (pixels, tokens) = drawn(config), items(config, 2*PART + 5)
    with torch.inference_mode():
        images, texts = student.vision(pixels), student.text(tokens)
        for k in (0, PART, 2*PART + 4):
            assert (student.vision(pixels[k:k + 1]) - images[k]).abs().max() < 1e-5
            assert (student.text(tokens[k:k + 1]) - texts[k]).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_faster_library_serves_judges_only(monkeypatch):
    "It is asked without gradients, in single precision, where nothing records; and the last layer is asked for one place."
    asked = []
    known = torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(multiplexed.torch.ops.mkldnn, "_linear_pointwise", lambda x, *rest: (asked.append(tuple(x.shape)), known(x, *rest))[1], raising=False)
    config = tiny_lclip()
    student, (pixels, tokens) = drawn(config), items(config, 3)
    with torch.no_grad(): student.vision(pixels)
    places, width, layers = config.patches + 1, config.vision.width, config.vision.layers
    assert asked.count((3, places, width)) == 3*(layers - 1) + 1 # the last layer: keys and values of all places
    assert asked.count((3, 1, width)) == 3                       # its queries, projection and MLP: of one
    asked.clear()
    student.vision(pixels), student.text(tokens)
    with torch.no_grad():
        drawn(config).double().vision(pixels.double())
        with torch.autocast("cpu", torch.bfloat16): student.vision(pixels)
        drawn(config).bfloat16().vision(pixels.bfloat16())
        torch.jit.trace(student.vision, pixels, check_trace=False)
        torch.export.export(student.vision, (pixels,))
    assert not asked


def test_without_the_faster_library_all_is_as_before(monkeypatch):
    config = tiny_lclip()
    student, (pixels, tokens) = drawn(config), items(config, 3)
    with torch.no_grad():
        fast = student.vision(pixels), student.text(tokens)
        monkeypatch.setattr(multiplexed.torch, "ops", type("Ops", (), {"mkldnn": object()})())
        slow = student.vision(pixels), student.text(tokens)
    for a, b in zip(fast, slow): assert (a - b).abs().max() < 1e-5


def test_a_linear_layer_of_nothing_and_of_one_row():
    layer = nn.Linear(32, 8)
    with torch.no_grad():
        assert _is_cpu_inference(torch.zeros(1)) and _fast_linear(torch.zeros(0, 5, 32), layer.weight, layer.bias).shape == (0, 5, 8)
        x = torch.randn(32)
        assert (_fast_linear(x[None], layer.weight, layer.bias) - layer(x)).abs().max() < 1e-6


def test_an_exported_student_takes_any_batch():
    "Parts of 16 are for eager runs: a recorded one goes through in one piece, whatever it was recorded with."
    config = tiny_lclip()
    student, (pixels, _) = drawn(config), items(config, PART + 3)
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        recorded = torch.export.export(student.vision, (pixels,), dynamic_shapes={"pixels": {0: batch}}).module()
        for n in (2, PART + 3): assert (recorded(pixels[:n]) - student.vision(pixels[:n])).abs().max() < 1e-5


def test_what_the_benchmark_takes_out_changes_no_number(monkeypatch):
    "Each part of the fast form that it leaves out, and mixing folded into fused attention."
    for module in ("open_clip", "timm", "transformers"): pytest.importorskip(module)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]/"benchmarks"))
    import lclip as benchmark
    for config in (tiny_lclip(), tiny_lclip(mean_pool=True)):
        student, (pixels, tokens) = drawn(config), items(config, PART + 2)
        with torch.inference_mode():
            known = student.vision(pixels), student.text(tokens)
            for name, changes in benchmark.PATCHES.items():
                found = benchmark.patched(student, changes)(pixels, tokens)
                assert all((a - b).abs().max() < 1e-5 for a, b in zip(found, known)), name
                assert any((a != b).any() for a, b in zip(found, known)) or config.mean_pool or "whole batch" in name, f"{name} changed nothing"
            with benchmark.by_onednn(): assert (nn.Linear(32, 8)(torch.randn(4, 32))).shape == (4, 8)
        assert torch.nn.functional.linear is benchmark.plain_linear


def test_the_fast_layer_is_the_plain_one_for_any_strides_and_refuses_what_the_plain_one_refuses():
    draw = torch.Generator().manual_seed(0)
    def some(*shape): return torch.randn(*shape, generator=draw)
    weights = {"plain": some(24, 16), "turned": some(16, 24).T, "every other": some(48, 32)[::2, ::2]}
    biases = {"none": None, "plain": some(24), "every other": some(48)[::2], "one number": some(1).expand(24)}
    inputs = [some(16), some(0, 16), some(2, 0, 16), some(4, 16, 3).transpose(1, 2), some(7, 32)[:, ::2], some(1, 16).expand(5, 16)]
    with torch.no_grad():
        for x, weight, bias, gelu in product(inputs, weights.values(), biases.values(), (False, True)):
            plain = nn.functional.linear(x, weight, bias)
            assert torch.allclose(_fast_linear(x, weight, bias, gelu), nn.functional.gelu(plain) if gelu else plain, atol=1e-5)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"): _fast_linear(some(3, 15), weights["plain"])
        with torch.backends.mkldnn.flags(enabled=False): assert torch.equal(_fast_linear(inputs[0], weights["plain"]), nn.functional.linear(inputs[0], weights["plain"]))
