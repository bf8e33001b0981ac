"""Two second opinions on the difference of two metrics: an exchange test (Deutsch, Dror and Roth 2021) and Williams' closed form.

What is exchanged as a whole is what one generalizes to; the p-value is (b + 1)/(B + 1), never 0. Scores are standardized first, because
scales cannot be exchanged; leads of choices are divided by their size but not centered, because their sign is the verdict. Used by
`agreement.py` and `agreement_level.py`, which count how often each test rejects a true hypothesis."""
from dataclasses import replace

import numpy as np

from invariant_metrics.core import InputError, rng, unknown
from invariant_metrics.people.score_table import _BLOCK_SIZE, ScoreTable, replicate_statistic
from invariant_metrics.people.statistics import Agreement, agreement_named
from invariant_metrics.stats import student

EXCHANGES = ("cell", "item", "system")


def _standardized(table: ScoreTable, a: str, b: str, statistic: Agreement) -> np.ndarray: # (2, N)
    pair = table.metrics[[table.names.index(a), table.names.index(b)]]
    if statistic.form != "choices": pair = pair - pair.mean(1, keepdims=True)
    return pair/np.sqrt((pair**2).mean(1, keepdims=True))


def swap_test(
    table: ScoreTable,
    a: str, b: str,           # two of its metrics
    statistic: str | Agreement = "pearson",
    unit: str = "item",
    exchange: str = "system", # what is exchanged as a whole: a "cell", an "item" (its group), a "system"
    *, reps: int = 999, seed: int = 0,
) -> float: # in [1/(reps + 1), 1]
    """P-value of the hypothesis that two metrics are exchangeable; raises InputError on unknown names or an
    undefined statistic."""
    if exchange not in EXCHANGES: raise unknown("exchange", exchange, EXCHANGES)
    for name in (a, b):
        if name not in table.names: raise unknown("metric", name, table.names)
    if unit == "system" and table.corpus:
        raise InputError("scores of outputs are exchanged, and corpus values are made of more than "
                         "those; give a table of means")
    statistic = agreement_named(statistic)
    pair = _standardized(table, a, b, statistic)
    # (N,) exchanged together
    part = dict(cell=np.arange(len(table.human)), item=table.group, system=table.system)[exchange]
    count = part.max() + 1
    drawn = rng(seed, "swap", exchange).integers(0, 2, (reps, count)).astype(bool)
    swapped = np.vstack([np.zeros(count, bool), drawn]) # (1 + R, parts); row 0 is the data as they are
    weights = swapped.size if exchange == "cell" else len(swapped)*len(part)
    gaps = []
    for block in np.array_split(swapped, -(-weights*2//_BLOCK_SIZE)):
        moved = block[:, part] # (r, N)
        # (2 r, N)
        both = np.concatenate([np.where(moved, pair[1], pair[0]), np.where(moved, pair[0], pair[1])])
        names = tuple(map(str, range(len(both))))
        # (2 r,)
        values = replicate_statistic(replace(table, metrics=both, names=names), statistic, unit)[:, 0]
        gaps.append(np.abs(values[:len(block)] - values[len(block):]))
    seen, *others = np.concatenate(gaps)
    if not np.isfinite(seen):
        raise InputError(f"{statistic.name} over unit {unit} is undefined for {a} or {b}; "
                         "there is no difference to test")
    extreme = ~(np.array(others) < seen - 1e-12)
    return float((1 + extreme.sum())/(reps + 1))


def williams(r12: float, r13: float, # of the human scores with each metric
             r23: float,             # of the two metrics
             n: int,                 # independent rows
            ) -> tuple[float, float]: # t with n − 3 degrees of freedom, two-sided p
    """Williams' test of two dependent Pearson correlations (Williams 1959, Steiger 1980); raises InputError
    on impossible ones."""
    if n < 4: raise InputError(f"{n} rows are too few for Williams' test; at least 4 are needed")
    determinant = 1 - r12**2 - r13**2 - r23**2 + 2*r12*r13*r23
    if max(map(abs, (r12, r13, r23))) > 1 or determinant < -1e-12:
        raise InputError(f"no three variables have the correlations {r12:g}, {r13:g}, {r23:g}")
    scale = 2*max(determinant, 0)*(n - 1)/(n - 3) + ((r12 + r13)/2)**2*(1 - r23)**3
    if scale <= 0: raise InputError("the two metrics are the same up to scale; there is nothing to compare")
    t = (r12 - r13)*((n - 1)*(1 + r23)/scale)**0.5
    p = 2*student.sf(abs(t), n - 3)
    return float(t), float(max(p, np.finfo(float).tiny))
