"""HYPE-Style and distances between sets: oracle values, the sign, the pairing, the copies, and how often intervals hold."""
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import stats
from scipy.linalg import sqrtm

from open_cells import open_cells
from invariant_metrics.commands.shell import main
from invariant_metrics.core import InputError, rng
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.encoders.encoder import Encoder, Preprocess
from invariant_metrics.encoders.inception import _TAPS
from invariant_metrics.people.assign import assign
from invariant_metrics.people.styles import _INCEPTION_LAYERS, StyleAgreement, _corrected_interval
from invariant_metrics.people.styles import _corrected_replicates, _distance_replicates, _frechet_paired
from invariant_metrics.people.styles import _kid_paired, _label_counts
from invariant_metrics.people.styles import _read_styles, _real_side, _row_correlation
from invariant_metrics.people.styles import style_agreement, _style_features, _style_images, _style_labels
from invariant_metrics.people.styles import style_study, table_one

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
from styles import simulate_labels  # noqa: E402

STYLES, INPUTS = [f"s{k}" for k in range(6)], [f"i{k:02d}" for k in range(25)]


def ones(n: int) -> torch.Tensor: return torch.ones(1, n, dtype=torch.float64)


def study(seed: int = 0, evaluators: int = 24, width: int = 5, photos: int = 40):
    "Features that move away from the real ones from style to style, and people who see just that."
    g = rng(seed, "study")
    x = g.standard_normal((25, width)) + 0.2*g.standard_normal((6, 25, width)) + np.linspace(0, 2, 6)[:, None, None]
    chance = dict(zip(STYLES, 1/(1 + np.exp(-np.linspace(2, -2, 6)))))
    labels = simulate_labels(assign(INPUTS, STYLES, evaluators, 25, seed=seed), chance, seed=seed)
    return {"layer": (torch.from_numpy(x), torch.from_numpy(g.standard_normal((photos, width))))}, labels


def agreement(**options) -> StyleAgreement:
    features, labels = study()
    return style_agreement(features, labels, STYLES, INPUTS, **{"reps": 200, **options})


def test_kid_oracle():
    "X = {(1,0),(0,1)}, Y = {(1,1),(2,0)}: 1.125 by hand."
    side = _real_side(torch.tensor([[1., 1], [2, 0]]).double(), ones(2))
    assert _kid_paired(torch.eye(2).double(), side, ones(2)).item() == pytest.approx(1.125, abs=1e-12)


def exactly(n: int, mean, cov, seed: int) -> np.ndarray:
    "Rows whose sample mean and covariance are these exactly."
    z = rng(seed, n).standard_normal((n, len(mean)))
    z -= z.mean(0)
    z = z @ np.linalg.inv(np.linalg.cholesky(np.cov(z.T)).T)
    return z @ np.linalg.cholesky(cov).T + mean


def test_fid_of_closed_form_gaussians():
    "‖μ − ν‖² + Σ (σ − τ)² for diagonal covariances, and the matrix root for others; also the other way round."
    a, b = exactly(25, [1., 2, 0], np.diag([1., 4, 9]), 0), exactly(40, [0., 0, 0], np.diag([4., 1, 1]), 1)
    expected = 5 + (1 - 2)**2 + (2 - 1)**2 + (3 - 1)**2
    for x, y in ((a, b), (b, a)):
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        assert _frechet_paired(x, _real_side(y, ones(len(y))), ones(len(x))).item() == pytest.approx(expected, abs=1e-6)
    full = np.array([[2., 1, 0], [1, 2, 0.5], [0, 0.5, 1]])
    a = torch.from_numpy(exactly(25, [1., 2, 0], full, 0))
    root = 5 + np.trace(full + np.diag([4., 1, 1]) - 2*sqrtm(full @ np.diag([4., 1, 1])).real)
    assert _frechet_paired(a, _real_side(torch.from_numpy(b), ones(40)), ones(25)).item() == pytest.approx(root, abs=1e-6)


