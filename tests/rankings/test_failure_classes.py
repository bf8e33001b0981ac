"Classes of ranking failures: equal to the exact truth of scenes; every choice, every NA; shares, intervals and paired differences by hand and by simulation; the row of a model; answers of people."
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from test_labeling import rater # noqa: F401 (a fixture)
from invariant_metrics.core import InputError, rng
from invariant_metrics.data.annotations import annotate, scene_annotations
from invariant_metrics.people.labeling import FAILURES, collect
from invariant_metrics.people.labels import answer_sheet, read_labels, write_answers
from invariant_metrics.rankings import failure_classes as classes
from invariant_metrics.rankings.claims import plain_noun, query_claims
from invariant_metrics.rankings.failure_classes import CLASSES, class_shares, classify_failures
from invariant_metrics.rankings.concepts import concepts_of
from invariant_metrics.rankings.explain import explain_failures
from invariant_metrics.rankings.marks import NounMatcher
from invariant_metrics.rankings.rater_ranks import _AUTOMATIC, _WORDING, ask_people, compare_with_people, _failure_items, people_classes, people_table
from invariant_metrics.rankings.table import global_table
from invariant_metrics.rankings.rank_task import ranking_task
from invariant_metrics.worlds.classes import CLASSES as THINGS
from invariant_metrics.worlds.scene_captions import caption_truth, read_claims, relation_captions
from invariant_metrics.worlds.scene_text import scene_entities
from invariant_metrics.worlds.scenes import make_scenes

sys.path.insert(0, str(Path(__file__).parents[2]/"benchmarks"))
from ranking_data import compare_classes  # noqa: E402

SCENES = 250


@pytest.fixture(scope="module")
def world():
    "Annotations of scenes, their exact truth, how many things of each noun each has, and a wrong picture for each."
    scenes, annotations = make_scenes(SCENES, 64, 11, 0), scene_annotations(SCENES, seed=11)
    truths = [caption_truth(scenes, i) for i in range(SCENES)]
    counts = [Counter(e.noun for e in scene_entities(scenes, i)) for i in range(SCENES)]
    relations = tuple(tuple(relation_captions(scenes, i)) for i in range(SCENES))
    retrieved = (np.arange(SCENES) + rng(0, "wrong").integers(1, SCENES, SCENES)) % SCENES
    return annotations, truths, counts, relations, retrieved


def failures(retrieved) -> pd.DataFrame:
    at = np.arange(len(retrieved))
    return pd.DataFrame({"query": at, "truth": at, "retrieved": retrieved})


def agrees(found: pd.Series, expected: np.ndarray) -> bool:
    "Wherever a class is judged it is as expected, and wherever it cannot be judged nothing is broken."
    known = found.notna().to_numpy()
    return (found[known].to_numpy(bool) == expected[known]).all() and not expected[~known].any()


class ByName(NounMatcher):
    "A mark fulfils a noun by its name alone, as the exact reader of scenes has it."
    def _fulfilled(self, name, synsets): return set(self.by_name.get(plain_noun(name), ()))
    def _perhaps(self, name, synsets): return frozenset()


def test_classes_equal_the_exact_truth_of_scenes(world, monkeypatch):
    "250 failures under two captions each that an exact reader understands: objects, attributes and relations, by noun."
    annotations, truths, _, relations, retrieved = world
    monkeypatch.setattr(classes, "NounMatcher", ByName)
    seen = Counter()
    for captions, name in ((annotations.captions, "caption:3"), (relations, "caption:1"), (relations, "caption:4")):
        task = ranking_task(replace(annotations, captions=captions), name, "captions")
        found = classify_failures(task, failures(retrieved))
        claims, got = [read_claims(query[0]) for query in task.queries], [truths[r] for r in retrieved]
        both = list(zip(claims, got))
        expected = {"object": [bool(c.objects - t.objects) for c, t in both],
                    "attribute": [any(n in t.objects and (n, color) not in t.attributes for n, color in c.attributes) for c, t in both],
                    "relation": [any({a, b} <= t.objects and (a, r, b) not in t.relations for a, r, b in c.relations) for c, t in both]}
        for name, values in expected.items():
            assert agrees(found[name], np.array(values)), name
            seen[name] += sum(values)
        others = [found[name].fillna(False).to_numpy(bool) for name in ("count", "size")]
        alternative = ~np.any([*expected.values(), *others], axis=0)
        assert found["alternative"].tolist() == alternative.tolist()
    assert min(seen.values()) >= 20                                       # each class was really met


