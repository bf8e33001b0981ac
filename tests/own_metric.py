"A user's own metrics, as they would stand in a package of theirs; the contract test judges them like built-in ones."
from invariant_metrics import Signature, paired_metric, set_metric
from invariant_metrics.metrics.metric import Metric, SetMetric


@paired_metric("own-sharpness-gap", higher_is_better=False, measures="difference of mean gradient", range="[0, 1]", cite="none")
def sharpness_gap(pred, target):
    def sharpness(x): return x.diff(dim=-1).abs().mean((1, 2, 3))
    return (sharpness(pred) - sharpness(target)).abs()


def mean_distance(pred, target, w_pred=None, w_target=None):
    def mean(x, w): return x.double().mean(0) if w is None else w.double() @ x.double() / w.sum()
    return float((mean(pred, w_pred) - mean(target, w_target)).norm())


def mean_gap() -> Metric:
    "A factory without any decorator."
    return SetMetric("mean-gap", phi=lambda x: x.mean((2, 3)), compare=mean_distance, higher_is_better=False,
                  signature=Signature.of(metric="mean-gap"), phi_key="mean-color-of-mine",
                  card={"measures": "distance of mean colors", "range": "[0, 2]", "inputs": "images", "weights": "none", "cite": "none"})


@set_metric("own-center-gap", measures="distance of the mean features", range="[0, ∞)", cite="none")
def center_gap(pred, target):
    return float((pred.mean(0) - target.mean(0)).norm())
