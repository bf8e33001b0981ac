"Diversity: hand-computed values, a plain count by dictionary, what pooling and the corpus change, and the metrics' contract."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import extract, get_metric, metric_cards
from invariant_metrics.metrics.diversity import _distinct_share, _gram_counts
from invariant_metrics.scoring.inference import score_rows
from invariant_metrics.scoring.score import score

NAMES = ["div-2", "div-3", "div-4", "diversity", "repetition", "distinct-1", "distinct-2"]
texts_of_few_words = st.lists(st.lists(st.sampled_from("a b c d".split()), max_size=12).map(" ".join), min_size=1, max_size=8)
FAST = settings(max_examples=60)


def plain(text: str, n: int) -> tuple[int, int]: # distinct, all
    words, seen = text.split(), {}
    for i in range(len(words) - n + 1): seen[" ".join(words[i:i + n])] = seen.get(" ".join(words[i:i + n]), 0) + 1
    return len(seen), sum(seen.values())


def div_n(texts, n=2, **options): return _distinct_share(_gram_counts(texts, (n,), **options))


def rep_n(texts, n=2): return 1 - div_n(texts, n)


def diversity(texts): return _distinct_share(_gram_counts(texts, (2, 3, 4)))


def distinct_n(texts, n=2, denominator="tokens"):
    counts = _gram_counts(texts, (n, 1))
    whole = counts[:, 3 if denominator == "tokens" else 1]
    return np.divide(counts[:, 0], whole, out=np.zeros(len(counts)), where=whole > 0)


def test_the_oracle_of_three_alternations():
    "div 2/5, 2/4, 2/3 and their product 2/15 = 0.1333, not the product of rep-n 0.1."
    text = ["a b a b a b"]
    assert [div_n(text, n).item() for n in (2, 3, 4)] == [2/5, 2/4, pytest.approx(2/3, abs=1e-15)]
    assert diversity(text).item() == pytest.approx(2/15, abs=1e-15)
    assert np.prod([rep_n(text, n).item() for n in (2, 3, 4)]) == pytest.approx(0.1, abs=1e-12)
    assert distinct_n(text, 2).item() == 2/6 and distinct_n(text, 2, denominator="ngrams").item() == 2/5 and distinct_n(text, 1).item() == 2/6


@FAST
@given(texts_of_few_words)
def test_every_share_is_a_count_by_dictionary(texts):
    for n in (1, 2, 3, 4, 6):
        counts = [plain(text, n) for text in texts]
        assert _gram_counts(texts, (n,)).tolist() == [list(map(float, pair)) for pair in counts]
        assert div_n(texts, n).tolist() == [u/t if t else 1.0 for u, t in counts]
        assert distinct_n(texts, n).tolist() == [u/len(text.split()) if t else 0.0 for (u, t), text in zip(counts, texts)]
        assert np.array_equal(rep_n(texts, n), 1 - div_n(texts, n))
    assert np.allclose(diversity(texts), np.prod([div_n(texts, n) for n in (2, 3, 4)], 0), rtol=1e-15)


def test_short_texts_and_options():
    short = ["", "one", "one two"]
    assert div_n(short, 3).tolist() == [1, 1, 1] and rep_n(short, 3).tolist() == [0, 0, 0] and distinct_n(short, 2).tolist() == [0, 0, 1/2]
    assert div_n(["A a A a"], 2, lowercase=True).item() == 1/3 and div_n(["A a A a"], 2).item() == 2/3
    assert div_n(["abab"], 2, tokenizer=list).item() == 2/3
    assert div_n(["a dog. A dog!"], 2, tokenizer="ptb").item() == 2/3


