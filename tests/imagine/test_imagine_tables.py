"The paper's tables of any judged texts: each cell by hand, from scores and from texts; what is refused; the published numbers as they were printed."
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.encoders.image_text import image_text
from invariant_metrics.generators.generator import get_generator
from invariant_metrics.imagine.combine import combination_gains, correlation_over_seeds
from invariant_metrics.imagine.imagine_tables import _TABLE_METRICS, imagine_table, table_of_scores
from invariant_metrics.metrics.metric import extract, get_metric, metrics
from invariant_metrics.metrics.imagined import ImagineModel, imagine_vectors
from invariant_metrics.people.agreement import compare
from invariant_metrics.worlds.foils import foil_rows
from invariant_metrics.worlds.scene_captions import caption_truth, judge_captions, relation_captions, scenes_with_captions

PAPER = Path(__file__).parents[2]/"nbs"/"results"/"imagine_paper.csv"


def made_up(n: int = 120, seed: int = 0) -> tuple:
    draw = rng(seed, "table")
    quality = draw.standard_normal(n)
    noisy = lambda by, *shape: quality.reshape(-1, *(1 for _ in shape)) + by*draw.standard_normal((n, *shape))
    values = {"rouge-l": (0.5 + 0.1*noisy(2)).clip(0, 1), "chrf": (50 + 10*noisy(1)).clip(0, 100)}
    imagine = {name: 0.6 + 0.1*noisy(1, 1) + 0.07*draw.standard_normal((n, 5)) for name in ("image", "text-image")}
    return noisy(0.7), values, imagine


def test_each_cell_is_the_correlation_of_its_sum():
    human, values, imagine = made_up()
    table = table_of_scores(human, values, imagine, reps=100).frame.set_index(["metric", "added"])
    unit = {"rouge-l": values["rouge-l"], "chrf": values["chrf"]/100}
    added = {**imagine, "both": imagine["image"] + imagine["text-image"]}
    for metric, x in unit.items():
        assert table.loc[(metric, ""), "mean"] == pytest.approx(np.corrcoef(human, x)[0, 1]) and np.isnan(table.loc[(metric, ""), "deviation"])
        for what, scores in added.items():
            each = [np.corrcoef(human, x + column)[0, 1] for column in scores.T]
            row = table.loc[(metric, what)]
            assert (row["mean"], row["deviation"]) == (pytest.approx(np.mean(each)), pytest.approx(np.std(each, ddof=1)))
            assert row["value"] == pytest.approx(np.corrcoef(human, x + scores.mean(1))[0, 1])
            assert row["gain"] == pytest.approx(row["value"] - table.loc[(metric, ""), "mean"]) and row["gain_low"] < row["gain"] < row["gain_high"]
    for what, scores in imagine.items():
        assert table.loc[("IMAGINE", what), "mean"] == pytest.approx(np.mean([np.corrcoef(human, column)[0, 1] for column in scores.T]))
    assert len(table) == 2*4 + 2


def test_gains_are_those_of_the_houses_paired_comparison():
    human, values, imagine = made_up(seed=1)
    found = table_of_scores(human, {"rouge-l": values["rouge-l"]}, {"image": imagine["image"]}, reps=300, seed=4)
    row = found.frame.set_index(["metric", "added"]).loc[("rouge-l", "image")]
    pair = np.stack([values["rouge-l"] + imagine["image"].mean(1), values["rouge-l"]])
    by_house = compare(human, pair, names=("sum", "alone"), baseline="alone", reps=300, seed=4).frame.iloc[0]
    assert row["gain"] == pytest.approx(by_house.difference) and row["p"] == pytest.approx(by_house.p, rel=0.05)
    assert (row["gain_low"], row["gain_high"]) == (pytest.approx(by_house.low, abs=0.01), pytest.approx(by_house.high, abs=0.01))
    assert found.frame.columns.tolist().count("both") == 0 and set(found.frame.added) == {"", "image"}


