"Agreement with people: every statistic against a reference, by hand, and under the changes it must not notice."
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from real_data import data_path, lines
from scipy import stats

from invariant_metrics.core import InputError, rng
from invariant_metrics.stats import bootstrap_weights
from invariant_metrics.people.calibrated import _best_epsilon, calibrated_accuracy, logistic_pearson
from invariant_metrics.people.kendall import _margins_by_class, _margins_of_all, grouped_counts, margin_counts
from invariant_metrics.people.kendall import pair_counts, pair_counts_many
from invariant_metrics.people.statistics import AGREEMENTS, agreement_named, _choice_accuracy
from invariant_metrics.people.statistics import kendall_b, _kendall_c, pearson
from invariant_metrics.people.statistics import _soft_pairwise_accuracy, spearman, tau_b, tau_c, two_afc
from invariant_metrics.people.statistics import wmt_like
from invariant_metrics.metrics.metric import extract, get_metric

SCORES = [name for name, a in AGREEMENTS.items() if a.form == "rows"]
FIELDS = ("balance", "strict", "human", "metric", "every", "n", "k")


def sample(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    "Human scores with k values on 0–100 and two metrics, one with ties."
    g = rng(seed, n, k)
    x = np.round(g.integers(0, k, n)*100/max(k - 1, 1))
    return x, np.stack([x + 30*g.normal(size=n), np.round(x/20 + g.normal(size=n))])


@pytest.mark.parametrize("n, k", [(6, 2), (40, 4), (300, 300), (500, 4), (700, 101), (400, 2)])
def test_counts_of_all_replicates_are_scipys(n: int, k: int):
    "Blocks, inversions and scipy on the repeated rows agree, for few and many distinct values."
    x, Y = sample(n, k)
    W = bootstrap_weights(n, 12, rng(1))
    many = pair_counts_many(x, Y, W)
    for m, r in np.ndindex(2, 12):
        one, drawn = pair_counts(x, Y[m], W[r]), np.repeat(np.arange(n), W[r])
        assert all(getattr(many, f)[m, r] == getattr(one, f) for f in FIELDS)
        for variant, tau in (("b", tau_b), ("c", tau_c)):
            expected = stats.kendalltau(x[drawn], Y[m][drawn], variant=variant).statistic
            assert tau(many)[m, r] == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 4)), min_size=2, max_size=30))
def test_pairs_are_counted_as_by_two_loops(table):
    "Any weights, any ties: the fast counts are those of the definition."
    x, y, w = np.array(table, float).T
    loops = dict.fromkeys(("balance", "strict", "human", "metric", "every"), 0.0)
    for i in range(len(x)):
        for j in range(i):
            a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
            for name, count in zip(loops, (a*b, abs(a*b), abs(a), abs(b), 1)): loops[name] += w[i]*w[j]*count
    W, one = w[None], np.zeros(len(x))
    for found in (pair_counts(x, y, w), pair_counts_many(x, y[None], W), pair_counts_many(x, y[None], W.astype(int)), margin_counts(x, y, W),
                  grouped_counts(x, y, one, W)):
        assert all(np.asarray(getattr(found, name)).item() == value for name, value in loops.items())


def test_a_large_sample_stays_exact_in_single_precision():
    "The counts exceed what single precision holds; they are scipy's all the same."
    x, Y = sample(20_000, 4)
    W = bootstrap_weights(20_000, 2, rng(3))
    found = pair_counts_many(x, Y[:1], W)
    drawn = np.repeat(np.arange(20_000), W[1])
    assert found.every[0, 1] > 2**26
    assert tau_b(found)[0, 1] == pytest.approx(stats.kendalltau(x[drawn], Y[0][drawn]).statistic, abs=1e-12)


def test_rows_of_a_cluster_share_a_column():
    "Weights per cluster with `rows` give what expanded weights give, for every statistic that needs no halves."
    x, Y = sample(90, 5)
    rows, V = np.repeat(np.arange(30), 3), bootstrap_weights(30, 8, rng(0))
    for name in ("pearson", "spearman", "tau_b", "tau_c", "tau_23", "wmt_like"):
        np.testing.assert_allclose(AGREEMENTS[name].many(x, Y, V, rows), AGREEMENTS[name].many(x, Y, V[:, rows]), atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_many_is_one_after_another(name: str):
    "Replicates at once equal the function with weights; a weight of one is no weight."
    x, Y = sample(60, 12)
    W, a = np.concatenate([np.ones((1, 60), int), bootstrap_weights(60, 2, rng(2))]), AGREEMENTS[name]
    many = a.many(x, Y, W)
    np.testing.assert_allclose(many, [[a.function(x, y, w) for w in W] for y in Y], atol=1e-12)
    np.testing.assert_allclose(many[:, 0], [a.function(x, y) for y in Y], atol=1e-12)


@pytest.mark.parametrize("name", ["pearson", "spearman", "tau_b", "tau_c"])
def test_a_weight_is_a_repeated_row(name: str):
    x, Y = sample(50, 4)
    w = bootstrap_weights(50, 1, rng(0))[0]
    assert AGREEMENTS[name].function(x, Y[1], w) == pytest.approx(AGREEMENTS[name].function(np.repeat(x, w), np.repeat(Y[1], w)), abs=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 9))