def test_counts_equal_the_exact_truth_of_scenes(world, monkeypatch):
    "The first caption tells every thing with its number; a thing that both scenes have is miscounted where the numbers differ."
    annotations, _, counts, _, retrieved = world
    monkeypatch.setattr(classes, "NounMatcher", ByName)
    task, things = ranking_task(annotations), {c.name for c in THINGS if c.thing}
    found = classify_failures(task, failures(retrieved))
    both = list(zip(counts, (counts[r] for r in retrieved)))
    expected = np.array([any(n in other and other[n] != k for n, k in own.items() if n in things) for own, other in both])
    assert agrees(found["count"], expected) and expected.sum() >= 60


def test_measures_by_hand():
    "CA, CE, SD, NCS and coverage of the query by counting on a picture of zebras."
    def thing(name, synset, *box): return {"name": name, "synsets": [synset] if synset else [], "box": list(box) or None}
    zebras = [thing("zebra", "zebra.n.01", 0, 0, 10, k) for k in (10, 20, 30)]
    records = [{"id": "a", "width": 100, "height": 100, "captions": ["three zebras and a tree on a hill near a frisbee", "zebras"],
                "objects": [*zebras, thing("tree", "tree.n.01", 0, 0, 5, 5), thing("hill", "hill.n.01")]},
               {"id": "b", "width": 100, "height": 100, "captions": ["a zebra"],
                "objects": [thing("zebra", "zebra.n.01", 0, 0, 10, 45), thing("grass", "grass.n.01"), thing("grassland", "grassland.n.01")]}]
    records = [{**r, "objects": [{k: v for k, v in o.items() if v is not None} for o in r["objects"]]} for r in records]
    records[1]["captions"] += ["grass"]
    task = ranking_task(annotate(records))
    row = classify_failures(task, failures(np.array([1]))).iloc[0]
    assert row[["object", "count"]].tolist() == [True, True] and row["missing"].startswith("tree; hill; three zebras (1 there)")
    assert row["ca_query"] == pytest.approx(1/3) and row["ce_query"] == 2 and row["query_concepts"] == 3     # nobody marks frisbees
    assert row["coverage"] == pytest.approx(1/3) and row["sd_query"] == 0                                      # 45 against 30: half as large again
    assert row["ncs_query"] == pytest.approx(5/36)                                                            # tree-grass 1/6, hill-grassland 1/9
    assert set(row["extra"].split("; ")) == {"grass", "grassland"}
    assert not row["size"]


@pytest.mark.parametrize("retrieved, name, expected", [("a zebra", "object", False), ("an animal", "object", False), ("a dog", "object", False),
                                                       ("a car", "object", True), ("zebras", "count", True)])
def test_what_fulfils_an_animal(retrieved, name, expected):
    "One query, `an animal in the snow`, against marks that are it, below it, above it, beside it, and twice it."
    nouns = {"a zebra": ["zebra"], "zebras": ["zebra", "zebra"], "an animal": ["animal"], "a dog": ["dog"], "a car": ["car"]}[retrieved]
    marks = lambda names: [{"name": n, "synsets": [f"{n}.n.01"]} for n in names]
    task = ranking_task(annotate([{"id": "t", "captions": ["an animal in the snow", "a beast"], "objects": marks(["animal"])},
                                  {"id": "r", "captions": [retrieved, "something"], "objects": marks(nouns)}]))
    row = classify_failures(task, failures(np.array([1]))).iloc[0]
    assert row[name] == expected


