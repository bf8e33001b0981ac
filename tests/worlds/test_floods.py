"Floods: the water against a loop over pixels by perspective alone, right styles without a fault, and every violation under its own name."
import math

import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.worlds.classes import CLASS_ID, CLASSES
from invariant_metrics.worlds.floods import FLOOD_MEASURES, FLOOD_VIOLATIONS, WATER, WaterStyle, draw_water
from invariant_metrics.worlds.floods import flood, flood_extent, flood_truth, flood_violation, make_floods
from invariant_metrics.worlds.layout import FAR, STUFF, make_layout
from invariant_metrics.worlds.scenes import make_scenes, recolored
from invariant_metrics.core import rng

N = 24


def styles(seed: int, n: int = N) -> list[WaterStyle]: return [draw_water(seed, k) for k in range(n)]


def is_wet(layout: dict, n: int, scenes, x: int, y: int, level: float) -> bool:
    "By the line of sight, from the layout: heights in heights of the eye, distances in those of the nearest ground."
    size, region = scenes.depth.shape[-1], int(scenes.instances[n, y, x])
    horizon, near = float(layout["horizon"][n, 0]), float(layout["near"][n, 0])
    t = ((y + .5)/size - horizon)/(1 - horizon)
    if region < 2: return False
    if region == 2: return 1 - t/(FAR + (1 - FAR)*t) < level # the height of the ground that is seen there
    if CLASSES[int(scenes.segmentation[n, y, x])].name in ("balloon", "bird"): return False
    distance = near/float(layout["depth"][n, region])
    return FAR/(1 - FAR)*(distance - 1) < level and 1 - t*distance < level


@pytest.mark.parametrize("level", [.08, .25, .4])
def test_water_lies_where_the_line_of_sight_says(level):
    scenes, layout = make_scenes(6, 20, seed=5, start=30), make_layout(5, 30, 6)
    wet = flood_extent(scenes, level).wet
    found = [[[is_wet(layout, n, scenes, x, y, level) for x in range(20)] for y in range(20)] for n in range(6)]
    assert (wet != torch.tensor(found)).float().mean() < .002 and wet.any() # roundings at a line


def test_water_is_flat():
    "The depth of the surface is that of a plane below the eye by one minus the level, and nothing dry has another depth."
    scenes = make_scenes(N, 48, seed=1)
    layout, under = make_layout(1, 0, N), flood(scenes, draw_water(0), .3)
    y = (torch.arange(48) + .5)/48
    t = (y - layout["horizon"])/(1 - layout["horizon"])
    plane = (layout["near"]*t/(1 - .3))[..., None].expand(under.depth.shape)
    assert torch.allclose(under.depth[under.wet], plane[under.wet], atol=1e-5)
    assert torch.equal(under.depth[~under.wet], scenes.depth[~under.wet])
    assert (under.segmentation == torch.where(under.wet, WATER, scenes.segmentation)).all()


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("level", [.1, .25, .4])
def test_right_styles_have_no_fault(size, level):
    "Random styles and the corners of their range, as floats and as 8 bits."
    scenes = make_scenes(N, size, seed=8)
    corners = [WaterStyle(h, t, r, m, k) for k, (h, t, r, m) in enumerate((h, t, r, m) for h in (200., 290.) for t in (.8, 1.) for r in (0., 3.) for m in (0., .5))]
    for waters in (styles(2), styles(3), (corners + styles(4))[:N]):
        rgb = flood(scenes, waters, level).rgb
        for picture in (rgb, (255*rgb).round()/255):
            truth = flood_truth(scenes, picture, level)
            assert set(truth) == {*FLOOD_MEASURES} and max(value.max() for value in truth.values()) == 0


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("kind", FLOOD_VIOLATIONS)
def test_every_violation_raises_its_own_measure(kind, size):
    "And more, the stronger it is; the sky is touched by its own violation alone, up to what floats into it."
    scenes = make_scenes(N, size, seed=8)
    possible = (flood_extent(scenes).drowned*size >= 1).any(1)
    last = torch.zeros(N)
    for strength in (.5, 1.):
        truth = flood_truth(scenes, flood_violation(scenes, styles(5), kind, strength=strength))
        assert (truth[kind][possible] > 0).float().mean() > (.85 if strength < 1 else .99)
        assert truth[kind].mean() > last.mean() and (truth["violation"][possible] > 0).float().mean() > .95
        for other in {*FLOOD_VIOLATIONS} - {kind}: assert truth[other].mean() < truth[kind].mean()/2
        last = truth[kind]
    if kind == "walls": assert truth["walls"].mean() > .98 and truth["sky"].max() == 0 and truth["water"].max() == 0
    if kind == "sky": assert truth["sky"].mean() > .9 and truth["things"].max() == 0 and truth["water"].max() == 0