@pytest.mark.parametrize("inputs, photos, width", [(25, 40, 300), (25, 12, 8), (8, 60, 3)])
def test_weighted_distances_are_those_of_resampled_rows(inputs, photos, width):
    "Multiplicities give what the rows written out give: NumPy's covariance and SciPy's root, an explicit double sum for KID."
    g = rng(0, width)
    x, y = g.standard_normal((inputs, width)) + 3, g.standard_normal((photos, width)) + 3
    u, v = (bootstrap_weights(n, 4, rng(1, n)) for n in (inputs, photos))
    sides = {copies: _real_side(torch.from_numpy(y), torch.from_numpy(v).double(), copies) for copies in ("keep", "drop")}
    fid, kid = _frechet_paired(torch.from_numpy(x), sides["keep"], torch.from_numpy(u).double()), {}
    for copies, side in sides.items(): kid[copies] = _kid_paired(torch.from_numpy(x), side, torch.from_numpy(u).double(), copies)
    for r in range(4):
        at, other = np.repeat(np.arange(inputs), u[r]), np.repeat(np.arange(photos), v[r])
        a, b = x[at], y[other]
        a0, b0 = ((z - z.mean(0))/np.sqrt(len(z) - 1) for z in (a, b))
        loop = ((a.mean(0) - b.mean(0))**2).sum() + (a0**2).sum() + (b0**2).sum() - 2*np.linalg.svd(a0 @ b0.T, compute_uv=False).sum()
        assert fid[r].item() == pytest.approx(loop, rel=1e-6)
        k = lambda p, q: (p @ q.T/width + 1)**3
        for copies, same in (("keep", lambda index: np.eye(len(index), dtype=bool)), ("drop", lambda index: index[:, None] == index)):
            own = [k(z, z)[~same(index)].mean() for z, index in ((a, at), (b, other))]
            assert kid[copies][r].item() == pytest.approx(sum(own) - 2*k(a, b).mean(), rel=1e-9)


def test_copies_push_kid_up_and_dropping_them_does_not():
    "Trap: copies of an item count as similar to themselves; without them replicates lie around the value on the data."
    features, _ = study()
    x, y = features["layer"]
    u, v = (torch.from_numpy(bootstrap_weights(n, 2000, rng(0, n))).double() for n in (25, 40))
    value = _kid_paired(x[2], _real_side(y, ones(40)), ones(25)).item()
    mean = {copies: _kid_paired(x[2], _real_side(y, v, copies), u, copies).numpy() for copies in ("keep", "drop")}
    error = mean["drop"].std()/np.sqrt(2000)
    assert abs(mean["drop"].mean() - value) < 4*error < mean["keep"].mean() - value


def test_hype_style_by_hand_and_equal_label_counts():
    "Mean and sum put styles in one order when labels are equally many; the sum refuses other counts."
    frame = pd.DataFrame([("a", "x", "s", 1), ("b", "y", "s", 1), ("c", "z", "s", 0), ("a", "y", "t", 0), ("b", "x", "t", 0), ("c", "x", "t", 1)],
                         columns=["evaluator", "input", "style", "label"])
    total, count = _label_counts(_style_labels(frame), ["s", "t"], ["x", "y", "z"])
    assert (total.sum(1)/count.sum(1)).tolist() == pytest.approx([2/3, 1/3]) and total.sum(1).tolist() == [2, 1]
    features, labels = study()
    means, sums = (style_agreement(features, labels, STYLES, INPUTS, reps=50, how=how) for how in ("mean", "sum"))
    assert means.r == pytest.approx(sums.r)
    with pytest.raises(InputError, match="equally many"): style_agreement(features, labels.iloc[1:], STYLES, INPUTS, reps=50, how="sum")


def test_labels_come_in_several_forms(tmp_path):
    "CSV, style/input as item, rater and score, what the labeling page's reader gives; words; real pictures are set aside."
    _, labels = study(evaluators=6)
    labels.assign(real=False).to_csv(tmp_path/"labels.csv", index=False)
    item = pd.DataFrame({"rater": labels["evaluator"], "item": labels["style"] + "/" + labels["input"], "score": labels["label"].astype(float)})
    read = pd.DataFrame({"item": labels["input"] + "-" + labels["style"], "system": labels["style"], "rater": labels["evaluator"],
                         "group": labels["input"], "score": labels["label"].astype(float), "evaluator": "plan", "real": False})
    words = labels.assign(label=np.where(labels["label"] == 1, "real", "generated"))
    photos = pd.DataFrame({"evaluator": ["e"]*2, "input": ["", "p"], "style": ["", "real"], "label": [1, 0]})
    for given in (tmp_path/"labels.csv", item, read, words, pd.concat([labels, photos]), type("Labels", (), {"frame": read})):
        means = [_style_labels(one).groupby("style")["label"].mean() for one in (given, labels)]
        pd.testing.assert_series_equal(*means)
    total, count = _label_counts(_style_labels(labels), STYLES, INPUTS)
    assert total.sum() == labels["label"].sum() and set(count.ravel()) == {1}


