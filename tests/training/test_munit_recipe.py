"""MUNIT's training: terms and gradients of the authors' own code, the decay of Adam, both turns of the loop.

munit_recipe.json holds, for both sizes, every term of both domains as the published code computes it in double precision from the
weights, pictures and styles of `munit_by_rule`, with a cycle of 10 and a perceptual term of 1 (beside the tiny size with a sixteenth of
VGG's channels), and of each weight's gradient its length and four of its numbers."""
import json
import math
from pathlib import Path

import pytest
import torch
from munit_by_rule import drawn_pictures, drawn_styles, loaded
from published_state import filled, sampled
from torch import nn

from invariant_metrics.core import InputError
from invariant_metrics.models.colorizer import published_name
from invariant_metrics.models.munit import MUNIT, MUNITConfig, MUNITCritics, _rules
from invariant_metrics.training.loop import Optim, _learning_rate, fit, total
from invariant_metrics.training.munit_recipe import (MUNITRecipe, StructureDistance, cross, domain_batches, least_squares, structure_distance)
from invariant_metrics.worlds.scenes import make_scenes

ORIGINAL = json.loads((Path(__file__).parent/"munit_recipe.json").read_text())
CONVOLUTIONS = [f"conv{block}_{i}" for block, n in enumerate((2, 2, 3, 3, 3), 1) for i in range(1, n + 1)]
SIZES = ["tiny", pytest.param("full", marks=pytest.mark.slow)]


def batch(dtype=torch.float32) -> dict: return {d: drawn_pictures(d).to(dtype) for d in "ab"}
def drawn(dtype=torch.float32) -> dict: return {d: drawn_styles(d).to(dtype) for d in "ab"}


