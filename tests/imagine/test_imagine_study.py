"The study of imagination: its numbers by brute force, its folder, its page."
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import permutation_test, spearmanr

from commands import cli
from invariant_metrics.core import InputError, progress, rng
from invariant_metrics.edits.captions import claims
from invariant_metrics.experiments.contrast import _sign_flip_test
from invariant_metrics.experiments.work import _do_pieces
from invariant_metrics.imagine import imagine_study as room
from invariant_metrics.imagine.drawing import imagine_draw
from invariant_metrics.imagine.run_imagine import imagine_study, save_study_csv
from invariant_metrics.imagine.imagine_study import ALL_VIOLATIONS, STUDY_CONTROLS, STUDY_LESS, TEXT_ONLY, ImagineSize, StudyCaptions, StudyGenerator
from invariant_metrics.imagine.imagine_study import _added_scores, _auc_table, _dose_table, _drawing_pieces, _gain_table, _study_captions, study_imagination
from invariant_metrics.imagine.imagine_study import _verdicts_of
from invariant_metrics.imagine.imagine_report import imagine_answers, imagine_report, read_imagine, write_imagine_page


@pytest.fixture(scope="module")
def captions(): return _study_captions(10, seed=3)


@pytest.fixture(scope="module")
def scores(captions): return rng(0, "made up").normal(size=len(captions.rows)).round(1) # with ties


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("study")
    return study_imagination(place/"imagine", generator="exact", size=ImagineSize(5, 2), workers=0, pictures=place/"pictures"), place


def test_every_violation_claims_something_else_and_every_paraphrase_the_same(captions):
    for row in captions.rows.itertuples():
        said, meant = claims(row.text), claims(captions.target[row.item])
        assert (said == meant) == (row.side == "paraphrase"), row
    count = captions.rows.groupby(["item", "side"]).size().unstack()
    assert (count["edited reference"] == count["edited paraphrase"]).all() and (count["paraphrase"] >= 1).all()


def test_two_scenes_at_once_say_what_both_halves_say(captions, tmp_path):
    work = room.ImaginationWork(tmp_path, StudyGenerator("learned", "exact"), "embedded-clip", ImagineSize(5, 1), seed=3, two_scenes=True)
    together = work.captions
    assert work.design()["two_scenes"] and together.rows.equals(room._told_together(captions).rows) and 2 <= len(together) <= 10
    for row in together.rows.itertuples():
        other, _, own = row.text.partition(" and ")
        halves = [claims(other), claims(own)]
        assert claims(row.text) == tuple(a | b for a, b in zip(*halves)), row
        assert (claims(row.text) == claims(together.target[row.item])) == (row.side == "paraphrase"), row
    first = together.rows[together.rows["side"] == "paraphrase"].drop_duplicates("item")
    assert first["item"].tolist() == [*range(len(together))]
    assert all(claims(a).objects.isdisjoint(claims(b).objects) for a, _, b in (text.partition(" and ") for text in first["text"]))
    with pytest.raises(InputError, match="take more scenes"): room._told_together(_study_captions(1, seed=3))


def slow_auc(captions, scores, families, view): # loops, as the text says it
    shares = []
    for item, own in captions.rows.groupby("item"):
        right = [scores[k] for k in own.index[own.side == "paraphrase"]]
        right = right if view == "item" else right[:1]
        wrong = own[own.side == {"item": "edited reference", "paired": "edited paraphrase"}[view]]
        wins = {}
        for k, row in wrong.iterrows():
            if row.family in families: wins[row.family, row.level] = np.mean([(scores[k] < r) + .5*(scores[k] == r) for r in right])
        if wins: shares.append(np.mean([*wins.values()]))
    return np.mean(shares)


@pytest.mark.parametrize("view", ["item", "paired"])
def test_shares_are_those_of_plain_loops(captions, scores, view):
    table = _auc_table(captions, {"m": scores}).set_index(["family", "view"])["auc"]
    families = [f for f in dict.fromkeys(captions.rows.family) if f]
    for family in families: assert table[family, view] == pytest.approx(slow_auc(captions, scores, [family], view))
    assert table[ALL_VIOLATIONS, view] == pytest.approx(slow_auc(captions, scores, [f for f in families if f not in STUDY_LESS], view))


