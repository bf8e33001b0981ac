"Options of metrics are checked before any work: their type, their range, and whether a metric takes them."
import inspect
import re

import pytest

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.metrics import meteor
from invariant_metrics.metrics.base import Between, _wanted, get_metric, metrics

NUMBERS = [(name, key) for name in metrics.names() for key, p in inspect.signature(getattr(metrics[name], "metric", metrics[name])).parameters.items()
           if _wanted(p.annotation)[0] & {int, float}]


def between(name: str, key: str) -> Between:
    return _wanted(inspect.signature(getattr(metrics[name], "metric", metrics[name])).parameters[key].annotation)[1]


def test_every_number_among_the_options_declares_its_range():
    assert len(NUMBERS) > 30
    assert not [(name, key) for name, key in NUMBERS if None in between(name, key)]


def test_numbers_outside_of_their_range_are_refused_in_a_line():
    for name, key in NUMBERS:
        least, most = between(name, key)
        for value in (least - 1, most + 1 if most < 1e15 else 2*most, float("nan"), float("inf"), 10**400, [1], {}, "many"):
            with pytest.raises(InputError, match=re.escape(f"metric {name}: option {key} ")) as error: get_metric(name, **{key: value})
            assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize("name, options, says", [
    ("meteor-nltk", {"beta": -1}, "beta is 0 to 100, not -1"), ("chrf", {"char_order": 999999}, "char_order is 1 to 32, not 999999"),
    ("bleu", {"tokenizer": []}, r"tokenizer takes str, not \[\]"), ("cider-d", {"tokenizer": {}}, r"tokenizer takes str, not \{\}"),
    ("meteor-nltk", {"tokenizer": []}, "tokenizer takes str"), ("bleu", {"order": 0}, "order is 1 to 32"), ("rouge-l", {"beta": -0.1}, "beta is 0 to 1,000"),
    ("psnr", {"cap": float("nan")}, "cap is 1 to 1,000, not nan"), ("kid", {"subsets": 0}, "subsets is 1 to 100,000"), ("mmd", {"sigma": 0}, "sigma is 1e-06 to")])
def test_what_was_taken_before(name, options, says):
    with pytest.raises(InputError, match=says): get_metric(name, **options)


def test_an_option_is_refused_before_wordnet_is_opened(monkeypatch):
    def opened(*args): raise AssertionError("WordNet was opened")
    monkeypatch.setattr(meteor, "open_wordnet", opened)
    for options, says in (({"nothing": 1}, "nothing has no effect"), ({"beta": -1}, "option beta"), ({"tokenizer": "nobody"}, "unknown tokenizer"),
                          ({"tokenizer": []}, "option tokenizer")):
        with pytest.raises(InputError, match=says): im.score(["a cat"], [["a cat"]], ["meteor-nltk"], metric_options=options)