def test_another_number_is_told_from_nothing_at_all():
    "A thing that is there in another number is said with that number; a thing that is not there is named alone."
    def thing(name, k): return {"name": name, "synsets": [f"{name}.n.01"], "box": [10*k, 0, 5, 5]}
    held = [[thing("apple", 0), thing("dog", 1), thing("dog", 2)], [thing("apple", k) for k in range(3)], [thing("dog", k) for k in range(5)]]
    captions = ["an apple and two dogs", "apples", "dogs"]
    task = ranking_task(annotate([{"id": str(i), "width": 90, "height": 90, "captions": [said, said], "objects": things} for i, (said, things) in enumerate(zip(captions, held))]))
    found = classify_failures(task, pd.DataFrame({"query": [0, 0], "truth": [0, 0], "retrieved": [1, 2]}))
    assert found["missing"].tolist() == ["dogs; one apple (3 there)", "apple; two dogs (5 there)"] or found["missing"].tolist() == ["two dogs; one apple (3 there)", "apple; two dogs (5 there)"]


def test_what_cannot_be_judged_is_missing_and_said():
    "Nothing marked, nothing named, queries without nouns; sentences stand in for objects; silence is no contradiction."
    captions = [["a red ball on a table", "the red ball lies on a table"], ["a ball on a table", "a blue ball under a table"],
                ["sitting down", "rain"], ["a cat", "a small cat"]]
    task = ranking_task(annotate([{"id": str(i), "captions": c} for i, c in enumerate(captions)]))
    found = classify_failures(task, failures(np.array([1, 0, 3, 2])))
    assert found.loc[0, ["object", "attribute", "color", "relation"]].tolist() == [False, True, True, True]
    assert found.loc[0, "missing"] == "red ball; ball on table"
    assert not found.loc[1, "attribute"] and found.loc[1, "relation"] is pd.NA            # no color is asked for; its own picture contradicts it
    assert found.loc[2, ["object", "alternative"]].isna().all() and found.loc[2, "count"] is not pd.NA
    assert found.loc[3, "object"] and found["size"].isna().all() and found["sd_query"].isna().all()
    notes = found.attrs["notes"]
    assert "object: 1 of 4 failures cannot be judged" in notes and "the source has no objects, attributes, relations: they are read from sentences" in notes
    with pytest.raises(InputError, match="queries are pictures"):
        pictures = annotate([{"id": "a", "captions": ["x"], "picture": "a.png"}, {"id": "b", "captions": ["y"], "picture": "b.png"}])
        classify_failures(ranking_task(pictures, "captions", "pictures", reverse=True), failures(np.array([1, 0])))


def test_groups_and_pictures_of_things_are_those_things():
    "What counts is what is grouped, with its own number; the group's size and relations are no claims about a group."
    said = {text: [(n.noun, n.least) for n in query_claims(text).nouns] for text in
            ("a herd of zebras", "a picture of a small dog", "two rows of three red cars", "a cup of coffee")}
    assert [*said.values()] == [[("zebra", 2)], [("dog", 1)], [("car", 3)], [("cup", 1), ("coffee", 1)]]
    for nested in ("a picture of a group of men on a boat", "a view of a row of a line of men on a boat", "a pair of a row of a pair", "a group of groups of a group"):
        claims = query_claims(nested)
        nouns = {n.noun for n in claims.nouns}
        assert {x for a, _, b in claims.relations for x in (a, b)} | {x for x, _ in (*claims.attributes, *claims.sizes)} <= nouns and nouns, nested
        assert "boat" not in nested or nouns == {"man", "boat"} and ("man", "on", "boat") in claims.relations
    assert query_claims("a big group of men on a boat").sizes == () and ("man", "on", "boat") in query_claims("a big group of men on a boat").relations


def test_plain_nouns_and_matches_are_the_dictionary_s():
    assert [plain_noun(w) for w in ("People", "traffic_lights", "women", "Zebras", "")] == ["person", "traffic light", "woman", "zebra", ""]
    fulfils = NounMatcher(("person", "dog", "bat"))
    assert fulfils("woman", ("woman.n.01",)) == {0} and fulfils("hot dog", ("frank.n.02",)) == set()
    assert fulfils("club", ("baseball_bat.n.01",)) == set()


def test_a_failure_is_judged_alike_alone_and_among_others(world):
    annotations, retrieved = world[0], world[4]
    task, frame = ranking_task(annotations), failures(retrieved)
    together = classify_failures(task, frame)
    for rows in ([5], [9, 3], list(range(100, 140))):
        alone = classify_failures(task, frame.iloc[rows])
        pd.testing.assert_frame_equal(alone, together.iloc[rows].reset_index(drop=True), check_like=True)


# --- shares -------------------------------------------------------------------------------------------------------------------------

