"""The probe: its labels, its matching, its bookkeeping and its sentinels."""
import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.color import rgb_to_lab
from invariant_metrics.data.photos import packaged_photos, cut_tiles
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.edits import colors as perturb
from invariant_metrics.stats import cluster_interval
from invariant_metrics.probes.preference import draw_sets, share_interval, trend
from invariant_metrics.edits.colors import Items, at_strength, families, match_dose, perturbations, psnr_to
from invariant_metrics.edits.colors import scene_wrongness
from invariant_metrics.probes.images import COLOR_SIZES, color_probe, probe_metrics
from invariant_metrics.probes.probe_task import ProbeResult, ProbeSize, combine_results
from invariant_metrics.metrics.metric import PairedMetric, SetMetric, SingleMetric
from real_data import data_path

PSNR = PairedMetric("pixel-psnr", lambda rgb: rgb, lambda p, t: psnr_to(t, p), True, Signature.of(metric="pixel-psnr"))
CHROMA = SingleMetric("chroma", lambda rgb: rgb, lambda p: rgb_to_lab(p)[:, 1:].square().mean((1, 2, 3)).sqrt(), None, Signature.of(metric="chroma"))
MEANS = SetMetric("means", lambda rgb: rgb.mean((2, 3)),
               lambda p, t, w=None, v=None: float((torch.as_tensor(np.average(p, axis=0, weights=w) - np.average(t, axis=0, weights=v))).square().sum()),
               False, Signature.of(metric="means"), "means")


@pytest.fixture(scope="module")
def photos():
    cut = cut_tiles(packaged_photos(), per_photo=2, seed=1)
    return Items(cut.rgb, cut.regions, cut.cluster.numpy())


@pytest.fixture(scope="module")
def scenes():
    made = make_scenes(24, size=48, seed=7)
    return Items(made.rgb, made.instances, np.arange(24), made)


@pytest.fixture(scope="module")
def result():
    return {source: color_probe(source, [PSNR, CHROMA, MEANS], levels=(37, 31, 25), scale="quick", seed=0, progress=False) for source in ("photos", "scenes")}


@pytest.mark.parametrize("source", ["photos", "scenes"])
def test_every_perturbation_keeps_lightness_and_moves_color(source, request):
    items = request.getfixturevalue(source)
    for name in families(source=source):
        dose, applies = perturbations[name](items, rng(0, name))
        rgb = at_strength(items, dose, torch.full((len(items),), 1.0))
        lab = rgb_to_lab(rgb)
        assert rgb.min() >= 0 and rgb.max() <= 1, name
        if name == "luminance-drift": assert (lab[:, :1] - items.L).abs().flatten(1).amax(1).min() > 5; continue  # the one whose fault is lightness
        assert (lab[:, :1] - items.L).abs().max() < 0.15, name
        assert (lab[:, 1:] - items.ab).abs().flatten(1).amax(1)[applies].min() > 0.5, name


def test_a_dose_of_zero_is_the_truth_and_doses_rise(photos):
    for name in families(source="photos"):
        dose, applies = perturbations[name](photos, rng(0, name))
        psnr = [psnr_to(photos.rgb, at_strength(photos, dose, torch.full((len(photos),), s)))[applies] for s in (0.0, 0.1, 0.3)]
        assert psnr[0].min() > 55, name
        assert (psnr[1] >= psnr[2] - 0.5).float().mean() > 0.95, name


def test_the_same_generator_gives_the_same_pictures(scenes):
    for name in families(source="scenes"):
        first, again, other = (at_strength(scenes, perturbations[name](scenes, rng(s, name))[0], torch.full((24,), 0.5)) for s in (0, 0, 1))
        assert torch.equal(first, again), name
        if name not in ("desaturation", "bleeding"): assert not torch.equal(first, other), name


def test_labels_of_scenes_are_proved_by_the_oracle(scenes):
    for name in families(source="scenes"):
        dose, applies = perturbations[name](scenes, rng(3, name))
        found = scene_wrongness(scenes.scenes, at_strength(scenes, dose, torch.full((24,), 0.4)))[applies]
        if perturbations[name].kind == "valid": assert found.max() < 1e-3
        else: assert found.min() > 0.005, name


def test_bleeding_stays_near_borders():
    rgb = torch.zeros(1, 3, 64, 64); rgb[..., :32] = torch.tensor([0.6, 0.3, 0.3]).view(3, 1, 1); rgb[..., 32:] = torch.tensor([0.3, 0.5, 0.3]).view(3, 1, 1)
    labels = torch.zeros(1, 64, 64, dtype=torch.long); labels[..., 32:] = 1
    items = Items(rgb, labels, np.zeros(1, int))
    change = (perturb.bleeding(items, rng(0))[0](torch.tensor([0.25])) - items.ab).norm(dim=1)[0, 0]
    assert change[31] > 5 and change[:20].max() < 1e-3 and change[44:].max() < 1e-3


