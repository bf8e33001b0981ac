"""MUNIT: names, sizes and numbers of the authors' own code, layers against plain formulas, styles and translations.

munit.json holds, for both sizes, the names and shapes of the tensors of the published code, and what it gives for the weights of `filled`
and the pictures of `drawn_pictures`: a content, a style, a translation, and what a critic says of it."""
import json
from pathlib import Path

import pytest
import torch
from munit_by_rule import drawn_pictures, drawn_styles, loaded
from published_state import sampled
from torch import nn
from torch.nn import functional as F

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.encoders.weights import read_tensors, resolve
from invariant_metrics.models.colorizer import published_name, seeded
from invariant_metrics.models.munit import (MUNIT, MUNITConfig, MUNITCritic, MUNITCritics, _DoublingConv2d, _MapNorm, _MirrorConv2d, _Residual,
                                            _rules, draw_styles, load_munit, load_munit_critics, stretch_range, translate)

ORIGINAL = json.loads((Path(__file__).parent/"munit.json").read_text())


def count(module) -> int: return sum(p.numel() for p in module.parameters())


def as_published(network) -> dict:
    named = {published_name(k, _rules(network.config)): v for k, v in network.state_dict().items()}
    return {domain: {k[2:]: v for k, v in named.items() if k[0] == domain} for domain in "ab"}


@pytest.mark.parametrize("size, generator, critic", [("tiny", 618_507, 83_810), ("full", 15_026_187, 8_271_171)])
def test_parameters_are_those_of_the_published_code(size, generator, critic):
    with torch.device("meta"): made, critics = MUNIT(MUNITConfig.of(size)), MUNITCritics(MUNITConfig.of(size))
    assert [count(m) for m in (made.a, made.b, critics.a, critics.b)] == [generator]*2 + [critic]*2
    theirs = {k: tuple(shape) for k, shape in ORIGINAL[size]["names"].items() if not k.endswith(("running_mean", "running_var"))}
    ours = {f"{kind}.{published_name(k, _rules(m.config))}": tuple(v.shape) for kind, m in (("gen", made), ("dis", critics))
            for k, v in m.state_dict().items()}
    assert ours == theirs


@torch.no_grad()
@pytest.mark.parametrize("size", ["tiny", "full"])
def test_numbers_are_those_of_the_published_code(size):
    network, critics = loaded(size)
    content, style = network.a.contents(drawn_pictures("a")), network.a.styles(drawn_pictures("a"))
    made = network.b.decode(content, drawn_styles("b"))
    found = {"content": content, "style": style, "made": made, **{f"said{i}": said for i, said in enumerate(critics.b(made))}}
    assert found.keys() == ORIGINAL[size]["forward"].keys()
    for name, value in found.items():
        wanted = torch.tensor(ORIGINAL[size]["forward"][name])
        assert (sampled(value, 60) - wanted).abs().max() < 1e-5*max(1, wanted.abs().max()), name # float32, and values up to 10


def plain_doubling(x, weight, bias):
    return F.conv2d(F.pad(F.interpolate(x, scale_factor=2.), (2,)*4, mode="reflect"), weight, bias)


@pytest.mark.parametrize("height, width", [(2, 2), (2, 5), (4, 3), (9, 8)])
def test_doubling_on_the_small_map_and_its_gradients(height, width):
    layer = _DoublingConv2d(3, 4).double()
    x = torch.randn(2, 3, height, width, dtype=torch.float64, requires_grad=True)
    out = torch.randn(2, 4, 2*height, 2*width, dtype=torch.float64)
    found = torch.autograd.grad((layer(x)*out).sum(), (x, layer.weight, layer.bias))
    wanted = torch.autograd.grad((plain_doubling(x, layer.weight, layer.bias)*out).sum(), (x, layer.weight, layer.bias))
    torch.testing.assert_close(layer(x), plain_doubling(x, layer.weight, layer.bias), rtol=0, atol=1e-12)
    for a, b in zip(found, wanted): torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_norm_of_a_map_against_the_plain_formula():
    norm = _MapNorm(3).double()
    nn.init.normal_(norm.beta)
    x = 5 + 2*torch.randn(2, 3, 4, 5, dtype=torch.float64)
    mean, deviation = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), keepdim=True)
    wanted = (x - mean)/(deviation + 1e-5)*norm.gamma.view(3, 1, 1) + norm.beta.view(3, 1, 1)
    torch.testing.assert_close(norm(x), wanted, rtol=0, atol=1e-12)
    assert norm(torch.zeros(1, 3, 2, 2, dtype=torch.float64)).isfinite().all() # a map without any deviation


def test_a_residual_block_takes_each_picture_its_own_numbers():
    with seeded(0, "residual"): block = _Residual(3)
    x, adain = torch.randn(2, 3, 6, 6), torch.rand(2, 2, 2, 3) + .5
    mirror = _MirrorConv2d.forward
    for n in range(2):
        one = x[n:n + 1]
        inside = F.relu(F.instance_norm(mirror(block.first, one), weight=adain[0, 1, n], bias=adain[0, 0, n]))
        wanted = one + F.instance_norm(mirror(block.second, inside), weight=adain[1, 1, n], bias=adain[1, 0, n])
        torch.testing.assert_close(block(x, adain)[n:n + 1], wanted, rtol=0, atol=1e-5)