def table(marks: np.ndarray, query=None, truth=None) -> pd.DataFrame: # (F, 5) 1, 0, NaN
    at = np.arange(len(marks))
    frame = pd.DataFrame({name: pd.array([None if np.isnan(v) else bool(v) for v in marks[:, k]], dtype="boolean") for k, name in enumerate(CLASSES)})
    frame["alternative"] = pd.array(~frame.fillna(False).any(axis=1), dtype="boolean")
    return frame.assign(query=at if query is None else query, truth=at if truth is None else truth)


def test_shares_are_means_over_what_was_judged():
    marks = np.array([[1, 1, 0, 0, 0], [1, 0, np.nan, 0, 0], [0, 0, 0, 0, 0], [1, np.nan, 1, 0, 0]], float)
    shares = class_shares(table(marks)).set_index("class")
    assert shares["share"].round(6).tolist() == [0.75, round(1/3, 6), round(1/3, 6), 0, 0, 0.25] and shares["n"].tolist() == [4, 3, 3, 4, 4, 4]
    nothing = class_shares(table(np.full((3, 5), np.nan)))
    assert nothing["n"].tolist()[:5] == [0]*5 and nothing["share"][:5].isna().all()


@pytest.mark.slow
def test_intervals_of_shares_and_of_differences_cover():
    "Pictures with three queries each that fail alike: 95 % intervals hold the truth in 95 ± 5 % of 200 draws; without clusters they would not."
    hits = np.zeros(4)
    for k in range(200):
        draw = rng(k, "cover")
        easy, picture = draw.beta(0.3, 0.6, 60), np.repeat(np.arange(60), 3)
        marks = (draw.random((2, 180)) < easy[picture]).astype(float)
        sides = [table(np.column_stack([m, *np.zeros((4, 180))]), truth=picture) for m in marks]
        task = type("Task", (), {"query_image": picture, "__len__": lambda self: 180})()
        row = class_shares(sides[0]).iloc[0]
        alone = class_shares(sides[0].assign(truth=range(180))).iloc[0]
        both = compare_classes(*sides, task)
        hits += [row.ci_low <= 1/3 <= row.ci_high, alone.ci_low <= 1/3 <= alone.ci_high, *((both.ci_low[:2] <= 0) & (0 <= both.ci_high[:2]))]
    assert (0.90 <= hits[[0, 2, 3]]/200).all() and hits[1]/200 < 0.90


def test_two_models_are_compared_by_query_and_by_failure():
    "Model b fails on half of the queries of a, on the same classes: the rates halve, the shares among failures stay."
    marks = np.zeros((40, 5))
    marks[:20, 0] = marks[10:, 1] = 1
    task = type("Task", (), {"query_image": np.arange(50), "__len__": lambda self: 50})()
    a, b = table(marks), table(marks[::2], query=np.arange(40)[::2])
    found = compare_classes(a, b, task).set_index(["class", "of"])
    assert found.loc[("object", "failures"), ["a", "b", "difference"]].tolist() == [0.5, 0.5, 0]
    assert found.loc[("object", "queries"), ["a", "b", "difference"]].tolist() == pytest.approx([0.4, 0.2, 0.2])
    assert found.loc[("object", "queries"), "p"] < 0.01 < found.loc[("object", "failures"), "p"]


def test_thousands_of_failures_take_seconds(world, monkeypatch):
    "3,000 failures of scenes within 4 s of CPU, each distinct sentence parsed once."
    annotations, retrieved = world[0], world[4]
    frame = pd.concat([failures(retrieved)]*12, ignore_index=True)
    started, calls, task = time.process_time(), [], ranking_task(annotations)
    monkeypatch.setattr(classes, "query_claims", lambda text: calls.append(text) or query_claims(text))
    classify_failures(task, frame)
    assert len(calls) == len(set(calls)) == len({q for query in task.queries for q in query}) and time.process_time() - started < 4


# --- the row of a model -------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def explained(world):
    annotations, retrieved = world[0], world[4]
    return explain_failures(concepts_of(annotations), np.arange(SCENES), retrieved)


