"Invariants within a mask: what is outside does not count, and what is inside counts as the invariant says."
import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.invariants.above_water import violations_within
from invariant_metrics.invariants.invariant import get_invariant, violations
from invariant_metrics.worlds.scenes import make_scenes


@pytest.mark.parametrize("name", ["segmentation", "depth"])
def test_only_the_inside_counts(name):
    invariant, one, other = get_invariant(name), make_scenes(5, 32, seed=1).rgb, make_scenes(5, 32, seed=2).rgb
    inside = torch.zeros(5, 32, 32, dtype=torch.bool)
    assert violations_within(invariant, one, other, inside).max() == pytest.approx(0, abs=1e-6)
    assert violations_within(invariant, one, other, ~inside, batch=2) == pytest.approx(violations(invariant, one, other), abs=1e-6)
    inside[:, :16] = True
    mixed = torch.where(inside[(slice(None), None)] if name == "segmentation" else inside, invariant.value(one), invariant.value(other))
    assert violations_within(invariant, one, other, inside) == pytest.approx(invariant.distance(mixed, invariant.value(other)).numpy(), abs=1e-6)


def test_what_does_not_fit_is_named():
    rgb, inside = make_scenes(2, 32, seed=1).rgb, torch.ones(2, 32, 32, dtype=torch.bool)
    with pytest.raises(InputError, match="do not fit"): violations_within(get_invariant("depth"), rgb, rgb[:1], inside)
    with pytest.raises(InputError, match="do not fit"): violations_within(get_invariant("depth"), rgb, rgb, inside[:, :8])