@pytest.mark.parametrize("change, word", [
    (lambda f: f.drop(columns="label"), "no column 'label'"), (lambda f: f.assign(label=2), "labels are 1"),
    (lambda f: pd.concat([f, f.head(1)]), "twice"), (lambda f: f.assign(style="real"), "no label of a generated"),
    (lambda f: f[f["style"] != "s3"], "1 of 6 styles have no label: s3"), (lambda f: f.replace({"style": {"s3": "new"}}), "no label: s3"),
    (lambda f: f[f["input"] != "i07"], "inputs have no label: i07"),
    (lambda f: pd.concat([f, f.head(1).assign(style="s9")]), "styles have labels but no pictures: s9")])
def test_wrong_labels_are_named(change, word):
    features, labels = study()
    with pytest.raises(InputError, match=word): style_agreement(features, change(labels), STYLES, INPUTS, reps=10)


@pytest.mark.parametrize("options, word", [
    (dict(metrics=("IS",)), "IS"), (dict(copies="half"), "half"), (dict(kind="kendall"), "kendall"),
    (dict(reps=1), "reps is 1"),
    (dict(values={"m": (np.ones((6, 25)), True)}), "m: the same for all 6 styles"), (dict(values={"m": (np.ones((6, 24)), True)}), "24"),
    (dict(values={"m": (np.full((6, 25), np.nan), True)}), "not finite")])
def test_wrong_options_are_named(options, word):
    with pytest.raises(InputError, match=word): agreement(**options)


def test_positive_r_means_agreement_whatever_the_direction():
    "Distances count with minus; a per-picture value with its stated direction, and the other way round with the other sign."
    badness = np.linspace(0, 2, 6)[:, None] + 0.1*rng(0, "values").standard_normal((6, 25))
    found = agreement(values={"bad": (badness, False), "good": (-badness, True), "swapped": (badness, True)})
    assert min(found.r["FID", "layer"], found.r["KID", "layer"], found.r["bad", ""]) > 0.8
    assert found.r["bad", ""] == pytest.approx(found.r["good", ""]) == pytest.approx(-found.r["swapped", ""])


def test_correlations_are_scipys():
    a, b = rng(0, "a").integers(5, size=(3, 12)).astype(float), rng(0, "b").standard_normal((3, 12))
    assert _row_correlation(a, b) == pytest.approx([stats.pearsonr(*z)[0] for z in zip(a, b)])
    assert _row_correlation(a, b, "spearman") == pytest.approx([stats.spearmanr(*z)[0] for z in zip(a, b)])
    assert np.isnan(_row_correlation(np.ones(4), b[0, :4]))
    same = rng(0, "same").random((200, 1)).repeat(6, 1)
    assert (same != same.mean(-1, keepdims=True)).any() and np.isnan(_row_correlation(same, b[:1, :6])).all() # a mean that is off by a rounding is no spread


def test_replicates_are_paired_seeded_and_shared():
    "One draw of inputs for all styles and for people: an easy input that helps all styles alike changes no correlation."
    one, two, other = agreement(), agreement(), agreement(seed=1)
    assert all((one.replicates[k] == two.replicates[k]).all() and (one.replicates[k] != other.replicates[k]).any() for k in one.r)
    features, labels = study()
    level = np.linspace(0, 3, 6)[:, None].repeat(25, 1)
    easy = 50*rng(0, "easy").standard_normal(25)
    flat, paired = (style_agreement({}, labels, STYLES, INPUTS, values={"m": (v, False)}, reps=50) for v in (level, level + easy))
    assert flat.replicates["m", ""] == pytest.approx(paired.replicates["m", ""], abs=1e-9)
    fixed = agreement(fixed_real=True)
    assert fixed.r == pytest.approx(one.r) and (fixed.replicates["FID", "layer"] != one.replicates["FID", "layer"]).any()