def test_columns_are_what_their_names_say(explained):
    "Each ratio by a loop over failures."
    row, frame, counts = global_table(explained).iloc[0], explained.frame, explained.counts
    common, only, matched, apart = 0, [0, 0], 0, 0
    for k, one in frame.iterrows():
        own = counts[counts["failure"] == k]
        common, matched = common + len(own), matched + (explained.matches["failure"] == k).sum()
        only = [a + b for a, b in zip(only, (one["only_truth"], one["only_retrieved"]))]
        apart += sum(a != b for a, b in zip(own["truth_count"], own["retrieved_count"]))
    expected = {"common": common, "missed": only[0], "exclusive": sum(only), "matched": matched, "different_counts": apart,
                "pooled_ca": common/(common + only[0]), "jaccard": common/(common + sum(only)), "matched_per_exclusive": matched/sum(only),
                "different_counts_per_failure": apart/SCENES, "different_counts_share": apart/common, "failures_sd": frame["sd"].notna().sum(),
                **{name: frame[name].mean() for name in ("ca", "ncs", "ce", "sd")}}
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_the_paper_s_columns_follow_from_its_totals():
    "What the text counts, put into a table with one failure, comes out as the printed row under the honest names."
    n = {"failures": 28817, "common": 134630, "exclusive": 903987, "common_synsets": 110839, "exclusive_synsets": 627833, "matched": 184747,
         "same_counts": 41244, "different_counts": 69595}
    assert round(n["different_counts"]/n["failures"], 2) == 2.42
    frame = pd.DataFrame({"truth": [0], "ca": [.2229], "ncs": [.122], "ce": [8.638], "sd": [.2035], "common": [n["common"]],
                          "only_truth": [n["exclusive"] - 500_000], "only_retrieved": [500_000], "matched": [n["matched"]],
                          "only_truth_synsets": [300_000], "only_retrieved_synsets": [n["exclusive_synsets"] - 300_000]})
    counts = pd.DataFrame({"failure": np.zeros(n["common_synsets"], int), "retrieved_count": 1,
                           "truth_count": np.repeat([1, 2], [n["same_counts"], n["different_counts"]])})
    made = global_table(type("Explanations", (), {"frame": frame, "counts": counts})())
    assert made[["common", "exclusive"]].iloc[0].tolist() == [134630, 903987] and round(100*made["matched_per_exclusive"][0], 2) == 29.43
    assert round(made["jaccard"][0], 4) == 0.1296 and made["different_counts_per_failure"][0] == 69595 and made["usual_ce"][0] == 8.638


def test_intervals_of_the_row_are_over_right_pictures(explained):
    "Every failure twice: equal values and intervals by picture, narrower ones if copies pass for evidence; one picture has none."
    twice = replace(explained, frame=pd.concat([explained.frame]*2, ignore_index=True),
                    counts=pd.concat([explained.counts, explained.counts.assign(failure=explained.counts["failure"] + SCENES)]))
    once, both, apart = global_table(explained).iloc[0], global_table(twice).iloc[0], global_table(replace(twice, frame=twice.frame.assign(truth=range(2*SCENES)))).iloc[0]
    for name in ("ca", "ncs", "ce", "jaccard", "different_counts_share"):
        assert [both[name], both[f"{name}_low"]] == pytest.approx([once[name], once[f"{name}_low"]])
        assert apart[f"{name}_high"] - apart[f"{name}_low"] < 0.75*(once[f"{name}_high"] - once[f"{name}_low"])
    nothing = global_table(replace(explained, frame=explained.frame[:0], counts=explained.counts[:0])).iloc[0]
    assert nothing["failures"] == 0 and np.isnan(nothing["ca"]) and np.isnan(nothing["ca_low"])


# --- people -------------------------------------------------------------------------------------------------------------------------

TRUE = {"object class": "object", "object enumeration": "count", "size": "size", "object color": "color", "details": "detail"}


def simulated(page, classes: pd.DataFrame, evaluator: str, overlook: float, invent: float) -> pd.DataFrame:
    "The answers of a rater who knows the automatic classes, overlooks some and invents others, and takes two points off for each."
    sheet, draw = answer_sheet(page.path, evaluator, f"rater {evaluator}"), rng(int(evaluator), "rater")
    entries, known = json.loads(page.key.read_text(encoding="utf-8"))["entries"], classes.fillna(False)
    ticked = {}
    for code in sheet["item"].unique():
        row = int(entries[code]["item"])
        ticked[code] = [box for box in FAILURES if draw.random() < (1 - overlook if box in TRUE and known[TRUE[box]].iloc[row] else invent)]
        ticked[code] = ticked[code] or [_WORDING["none"]]
    said = [max(10 - 2*len(ticked[i]), 1) if a == "rating" else int(a in ticked[i]) for i, a in zip(sheet["item"], sheet["aspect"])]
    return sheet.assign(answer=said, seconds=4.0)