@FAST
@given(texts_of_few_words, st.booleans())
def test_metrics_say_what_the_functions_say_and_rows_add_up(texts, pooled):
    metrics = [get_metric(name, **({} if name.startswith("distinct") else {"pooled": pooled})) for name in NAMES]
    rows = extract(metrics, texts)
    for m in metrics:
        ours = {"diversity": lambda: diversity(texts), "repetition": lambda: rep_n(texts)}.get(
            m.name, lambda: (div_n if m.name.startswith("div") else distinct_n)(texts, int(m.name[-1])))()
        assert np.allclose(m.values(rows[m.name].pred).numpy(), ours, atol=1e-15), m.name
        if not m.pool: assert m.statistic(rows[m.name]) == pytest.approx(ours.mean())
        twice, weights = extract([m], texts + texts)[m.name], torch.full((len(texts),), 2.0)
        assert m.statistic(twice) == pytest.approx(m.statistic(rows[m.name], weights), abs=1e-12)
        alone = torch.cat([extract([m], [text])[m.name].pred for text in texts])
        assert torch.equal(alone, rows[m.name].pred)               # a text's row knows no other text


def test_pooled_sums_before_it_divides():
    texts, pooled = ["a b a b a b", "a b c d e f g h i j"], get_metric("div-2", pooled=True)
    rows = extract([pooled], texts)["div-2"]
    assert pooled.statistic(rows) == pytest.approx((2 + 9)/(5 + 9)) != pytest.approx(div_n(texts).mean())
    assert pooled.replicates(rows, torch.tensor([[1., 0], [0, 1.], [2, 1]])) == pytest.approx([2/5, 1, (2*2 + 9)/(2*5 + 9)])


def test_metrics_that_share_options_share_the_count():
    metrics = [get_metric(name) for name in NAMES]
    assert len({m.phi_key for m in metrics}) == 1 and len({str(m.signature) for m in metrics}) == len(metrics)
    assert get_metric("div-2", lowercase=True).phi_key != metrics[0].phi_key
    assert get_metric("repetition", order=6).phi_key != metrics[0].phi_key
    assert {get_metric("distinct-2", denominator=d).signature for d in ("tokens", "ngrams")}.__len__() == 2
    cards = {card["name"]: card for card in metric_cards()}
    assert all(cards[name]["inputs"] == "texts" and cards[name]["kind"] == "single" for name in NAMES)


def test_a_score_has_an_interval():
    words = np.random.default_rng(0).choice(list("abcdefgh"), (60, 14))
    texts = [" ".join(row) for row in words]
    for name, options in (("diversity", {}), ("diversity", {"pooled": True}), ("distinct-2", {})):
        metric = get_metric(name, **options)
        score = score_rows(metric, extract([metric], texts)[name])
        assert score.ci.low < score.value < score.ci.high and score.n == 60


@pytest.mark.parametrize("call", [lambda: div_n("a b"), lambda: div_n([]), lambda: div_n(["a", 3]), lambda: div_n(["a"], 0), lambda: div_n(["a"], True),
                                  lambda: div_n(["a"], tokenizer="nothing"), lambda: get_metric("div-2", tokenizer="nothing"), lambda: get_metric("distinct-1", denominator="x")])
def test_mistakes_are_one_line(call):
    with pytest.raises(InputError) as error: call()
    assert "\n" not in str(error.value)


def test_silence_is_told_beside_the_best_number():
    "Texts that say nothing repeat nothing: the number is the best there is, and a line says from what."
    empty = score([""]*9, None, ["diversity", "div-2", "repetition", "distinct-1"])
    assert empty["diversity"].value == empty["div-2"].value == 1 and empty["repetition"].value == empty["distinct-1"].value == 0
    for name, says in (("diversity", "counts as 1"), ("div-2", "counts as 1"), ("repetition", "counts as 0"), ("distinct-1", "counts as 0")):
        note, = [note for note in empty[name].notes if "texts have fewer than" in note]
        assert f"9 of 9 texts have fewer than {1 if name == 'distinct-1' else 2} tokens (9 of them none)" in note and says in note
        assert empty[name].ci is None
    some = score(["a b a b", "one", "c d e f"]*3, None, ["diversity"], metric_options={"pooled": True})["diversity"]
    assert "3 of 9 texts have fewer than 2 tokens (0 of them none): they add nothing" in "; ".join(some.notes)
    assert not any("fewer than" in note for note in score(["a b a b", "c d e f"]*5, None, ["diversity"])["diversity"].notes)