def test_interval_forms_and_table_one_by_hand():
    "Median, percentiles, median ± 1.96 standard deviations; the layout of the paper; new styles widen the interval."
    drawn = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    each = lambda value: {("FID", "pool1"): value, ("KID", "pre-aux"): value}
    found = StyleAgreement(("a",), np.zeros(1), {}, each(0.3), each(drawn), each(np.r_[0.4, drawn]), 0.95, agreement(reps=5).signature)
    row = found.table.iloc[0]
    assert (row["median"], row["low"], row["high"]) == pytest.approx((0.3, 0.11, 0.49))
    assert (row["normal_low"], row["normal_high"]) == pytest.approx((0.3 - 1.95996*0.158114, 0.3 + 1.95996*0.158114), abs=1e-5)
    table = table_one(found)
    assert list(table.columns) == ["pool1", "pre-aux"] and list(table.index) == ["FID", "KID"]
    assert table.loc["FID", "pool1"] == "0.300 (0.110, 0.490)" and table.loc["FID", "pre-aux"] == ""
    assert table_one(found, "normal").loc["KID", "pre-aux"] == "0.300 (-0.010, 0.610)"
    assert table_one(found, "corrected").loc["FID", "pool1"] == "0.400 (0.110, 0.490)"
    with pytest.raises(InputError, match="wald"): table_one(found, "wald")
    spread = [np.ptp(agreement(new_styles=new).table.loc[0, ["low", "high"]].astype(float)) for new in (False, True)]
    assert agreement(reps=25).signature.differences(agreement(reps=25, new_styles=True).signature).keys() == {"target"} and spread[0] != spread[1]


def test_no_form_leaves_the_range_of_a_correlation():
    "Median + 1.96 standard deviations passes 1 where r is high; the table holds what a correlation can be."
    drawn = np.array([0.85, 0.9, 0.99, 0.995, 0.999])
    each = lambda value: {("FID", "a"): value, ("KID", "a"): np.negative(value)}
    row = StyleAgreement(("a",), np.zeros(1), {}, each(0.99), each(drawn), each(np.r_[0.99, drawn]), 0.95, agreement(reps=5).signature).table
    assert 0.99 + 1.96*drawn.std(ddof=1) > 1 and row["normal_high"][0] == 1 and row["normal_low"][1] == -1
    assert row["normal_low"][0] == pytest.approx(0.99 - 1.95996*drawn.std(ddof=1), abs=1e-5)
    assert agreement().table[["normal_low", "normal_high"]].abs().to_numpy().max() <= 1


def few_styles(**options) -> StyleAgreement:
    "Four styles drawn anew: one draw in 64 has one style four times, and no correlation."
    features, labels = study()
    return style_agreement({k: (x[:4], y) for k, (x, y) in features.items()}, labels[labels["style"].isin(STYLES[:4])], STYLES[:4], INPUTS,
                           **{"reps": 1000, "new_styles": True, **options})


def test_draws_without_a_correlation_are_left_out_and_counted():
    found = few_styles()
    lost = int(np.isnan(found.replicates["FID", "layer"]).sum())
    assert 0 < lost < 50 and list(found.table["draws"]) == [1000 - lost]*2 and np.isfinite(found.table.drop(columns=["metric", "layer"]).to_numpy(float)).all()
    assert found.notes == (f"{lost} of 1000 draws have no correlation (FID layer, KID layer): no differences between the styles drawn; left out",)
    assert found.table["low"][0] == pytest.approx(np.nanquantile(found.replicates["FID", "layer"], 0.025))
    assert np.isfinite(open_cells("people/170_styles").layer_differences(found)[["low", "high"]].to_numpy()).all()
    assert agreement().notes == () and list(agreement().table["draws"]) == [200, 200]
    empty = StyleAgreement(("a",), np.zeros(1), {}, {("FID", "a"): 0.3}, {("FID", "a"): np.array([np.nan, 0.2])}, {("FID", "a"): np.zeros(3)}, 0.95, found.signature)
    with pytest.raises(InputError, match="FID a: 1 of 2 draws have a correlation"): empty.table


def test_a_result_remembers_whose_sign_was_turned():
    value = np.linspace(0, 2, 6)[:, None] + 0.1*rng(0, "axis").standard_normal((6, 25))
    found = agreement(reps=5, values={"good": (-value, True), "bad": (value, False)})
    assert {metric for metric, _ in found.turned} == {"FID", "KID", "bad"}