def test_choices_of_scale_and_deviation():
    human, values, imagine = made_up()
    by = lambda **how: table_of_scores(human, {"cider": values["chrf"]/10}, imagine, reps=50, **how).frame.set_index(["metric", "added"]).loc[("cider", "image")]
    assert by(cider="raw")["deviation"] < 0.3*by()["deviation"]
    assert by(ddof=0)["deviation"] == pytest.approx(by()["deviation"]*(4/5)**0.5)
    assert by(statistic="spearman")["mean"] != by()["mean"]
    with pytest.raises(InputError, match="tops="): table_of_scores(human, {"bleurt": values["rouge-l"]}, imagine, reps=50)
    table_of_scores(human, {"bleurt": values["rouge-l"]}, imagine, reps=50, tops={"bleurt": 1.})
    with pytest.raises(InputError, match="multiplied by 100"): table_of_scores(human, {"rouge-l": values["chrf"]}, imagine, reps=50)
    with pytest.raises(InputError, match="unknown score of IMAGINE"): table_of_scores(human, values, {"pictures": imagine["image"]})


def test_printed_form_marks_gains_and_losses():
    human, values, imagine = made_up(300)
    wrong = {"image": -imagine["image"] + 1.2, "text-image": imagine["text-image"]}
    found = table_of_scores(human, values, wrong, reps=200)
    shown = found.printed()
    assert list(shown.columns) == ["original", "image", "text-image", "both"] and list(shown.index) == ["rouge-l", "chrf", "IMAGINE"]
    assert shown.loc["chrf", "image"].endswith("!") and shown.loc["rouge-l", "text-image"].endswith("*")
    row = found.frame.set_index(["metric", "added"]).loc[("rouge-l", "text-image")]
    assert shown.loc["rouge-l", "text-image"] == f"{100*row['mean']:.2f}±{100*row['deviation']:.2f}*" and "±" not in shown.loc["rouge-l", "original"]
    assert shown.loc["IMAGINE", "original"] == "" and repr(found) == shown.to_string() and "<script" not in found._repr_html_()


@pytest.fixture(scope="module")
def judged() -> tuple:
    "Captions of scenes, half of them with one thing wrong, and the share of their claims that are true."
    scenes = scenes_with_captions(24, seed=5)
    said = [relation_captions(scenes, i) for i in range(24)]
    foils = {row.scene: row.foil for row in foil_rows(scenes, "noun")}
    pred = [foils.get(i, said[i][1]) if i % 2 else said[i][1] for i in range(24)]
    return pred, [s[0] for s in said], judge_captions(pred, [caption_truth(scenes, i) for i in range(24)])["all"]


def test_from_texts_is_from_their_scores(judged, tmp_path):
    pred, target, true = judged
    found = imagine_table(pred, target, true, "rouge-l,cider", generator="exact", seeds=2, folder=tmp_path, reps=60)
    built = [get_metric(name) for name in ("rouge-l", "cider")]
    rows = extract(built, pred, target)
    made = imagine_vectors(ImagineModel(get_generator("exact"), image_text("embedded-clip"), seeds=2, folder=tmp_path), pred, [(t,) for t in target])
    imagine = {"image": made.image_scores().numpy(), "text-image": made.text_image_scores().numpy()}
    by_hand = table_of_scores(true, {m.name: m.values(rows[m.name].pred).numpy() for m in built}, imagine, reps=60)
    pd.testing.assert_frame_equal(found.frame, by_hand.frame)
    assert set(found.signatures) == {"rouge-l", "cider", "imagine"} and dict(Signature.parse(found.signatures["imagine"]).items)["seeds"] == "2"
    assert (found.n, found.seeds) == (24, 2) and any("understood" in note for note in found.notes)


def test_without_references_the_source_is_imagined(judged, tmp_path):
    pred, context, true = judged
    found = imagine_table(pred, None, true, "diversity", source=context, generator="exact", seeds=2, folder=tmp_path, reps=60)
    same = imagine_table(pred, context, true, "diversity", generator="exact", seeds=2, folder=tmp_path, reps=60)
    alone = [t.frame.set_index(["metric", "added"]).loc[("diversity", ""), "mean"] for t in (found, same)]
    assert alone[0] == alone[1]                      # it looks at no other side, as in the paper's third table
    assert found.frame["mean"][1] != same.frame["mean"][1] # the source has seeds of its own
    with pytest.raises(InputError, match="compares with references"): imagine_table(pred, None, true, "rouge-l", source=context, folder=tmp_path)


