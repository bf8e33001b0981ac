"Distances between sets against public implementations and exact arithmetic, over sizes and spectra."
import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel

from invariant_metrics.core import InputError
from invariant_metrics.metrics.mmd import cmmd_distance, mmd2


def sets(n, m, d, power, shift=0.3):
    g = torch.Generator().manual_seed(n + d + power)
    scale = torch.arange(1, d + 1, dtype=torch.float64)**-power
    return torch.randn(n, d, generator=g, dtype=torch.float64)*scale, 1.2*torch.randn(m, d, generator=g, dtype=torch.float64)*scale + shift*scale


@pytest.mark.parametrize("n, m", [(50, 30), (30, 50), (1500, 20)])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 10.0])
def test_mmd_equals_the_definition(n, m, sigma):
    a, b = sets(n, m, 8, 1)
    unit = [(x/x.norm(dim=1, keepdim=True)).numpy() for x in (a, b)]
    K = [[rbf_kernel(x, y, gamma=1/(2*sigma**2)) for y in unit] for x in unit]
    biased = K[0][0].mean() + K[1][1].mean() - 2*K[0][1].mean()
    unbiased = sum((k.sum() - len(k))/(len(k)*(len(k) - 1)) for k in (K[0][0], K[1][1])) - 2*K[0][1].mean()
    assert mmd2(a, b, sigma=sigma, unbiased=False) == pytest.approx(biased, abs=1e-13)
    assert mmd2(a, b, sigma=sigma) == pytest.approx(unbiased, abs=1e-13)
    if sigma == 10: assert cmmd_distance(a, b) == pytest.approx(1000*biased, abs=1e-10)


def test_unbiased_mmd_is_right_on_average_and_biased_is_not():
    g = torch.Generator().manual_seed(0)
    values = np.array([[mmd2(a, b), mmd2(a, b, unbiased=False)] for a, b in (torch.randn(2, 40, 6, generator=g) for _ in range(200))])
    error = values.std(0)/200**.5
    assert abs(values[:, 0].mean()) < 4*error[0] and values[:, 1].mean() > 20*error[1]


@pytest.mark.parametrize("distance", [mmd2, cmmd_distance])
def test_what_is_refused(distance):
    a, b = sets(20, 20, 4, 0)
    for wrong, words in ((b[:, :3], "different"), (b[:1], "two"), (b.index_fill(0, torch.tensor([3]), torch.nan), "finite")):
        with pytest.raises(InputError, match=words): distance(a, wrong)