def test_the_corrected_correlation_is_free_of_the_noise_of_few_inputs():
    "Two noisy averages of one quantity: r is too small, replicates smaller still, the corrected one right on average."
    found = []
    for seed in range(60):
        g = rng(seed, "noisy")
        u = np.concatenate([np.ones((1, 25)), bootstrap_weights(25, 100, g)])
        a, b = (u @ (np.linspace(-1.5, 1.5, 20)[:, None] + 2*g.standard_normal((20, 25))).T/25 for _ in range(2))
        r = _row_correlation(a, b)
        found.append((np.median(r[1:]), r[0], _corrected_replicates(a, b)[0]))
    median, r, fixed = np.mean(found, 0)
    assert median < 0.78 < r < 0.88 and fixed == pytest.approx(1, abs=0.03)


def test_undefined_replicates_count_as_the_worst():
    "Scores that are nothing but noise: the corrected interval is wide open."
    g = rng(0, "nothing")
    u = np.concatenate([np.ones((1, 25)), bootstrap_weights(25, 200, g)])
    a, b = (u @ g.standard_normal((20, 25)).T/25 for _ in range(2))
    ci = _corrected_interval(_corrected_replicates(a, b)[1:])
    assert (ci.low, ci.high) == (-1, 1)


def test_differences_use_shared_replicates():
    "The difference of two nearly equal scores is known far better than either."
    g = rng(0, "noise")
    base = np.linspace(0, 2, 6)[:, None] + g.standard_normal((6, 25))
    found = agreement(values={"one": (base, False), "two": (base + 0.01*g.standard_normal((6, 25)), False)})
    rows = open_cells("people/170_styles").layer_differences(found, ("one", "")).set_index("metric")
    width = lambda frame, name: float(frame.loc[name, "high"] - frame.loc[name, "low"])
    assert rows.loc["two", "low"] <= 0.02 and width(rows, "two") < width(found.table.set_index("metric"), "one")/3


def coverage(studies: int, blind: float, noise: float, reps: int = 150) -> dict[str, float]:
    "How often intervals from 25 inputs hold the correlation that infinitely many would give."
    hits, quality, hidden = {"percentile": 0, "corrected": 0}, np.linspace(-1.5, 1.5, 20), blind*rng(0, "hidden").standard_normal(20)
    chance = lambda hard: 1/(1 + np.exp(-(quality[:, None] + hidden[:, None] + 0.5*hard)))
    truth = _row_correlation(chance(rng(0, "hard").standard_normal(4000)).mean(1), quality)
    for seed in range(studies):
        g = rng(seed, "coverage")
        said, score = g.binomial(3, chance(g.standard_normal(25)))/3, quality[:, None] + noise*g.standard_normal((20, 25))
        u = np.concatenate([np.ones((1, 25)), bootstrap_weights(25, reps, g)])
        low, high = np.quantile(_row_correlation(u @ said.T, u @ score.T)[1:], [0.025, 0.975])
        ci = _corrected_interval(_corrected_replicates(u @ said.T, u @ score.T)[1:])
        hits["percentile"] += low <= truth <= high
        hits["corrected"] += ci.low <= truth <= ci.high
    return {name: n/studies for name, n in hits.items()}


@pytest.mark.parametrize("blind, noise", [(0.3, 1), (1, 1), (1, 2)])
def test_percentile_intervals_lie_too_low_and_corrected_ones_hold(blind, noise):
    "95 % less three Monte-Carlo errors of 150 studies; the percentile form of a good score nearly always misses."
    found = coverage(150, blind, noise)
    assert found["corrected"] > 0.95 - 3*np.sqrt(0.95*0.05/150) and found["percentile"] < {0.3: 0.2, 1: 0.85}[blind]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place, g = tmp_path_factory.mktemp("styles"), rng(0, "pixels")
    for k, style in enumerate(["s0", "s1", "s2", "s3", "real"]):
        (place/style).mkdir()
        for name in range(5): Image.fromarray((g.random((24, 24, 3))*(255 - 50*k)).astype(np.uint8)).save(place/style/f"i{name}.png")
    return place


