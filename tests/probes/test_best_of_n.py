"The best of n: the closed form against every set of candidates, and curves that turn, or do not."
from itertools import combinations

import numpy as np
import pytest

from invariant_metrics.core import InputError, rng
from invariant_metrics.probes.best_of_n import goodhart_curve, turning_point
from invariant_metrics.stats import best_of_n


@pytest.mark.parametrize("ties", [False, True])
def test_closed_form_is_the_mean_over_every_set(ties):
    draw = rng(1, "sets", ties)
    metric = draw.integers(0, 3, (2, 7)).astype(float) if ties else draw.standard_normal((2, 7))
    truth = draw.standard_normal((2, 7))
    found = best_of_n(metric, truth, range(1, 8))
    for row in range(2):
        for n in range(1, 8):
            sets = [list(s) for s in combinations(range(7), n)]
            each = [truth[row, s][metric[row, s] == metric[row, s].max()].mean() for s in sets]
            assert found[row, n - 1] == pytest.approx(np.mean(each), abs=1e-12)


def test_a_truth_that_is_infinite_or_large_in_number_is_no_trouble():
    metric = np.arange(20_000.0)
    assert best_of_n(metric, metric, [1, 20_000]) == pytest.approx([metric.mean(), metric.max()])
    assert best_of_n(metric, metric, [2])[0] == pytest.approx((20_000 + 1)*2/3 - 1) # the mean of the larger of two


def test_values_that_do_not_fit():
    for wrong, message in [(([1.0, 2], [1.0]), "give both for each"), (([1.0, np.nan], [1.0, 2]), "has no number")]:
        with pytest.raises(InputError, match=message): best_of_n(*wrong, [1])
    with pytest.raises(InputError, match="best of 3"): best_of_n([1.0, 2], [1.0, 2], [3])
    with pytest.raises(InputError, match="eight items"): goodhart_curve(np.ones((3, 4)), np.ones((3, 4)))


def test_noise_seldom_turns_and_what_turns_is_found():
    draw = rng(2, "noise")
    false = 0
    for _ in range(100):
        noise, truth = draw.standard_normal((2, 40, 64))
        false += turning_point(goodhart_curve(noise, truth, reps=400)) is not None
    assert false <= 7 # one-sided: two or three are expected
    x = draw.standard_normal((40, 64))
    assert turning_point(goodhart_curve(x, x - 0.5*x**2, reps=400)) in (2, 4)
