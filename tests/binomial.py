"Counts of simulated worlds beside what was promised: exact binomial bounds, one false alarm in a thousand."
from scipy import stats

ALARMS = 1e-3


def not_above(found: int, n: int, most: float, what: str) -> None:
    "Fails where so many of n would be a surprise if the rate were `most`."
    assert stats.binomtest(int(found), n, most, alternative="greater").pvalue > ALARMS, f"{what}: {found} of {n}, at most {most:.1%} were promised"


def not_below(found: int, n: int, least: float, what: str) -> None:
    "Fails where so few of n would be a surprise if the rate were `least`."
    assert stats.binomtest(int(found), n, least, alternative="less").pvalue > ALARMS, f"{what}: {found} of {n}, at least {least:.1%} were promised"


def largest_count(n: int, most: float) -> int:
    "The largest count that `not_above` lets pass."
    return int(stats.binom.isf(ALARMS, n, most))