def test_a_metric_that_knows_the_facts_is_always_right_and_one_of_words_is_wrong(captions):
    knows = np.array([float(claims(t) == claims(captions.target[i])) for t, i in zip(captions.rows.text, captions.rows.item)])
    near = np.array([len({*t.split()} & {*captions.target[i].split()})/len({*t.split()} | {*captions.target[i].split()})
                     for t, i in zip(captions.rows.text, captions.rows.item)])
    table = _auc_table(captions, {"knows": knows, "near": near, "constant": np.zeros(len(knows))}).set_index(["metric", "family", "view"])["auc"]
    assert table["knows", ALL_VIOLATIONS, "item"] == table["knows", ALL_VIOLATIONS, "paired"] == 1
    assert table["near", "color-replaced", "item"] < .4
    assert table["constant", ALL_VIOLATIONS, "item"] == .5


def test_gains_are_differences_of_shares_and_their_p_is_that_of_scipy(captions, scores):
    other = rng(1, "made up").normal(size=len(scores))
    table = _gain_table(captions, {"a": scores, "b": other}, [("a", "b"), ("b", "b")]).set_index(["a", "b", "view"])
    shares = _auc_table(captions, {"a": scores, "b": other}).set_index(["metric", "family", "view"])["auc"]
    for view in ("item", "paired"):
        assert table.loc[("a", "b", view), "gain"] == pytest.approx(shares["a", ALL_VIOLATIONS, view] - shares["b", ALL_VIOLATIONS, view])
        assert table.loc[("b", "b", view), "gain"] == 0 and table.loc[("b", "b", view), "p"] == 1
    assert (table["p_holm"] >= table["p"]).all() and set(table["verdict"]) == {"not shown"}
    for k in range(3):
        x = rng(k, "swap").normal(.4, 1, 9).round(2)
        exact = permutation_test((x, np.zeros(9)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf).pvalue
        assert _sign_flip_test(x, rng(k, "test")) == pytest.approx(exact, abs=.02)


def test_places_and_slopes_are_those_of_plain_means(captions, scores):
    knows = np.array([len(claims(captions.target[i]).attributes & claims(t).attributes) for t, i in zip(captions.rows.text, captions.rows.item)], float)
    knows += .01*scores
    close = rng(2, "close").random(len(scores))
    frame = captions.rows.assign(s=knows, c=close)
    table = _dose_table(captions, {"m": knows}, close).set_index(["kind", "dose"])
    right = frame[frame.side == "paraphrase"]
    edited = frame[frame.side == "edited paraphrase"]
    low, high = edited[edited.family == "unrelated-caption"].s.mean(), right.s.mean()
    for k in (1, 2, 3):
        part = edited[(edited.family == "false-facts") & (edited.level == k)]
        assert table.loc[("false facts", k), "place"] == pytest.approx((part.s.mean() - low)/(high - low))
        assert table.loc[("false facts", k), "n"] == len(part)
    assert table.loc[("other words", 1), "slope"] == pytest.approx(spearmanr(right.s, right.c).statistic)
    thirds = [table.loc[("other words", k), "n"] for k in (1, 2, 3)]
    assert sum(thirds) == len(right) and max(thirds) - min(thirds) <= 1


def test_two_processes_draw_what_one_draws(captions, tmp_path):
    few = StudyCaptions(captions.rows[captions.rows["item"] < 2], captions.target[:2])
    generator = [StudyGenerator("exact", "exact", (("size", 16),))]
    for name, workers in (("one", 0), ("two", 2)):
        pieces, ticks = _drawing_pieces(few, generator, 1, folder=tmp_path/name)
        with progress(total=ticks) as bar: _do_pieces(pieces, tmp_path/"study", workers, bar, preload=["invariant_metrics.imagine.imagine_study"])
    for name in ("one", "two"): assert {p.suffix for p in (tmp_path/name).iterdir()} == {".safetensors"}
    seeds = room.derived_seeds(0, 1, "pred")
    pictures = {name: room.imagined(generator[0].open(), list(few.rows["text"]), seeds, tmp_path/name) for name in ("one", "two")}
    assert (pictures["one"] == pictures["two"]).all()


def test_a_sum_is_a_sum():
    values = {"a": np.array([.1, .2]), "x": np.array([.5, .1])}
    assert _added_scores(values, ("a",), ("x",))["a + x"].tolist() == pytest.approx([.6, .3])


def test_a_finished_study_is_read_again_and_its_tables_are_of_its_scores(finished):
    study, place = finished
    again = study_imagination(place/"imagine", generator="exact", size=ImagineSize(5, 2))
    for name in room.ImagineStudy.needed: pd.testing.assert_frame_equal(getattr(again, name), getattr(study, name))
    assert {"exact", "learned", "random scenes", "one picture"} == {m.split(" (")[1][:-1] for m in study.auc["metric"] if " (" in m and " + " not in m}
    assert {TEXT_ONLY, "random", "chrf"} <= set(study.scores) and set(study.meta["deviation"]) >= {"imagine-image (exact)"}
    assert study.meta["deviation"]["imagine-image (one picture)"] == pytest.approx(0, abs=1e-9)
    assert (study.auc["auc"].between(0, 1) | study.auc["auc"].isna()).all() and study.gains["p_holm"].between(0, 1).all()


def test_exact_pictures_tell_violations_that_words_miss(finished):
    study, _ = finished
    table = study.auc[study.auc["family"] == ALL_VIOLATIONS].set_index(["metric", "view"])["auc"]
    assert table["imagine-image (exact)", "item"] > table["chrf", "item"] + .1
    assert table["imagine-image (one picture)", "item"] == pytest.approx(.5, abs=.02)


def test_the_page_escapes_what_comes_from_texts(finished, tmp_path):
    study, _ = finished
    bad = "<script>alert(1)</script>"
    hostile = study.with_tables(scores=study.scores.assign(text=bad, target=bad))
    page = imagine_report(hostile, {"settings": {"command": "imagine study", "scale": "quick"}, "parts": {}}).page("runs/<b>")
    assert bad not in page and "&lt;script&gt;alert" in page and "<b>'" not in page
    assert len(re.findall("<img", page)) == 2*(len(study.examples["rows"]) + len({*study.scores["item"]})) and page == imagine_report(hostile, {"settings": {"command": "imagine study", "scale": "quick"}, "parts": {}}).page("runs/<b>")


def test_a_run_folder_is_one_run(tmp_path, monkeypatch):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    monkeypatch.setitem(room._IMAGINE_SIZES, "quick", ImagineSize(4, 1))
    given = dict(out=tmp_path/"run", generator="exact", scale="quick", workers=0)
    run = imagine_study(**given)
    assert run.meta["status"] == "finished" and set(run.meta["parts"]) == {"imagine"} and "imagine" in run.summary()
    assert imagine_study(**given).meta == run.meta
    with pytest.raises(InputError, match="holds another run"): imagine_study(**{**given, "seed": 1})
    page = write_imagine_page(tmp_path/"run").read_text()
    assert "imagine study --generator exact --scale quick --out" in page and all(what[:20] in page for what, _ in imagine_answers(read_imagine(tmp_path/"run")[1])[:1])
    files = save_study_csv(tmp_path/"run", tmp_path/"csv")
    assert [f.name for f in files] == ["study_auc.csv", "study_gains.csv", "study_dose.csv"] and len(pd.read_csv(files[0])) > 50


def test_pictures_are_written_with_what_was_understood(tmp_path):
    frame = imagine_draw(["a red ball", "the tax was raised"], "exact", out=tmp_path/"drawn", seeds=2, option={"size": 32})
    assert len({*frame["seed"]}) == 2 and frame["understood"].iloc[0] == 1 > frame["understood"].iloc[2]
    assert {p.name for p in (tmp_path/"drawn").iterdir()} == {*frame["file"], "pictures.csv", "sheet.png"}
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path/"drawn"/"pictures.csv"), frame)
    with pytest.raises(InputError, match="holds pictures already"): imagine_draw(["a boat"], "exact", out=tmp_path/"drawn")


def test_draw_from_a_shell(tmp_path):
    (tmp_path/"hyp.txt").write_text("a red ball\na boat left of a house\n")
    done = cli("imagine", "draw", "a car", "--texts", "hyp.txt", "--seeds", "1", "--out", "drawn", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["text"] for row in json.loads(done.stdout)["result"]["pictures"]] == ["a car", "a red ball", "a boat left of a house"]
    for wrong in (["draw"], ["draw", "a car", "--generator", "dream"], ["study", "--generator-weights", "nowhere/"], ["draw", "a car", "--texts", "nothing.txt"]):
        done = cli("imagine", *wrong, cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