@pytest.fixture(scope="module")
def judged(world, tmp_path_factory):
    "Classes of 250 failures; 120 of them on a page, answered by five raters; what comes back."
    annotations, retrieved, folder = world[0], world[4], tmp_path_factory.mktemp("judged")
    task = ranking_task(annotations, "caption:3", "captions")
    classes = classify_failures(task, failures(retrieved))
    page = ask_people(task, classes, folder/"page.html", n=120, raters=5, per_rater=120, system="tfidf")
    for k in range(1, 6): write_answers(simulated(page, classes, str(k), 0.15, 0.03), folder/f"{k}.csv")
    return task, classes, page, read_labels(folder)


def test_what_raters_know_comes_back_as_classes(judged):
    "Five raters who overlook 15 % and invent 3 %: by majority the classes are nearly the known ones, and agreement is high."
    task, classes, page, labels = judged
    people = people_classes(labels, reps=200)
    assert page.counts["main"] == 120 and len(people.votes) == 120 and (people.votes["raters"] == 5).all()
    shares, at = people.shares.set_index("class"), people.votes["failure"]
    for name, own in TRUE.items():
        known = classes[own].iloc[at].fillna(False).to_numpy(bool)
        assert (people.marked[name].to_numpy() == known).mean() > 0.92, name # of five raters three are wrong in 2.7 %
        assert shares.loc[name, "ci_low"] <= shares.loc[name, "share"] == people.marked[name].mean() <= shares.loc[name, "ci_high"]
    assert shares.loc["object color", "alpha_low"] > 0.5 and shares.loc["action", "alpha"] < 0.2 and shares["n"].eq(120).all()
    one = classes.iloc[at][[*TRUE.values()]].fillna(False).sum(axis=1)
    assert people.many.set_index("classes")["share"].sum() == pytest.approx(1) and abs(people.many["share"][1] - (one == 1).mean()) < 0.1
    assert people.rating["ci_low"] < people.rating["mean"] < people.rating["ci_high"] and people.rating["alpha"] > 0.3


def test_automatic_classes_are_compared_with_people_by_hand(judged):
    "Two rates, counted in a loop; what the program cannot judge counts in neither."
    _, classes, _, labels = judged
    people = people_classes(labels, reps=50)
    found = compare_with_people(people, classes).set_index("class")
    for name, own in _AUTOMATIC.items():
        cells = Counter()
        for failure, marked in people.marked[name].items():
            held = classes[own].iloc[failure]
            cells["unknown" if held is pd.NA else (bool(marked), bool(held))] += 1
        row = found.loc[name]
        assert row["unknown"] == cells["unknown"] and row["sensitivity_n"] == cells[True, True] + cells[True, False]
        if row["sensitivity_n"]: assert row["sensitivity"] == pytest.approx(cells[True, True]/row["sensitivity_n"])
        if row["specificity_n"]: assert row["specificity"] == pytest.approx(cells[False, False]/row["specificity_n"])
        assert row["specificity_low"] <= row["specificity"] <= row["specificity_high"] + 1e-9
    assert found.loc["object color", "sensitivity_low"] > 0.7 and found.loc["action", "sensitivity_n"] == 0
    with pytest.raises(InputError, match="there are 3 here"): compare_with_people(people, classes[:3])


def test_the_paper_s_percentages_are_multiples_of_1_103_but_one(judged):
    table = people_table(people_classes(judged[3], reps=50)).set_index("class")
    assert table["paper_pairs"].round().tolist() == [24, 6, 18, 12, 6, 8, 56] and table.index[~table["whole"]].tolist() == ["size"]
    assert ((table["paper_low"] < table["paper"]) & (table["paper"] < table["paper_high"])).all() and table["share"].notna().all()