def test_hue_incoherence_cuts_a_region_in_two(scenes):
    """Unlike a recoloring, it leaves a part of every region it touches as it was."""
    dose, applies = perturb.hue_incoherence(scenes, rng(0))
    change = (dose(torch.full((24,), 1e-3)) - scenes.ab).norm(dim=1)
    assert applies.sum() > 12
    for moved, labels in zip(change[applies], scenes.regions[applies]):
        parts = [(moved[labels == r] > 1e-3).float().mean().item() for r in labels.unique()]
        assert max(parts) < 0.85 and sum(p > 0 for p in parts) >= 1


def test_leakage_runs_one_way_and_stays_near_the_outline():
    rgb = torch.zeros(1, 3, 64, 64); rgb[..., :32] = torch.tensor([0.6, 0.3, 0.3]).view(3, 1, 1); rgb[..., 32:] = torch.tensor([0.3, 0.5, 0.3]).view(3, 1, 1)
    labels = torch.zeros(1, 64, 64, dtype=torch.long); labels[..., 32:] = 1
    items = Items(rgb, labels, np.zeros(1, int))
    for seed in range(4):
        change = (perturb.edge_leakage(items, rng(seed))[0](torch.tensor([0.25])) - items.ab).norm(dim=1)[0].amax(0)
        left, right = change[:32].max() > 1e-3, change[32:].max() > 1e-3
        assert not (left and right) and change[:24].max() < 1e-3 and change[40:].max() < 1e-3


def test_recoloring_keeps_regions_whole_and_leaves_one(photos):
    dose, applies = perturb.recoloring(photos, rng(0))
    change = (dose(torch.full((len(photos),), 1e-3)) - photos.ab).norm(dim=1)
    for moved, labels in zip(change[applies], photos.regions[applies]):
        touched = [bool(moved[labels == r].max() > 1e-3) for r in labels.unique()]
        assert any(touched) and not all(touched)


def test_matching_is_exact_where_it_can_be_and_says_so_where_not(photos):
    target = torch.full((len(photos),), 31.0)
    match = match_dose(photos, perturb.chroma_shift(photos, rng(0))[0], target)
    assert (match.decibels - target).abs().max() < 0.1
    assert torch.allclose(match.decibels, psnr_to(photos.rgb, match.rgb))
    hopeless = match_dose(photos, perturb.desaturation(photos, rng(0))[0], torch.full((len(photos),), 3.0))
    assert (hopeless.decibels > 4).all() and (hopeless.strength == 1).all()


@pytest.mark.parametrize("source", ["photos", "scenes"])
def test_sentinels(result, source):
    auc = result[source].auc
    constant = auc[(auc.metric == "constant") & auc.auc.notna()]
    assert len(constant) > 20 and (constant.auc == 0.5).all()
    random = auc[(auc.metric == "random") & (auc.view == "item") & (auc.level == "all")]
    assert abs(random.auc.mean() - 0.5) < 0.1
    assert ((random.ci_low <= 0.5) & (random.ci_high >= 0.5)).mean() >= 0.6
    if source == "scenes":
        assert (auc[(auc.metric == "oracle") & (auc.level == "all")].auc >= 0.95).all()
    else: assert "oracle" not in set(auc.metric)


@pytest.mark.parametrize("source", ["photos", "scenes"])
def test_psnr_is_blind_by_construction(result, source):
    auc = result[source].auc.query("metric == 'pixel-psnr' and view == 'item' and level == 'all'")
    assert auc[auc.n >= 30].auc.between(0.35, 0.65).all() and len(auc) == len(families(kind="violation", source=source))


def test_a_metric_that_sees_saturation_finds_desaturation(result):
    for source in ("photos", "scenes"):
        auc = result[source].auc.query("metric == 'chroma' and view == 'item' and level == 'all'").set_index("family").auc
        assert auc["desaturation"] > 0.7
        dose = result[source].dose.query("metric == 'chroma' and family == 'desaturation'")
        assert dose.trend.iloc[0] > 0.9 and (np.diff(dose.isotonic) >= 0).all()


@pytest.mark.parametrize("source", ["photos", "scenes"])
def test_nothing_is_dropped_in_silence(result, source):
    ledger = result[source].ledger
    assert (ledger[["matched", "no_partner", "not_applicable", "unmatched"]].sum(axis=1) == ledger.n).all()
    assert ledger.unmatched.sum() > 0 and ledger.largest_gap_db[ledger.kind == "violation"].max() <= 0.2
    counted = result[source].auc.query("metric == 'random' and view == 'item' and level != 'all'").assign(level=lambda f: f.level.astype(float))
    both = counted.merge(ledger, on=["family", "level"])
    assert (both.n_x == both.matched).all() and len(both) == len(counted)


