"Headlines obey the rules of their pages: what a sentinel reaches is no achievement, zero is not the most, few items carry no sentence."
import numpy as np
import pandas as pd

from invariant_metrics.advice.practice import ComparisonPlan, Practice, say_plan
from invariant_metrics.probes.probe_report import best_clause
from invariant_metrics.studies.study_report import _training_message


def counted(**notices) -> pd.DataFrame:
    known = {"random", "length", "source-only", "oracle", "constant"}
    return pd.DataFrame([{"metric": m, "notices": n, "prefers": 0, "of": 13, "known": m in known} for m, n in notices.items()])


def test_a_count_that_a_sentinel_reaches_is_not_headlined():
    assert best_clause(counted(psnr=10, ssim=3, length=10)) == "none notices more than length, a sentinel, does: 10 of 13 kinds"
    assert best_clause(counted(psnr=10, ssim=3, length=9)) == "psnr leads: 10 of 13 kinds noticed"
    assert best_clause(counted(psnr=0, length=0)) == "psnr leads: 0 of 13 kinds noticed"


def test_a_system_that_is_better_in_nothing_does_not_gain_most(monkeypatch):
    def told(better):
        table = pd.DataFrame([{"system": s, "better": better, "worse": 0, "of": 15, "control": False} for s in ("+depth", "+edges")])
        monkeypatch.setattr("invariant_metrics.studies.study_report._change_rows", lambda improvements: table)
        return _training_message(pd.DataFrame())[1]
    assert told(0) == "no system gains: none is better in any of 15 metrics"
    assert told(2) == "+depth gains most: better in 2 of 15 metrics"


def test_advice_begins_with_one_sentence_that_says_how_many_items_it_takes():
    blind = Practice("bleu", .03, .02, .04, .03, .01, 480_123.)
    sees = Practice("chrf", .60, .50, .70, .60, .1, 812.)
    never = Practice("ter", .0, .0, .01, .0, 0., np.inf)
    plan = ComparisonPlan(500, .05, 400)
    assert say_plan("wrong names", [blind, sees], plan) == ("With 500 items chrf shows 5 % more items with wrong names most often, in 60 of 100 "
                                                            "comparisons; for 80 of 100 it takes 820 items, with chrf.")
    assert say_plan("wrong names", [blind, never], plan) == ("With 500 items no metric shows 5 % more items with wrong names more often than by chance; "
                                                             "for 80 of 100 it takes 490,000 items, with bleu.")
    assert say_plan("wrong names", [never], plan).endswith("no number of items that one could collect would do.")
