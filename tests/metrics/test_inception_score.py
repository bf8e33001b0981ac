"Inception Score: by hand, in higher precision, against torch-fidelity, and through the network with random weights."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import get_metric, metric_cards
from invariant_metrics.metrics.inception_score import _inception_estimate, inception_score
from invariant_metrics.metrics.inception_score import inception_score_splits, _log_probabilities


def logits(n=60, classes=8, seed=0, scale=3.0):
    return scale*torch.randn(n, classes, generator=torch.Generator().manual_seed(seed))


def test_by_hand():
    certain = torch.eye(5)
    assert inception_score(certain, probabilities=True) == pytest.approx(5) and inception_score(1e4*certain) == pytest.approx(5)
    assert inception_score(certain[:1].repeat(3, 1), probabilities=True) == 1 and inception_score(torch.zeros(3, 5)) == 1
    assert inception_score(torch.tensor([[.75, .25], [.25, .75]]), probabilities=True) == pytest.approx(2*.75**.75*.25**.25)


@pytest.mark.parametrize("scale", [.01, 3, 300])
def test_fifty_digits(scale):
    import mpmath
    x = logits(12, 5, scale=scale)
    with mpmath.workdps(50):
        rows = [[mpmath.exp(mpmath.mpf(float(v))) for v in row] for row in x]
        p = [[v/sum(row) for v in row] for row in rows]
        mean = [sum(row[c] for row in p)/12 for c in range(5)]
        exact = mpmath.exp(sum(v*mpmath.log(v/m) for row in p for v, m in zip(row, mean))/12)
        assert abs(inception_score(x) - exact) < 1e-12*exact


@pytest.mark.parametrize("splits", [1, 3, 10])
def test_torch_fidelity(splits):
    from torch_fidelity.metric_isc import isc_features_to_metric
    x = logits(103, 20)
    shuffled = isc_features_to_metric(x, splits=splits, shuffle=True, rng_seed=2020)
    assert inception_score_splits(x, splits, np.random.RandomState(2020).permutation(103)) == pytest.approx(tuple(shuffled.values()), abs=1e-9)
    assert inception_score_splits(x, splits) == pytest.approx(tuple(isc_features_to_metric(x, splits=splits, shuffle=False).values()), abs=1e-9)
    if splits == 1: assert inception_score(x) == pytest.approx(shuffled["inception_score_mean"], abs=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 3), min_size=15, max_size=15).filter(any), st.floats(-50, 50))
def test_properties(seed, counts, shift):
    x, counts = logits(15, 6, seed), torch.tensor(counts)
    value = inception_score(x)
    assert 1 <= value <= 6 and inception_score(x[torch.randperm(15, generator=torch.Generator().manual_seed(seed))] + shift) == pytest.approx(value, rel=1e-5)
    assert inception_score(x.softmax(1), probabilities=True) == pytest.approx(value, rel=1e-5)
    assert inception_score(x, counts) == pytest.approx(inception_score(x.repeat_interleave(counts, 0)), rel=1e-12)


def test_influence_is_the_slope():
    x = logits()
    found = _inception_estimate(x)
    for i in range(5):
        w = torch.ones(60, dtype=torch.float64); w[i] += 1e-5
        assert (inception_score(x, w) - found.value)*60/1e-5 == pytest.approx(float(found.pred[i]), abs=1e-3)
    assert float(found.pred.mean()) == pytest.approx(0, abs=1e-12) and found.target is None
    assert _inception_estimate(x, torch.zeros(4, 8)).target.tolist() == [0.0]*4


def test_correction_removes_the_bias():
    def draw(n, seed):
        label = torch.randint(30, (n,), generator=torch.Generator().manual_seed(seed + 10**6))
        return logits(n, 30, seed, 1.0) + 7*torch.nn.functional.one_hot(label, 30)
    truth = inception_score(draw(60_000, 1))
    found = [_inception_estimate(draw(200, 10 + i), seed=i) for i in range(80)]
    plain, corrected = (np.mean(values) for values in ([e.value for e in found], [e.corrected for e in found]))
    assert truth - plain > 5*abs(truth - corrected) and truth - plain > .5
    errors = np.array([float(e.pred.std())/200**.5 for e in found])
    assert .75 < np.sqrt(np.mean(errors**2))/np.std([e.corrected for e in found]) < 1.3