def test_rank_statistics_see_order_alone_and_flip_with_it(seed: int, k: int):
    "A rising map changes nothing; a falling one changes the sign of ρ, τb and τc; order of rows is nothing."
    x, Y = sample(30, k, seed)
    y, shuffled = Y[1], rng(seed, "shuffle").permutation(30)
    if np.ptp(y) == 0 or np.ptp(x) == 0: return
    for f in (spearman, kendall_b, _kendall_c):
        assert f(x, np.exp(y/4)) == pytest.approx(f(x, y), abs=1e-12) == pytest.approx(f(np.cbrt(x), y), abs=1e-12)
        assert f(x, -y) == pytest.approx(-f(x, y), abs=1e-12)
        assert f(x[shuffled], y[shuffled]) == pytest.approx(f(x, y), abs=1e-12)


def within(name: str, x, y, groups) -> np.ndarray: # of each group, NaN without variation
    return agreement_named(name).groupwise(x, y, groups)[:, 0]


@pytest.mark.parametrize("name", [n for n in SCORES if AGREEMENTS[n].groupwise])
def test_grouped_is_the_mean_over_groups(name: str):
    "Of groups of several sizes; groups without variation are counted and left out, weights of rows and of groups count."
    g = rng(5)
    groups = np.repeat(np.arange(9), [4, 4, 5, 5, 5, 6, 6, 4, 4])
    x, Y = sample(len(groups), 5)
    x[groups == 2] = 50
    a, W = AGREEMENTS[name], bootstrap_weights(len(groups), 6, g)
    per, ones = within(name, x, Y[1], groups), a.groupwise(x, Y[1], groups, np.ones((1, len(x)), int))[:, 0]
    np.testing.assert_allclose(per, ones, atol=1e-12)
    if name not in ("tau_23", "accuracy"): assert np.isnan(per[2])
    draws = a.groupwise(x, Y[1], groups, W)
    assert draws.shape == (9, 6)


@pytest.mark.parametrize("name, reference", [("pearson", stats.pearsonr), ("spearman", stats.spearmanr), ("tau_b", stats.kendalltau)])
def test_within_groups_against_scipy(name: str, reference):
    x, Y = sample(120, 30)
    groups = np.tile(np.arange(10), 12)
    for y in Y:
        expected = [reference(x[groups == g], y[groups == g])[0] for g in range(10)]
        np.testing.assert_allclose(within(name, x, y, groups), expected, atol=1e-12)


def test_a_gap_belongs_to_the_name():
    x, Y = sample(60, 12)
    half, plain = agreement_named("wmt_like:0.5"), agreement_named("wmt_like")
    assert half.name == "wmt_like:0.5" and agreement_named("wmt_like_0.5").gap == 0.5 and half.gap == 0.5 and plain is AGREEMENTS["wmt_like"] and plain.gap == 25
    groups = np.repeat(np.arange(6), 10)
    assert half.function(x/50, Y[0]) == pytest.approx(plain.function(x, Y[0])) == pytest.approx(wmt_like(x/50, Y[0], 0.5))
    np.testing.assert_allclose(half.many(x/50, Y, np.ones((1, 60)))[:, 0], [half.function(x/50, y) for y in Y])
    np.testing.assert_allclose(within("wmt_like:0.5", x/50, Y[0], groups), within("wmt_like", x, Y[0], groups))
    for name, words in (("wmt_like:0", "not a positive number"), ("wmt_like:half", "not a positive number"), ("wmt_like:nan", "not a positive"),
                        ("wmt_lik", "did you mean wmt_like"), ("tau_b:2", "unknown statistic"), ("wmt_like:", "not a positive number")):
        with pytest.raises(InputError, match=words): agreement_named(name)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_within_groups_the_units_do_not_matter(name: str):
    x, Y = sample(120, 30)
    groups = np.tile(np.arange(10), 12)
    plain = within(name, x, Y[0], groups)
    for unit in (1e-100, 1e-10, 1e10): np.testing.assert_allclose(within(name, x, Y[0]*unit, groups), plain, atol=1e-9)
    still = np.where(groups == 3, 0.1*3, Y[0])
    still[np.flatnonzero(groups == 3)[::2]] = 0.3 # 0.1*3 is not 0.3 in floats
    if name == "pearson": assert np.isnan(within(name, x, still, groups)[3])