def test_what_does_not_belong_together_is_said(judged, tmp_path):
    pred, target, true = judged
    for wrong, says in ((lambda: imagine_table(pred, None, true), "give references"), (lambda: imagine_table(pred, target, true[1:]), "23 human scores for 24"),
                        (lambda: imagine_table(pred, target[1:], true), "24"), (lambda: imagine_table(pred, target, true, "rogue-l"), "did you mean rouge-l"),
                        (lambda: imagine_table(pred, target, true, weights={"judge": "nowhere"}), "nowhere"),
                        (lambda: imagine_table(pred, target, true, "rouge-l", options={"nonsense": 1}), "nonsense has no effect")):
        with pytest.raises(InputError, match=says): wrong()


class Counting:
    "Draws nothing, and knows how often it was asked."
    name, size, tokens, language, asked = "counting", (8, 8), None, "", 0
    def describe(self): return {"generator": self.name}
    def __call__(self, texts, seeds):
        self.asked += len(texts)
        return torch.zeros(len(texts), 3, 8, 8, dtype=torch.uint8)


def test_what_cannot_be_had_is_said_before_anything_is_drawn(judged, tmp_path):
    pred, target, true = judged
    counting, people = Counting(), true.copy()
    people[3] = np.nan
    missing = {"judge": "clip-vit-b-32", "generator": "CompVis/stable-diffusion-v1-1@" + "0"*40}
    for human, metrics, how, says in ((true, "ter", {}, "tops="), (np.ones(24), "rouge-l", {}, "all 24 scores are 1"), (people, "rouge-l", {}, "1 of 24 scores are missing"),
                                      (true, "rouge-l,", {}, "a name is empty"), (true, "rouge-l", {"cider": "rwa"}, "did you mean raw"),
                                      (true, "rouge-l", {"weights": "clip-vit-b-32"}, "say what 'clip-vit-b-32' are for"), (true, "rouge-l,rouge-l", {}, "asked for twice"),
                                      (true, "rouge-l", {"long": "split", "language": "rfuse"}, "unknown way with other")):
        with pytest.raises(InputError, match=says): imagine_table(pred, target, human, metrics, **{"generator": counting, "folder": tmp_path, **how})
    with pytest.raises(TypeError): imagine_table(pred, target, true, "rouge-l", generator=counting, statistc="spearman")
    with pytest.raises(InputError) as lost: imagine_table(pred, target, true, "rouge-l", generator="diffusion", weights=missing, folder=tmp_path)
    assert "clip-vit-b-32" in str(lost.value) and "stable-diffusion-v1-1" in str(lost.value) and "weights fetch" in str(lost.value) and "\n" not in str(lost.value)
    assert not counting.asked


def test_scores_that_do_not_belong_together_are_refused():
    human, values, imagine = made_up()
    for wrong, says in ((dict(values={}), "no values of metrics"), (dict(imagine={}), "no scores of IMAGINE"),
                        (dict(imagine={"image": imagine["image"], "text-image": imagine["text-image"][:, :1]}), "unequal numbers of items or seeds"),
                        (dict(imagine={"image": imagine["image"][:, 0]}), "items, seeds"), (dict(human=human[1:]), "human scores"),
                        (dict(values={"rouge-l": values["rouge-l"][1:]}), "one of each for each item")):
        with pytest.raises(InputError, match=says): table_of_scores(**{"human": human, "values": values, "imagine": imagine, **wrong}, reps=50)
    with pytest.raises(InputError, match="scores of shape"): combination_gains(human[:50], {"m": human}, {("m", "x"): imagine["image"]}, reps=50)
    with pytest.raises(InputError, match="120 items and 50 human"): correlation_over_seeds(human[:50], imagine["image"])


def test_one_picture_for_all_texts_adds_nothing_and_is_no_error(judged, tmp_path):
    pred, target, true = judged
    found = imagine_table(pred, target, true, "rouge-l", generator="one-picture", seeds=2, folder=tmp_path, reps=60)
    cell = found.frame.set_index(["metric", "added"])
    assert cell.loc[("rouge-l", "image"), "mean"] == pytest.approx(cell.loc[("rouge-l", ""), "mean"], abs=1e-9)
    assert np.isnan(cell.loc[("IMAGINE", "image"), "mean"]) and found.printed().loc["IMAGINE", "image"] == "constant"
    assert np.isfinite(cell.loc[("IMAGINE", "text-image"), "mean"]) and cell.loc[("rouge-l", "image"), "verdict"] == "not shown"