def test_every_parameter_gets_a_gradient():
    network = MUNIT(MUNITConfig.of("tiny")).a
    x = drawn_pictures("a")[..., :32, :32]
    network.decode(network.contents(x), network.styles(x)).square().sum().backward()
    assert [k for k, p in network.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("height, width, words", [(30, 32, "multiples of 4, not 30 × 32"), (32, 34, "not 32 × 34"), (12, 64, "16 pixels or more")])
def test_sides_that_a_generator_cannot_take(height, width, words):
    with pytest.raises(InputError, match=words): MUNIT(MUNITConfig.of("tiny")).a.contents(torch.zeros(1, 3, height, width))


def test_the_least_sides_work():
    for size in ("tiny", "full"):
        config = MUNITConfig.of(size)
        with seeded(0, "least"): critic = MUNITCritic(config)
        least = config.least_judged
        assert all(said.isfinite().all() for said in critic(torch.rand(1, 3, least, least + 1)))
        with pytest.raises(InputError, match=f"{least} pixels or more, not {least} × {least - 1}"): critic(torch.zeros(1, 3, least, least - 1))
    a = MUNIT(MUNITConfig.of("tiny")).a
    x = torch.rand(1, 3, a.config.least, a.config.least)
    assert a.decode(a.contents(x), a.styles(x)).shape == x.shape


def test_a_published_file(tmp_path):
    "As the authors save it, read without running anything in it; also what older versions of torch left beside normalizations."
    network, critics = MUNIT(MUNITConfig.of("tiny"), seed=3), MUNITCritics(MUNITConfig.of("tiny"), seed=3)
    file = as_published(network)
    file["a"] |= {f"enc_content.model.0.norm.running_{what}": torch.zeros(16) for what in ("mean", "var")}
    torch.save(file, tmp_path/"gen_00000001.pt")
    tensors = read_tensors(resolve(tmp_path/"gen_00000001.pt"))
    again = load_munit(tensors, "tiny")
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in network.state_dict().items())
    again = load_munit_critics(as_published(critics), "tiny")
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in critics.state_dict().items())


def test_files_that_do_not_fit_say_which_tensors():
    tiny = as_published(MUNIT(MUNITConfig.of("tiny")))
    with pytest.raises(InputError, match=r"no MUNIT of size full: 32 tensors are missing, a\.enc_content\.model\.3"): load_munit(tiny, "full")
    drawings = {"a": tiny["a"] | {"enc_content.model.0.conv.weight": torch.zeros(16, 1, 7, 7)}, "b": tiny["b"]}
    with pytest.raises(InputError, match=r"a\.enc_content\.model\.0\.conv\.weight is \(16, 1, 7, 7\), not \(16, 3, 7, 7\)"): load_munit(drawings, "tiny")
    with pytest.raises(InputError, match=r"1 tensors have no place in it: b\.enc\.model"):
        load_munit({"a": tiny["a"], "b": tiny["b"] | {"enc.model.0.conv.weight": torch.zeros(1)}}, "tiny")
    with pytest.raises(InputError, match="two tables, 'a' and 'b', not 'enc_style"): load_munit(tiny["a"], "tiny")
    with pytest.raises(InputError, match="no MUNIT's critics of size tiny"): load_munit_critics(tiny, "tiny")
    with pytest.raises(InputError, match="unknown size of MUNIT 'tinny'; did you mean tiny"): load_munit(tiny, "tinny")


def test_styles_have_streams_of_their_own():
    assert torch.equal(draw_styles(20, 5)[:7], draw_styles(7, 5)) and not torch.equal(draw_styles(3, 0), draw_styles(3, 1))
    assert draw_styles(2, style=3).shape == (2, 3)
    with pytest.raises(InputError, match="one style or more, not 0"): draw_styles(0)


def test_a_translation_is_a_content_in_a_style():
    network = MUNIT(MUNITConfig.of("tiny"))
    pictures, styles = torch.rand(5, 3, 16, 24, generator=torch_rng(0)), draw_styles(3)
    for to, reader, writer in (("b", network.a, network.b), ("a", network.b, network.a)):
        made = translate(network, pictures, styles, to, batch=2)
        with torch.no_grad(): wanted = writer.decode(reader.contents(2*pictures[4:] - 1), styles[1:2])
        torch.testing.assert_close(made[1, 4:], (wanted + 1)/2, rtol=0, atol=1e-6)
    stretched = translate(network, pictures, styles, stretch=True)
    assert stretched.amin() == 0 and (stretched.amax((2, 3, 4)) - 1).abs().max() < 1e-6
    torch.testing.assert_close(stretched, stretch_range(translate(network, pictures, styles)))


def test_stretching_is_that_of_torchvision(tmp_path):
    from torchvision.utils import make_grid
    picture = .3 + .2*torch.rand(3, 8, 8)
    torch.testing.assert_close(stretch_range(picture), make_grid(picture[None], padding=0, normalize=True))
    assert torch.equal(stretch_range(torch.full((3, 4, 4), .7)), torch.zeros(3, 4, 4)) # one color


def test_what_cannot_be_translated():
    network, styles = MUNIT(MUNITConfig.of("tiny")), draw_styles(2)
    with pytest.raises(InputError, match=r"\(N, 3, H, W\), not \(2, 1, 16, 16\)"): translate(network, torch.zeros(2, 1, 16, 16), styles)
    with pytest.raises(InputError, match=r"\(S, 8\), not \(2, 4\)"): translate(network, torch.zeros(2, 3, 16, 16), styles[:, :4])
    with pytest.raises(InputError, match="unknown domain 'c'"): translate(network, torch.zeros(2, 3, 16, 16), styles, to="c")
    with pytest.raises(InputError, match="multiples of 4, not 18 × 16"): translate(network, torch.zeros(2, 3, 18, 16), styles)
