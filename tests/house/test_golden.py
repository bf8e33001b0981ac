"What commands and functions answer is what they answered before: the quick calls of tests/golden at every run, the others with -m slow."

import pytest
from real_data import data_path

from golden import golden

QUICK = 1e-6  # relative; other processors round differently


@pytest.mark.parametrize(
    "name", [n if n in golden.QUICK else pytest.param(n, marks=pytest.mark.slow) for n in golden.CALLS]
)
def test_answers_are_what_they_were(name):
    if name in golden.NEEDS_DATA:
        data_path("README.md")
    differ = list(golden.compare(golden.stored(name), golden.answer(name)[0], golden.tolerance(name, QUICK)))
    numbers = [d[:3] for d in differ if golden.is_number(d[1]) and golden.is_number(d[2])]
    assert not numbers, f"{len(numbers)} numbers differ, the first of them: {numbers[:3]}"
    words = [d[:3] for d in differ if not d[3]]
    assert not words, f"{len(words)} keys or words differ, the first of them: {words[:3]}"


def test_every_stored_answer_has_its_call():
    assert {p.stem for p in golden.HERE.glob("*.json")} - {"texts"} == set(golden.CALLS)


def test_a_changed_number_a_changed_word_and_a_changed_signature_are_told_apart():
    old = {
        "a": [1.0, {"columns": ["x", "word"], "count": 1, "rows": [[0.5, "yes"]]}],
        "signature": "metric:psnr|cap:60",
        "more": "inf",
    }
    new = {
        "a": [1.0, {"columns": ["x", "word"], "count": 1, "rows": [[0.5 + 1e-12, "no"]]}],
        "signature": "metric:psnr|cap:50",
        "more": "inf",
    }
    assert [(path, sign) for path, _, _, sign in golden.compare(old, new)] == [
        ("a[1].rows[0].x", False),
        ("a[1].rows[0].word", False),
        ("signature", True),
    ]
    assert [path for path, *_ in golden.compare(old, new, 1e-9)] == ["a[1].rows[0].word", "signature"]
    assert [path for path, *_ in golden.compare(old, {**old, "b": 2})] == ["b"] and not list(
        golden.compare(old, old)
    )