def test_a_metric_that_nobody_registered_brings_its_own_range(judged, tmp_path):
    pred, target, true = judged
    mine = replace(get_metric("rouge-l"), name="mine")
    found, usual = (imagine_table(pred, target, true, [m], seeds=2, folder=tmp_path, reps=60) for m in (mine, "rouge-l"))
    assert np.allclose(found.frame.drop(columns=["metric", "added", "verdict"]), usual.frame.drop(columns=["metric", "added", "verdict"]), equal_nan=True)
    assert list(found.printed().index) == ["mine", "IMAGINE"]


def test_the_papers_metrics_are_registered_and_its_numbers_are_as_printed():
    assert all(name in metrics for names in _TABLE_METRICS.values() for name in names)
    paper = pd.read_csv(PAPER, keep_default_na=False, na_values={"mean": "", "deviation": ""})
    assert len(paper) == 9*6 + 5*6 + 7*6 + 3*5 + 4 + 12 and paper["mean"].notna().all()
    assert (paper.deviation.isna() == (paper.added == "")).all()
    values = paper[paper.table < 4].set_index(["dataset", "metric", "added"])["mean"]
    assert values["IWSLT'14", "BLEU-1", "image"] == 21.38 < values["IWSLT'14", "BLEU-1", ""]          # an exception to "all improve"
    assert values["DUC2004", "ROUGE-1", "text-image"] == 13.45 < values["DUC2004", "ROUGE-1", ""]
    pair = [values["ActivityNet without references", m, ""] == values["ActivityNet", m, ""] for m in ("div-2", "div-3", "div-4", "diversity", "distinct-2")]
    assert all(pair)


def test_the_command_takes_weights_by_name_and_compares_with_sources(tmp_path, capsys):
    import json
    from invariant_metrics.commands.shell import main
    said = ["a red ball on a hill", "a blue boat", "a red boat beside a tree and a house", "a ball on a ball"]*3
    rows = [{"item": str(i), "system": "a", "output": text, "references": [said[i - i % 2]], "source": said[i - i % 4], "score": 5 - i % 2 + .1*i}
            for i, text in enumerate(said)]
    (tmp_path/"judged.json").write_text(json.dumps(rows))
    def table(*words):
        code = main(["imagine", "table", str(tmp_path/"judged.json"), "--seeds", "2", "--reps", "20", "--json", *words])
        out, err = capsys.readouterr()
        return (json.loads(out)["result"], err) if code == 0 else (None, err)
    found, _ = table("--metrics", "bertscore,rouge-l", "--weights", "bertscore=minilm")
    assert {"bertscore-minilm", "rouge-l"} <= {row["metric"] for row in found["table"]} and "bertscore-minilm" in found["signatures"]
    without, _ = table("--metrics", "distinct-1", "--from-source")
    assert "distinct-1" in {row["metric"] for row in without["table"]}
    assert "rouge-l compares with references, and this table has sources; leave it out" in table("--metrics", "rouge-l", "--from-source")[1]
    assert "psnr looks at images" in table("--metrics", "psnr")[1]
    for sources in ([], ["--from-source"]): assert "needs the images that the texts were made from" in table("--metrics", "l-clipscore", *sources)[1]
    assert "weights has no effect on rouge-l" in table("--metrics", "rouge-l", "--weights", "bleurt=minilm")[1]
    assert "(--top violation-entities=VALUE)" in table("--metrics", "violation-entities")[1] # and what it advises is there
    known, _ = table("--metrics", "violation-entities", "--top", "violation-entities=2")
    assert "violation-entities" in {row["metric"] for row in known["table"]}
    for gone, says in (("references", "by side='source' (--from-source)"), ("source", "(without --from-source)")):
        (tmp_path/"judged.json").write_text(json.dumps([{k: v for k, v in row.items() if k != gone} for row in rows]))
        words = ["--from-source"] if gone == "source" else []
        assert says in table("--metrics", "rouge-l", *words)[1]