def test_margins_by_class_are_those_of_all_pairs():
    x, Y = sample(150, 6)
    V = bootstrap_weights(150, 4, rng(0)).T.astype(float)
    for eps, gap in ((0.0, 0.0), (7.3, 0.0), (0.0, 25.0), (7.3, 41.0)):
        np.testing.assert_array_equal(_margins_by_class(x, Y[0], V, eps, gap), _margins_of_all(x, Y[0], V, eps, gap))


def test_wmt_like_by_hand():
    "Gaps 10→50, 10→90, 20→50, 20→90, 50→90 count; the metric ties one and reverses one."
    assert wmt_like([10, 20, 50, 90], [1, 3, 3, 2]) == pytest.approx((2 - 2 - 1)/5)


def test_the_sweep_finds_what_trying_every_epsilon_finds():
    for seed in range(20):
        x, Y = sample(18, 4, seed)
        for y in Y:
            eps, right = _best_epsilon(x, y)
            i, j = np.triu_indices(18, 1)
            accuracy = lambda e: np.mean(np.where(np.abs(y[i] - y[j]) <= e, 0, np.sign(y[i] - y[j])) == np.sign(x[i] - x[j]))
            tried = max(accuracy(e) for e in [0, *np.abs(y[i] - y[j])])
            assert right == pytest.approx(tried) == pytest.approx(accuracy(eps))


@pytest.mark.parametrize("k", [2, 4, 40])
def test_a_random_metric_stays_at_chance_after_calibration(k: int):
    "Cross-fitted, over all rows and within items; on the same pairs it would not."
    g, items = rng(0, k), np.repeat(np.arange(50), 6)
    x = g.integers(0, k, 300).astype(float)
    found = [calibrated_accuracy(x, g.normal(size=300), groups, seed=i) for i in range(30) for groups in (None, items)]
    for part in (found[::2], found[1::2]):
        excess = np.array([f.value - f.chance for f in part])
        assert excess.mean() < 2*excess.std()/30**0.5 + 0.002
        assert np.mean([f.optimistic for f in part]) > np.mean([f.value for f in part])


def test_logistic_fit_helps_where_scores_saturate_and_never_hides_a_wrong_direction():
    g = rng(0)
    quality = g.normal(size=150)
    people = 5/(1 + np.exp(-3*quality)) + 0.2*g.normal(size=150)
    found, wrong = logistic_pearson(people, quality), logistic_pearson(people, -quality)
    assert found.value > found.raw + 0.02 and found.value <= found.optimistic + 0.01
    assert wrong.value == pytest.approx(-found.value, abs=1e-3)


def test_soft_accuracy_uses_shared_flips_and_proper_p_values():
    "People against themselves give 1; the p-values are those of a loop over the flips."
    g = rng(0)
    x = g.normal(size=(20, 4)) + np.arange(4)/4
    assert _soft_pairwise_accuracy(x, 3*x) == 1
    y = x + g.normal(size=x.shape)
    flips = rng(0, "flips", 20).choice([-1.0, 1.0], (200, 20))
    p = lambda s, a, b: (1 + sum((f*(s[:, a] - s[:, b])).sum() >= (s[:, a] - s[:, b]).sum() - 1e-9 for f in flips))/201
    expected = 1 - np.mean([abs(p(x, a, b) - p(y, a, b)) for a in range(4) for b in range(a + 1, 4)])
    assert _soft_pairwise_accuracy(x, y, permutations=200) == pytest.approx(expected)
    many = AGREEMENTS["soft_accuracy"].many(x, y[None], np.ones((2, 20), int))
    assert many[0, 0] == many[0, 1] == _soft_pairwise_accuracy(x, y)


def test_choices_by_hand_and_turned_around():
    g, d = np.array([0.9, 0.2, 0.5, 1.0]), np.array([2.0, 1, -1, 0])
    assert two_afc(g, d) == pytest.approx((0.9 + 0.2 + 0.5 + 0.5)/4) and _choice_accuracy(g, d) == pytest.approx((1 + 0 + 0.5 + 0.5)/4)
    assert two_afc(1 - g, -d) == pytest.approx(two_afc(g, d)) and _choice_accuracy(1 - g, -d) == pytest.approx(_choice_accuracy(g, d))
    w = np.array([[1, 0, 2, 1]])
    assert AGREEMENTS["two_afc"].many(g, d[None], w)[0, 0] == pytest.approx(two_afc(g, d, w[0]))