def test_what_a_failed_translator_does_is_named():
    "The dry scene lacks water; water everywhere keeps nothing; noise is wrong; another scene's flood is wrong."
    scenes, other = make_scenes(N, 48, seed=8), make_scenes(N, 48, seed=9)
    dry = flood_truth(scenes, scenes.rgb)
    assert dry["water"].mean() > .9 and max(dry[name].max() for name in ("things", "sky", "land", "walls")) == 0
    drowned = flood_truth(scenes, torch.full_like(scenes.rgb, .4))
    assert drowned["things"].mean() > .8 and drowned["violation"].mean() > .5
    assert flood_truth(scenes, flood(other, styles(1)).rgb)["violation"].mean() > .5
    assert flood_truth(scenes, flood(scenes, styles(1), .4).rgb, .25)["things"].mean() > .1 # too high


def test_half_a_picture_without_water_is_half_a_fault():
    scenes = make_scenes(N, 64, seed=8)
    under = flood(scenes, styles(1))
    half = torch.where(torch.arange(64) < 20, scenes.rgb, under.rgb)
    left = (under.wet[..., :20].sum((1, 2))/under.wet.sum((1, 2)).clamp(min=1))
    found = flood_truth(scenes, half)["water"]
    assert ((found - left).abs() < .12).float().mean() > .9 and (found <= left + 1e-6).all()


def test_floods_are_the_same_at_every_start_and_show_other_scenes():
    dry, wet = make_floods(12, 32, seed=4)
    later = make_floods(5, 32, seed=4, start=7)
    assert torch.equal(later[0].rgb, dry.rgb[7:]) and torch.equal(later[1].rgb, wet.rgb[7:]) and torch.equal(later[1].depth, wet.depth[7:])
    assert not {*dry.index.tolist()} & {*wet.dry.index.tolist()} and (wet.dry.index == dry.index + 1).all()
    one = make_floods(12, 32, seed=4, water=WaterStyle())[1]
    assert torch.equal(one.wet, wet.wet) and not torch.equal(one.rgb, wet.rgb)
    assert torch.equal(one.rgb, flood(wet.dry, [WaterStyle()]*12).rgb)


def test_the_same_flood_at_other_sizes():
    small, large = (flood(make_scenes(N, size, seed=8), WaterStyle(ripple=0.)) for size in (32, 128))
    fewer = large.wet.float().view(N, 32, 4, 32, 4).mean((2, 4))
    assert ((fewer > .5) == small.wet).float().mean() > .97


def test_a_flood_of_recolored_scenes_is_right_for_them():
    scenes = make_scenes(N, 48, seed=8)
    other = recolored(scenes, rng(0, "floods"))
    assert flood_truth(other, flood(other, styles(1)).rgb)["violation"].max() == 0
    assert flood_truth(scenes, flood(other, styles(1)).rgb)["violation"].mean() > .1


@pytest.mark.parametrize("call, word", [
    (lambda s: flood_extent(s, .5), r"\(0, 0.4\]"), (lambda s: flood_extent(s, math.nan), r"\(0, 0.4\]"), (lambda s: flood(s, [WaterStyle()]), "1 styles of water for 2"),
    (lambda s: WaterStyle(turbidity=.5), "turbidity is 0.8 to 1"), (lambda s: WaterStyle(hue=math.nan), "hue"), (lambda s: flood_violation(s, WaterStyle(), "wall"), "did you mean walls"),
    (lambda s: flood_violation(s, WaterStyle(), "sky", strength=2), r"\(0, 1\]"), (lambda s: flood_truth(s, s.rgb[:, :, :8]), "takes pictures"), (lambda s: make_floods(0), "n >= 1")])
def test_bad_input_is_named(call, word):
    with pytest.raises(InputError, match=word): call(make_scenes(2, 16))


def test_nothing_wet_has_no_share():
    "A scene without a visible sky or without a thing in the water has 0 there, and no division by nothing."
    scenes = make_scenes(200, 16, seed=3)
    truth = flood_truth(scenes, flood(scenes, styles(1, 200), .02).rgb, .02)
    assert all(value.isfinite().all() for value in truth.values())
    assert (scenes.instances >= STUFF).any() and CLASS_ID["sea"] == WATER