def test_set_metrics_have_the_set_view_only(result):
    auc = result["photos"].auc
    assert set(auc[auc.metric == "means"].view) == {"set"} and set(auc[auc.metric == "chroma"].view) == {"item", "set"}
    assert auc.query("metric == 'means' and family == 'desaturation' and level == 'all'").auc.item() > 0.5


def test_same_seed_same_result_and_round_trip(result, tmp_path):
    first, again = (color_probe("scenes", [PSNR, MEANS], families=["desaturation"], levels=(31, 28), scale="quick", seed=0, progress=False) for _ in range(2))
    assert first.auc.equals(again.auc) and first.dose.equals(again.dose) and first.profile.equals(again.profile)
    both = combine_results([result["photos"], result["scenes"]])
    both.save(tmp_path); back = ProbeResult.load(tmp_path)
    assert back.auc.equals(both.auc) and back.signatures == both.signatures and set(back.examples) == set(both.examples)
    assert all((back.examples[k] == v).all() and v.dtype == np.uint8 for k, v in both.examples.items())
    assert back.profile.equals(both.profile) and {"photos", "scenes"} == set(both.profile["source"])
    (tmp_path/"profile.parquet").unlink()
    with pytest.raises(InputError, match="no results at"): ProbeResult.load(tmp_path)
    (tmp_path/"probe.json").unlink()
    with pytest.raises(InputError, match="no finished probe"): ProbeResult.load(tmp_path)


def test_the_profile_of_a_probe_knows_its_sentinels(result):
    total = result["scenes"].profile.query("level == 'all' and family != 'all' and view == 'item' and n_clusters > 0").set_index("metric")
    assert (total.accuracy["constant"] == 0.5).all() and (total.auc["constant"] == 0.5).all() and np.isinf(total.threshold["constant"]).all()
    assert (total.accuracy["oracle"] >= 0.95).all() and (total.auc["oracle"] >= 0.95).all() and (total.detected_from["oracle"] == 1).all()
    gray = result["scenes"].auc.query("metric == 'source-only' and view == 'item' and level == 'all'").set_index("family").auc
    assert gray["luminance-drift"] > 0.9 and gray.drop("luminance-drift").between(0.3, 0.7).all()  # it sees no color


def test_matching_in_color_differences_and_a_harsher_alternative(monkeypatch):
    """CIEDE2000 is blind by construction where pairs are matched in it; the wide recoloring reaches further than the moderate one."""
    monkeypatch.setitem(COLOR_SIZES, "quick", ProbeSize(22, 12, 100, per_photo=2))
    found = {name: color_probe("photos", ["ciede2000"], families=["chroma-shift", "desaturation"], levels=(1.4, 2.8), matched="ciede2000", valid=name,
                               scale="quick", progress=False) for name in ("recoloring", "wide-recoloring")}
    for result in found.values():
        rows = result.auc.query("metric == 'ciede2000' and view == 'item' and level == 'all'")
        assert rows.auc.between(0.35, 0.65).all() and set(result.auc.level) == {"1.4", "2.8", "all"} and result.ledger.largest_gap_db.max() <= 0.2
        worth = result.profile.query("metric == 'ciede2000' and view == 'item' and level == 'all' and family != 'all'")
        assert (abs(worth.exchange - 1) < 0.02).all() and ((worth.exchange_low <= 1.005) & (worth.exchange_high >= 0.995)).all()
        assert (worth.exchange_n > 0).all() and "matched:ciede2000" in result.signatures["photos"]
    matched = [r.ledger.query("family == 'desaturation'").matched.sum() for r in found.values()]
    assert matched[0] < matched[1]
    with pytest.raises(InputError, match="did you mean ciede2000"): color_probe("photos", [PSNR], matched="ciede200", progress=False)
    with pytest.raises(InputError, match="smallest"): color_probe("photos", [PSNR], matched="ciede2000", levels=(4, 1), progress=False)
    with pytest.raises(InputError, match="did you mean wide-recoloring"): color_probe("photos", [PSNR], valid="wide-recolorin", progress=False)