@pytest.mark.parametrize("name", SCORES)
def test_bad_input_is_refused_in_one_line(name: str):
    good = [10.0, 40, 70, 100, 20, 60, 90, 30, 50, 80]
    for x, y, message in (([5.0]*10, good, "human: all 10 scores are 5"), (good, [5.0]*10, "metric: all 10 scores are 5"), (good[:3], good[:3], "too few"),
                          ([np.nan, *good[1:]], good, "missing or not finite"),
                          (good, [*good[:9], np.inf], "in rows 9"), (good, good[:9], "one of each")):
        with pytest.raises(InputError, match=message) as error: AGREEMENTS[name].function(x, y)
        assert "\n" not in str(error.value)


def test_choices_systems_and_groups_refuse_bad_input():
    for run, message in ((lambda: two_afc([0.5]*5, [0.0]*5), "ties all"), (lambda: _choice_accuracy([2, 1, 1, 1], [1, 1, 1, 1]), "between 0 and 1"),
                         (lambda: two_afc([1, 1, 1], [1, 1, 1]), "four pairs"),
                         (lambda: _soft_pairwise_accuracy(np.ones((9, 2)), np.ones((9, 2))), "constant column"),
                         (lambda: _soft_pairwise_accuracy(np.eye(3), np.eye(3)), "at least 4"),
                         (lambda: pair_counts_many(np.arange(4), np.ones((1, 4)), np.ones((2, 5), int)), "do not fit 4 rows")):
        with pytest.raises(InputError, match=message): run()


def flickr() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    "Ratings of Flickr8k-Expert, three to a candidate, and the published n-gram scores repeated for each."
    judged = lines("flickr8k_expert/judgments.jsonl")
    scored = {s["row"]: s for s in lines("flickr8k_expert/pycocoevalcap_scores.jsonl.gz")}
    names = ("Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "ROUGE_L", "CIDEr", "METEOR")
    ratings = np.array([j["ratings"] for j in judged], float).ravel()
    return ratings, {n: np.repeat([scored[i][n] for i in range(len(judged))], 3) for n in names}


def test_flickr8k_agreement_is_the_published_one():
    "From stored scores, but for BLEU, whose smallest values the storage rounded to ties."
    expected = json.loads(data_path("flickr8k_expert/kendall_tau_measured.json").read_text())
    x, metrics = flickr()
    for name in ("ROUGE_L", "METEOR", "CIDEr"): assert 100*_kendall_c(x, metrics[name]) == pytest.approx(expected["tau_c"][name], abs=1e-3)
    for name in ("ROUGE_L", "METEOR"): assert 100*kendall_b(x, metrics[name]) == pytest.approx(expected["tau_b"][name], abs=1e-3)


def test_flickr8k_bleu_from_the_captions_is_the_published_one():
    "tau_c x 100 of BLEU-4 is 30.776; in BLEU-1 equal fractions differ in their last bit, in one tool otherwise than in the other."
    expected = json.loads(data_path("flickr8k_expert/kendall_tau_measured.json").read_text())
    packed = lambda name: lines(f"flickr8k_expert/{name}.jsonl.gz")
    candidates = [row["ptb_candidate"] for row in packed("pycocoevalcap_scores")]
    images = {row["image_id"]: row["references"] for row in packed("ptb_tokenized_references")}
    judged = lines("flickr8k_expert/judgments.jsonl")
    metrics = [get_metric(f"bleu-{order}", tokenizer="none") for order in (1, 4)]
    found, (x, _) = extract(metrics, candidates, [images[j["image_id"]] for j in judged]), flickr()
    for metric, name in zip(metrics, ("Bleu_1", "Bleu_4")):
        y = np.repeat(metric.values(found[metric.name].pred).numpy(), 3)
        assert 100*_kendall_c(x, y) == pytest.approx(expected["tau_c"][name], abs=3e-3)
        assert 100*kendall_b(x, y) == pytest.approx(expected["tau_b"][name], abs=3e-3)
    assert round(100*_kendall_c(x, y), 3) == 30.776


def test_wmt17_segment_pearson_is_the_published_one():
    rows = lines("wmt/newstest2017_deen_seg_da.jsonl")
    assert pearson([r["human_da"] for r in rows], [r["published_sentBLEU"] for r in rows]) == pytest.approx(0.4325, abs=6e-5)