def vgg_by_rule(size: str) -> StructureDistance: # of size tiny: with a sixteenth of the channels
    distance = StructureDistance("full", caffe=True)
    convs = [i for i, layer in enumerate(distance.features) if isinstance(layer, nn.Conv2d)]
    for name, i in zip(CONVOLUTIONS, convs, strict=True):
        conv = distance.features[i]
        if size == "tiny": conv = nn.Conv2d(max(3, conv.in_channels//16), conv.out_channels//16, 3, padding=1).requires_grad_(False)
        state = filled({f"vgg.{name}.{k}": tuple(v.shape) for k, v in conv.state_dict().items()})
        conv.load_state_dict({k.split(".")[-1]: v for k, v in state.items()})
        distance.features[i] = conv
    return distance


def same_gradients(network: nn.Module, original: dict) -> None:
    found = {published_name(k, _rules(network.config)): p.grad for k, p in network.named_parameters()}
    for name, (length, *numbers) in original.items():
        assert found[name].norm().item() == pytest.approx(length, rel=1e-6), name
        assert (sampled(found[name], 4) - torch.tensor(numbers).double()).abs().max() < 1e-6*length, name


@pytest.mark.parametrize("size", SIZES)
def test_every_term_is_that_of_the_published_code(size):
    (network, critics), vgg, published = loaded(size), vgg_by_rule(size), ORIGINAL[size]
    critics.requires_grad_(False)
    for dtype, near in ((torch.float32, 1e-5), (torch.float64, 1e-8)):
        for part in (network, critics, vgg): part.to(dtype)
        terms = MUNITRecipe(cycle=10., perceptual=1.).terms(network, critics, batch(dtype), drawn(dtype), vgg)
        assert terms.keys() == published["terms"].keys()
        for name, by_domain in published["terms"].items(): assert terms[name][1].item() == pytest.approx(sum(by_domain), abs=near), name
    assert total(terms).item() == pytest.approx(published["total"], abs=1e-7)
    total(terms).backward() # in double precision: a difference that is nearly 0 has its sign from rounding
    same_gradients(network, published["gradient"])


@pytest.mark.parametrize("size", SIZES)
def test_the_critics_loss_is_that_of_the_published_code(size):
    network, critics = loaded(size)
    for dtype, near in ((torch.float32, 1e-5), (torch.float64, 1e-8)):
        terms = MUNITRecipe().judged(critics.to(dtype), network.to(dtype), batch(dtype), drawn(dtype))
        assert total(terms).item() == pytest.approx(sum(ORIGINAL[size]["judged"]), abs=near)
    total(terms).backward()
    same_gradients(critics, ORIGINAL[size]["critic gradient"])
    assert all(p.grad is None for p in network.parameters())


def test_terms_without_weight_are_not_computed():
    network, critics = loaded("tiny")
    crossed = cross(network, batch(), drawn())
    assert crossed.back == {}
    assert [*MUNITRecipe().terms(network, critics, batch(), drawn())] == ["image", "content", "style", "adversarial"]
    assert [*MUNITRecipe(cycle=10.).terms(network, critics, batch(), drawn())][-1] == "cycle"


def test_one_batch_is_what_two_would_give():
    network, _ = loaded("tiny")
    x, styles = batch(), drawn()
    crossed = cross(network, x, styles, cycle=True)
    with torch.no_grad():
        content = {"a": network.a.contents(x["a"]), "b": network.b.contents(x["b"])}
        made = {"a": network.a.decode(content["b"], styles["a"]), "b": network.b.decode(content["a"], styles["b"])}
        again = network.b.contents(made["b"])
        wanted = {"made": made["a"], "repeated": network.a.decode(content["a"], network.a.styles(x["a"])), "content_again": again,
                  "back": network.a.decode(again, network.a.styles(x["a"])), "style_again": network.a.styles(made["a"])}
    for name, value in wanted.items(): torch.testing.assert_close(getattr(crossed, name)["a"], value, rtol=1e-5, atol=2e-5)


def test_decay_is_that_of_adam():
    "A step of each turn in the loop, beside torch's Adam with its own decay on the gradient of the plain terms."
    recipe = MUNITRecipe(decay=.5, optim=Optim(1e-2, 0., (.5, .999), 0, "constant", clip=math.inf))
    config = MUNITConfig.of("tiny")
    batches = domain_batches(torch.rand(4, 3, 32, 32), torch.rand(4, 3, 32, 32), 2)
    found = []
    for own in (True, False):
        network, critics = MUNIT(config), MUNITCritics(config)
        turn = recipe.turns(network, critics)[0]
        optimizer = (torch.optim.AdamW(critics.parameters(), 1e-2, (.5, .999), weight_decay=0.) if own
                     else torch.optim.Adam(critics.parameters(), 1e-2, (.5, .999), weight_decay=.5))
        for i in range(3):
            torch.manual_seed(i)
            terms = turn.loss(critics, batches(i))
            if not own: terms = {k: v for k, v in terms.items() if k != "decay"}
            optimizer.zero_grad()
            total(terms).backward()
            optimizer.step()
        found.append(torch.cat([p.detach().flatten() for p in critics.parameters()]))
    assert (found[0] - found[1]).abs().max() < 1e-4 # of steps of 1e-2
    assert (found[0] - torch.cat([p.detach().flatten() for p in MUNITCritics(config).parameters()])).abs().max() > 1e-2


def test_the_rate_is_halved_every_hundred_thousand_steps():
    optim = MUNITRecipe().optim
    rates = {step: _learning_rate(optim, step, 1_000_000) for step in (0, 99_999, 100_000, 299_999, 300_000, 999_999)}
    assert rates == {0: 1e-4, 99_999: 1e-4, 100_000: 5e-5, 299_999: 2.5e-5, 300_000: 1.25e-5, 999_999: pytest.approx(1e-4/2**9)}
    assert (optim.betas, optim.weight_decay, optim.clip, MUNITRecipe().decay) == ((.5, .999), 0., math.inf, 1e-4)


def test_turns_stay_apart_and_a_run_is_its_seed(tmp_path):
    scenes = make_scenes(8, size=32, seed=0).rgb
    def run(**options):
        network, critics = MUNIT(MUNITConfig.of("tiny")), MUNITCritics(MUNITConfig.of("tiny"))
        log = fit(MUNITRecipe(cycle=1., perceptual=1.).turns(network, critics), domain_batches(scenes[:4], scenes[4:], 2), **options)
        return log, torch.cat([p.detach().flatten() for m in (network, critics) for p in m.parameters()])
    log, weights = run(steps=3)
    assert set(log["turn"]) == {"critic", "model"} and log["turn"].iloc[0] == "critic"
    assert set(log[log["turn"] == "model"]["term"]) == {"image", "content", "style", "adversarial", "cycle", "perceptual", "decay", "gradient"}
    assert torch.equal(run(steps=3)[1], weights) and not torch.equal(run(steps=3, seed=1)[1], weights)


def test_domains_have_orders_of_their_own():
    numbers = torch.arange(40.).view(40, 1, 1, 1).expand(40, 3, 2, 2)/40
    at = domain_batches(numbers, numbers, 8)
    pairs = [tuple((20*(x[d][:, 0, 0, 0] + 1)).round().tolist()) for i in range(5) for x in [at(i)] for d in "ab"]
    assert sorted(sum(pairs[::2], ())) == sorted(sum(pairs[1::2], ())) == [*range(40)] and pairs[::2] != pairs[1::2]
    assert torch.equal(at(3)["a"], at(3)["a"]) and not torch.equal(at(3)["a"], domain_batches(numbers, numbers, 8, seed=1)(3)["a"])
    with pytest.raises(InputError, match=r"not \(3, 2, 2\) and \(1, 2, 2\)"): domain_batches(numbers, numbers[:, :1], 4)


def test_pictures_that_do_not_fit_are_one_line():
    def run(height, width):
        x = torch.rand(4, 3, height, width)
        network, critics = MUNIT(MUNITConfig.of("tiny")), MUNITCritics(MUNITConfig.of("tiny"))
        fit(MUNITRecipe().turns(network, critics), domain_batches(x, x, 2), 1)
    for height, width in ((30, 32), (12, 32)):
        with pytest.raises(InputError, match=f"MUNIT takes sides of 16 pixels or more that are multiples of 4, not {height} × {width}"):
            run(height, width)


def test_structure_does_not_see_contrast():
    distance = structure_distance()
    x = 2*make_scenes(2, size=32, seed=0).rgb - 1
    assert distance(x, x).item() == 0 and distance(-x, x).item() > distance(.9*x, x).item() > 0
    made = x.clone().requires_grad_()
    distance(made, x.flip(-1)).backward()
    assert made.grad.abs().max() > 0
    with torch.device("meta"): full = StructureDistance("full")
    from torchvision.models import vgg16
    with torch.device("meta"): theirs = vgg16(weights=None).state_dict()
    assert {k: v.shape for k, v in full.state_dict().items()} == {k: v.shape for k, v in theirs.items() if k.startswith("features")}
    with pytest.raises(InputError, match="vgg16"): structure_distance("full")


def test_least_squares_sums_scales():
    assert least_squares([torch.tensor([3., 1.]), torch.tensor([0.])], 1.).item() == pytest.approx(2 + 1)