def test_moderate_recolorings_stay_among_the_colors_of_the_photograph(photos):
    dose, applies = perturb.recoloring(photos, rng(0))
    ab, reach = dose(torch.ones(len(photos))), perturb.color_reach(photos.ab, photos.cluster)
    out = torch.einsum("kc,nchw->nkhw", torch.from_numpy(perturb._outward()).float(), ab) - reach[:, :, None, None]
    before = torch.einsum("kc,nchw->nkhw", torch.from_numpy(perturb._outward()).float(), photos.ab) - reach[:, :, None, None]
    assert ((out <= 0.1) | (out <= before + 0.1)).all()                      # nothing goes further than it was, or than the photograph's colors
    mean = lambda x, labels, r: x[:, labels == r].mean(1)
    for i in applies.nonzero()[:, 0].tolist():
        labels = photos.regions[i]
        for r in labels.unique():
            a, b = mean(photos.ab[i], labels, r), mean(ab[i], labels, r)
            turn = torch.atan2(a[0] * b[1] - a[1] * b[0], a @ b).rad2deg().abs()
            assert turn < 61 or a.norm() < 3, (i, r, turn)                   # a gray region has no hue to keep


def test_no_tile_drops_out_of_the_exchange_rate(result):
    """Bleeding is matched in few tiles; its rate is taken from all that it applies to, and those that are only bounded are counted."""
    profile = result["photos"].profile.query("level == 'all' and view == 'item' and metric == 'pixel-psnr' and family != 'all'").set_index("family")
    ledger = result["photos"].ledger
    for family in ("bleeding", "edge-leakage", "blotches"):
        applies = 44 - ledger[ledger.family == family].not_applicable.max()
        assert profile.exchange_n[family] >= applies and 0 < profile.exchange_bounded[family] < profile.exchange_n[family]
        assert abs(profile.exchange[family] - 1) < 0.02 and profile.exchange_low[family] <= 1.01 and profile.exchange_high[family] >= 0.99
    constant = result["photos"].profile.query("metric == 'constant' and level == 'all' and family != 'all'")
    assert constant.exchange.isna().all() and (constant.exchange_low == 0).all() and np.isinf(constant.exchange_high).all()


def test_bad_input():
    with pytest.raises(InputError, match="did you mean bleeding"): color_probe("photos", [PSNR], families=["bleding"], progress=False)
    with pytest.raises(InputError, match="did you mean quick"): color_probe("photos", [PSNR], scale="quik", progress=False)
    with pytest.raises(InputError, match="mildest"): color_probe("photos", [PSNR], levels=(25, 37), progress=False)
    with pytest.raises(InputError, match="forbidden-color"): color_probe("photos", [PSNR], families=["forbidden-color"], progress=False)
    with pytest.raises(InputError, match="twice"): probe_metrics([PSNR, PSNR])
    with pytest.raises(InputError, match="not a folder"): color_probe("no-such-folder", [PSNR], progress=False)


def test_intervals_over_clusters():
    weights = bootstrap_weights(5, 100, rng(0))
    assert cluster_interval(np.full(5, 0.5), weights) == pytest.approx((0.5, 0.5, 0.5))
    assert cluster_interval(np.array([0.7] + 4 * [np.nan]), weights) == (0.7, -np.inf, np.inf)
    counts, drawn = draw_sets(np.repeat(np.arange(30), 4), 200, rng(0))
    assert (drawn.sum(1) == 10).all() and counts.shape == (200, 120) and (counts.sum(1) == 50).all()
    value, low, high = share_interval(np.ones(200), drawn)
    assert value == 1 and 0.8 < low < 1 and high == pytest.approx(1)
    one_photograph = share_interval((drawn[:, 0] > 0).astype(float), drawn)
    coin = share_interval(rng(1).integers(0, 2, 200).astype(float), drawn)
    assert one_photograph[2] - one_photograph[1] > coin[2] - coin[1]
    assert np.isnan(trend(np.array([[1.0], [2.0], [np.nan]]))).all()


def test_intervals_over_sets_hold_one_half_of_random_numbers():
    """Fresh collections of random numbers: the 95 % interval holds one half about as often as it says (before, 87 to 91 %)."""
    held = []
    for seed in range(200):
        cluster, numbers = np.repeat(np.arange(40), 2), rng(seed, "numbers")
        counts, draws = draw_sets(cluster, 60, rng(seed, "sets"))
        gap = ((numbers.random((5, 80)) - numbers.random((5, 80))) @ counts.T)
        _, low, high = share_interval((gap > 0).mean(0), draws)
        held.append(low <= 0.5 <= high)
    assert 0.915 <= np.mean(held) <= 0.995


def test_own_photographs_with_human_regions():
    labels, images = data_path("bsds500/segmentations"), data_path("bsds500/images")
    found = color_probe(images, [PSNR, CHROMA], families=["bleeding", "desaturation"], levels=(34, 31, 28), scale="quick", regions=labels, progress=False)
    assert found.auc.n_clusters.max() > 20 and "labels-0" in found.signatures["images"]