def test_reproducible_and_clustered():
    x = logits(40)
    assert _inception_estimate(x, seed=1).corrected == _inception_estimate(x, seed=1).corrected != _inception_estimate(x, seed=2).corrected
    assert _inception_estimate(x, clusters=np.arange(40)//4).corrected != _inception_estimate(x).corrected
    assert "too few" in _inception_estimate(x[:3]).notes[0]


@pytest.mark.parametrize("rows, options, message", [
    (torch.zeros(3), {}, "must be (N, C)"), (torch.tensor([[0., 1.], [torch.inf, 0.]]), {}, "not finite in 1 of 2 rows: 1"),
    (torch.zeros(0, 4), {}, "found 0"), (torch.full((3, 4), .3), dict(probabilities=True), "sum to 1 in 3 of 3 rows: 0, 1, 2"),
    (torch.tensor([[1.5, -.5]]), dict(probabilities=True), "1 of 1"),
    (torch.zeros(3, 4), dict(weights=torch.zeros(3)), "positive weight"), (torch.zeros(3, 4), dict(weights=torch.ones(2)), "positive weight")])
def test_bad_input(rows, options, message):
    with pytest.raises(InputError) as error: inception_score(rows, **options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_too_many_splits():
    with pytest.raises(InputError, match="cannot be cut into 10 parts"): inception_score_splits(logits(5))
    assert _log_probabilities(logits(4)).dtype == torch.float64


def test_metric_through_the_network():
    metric = get_metric("inception-score", untrained=True)
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    rows = metric.phi(images)
    assert rows.shape == (3, 1008) and metric.compare(rows) == pytest.approx(inception_score(rows))
    assert metric.compare(rows, torch.zeros(9, 2), torch.tensor([2., 1, 1])) == pytest.approx(inception_score(rows[[0, 0, 1, 2]]))
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    assert isinstance(metric.encoder.net, FeatureExtractorInceptionV3)
    metric.encoder.net.features_list = ["logits_unbiased"]
    theirs = metric.encoder.net((255*images).round().to(torch.uint8))[0]
    assert torch.allclose(rows, theirs, atol=1e-3*float(theirs.abs().max()))
    card, = [c for c in metric_cards() if c["name"] == "inception-score"]
    assert card["kind"] == "set" and dict(metric.signature.items)["layer"] == "logits"


@pytest.mark.parametrize("ending", ["npy", "npz", "pt"])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_given_class_scores_need_no_network(tmp_path, kind, ending):
    from invariant_metrics.scoring.score import score
    x = logits()
    rows = x if kind == "logits" else x.softmax(1)
    path = tmp_path/f"scores.{ending}"
    if ending == "npy": np.save(path, rows)
    elif ending == "npz": np.savez(path, pool_3=np.ones((60, 20)), logits=rows)
    else: torch.save(rows, path)
    for source in (path, rows):
        found = score(source, None, "inception-score")["inception-score"]
        assert found.value == pytest.approx(inception_score(x), rel=1e-5) and found.ci.low < found.corrected < found.ci.high


def test_features_are_no_class_scores(tmp_path):
    from invariant_metrics.scoring.score import score
    with pytest.raises(InputError, match="as features do"): score(logits().relu(), None, "inception-score")
    np.savez(tmp_path/"pool.npz", pool_3=logits())
    with pytest.raises(InputError, match="holds pool_3 and no logits"): score(tmp_path/"pool.npz", None, "inception-score")


@pytest.mark.parametrize("options, says", [({"encoder": "embedded"}, "is defined on inception at layer logits .* and takes no other encoder"), ({"sigma": 2}, "takes no option 'sigma'")])
def test_another_encoder_is_refused_as_fid_does(options, says):
    with pytest.raises(InputError, match=says): get_metric("inception-score", **options)
