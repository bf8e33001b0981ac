"IMAGINE on texts that are no scenes: rows of judgments, own against other references, the stored tables, and the paper's command without weights."
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import cli
from real_data import data_path

from invariant_metrics.core import InputError, rng
from invariant_metrics.data.judgment_tables import Judgments
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.imagine.real_texts import judged_pairs
from open_cells import open_cells

texts = open_cells("imagine/80_real_texts")
RESULTS = Path(__file__).parents[2]/"nbs"/"results"
SAID = ["the council met on tuesday .", "prices rose again in may .", "the minister resigned after the vote .", "two banks closed their branches .", "the court heard the case ."]


def judgments(**more) -> Judgments:
    items = [str(i) for i in range(5)]
    outputs = pd.DataFrame({"item": items, "system": "a", "output": SAID, "references": [(text, "x") for text in SAID[::-1]]})
    scores = pd.DataFrame({"item": items*2, "system": "a", "rater": ["1"]*5 + ["2"]*5, "score": [*range(5), *range(2, 7)]})
    return Judgments("made up", scores, outputs=outputs, **more)


def test_rows_of_judgments():
    rows = judged_pairs(judgments())
    assert rows.output.tolist() == SAID and rows.references[0] == (SAID[4], "x") and rows.score.tolist() == [1, 2, 3, 4, 5] # means of two raters
    assert judged_pairs(judgments(higher_is_better=False)).score.tolist() == [-1, -2, -3, -4, -5]
    assert len(judged_pairs(judgments(), 3)) == 3 and len(judged_pairs(judgments(), 9)) == 5
    sourced = judgments()
    sourced = Judgments("sourced", sourced.scores, outputs=sourced.outputs.assign(source=SAID[::-1]))
    assert judged_pairs(sourced, side="source").source.tolist() == SAID[::-1]
    with pytest.raises(InputError, match="5 outputs have no source"): judged_pairs(judgments(), side="source")
    bare = judgments()
    with pytest.raises(InputError, match="5 outputs have no references"):
        judged_pairs(Judgments("bare", bare.scores, outputs=bare.outputs.assign(references=[()]*5)))


def test_the_other_row_is_of_another_group_and_taken_once():
    for k in range(50):
        draw = rng(k, "groups")
        group = draw.integers(0, 6, draw.integers(20, 40))
        if 2*np.bincount(group).max() > len(group): continue
        other = texts._other_items(group)
        assert sorted(other) == [*range(len(group))] and (group[other] != group).all()
    with pytest.raises(InputError, match="3 of 5 rows"): texts._other_items(list("aaabc"))


def test_stored_tables_hold_together():
    levels, table = (pd.read_csv(RESULTS/f"imagine_texts_{part}.csv") for part in ("levels", "table"))
    table = table.fillna({"added": "", "verdict": ""})
    sets, generators = set(levels.data), {"exact", "diffusion", "noise", "one-picture"}
    assert sets == {"translations", "summaries", "captions of scenes"} == set(table.data)
    assert len(levels) == 3*4*2 and set(levels.generator) == generators == set(table.generator)
    assert ((levels.low <= levels.picked) & (levels.picked <= levels.high)).all()
    of = levels.set_index(["data", "generator", "score"])
    assert of.loc[("captions of scenes", "exact", "image"), "picked"] > 0.9 > 0.7 > of.loc[("translations", "exact", "image"), "picked"]
    assert of.loc[("captions of scenes", "exact", "image"), "understood"] > 0.95 and of.loc[("translations", "exact", "image"), "understood"] < 0.2
    alone = table[(table.added == "") & (table.metric != "IMAGINE")]
    assert (alone.groupby(["data", "metric"])["mean"].nunique() == 1).all() # a metric alone does not know of generators
    sums = table[(table.added != "") & (table.metric != "IMAGINE")]
    joined = sums.merge(alone, on=["data", "generator", "metric"], suffixes=("", "_alone"))
    assert np.allclose(joined.gain, joined.value - joined["mean_alone"], atol=2e-3)


def test_real_translations_are_hardly_understood(tmp_path):
    rows = judged_pairs(load_judgments(data_path("wmt/newstest2017_deen_seg_da.jsonl")), 40)
    found = texts.imagine_real_texts(rows, "chrf", {"exact": {}}, seeds=1, folder=tmp_path, reps=50)
    assert (found.levels.understood < 0.2).all() and (found.levels.silent > 0.5).all()
    assert found.levels.set_index("score").own["image"] > 0.7
    stored = pd.read_csv(RESULTS/"imagine_texts_table.csv", keep_default_na=False)
    everything = judged_pairs(load_judgments(data_path("wmt/newstest2017_deen_seg_da.jsonl")), 300)
    assert set(stored.n[stored.data == "translations"]) == {len(everything)}


def test_the_papers_command_is_refused_in_one_line_for_want_of_weights(tmp_path):
    rows = [{"sid": i, "system": "a", "src": "", "ref": text, "hyp": text + " again", "human_da": float(i)} for i, text in enumerate(SAID)]
    (tmp_path/"newstest2017_deen_seg_da.jsonl").write_text("\n".join(map(json.dumps, rows)))
    notebook = json.loads((RESULTS.parent/"imagine"/"80_real_texts.ipynb").read_text())
    printed, = ["".join(c["source"]) for c in notebook["cells"] if "invariant-metrics agree" in "".join(c["source"])]
    words = printed[printed.index("invariant-metrics agree"):].split("\n\n")[0].replace("\\\n", " ").split()[1:]
    open_cells("generators/20_diffusion").random_pipeline(tmp_path/"stable-diffusion-v1-1") # a generator is there, and the judge is not
    done = cli(*words, cwd=tmp_path)
    assert done.returncode != 0 and "weights fetch clip-vit-b-32" in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