def test_a_page_of_failures_is_judged_in_a_browser(rater, tmp_path):
    "Query, found and right picture stand there as what they are; ticks and ratings come back for the right failure; hostile texts stay texts."
    Image.new("RGB", (8, 8), "red").save(tmp_path/"r.png")
    evil = "<img src=x onerror=alert(1)>"
    task = ranking_task(annotate([{"id": "a", "captions": [f"two dogs {evil}", "dogs play"]}, {"id": "b", "captions": ["a cat", "a cat sits"]},
                                  {"id": "c", "captions": ["a bus", "a red bus"], "picture": str(tmp_path/"r.png")}]))
    classes = classify_failures(task, failures(np.array([1, 2, 0])))
    page = ask_people(task, classes, tmp_path/"page.html", n=None, raters=1)
    rater.open(page.path)
    rater.begin("Ida")
    entries = json.loads(page.key.read_text())
    for code in entries["evaluators"]["1"]:
        query = task.queries[int(entries["entries"][code]["item"])][0]
        text = rater.text("#content")
        assert query in text and "Found" in text and "Right picture" in text and "Query" in text
        assert rater.page.script("return document.images.length") == ("cat" in query or "bus" in query)
        rater.press("3" if "dogs" in query else "7", "\ue007", "9", "\ue007")
    labels = read_labels(rater.save(), page.path, least_seconds=0)
    rater.quiet()
    people = people_classes(labels, reps=50)
    assert people.marked["object enumeration"].tolist() == [True, False, False] and people.marked["alternative"].tolist() == [False, True, True]
    assert people.rating["mean"] == 9 and np.isnan(people.rating["alpha"])
    assert any("no agreement for object enumeration: no item has two ratings" in note for note in people.notes)


def test_people_refuse_what_is_no_sample_and_no_failures(judged, tmp_path):
    task, classes, _, _ = judged
    with pytest.raises(InputError, match="0 of 250 failures"): _failure_items(task, classes, 0)
    collect([{"item": "a", "output": "x"}, {"item": "b", "output": "y"}], "likert", tmp_path/"p.html", aspects=["good"], evaluators=1, tutorial=0)
    write_answers(answer_sheet(tmp_path/"p.html", "1", "Al").assign(answer="3", seconds=4), tmp_path/"a.csv")
    with pytest.raises(InputError, match="not of likert"): people_classes(read_labels(tmp_path))


def test_readings_of_real_captions_are_mended():
    "What a reader of real captions found: colors that stand alone, hair, plurals without s, compounds, and numbers."
    nouns = lambda text: [n.noun for n in query_claims(text).nouns]
    assert nouns("a man in white, yellow and black") == ["man"] and nouns("an orange") == ["orange"]
    blond = query_claims("a blond woman on a farm")
    assert blond.nouns[0].noun == "woman" and blond.attributes == (("woman", "blond"),) and blond.relations == (("woman", "on", "farm"),)
    assert [plain_noun(w) for w in ("snow boards", "motor cycle", "fire hydrants", "tennis ball")] == ["snowboard", "motorcycle", "fire hydrant", "tennis ball"]
    numbers = lambda text: query_claims(text).nouns[-1][1:3]
    assert numbers("a herd of giraffe") == (2, "plural") and numbers("a pile of snow") == numbers("a cup of coffee") == (1, "")
    assert query_claims("sheep in a field").nouns[0].number == "plural" and query_claims("a sheep").nouns[0].number == "singular"
    fulfils = NounMatcher(("bat", "baseball bat", "plate", "bear", "dog", "person", "woman"))
    told = {name: {fulfils.nouns[i] for i in fulfils(name)} for name in ("baseball bat", "bat", "dinner plate", "teddy bear", "hot dog", "person")}
    assert told == {"baseball bat": {"bat", "baseball bat"}, "bat": {"bat", "baseball bat"}, "dinner plate": {"plate"},
                    "teddy bear": set(), "hot dog": set(), "person": {"person", "woman"}}
    assert {fulfils.nouns[i] for i in fulfils.surely("person")} == {"person"} and not fulfils.surely("dinner fork")


