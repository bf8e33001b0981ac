"What `import invariant_metrics as im` offers, and how its scores are shown."
import html

import invariant_metrics as im
from invariant_metrics.core import Interval, Score, Signature


def example(**more) -> Score:
    signature = Signature.of(metric="fd", encoder="embedded", layer="embedding", weights="398389101e24", normalized="no", dtype="float64",
                             n=200, n_target=240, reference="364844ab81fb", version="1.2")
    return Score(26.84, Interval(18.39, 29.5, 0.9, "influence"), 200, False, signature, corrected=23.94, **more)


def test_a_score_is_a_number_and_says_itself_shortly():
    score = example()
    assert float(score) == 26.84 and f"{score:.3f}" == "26.840" and f"{score:>8.1f}" == "    26.8" and f"{score}" == str(score)
    assert repr(score) == "Score(fd 26.84 corrected 23.94 [18.39, 29.5] n=200)"
    assert score.signature.short == "fd|embedded|embedding|n:200/240|v1.2"
    assert score.caption == "fd|embedded|embedding|n:200/240|v1.2; 90 % interval, influence"
    assert round(sum(map(float, [score, score])), 2) == 53.68


def test_what_a_notebook_shows_is_escaped():
    bad = "<script>alert(1)</script>"
    shown = example(notes=(bad,))._repr_html_()
    assert "<script" not in shown and html.escape(bad) in shown and "↓" in shown


def test_dir_shows_what_is_for_users():
    shown = [name for name in dir(im) if not (name.startswith("__") and name.endswith("__"))]
    assert not [name for name in shown if name.startswith("_")] and set(im.__all__) <= set(shown)
    assert {"score", "probe", "study", "agree", "power", "styles", "ranking", "TorchMetric", "get_metric", "metric_cards", "paired_metric",
            "single_metric", "set_metric", "Score", "Scores"} <= set(im.__all__)
    for name in im.__all__: assert callable(getattr(im, name)) and (getattr(im, name).__doc__ or "").strip(), name
