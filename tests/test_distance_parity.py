"Distances between sets against public implementations and exact arithmetic, over sizes and spectra."
import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.metrics.pairwise import rbf_kernel
from torchmetrics.image.fid import _compute_fid

from invariant_metrics.core import InputError
from invariant_metrics.metrics.frechet import frechet_distance, frechet_replicates
from invariant_metrics.metrics.mmd import cmmd_distance, mmd2

SHAPES = [(300, 200, 16), (40, 60, 48), (20, 30, 64)]  # n above d, around d, below d


def sets(n, m, d, power, shift=0.3):
    g = torch.Generator().manual_seed(n + d + power)
    scale = torch.arange(1, d + 1, dtype=torch.float64)**-power
    return torch.randn(n, d, generator=g, dtype=torch.float64)*scale, 1.2*torch.randn(m, d, generator=g, dtype=torch.float64)*scale + shift*scale


def moments(x): return x.mean(0), torch.from_numpy(np.cov(x.numpy(), rowvar=False))


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("n, m, d", SHAPES)
def test_frechet_equals_the_definition_and_torchmetrics(n, m, d, power):
    a, b = sets(n, m, d, power)
    (p, s), (q, t) = moments(a), moments(b)
    size = float(s.trace() + t.trace())
    root = scipy.linalg.sqrtm((s @ t).numpy()).real
    ours = frechet_distance(a, b)
    assert ours == pytest.approx(float((p - q).square().sum() + s.trace() + t.trace() - 2*np.trace(root)), abs=1e-6*size)
    assert ours == pytest.approx(float(_compute_fid(p, s, q, t)), abs=1e-6*size)


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("n, m, d", [(12, 10, 6), (6, 5, 9)])
def test_frechet_equals_sixty_digit_arithmetic(n, m, d, power):
    a, b = sets(n, m, d, power)
    with mpmath.workdps(60):
        def factor(x):
            x = mpmath.matrix(x.tolist())
            mean = [mpmath.fsum(x[i, j] for i in range(x.rows))/x.rows for j in range(x.cols)]
            return mean, mpmath.matrix([[(x[i, j] - mean[j])/mpmath.sqrt(x.rows - 1) for j in range(x.cols)] for i in range(x.rows)])
        (p, A), (q, B) = factor(a), factor(b)
        cross = A*B.T
        gram = cross*cross.T if cross.rows <= cross.cols else cross.T*cross
        overlap = mpmath.fsum(mpmath.sqrt(max(v, 0)) for v in mpmath.eigsy(gram, eigvals_only=True))
        size = mpmath.fsum(v*v for v in A) + mpmath.fsum(v*v for v in B)
        exact, size = float(mpmath.fsum((x - y)**2 for x, y in zip(p, q)) + size - 2*overlap), float(size)
    assert abs(frechet_distance(a, b) - exact) <= 1e-12*size


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("n, m, d", SHAPES)
def test_frechet_is_zero_on_equal_sets_and_never_negative(n, m, d, power):
    a, _ = sets(n, m, d, power)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    assert frechet_distance(a, a.clone()) == 0
    assert frechet_distance(1000 + a.float(), 1000 + a.float()) == 0
    assert 0 <= frechet_distance(a, a[order]) < 1e-24
    assert frechet_distance(a, a + 1e-9) >= 0


def test_frechet_of_known_gaussians_converges_to_the_closed_form():
    g = torch.Generator().manual_seed(0)
    scale, shift = torch.tensor([1., 2., .5, 3.]), torch.tensor([0., 1., -1., .5])
    a, b = torch.randn(40000, 4, generator=g), torch.randn(40000, 4, generator=g)*scale + shift
    exact = float(shift.square().sum() + (scale - 1).square().sum())
    assert frechet_distance(a, b) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("n, m, d, power", [(300, 200, 16, 0), (300, 200, 16, 2), (20, 30, 64, 1)])
def test_frechet_replicates_equal_the_distance(n, m, d, power):
    a, b = sets(n, m, d, power)
    r = np.random.default_rng(0)
    u, v = (torch.from_numpy(r.multinomial(k, np.full(k, 1/k), size=5)) for k in (n, m))
    one_by_one = torch.tensor([frechet_distance(a, b, x, y) for x, y in zip(u, v)], dtype=torch.float64)
    assert torch.allclose(frechet_replicates(a, b, u, v), one_by_one, atol=1e-6, rtol=1e-6)


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


@pytest.mark.parametrize("distance", [frechet_distance, mmd2, cmmd_distance])
def test_what_is_refused(distance):
    a, b = sets(20, 20, 4, 0)
    for wrong, words in ((b[:, :3], "different"), (b[:1], "two"), (b.index_fill(0, torch.tensor([3]), torch.nan), "finite")):
        with pytest.raises(InputError, match=words): distance(a, wrong)