@pytest.mark.parametrize("asked, own, retrieved, object_, count", [
    ("a toilet", "a toilet", ["a toilet in a bathroom"], False, False),                    # the room is no second one
    ("two people", "two people", ["two people, a man and a woman"], False, False),         # told twice
    ("two people", "two people", ["a man and a woman"], False, False),
    ("a woman", "a woman", ["people"], False, None),                                     # one of them may be a woman
    ("a man by people", "people", ["a man"], False, True),                                  # people are several
    ("two women", "two women", ["a person"], False, True),                                 # one person is no two women
    ("three sheep", "three sheep", ["sheep in a field"], False, None),                     # may be three
    ("three sheep", "three sheep", ["two sheep in a field"], False, True),
    ("a dog", "a dog", ["a dog", "two dogs"], False, None),                                # the sentences disagree
    ("a woman with food at her mouth", "food in the mouth of a woman", ["a woman eats food"], False, False), # who eats has a mouth
    ("a person carries a child", "two people, one a child", ["a woman carries a child"], False, False)])
def test_numbers_of_sentences_are_ranges(asked, own, retrieved, object_, count):
    "A number is judged where the sentences leave no doubt: a mark of a broader kind, a bare plural, two answers are doubts."
    task = ranking_task(annotate([{"id": "t", "captions": [asked, own]}, {"id": "r", "captions": ["something", *retrieved]}]))
    row = classify_failures(task, failures(np.array([1]))).iloc[0]
    assert row["object"] == object_ and (row["count"] is pd.NA if count is None else row["count"] == count)


def test_marks_of_a_broader_kind_are_counted_at_most():
    "Three marked people can hold one man, and can not hold four."
    person = {"name": "person", "synsets": ["person.n.01"]}
    found = {}
    for asked, own in (("a man", 1), ("four men", 4)):
        task = ranking_task(annotate([{"id": "t", "captions": [asked, "x"], "objects": [person]*own},
                                      {"id": "r", "captions": ["y", "z"], "objects": [person]*3}]))
        found[asked] = classify_failures(task, failures(np.array([1]))).iloc[0]
    assert found["a man"]["count"] is pd.NA and found["four men"]["count"] and found["four men"]["missing"] == "four men (3 there)"
    two = ranking_task(annotate([{"id": "t", "captions": ["a dog and a dog", "two dogs"]}, {"id": "r", "captions": ["y", "a dog"]}]))
    assert classify_failures(two, failures(np.array([1]))).iloc[0]["missing"] == "2 × dog (1 there)"


def test_a_picture_without_marks_lacks_nothing_for_sure():
    "Samples of annotations leave pictures without a mark; a train that nobody marked is not missing."
    train = {"name": "train", "synsets": ["train.n.01"]}
    found = []
    for marks in ([], [{"name": "tree", "synsets": ["tree.n.01"]}]):
        task = ranking_task(annotate([{"id": "t", "captions": ["a train", "x"], "objects": [train]}, {"id": "r", "captions": ["a train on tracks", "y"], "objects": marks}]))
        found.append(classify_failures(task, failures(np.array([1]))).iloc[0])
    assert found[0][["object", "alternative"]].isna().all() and found[0]["missing"] == "" and found[1]["object"] and found[1]["missing"] == "train"


def test_intervals_of_the_row_stay_in_their_ranges_and_need_eight_pictures():
    "CE of few failures has no interval below 0, a share none above 1, and seven right pictures give none at all."
    generator = np.random.default_rng(0)
    for many in (7, 8, 20):
        frame = pd.DataFrame({"truth": np.arange(many), "ca": generator.random(many) < .9, "ncs": generator.random(many)/20, "ce": np.r_[30., np.zeros(many - 1)],
                              "sd": (generator.random(many) < .1).astype(float), "common": 3, "only_truth": 1, "only_retrieved": 2, "matched": 1}).astype(float)
        counts = pd.DataFrame({"failure": np.arange(many), "concept": "dog.n.01", "truth_count": 1, "retrieved_count": 2})
        row = global_table(type("Explanations", (), {"frame": frame, "counts": counts})()).iloc[0]
        ends = row[[name for name in row.index if name.endswith(("_low", "_high"))]].astype(float)
        if many < 8: assert ends.isna().all()
        else: assert (ends >= 0).all() and (ends.drop(["ce_high", "different_counts_per_failure_high"]) <= 1).all() and row["ce_high"] > 1
