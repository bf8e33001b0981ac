"Sentinels and a held-out rater beside metrics, and agreement over all items: known answers, held-out items, what is refused."
import numpy as np
import pandas as pd
import pytest
from handmade import fails

from invariant_metrics.data.judgment_tables import Choices, Judgments
from invariant_metrics.people.agreement import AgreementDesign
from invariant_metrics.people.attenuation import all_items
from invariant_metrics.people.human import agree
from invariant_metrics.people.score_table import score_table
from invariant_metrics.people.sentinels import sentinel_scores
from invariant_metrics.people.statistics import AGREEMENTS


def liked(items: int = 40, systems: int = 4, weight: float = 1.0, raters: int = 2, seed: int = 0) -> Judgments:
    "People who like the word nice as much as `weight`, and nothing else."
    g, rows, texts = np.random.default_rng(seed), [], []
    for i in range(items):
        for s in range(systems):
            nice = g.random() < .5
            texts.append((f"i{i}", f"S{s}", " ".join(["a thing", *["nice"]*nice, *["so"]*int(g.integers(1, 5))]), (f"reference {i}",)))
            rows += [(f"i{i}", f"S{s}", f"r{r}", weight*nice + g.normal()/2) for r in range(raters)]
    return Judgments("liked", pd.DataFrame(rows, columns=["item", "system", "rater", "score"]),
                     outputs=pd.DataFrame(texts, columns=["item", "system", "output", "references"]))


def agreed(judgments: Judgments, unit: str = "item") -> pd.Series:
    wide = sentinel_scores(judgments, unit).wide()
    return wide.corrwith(judgments.scores.groupby(["item", "system"])["score"].mean().reindex(wide.index))


def test_a_sentinel_finds_style_and_nothing_where_there_is_none():
    assert agreed(liked())["candidate-only"] > .7
    none = [agreed(liked(weight=0.0, seed=seed))["candidate-only"] for seed in range(12)]
    assert abs(np.mean(none)) < .06 # the mean of the other folds would make it negative


def test_no_item_is_in_training_and_test():
    study = liked(weight=0.0)
    code = study.outputs["item"].str[1:].astype(int) # a word for each item that tells its score
    told = study.outputs.assign(output=[f"code{i} thing {o}" for i, o in zip(code, study.outputs["output"])])
    scores = study.scores.assign(score=study.scores["item"].str[1:].astype(int) % 7)
    assert abs(agreed(Judgments("coded", scores, outputs=told))["candidate-only"]) < .35


def test_choices_are_learned_from_differences():
    g = np.random.default_rng(1)
    first = g.random(80) < .5
    pairs = pd.DataFrame(dict(item=range(80), first=np.where(first, "a nice dog", "a dog"), second=np.where(first, "a dog", "a nice dog"), category="A",
                              votes_first=np.where(first, 4, 1), votes=5, references=[()]*80, group=range(80)))
    found = agree(Choices("pairs", pairs), pd.DataFrame([dict(item=i, system=s, metric="m", value=v) for i in range(80) for s, v in (("first", g.normal()), ("second", 0))]),
                  statistics=["choice"], sentinels=True, reps=50)
    values = found.table.set_index("metric")["value"]
    assert values["candidate-only"] == 1 and values["human"] == pytest.approx(.8) and "source-only" not in values
    assert any("m does not surely agree" in note for note in found.notes)


def test_rows_of_sentinels_and_of_a_person_stand_in_every_table():
    found = agree(liked(), ["chrf"], statistics=["pearson"], sentinels=True, reps=50)
    assert {"candidate-only", "source-only", "length", "human", "chrf"} == {*found.table["metric"]} == {*found.ranks["metric"]}
    assert found.ranks.sort_values("rank")["metric"].tolist() == found.table.sort_values("value", ascending=False)["metric"].tolist()
    assert "sentinels read them" in fails(sentinel_scores, Judgments("bare", liked().scores))


def test_agreement_over_all_items_is_that_of_true_values():
    g = np.random.default_rng(3)
    design, plain, mended = AgreementDesign(AGREEMENTS["pearson"], "system", "items", 50, 0, .95), [], []
    for _ in range(60):
        quality = g.normal(size=15)
        table = score_table(quality + 3*g.normal(size=(30, 15)), quality + 3*g.normal(size=(30, 15)))
        found = all_items(table, design)
        plain.append(np.corrcoef(*(np.bincount(table.system, v) for v in (table.human, table.metrics[0])))[0, 1])
        mended.append(found.value[0])
        assert np.isnan(found.low[0]) or found.low[0] <= found.value[0] <= found.high[0]
    assert np.mean(plain) < .85 and np.nanmean(mended) > .95
    assert all_items(table, AgreementDesign(AGREEMENTS["accuracy"], "system", "items", 50, 0, .95)) is None
