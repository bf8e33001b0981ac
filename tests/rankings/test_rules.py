"Association rules: equal to counting by hand, to Fisher's test of scipy, and to mlxtend."
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

from invariant_metrics.core import InputError
from invariant_metrics.rankings.rules import _fisher, _levels, _marks, association_rules
from invariant_metrics.stats import benjamini_hochberg, holm, wilson


def marks(rows: int, columns: int, seed: int) -> pd.DataFrame:
    "Columns of many shares, some of them dependent, one never and one always true."
    g = np.random.default_rng(seed)
    table = g.random((rows, columns)) < g.uniform(0.05, 0.8, columns)
    table[:, 1] |= table[:, 0] & (g.random(rows) < 0.7)
    table[:, 2], table[:, 3] = False, True
    return pd.DataFrame(table, columns=[f"class {k}" for k in range(columns)])


def by_hand(table: pd.DataFrame, min_support: float, min_confidence: float, max_size: int) -> dict:
    "(if, then) -> support, confidence, lift, n, count, p; and p of every cut of every frequent set."
    shown, every, values = {}, [], {name: table[name].to_numpy() for name in table}
    for size in range(2, max_size + 1):
        for items in combinations(table.columns, size):
            both = np.logical_and.reduce([values[name] for name in items])
            if both.mean() < min_support or not both.any(): continue
            for k in range(1, size):
                for part in combinations(items, k):
                    rest = [name for name in items if name not in part]
                    a, b = (np.logical_and.reduce([values[name] for name in names]) for names in (part, rest))
                    p = fisher_exact([[both.sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]], alternative="greater").pvalue
                    every.append(p)
                    if both.sum()/a.sum() < min_confidence: continue
                    shown[" & ".join(part), " & ".join(rest)] = (both.mean(), both.sum()/a.sum(), both.sum()*len(a)/(a.sum()*b.sum()), a.sum(), both.sum(), p)
    return shown, every


@pytest.mark.parametrize("rows", [60, 64, 65, 130])
def test_equal_to_counting_by_hand(rows):
    table = marks(rows, 8, rows)
    expected, every = by_hand(table, 0.1, 0.4, 4)
    found = association_rules(table, 0.1, 0.4, max_size=4)
    assert len(found) == len(expected) > 30
    for rule, row in found.set_index(["if", "then"])[["support", "confidence", "lift", "n", "count", "p"]].iterrows():
        np.testing.assert_allclose(row.to_numpy(float), expected[rule], rtol=1e-9, atol=1e-12)
    low, high = wilson(found["confidence"].to_numpy(), found["n"].to_numpy())[1:]
    np.testing.assert_array_equal(found[["ci_low", "ci_high"]], np.stack([low, high], axis=1))
    assert ((found["ci_low"] <= found["confidence"]) & (found["confidence"] <= found["ci_high"] + 1e-12)).all()
    for adjust, function in (("holm", holm), ("bh", benjamini_hochberg)): # the family holds what is not shown, too
        adjusted = association_rules(table, 0.1, 0.4, 4, adjust)
        np.testing.assert_allclose(np.sort(adjusted["p_adjusted"])[:5], np.sort(function(every))[:5], rtol=1e-8)
    assert found["confidence"].is_monotonic_decreasing


def test_every_kind_of_table_gives_the_same_rules():
    table = marks(200, 7, 1)
    expected = association_rules(table, 0.05, 0.3)
    for same in (table.astype(int), table.astype("boolean"), table.astype(float)):
        pd.testing.assert_frame_equal(association_rules(same, 0.05, 0.3), expected)
    mixed = table[list(table)[::-1]] # another order of the columns changes the names of sets, not their numbers
    numbers = ["support", "confidence", "lift", "p", "count"]
    pd.testing.assert_frame_equal(*(frame[numbers].sort_values(numbers, ignore_index=True) for frame in (association_rules(mixed, 0.05, 0.3), expected)))


def test_fisher_is_scipys():
    g = np.random.default_rng(0)
    for total in (12, 103, 28817):
        n, k = g.integers(1, total + 1, 60), g.integers(1, total + 1, 60)
        least, most = np.maximum(0, n + k - total), np.minimum(n, k)
        x = np.clip(np.round(n*k/total + g.normal(0, 3, 60)*np.sqrt(n*k/total*(1 - n/total)*(1 - k/total) + 1e-9)).astype(int), least, most)
        expected = [fisher_exact([[a, b - a], [c - a, total - b - c + a]], alternative="greater").pvalue for a, b, c in zip(x, n, k)]
        np.testing.assert_allclose(_fisher(x, n, k, total), expected, rtol=1e-7, atol=1e-12)


def test_frequent_sets_of_a_wide_table():
    "Many columns, few marks in a row: equal to products of the table with itself."
    table = np.random.default_rng(0).random((3000, 400)) < 0.03
    marks = _marks(pd.DataFrame(table), 0.001)
    found = _levels(marks, 0.001, 2)[1]
    pairs = np.triu(table.T.astype(float) @ table.astype(float), 1) # whole numbers, but in floats by a faster product
    assert len(found.items) == (pairs >= 3).sum() > 500
    assert pairs[tuple(np.array(marks.names, int)[found.items].T)].tolist() == found.count.tolist()


def test_equal_to_mlxtend():
    mlxtend = pytest.importorskip("mlxtend.frequent_patterns", reason="mlxtend is not installed; it is among the packages for development")
    table = marks(500, 10, 3)
    for support, least in ((0.05, 0.3001), (0.2, 0.8001)): # its confidences are quotients of rounded supports, and may fall below a bound that they meet
        theirs = mlxtend.association_rules(mlxtend.apriori(table, support, use_colnames=True, max_len=4), metric="confidence", min_threshold=least)
        expected = {(" & ".join(n for n in table if n in a), " & ".join(n for n in table if n in b)): numbers
                    for a, b, *numbers in theirs[["antecedents", "consequents", "support", "confidence", "lift"]].itertuples(index=False)}
        ours = association_rules(table, support, least, max_size=4).set_index(["if", "then"])[["support", "confidence", "lift"]]
        assert len(ours) == len(expected) > 20
        for rule, row in ours.iterrows(): np.testing.assert_allclose(row, expected[rule], rtol=1e-12)


def test_nothing_frequent_gives_an_empty_frame_with_all_columns():
    empty = association_rules(pd.DataFrame({"a": [True, False], "b": [False, True]}), 0.5, 0.5)
    assert not len(empty) and list(empty) == list(association_rules(marks(60, 5, 0), 0.1, 0.1))
    assert not len(association_rules(pd.DataFrame({"a": [False, False]}), 0.5, 0.5))


def test_bad_input_is_refused_in_one_line():
    table = marks(20, 5, 0)
    holed = table.astype(object)
    holed.iloc[3, 1] = None
    cases = {"columns with missing marks: class 1": lambda: association_rules(holed),
             "holds True and False": lambda: association_rules(table*2),
             "as many different names": lambda: association_rules(pd.concat([table, table], axis=1)),
             "min_support is a share above 0": lambda: association_rules(table, 0.0),
             "min_support is a number": lambda: association_rules(table, float("nan")),
             "min_confidence is 0 to 1": lambda: association_rules(table, 0.1, 1.5),
             "max_size is 1 or more": lambda: association_rules(table, 0.1, 0.5, 0),
             "unknown adjustment 'none'": lambda: association_rules(table, adjust="none"),
             "a table of 0 rows and 5 columns has no rules": lambda: association_rules(table[:0])}
    for message, call in cases.items():
        with pytest.raises(InputError) as caught: call()
        assert message in str(caught.value) and "\n" not in str(caught.value), message