def test_munit_folders_from_pictures_to_table(folders):
    "style/input.png and a folder of real pictures beside them: features at the encoder's layers, correlations, table, figure."
    pictures = _read_styles(folders, folders/"real")
    assert pictures.styles == ("s0", "s1", "s2", "s3") and pictures.inputs == tuple(f"i{k}" for k in range(5))
    features = _style_features(pictures, "embedded", layers=["stage1", "embedding"])
    assert [tuple(x.shape) for x, _ in features.values()] == [(4, 5, 24), (4, 5, 64)] and features["stage1"][1].shape == (5, 24)
    labels = simulate_labels(assign(pictures.inputs, pictures.styles, 8, 5), dict(zip(pictures.styles, (0.9, 0.7, 0.3, 0.1))))
    found = style_agreement(features, labels, pictures.styles, pictures.inputs, reps=30)
    assert table_one(found).shape == (2, 2)
    small = pictures.only(["i3", "i1"])
    assert small.inputs == ("i3", "i1") and (small.images["s2"][0] == pictures.images["s2"][3]).all()
    with pytest.raises(InputError, match="unknown layer of embedded 'pool3'"): _style_features(pictures, "embedded", layers=["pool3"])


def test_folders_are_studied_in_python_and_by_the_command_alike(folders, tmp_path, capsys):
    "The folder of real pictures and whether they are drawn again are two things, each with its own name."
    pictures = _read_styles(folders, folders/"real")
    labels = simulate_labels(assign(pictures.inputs, pictures.styles, 8, 5), dict(zip(pictures.styles, (0.9, 0.7, 0.3, 0.1))))
    labels.to_csv(tmp_path/"labels.csv", index=False)
    for flag, fixed in (([], False), (["--fixed-real"], True)):
        found = style_study(folders, folders/"real", labels, encoder="embedded", layers=["stage1"], reps=20, fixed_real=fixed)
        words = ["styles", folders, "--real", folders/"real", "--labels", tmp_path/"labels.csv", "--encoder", "embedded", "--layer", "stage1", "--reps", 20, *flag]
        assert main([*map(str, words), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)["result"]
        assert answer["signature"] == str(found.signature) and f"real:{'fixed' if fixed else 'resample'}" in answer["signature"]
        assert [row["r"] for row in answer["table"]] == pytest.approx(found.table["r"].to_list())
    assert main([*map(str, words)]) == 0 and "HYPE-Style" in capsys.readouterr().out


def test_missing_inputs_and_folders_are_listed(folders, tmp_path):
    arrays = torch.rand(2, 5, 3, 24, 24)
    with pytest.raises(InputError, match="style b lacks 2 of 5 inputs: 3, 4"): _style_images({"a": arrays[0], "b": arrays[1][:3]}, arrays[0])
    with pytest.raises(InputError, match="holds no folders"): _read_styles(folders/"s0", folders/"real")
    with pytest.raises(InputError, match="no folder"): _read_styles(tmp_path/"none", folders/"real")


class Stub(Encoder):
    "An encoder that calls itself Inception and answers with the number of the layer."
    def __init__(self): super().__init__("inception", "none", ("64", "192", "768", "logits", "2048"), Preprocess()); self.freeze()
    def embed(self, x, layer): return torch.full((len(x), 2), float(layer))


def test_the_paper_s_layers_are_those_of_inception():
    "pool1 and pool2 after the first two pools, pre-aux before the auxiliary classifier, pool3 at the end; logits are left out."
    assert {name: _TAPS[layer] for name, layer in _INCEPTION_LAYERS.items()} == {"pool1": "MaxPool_1", "pool2": "MaxPool_2", "pre-aux": "Mixed_6e",
                                                                               "pool3": "Mixed_7c"}
    features = _style_features(_style_images({"a": torch.rand(1, 3, 32, 32)}, torch.rand(1, 3, 32, 32)), Stub())
    assert {name: int(x[0, 0, 0]) for name, (x, _) in features.items()} == {"pool1": 64, "pool2": 192, "pre-aux": 768, "pool3": 2048}


def test_scores_of_a_distance_come_in_the_order_of_styles():
    features, _ = study()
    x, y = features["layer"]
    drawn = _distance_replicates("FID", x, _real_side(y, ones(40)), ones(25))
    assert drawn.shape == (1, 6) and (np.diff(drawn[0]) > 0).all()
