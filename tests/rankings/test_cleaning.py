"The report on a data set: planted mistakes are found, clean scenes raise no false alarm, and the fast searches equal brute force."
from types import SimpleNamespace

import numpy as np
import pytest
from real_data import data_path
from sklearn.feature_extraction.text import TfidfVectorizer

from invariant_metrics.core import InputError
from invariant_metrics.data.annotation_files import load_annotations
from invariant_metrics.data.annotations import annotate, annotation_records, scene_annotations
from invariant_metrics.rankings import cleaning
from invariant_metrics.rankings.cleaning import _CLEANING_COLUMNS, _CLEANING_KINDS, cleaning_report, _telling_words, _overlapping_boxes
from invariant_metrics.rankings.concepts import concepts_of
from invariant_metrics.rankings.explain import explain_failures
from invariant_metrics.rankings.ranks import rank_vectors
from invariant_metrics.rankings.rank_task import ranking_task


def ranked(task):
    "Ranks by TF-IDF."
    words = TfidfVectorizer().fit([text for entry in task.corpora for text in entry])
    sides = [words.transform(" ".join(texts) for texts in side) for side in (task.queries, task.corpora)]
    return rank_vectors(*sides, task.truth, task.truth_start)


def report(records, **options):
    task = ranking_task(annotate(records), **options)
    return cleaning_report(task, ranked(task))


def checks(frame, *names) -> set[tuple[str, str]]: # check, id
    return {pair for pair in zip(frame["check"], frame["id"]) if not names or pair[0] in names}


PRECISE = ("no shared word", "count", "double box", "one box, two names", "same objects", "same sentences", "repeated caption")


@pytest.mark.parametrize("seed", [0, 5])
def test_every_planted_mistake_is_found_and_clean_scenes_raise_no_false_alarm(seed):
    records = [*annotation_records(scene_annotations(240, seed=seed, size=96))]
    before = report(records)
    assert not checks(before, *PRECISE)
    random, planted, also = np.random.default_rng(seed), set(), set()
    places = iter(random.permutation(240).tolist())
    def take(): # a picture that has no mistake yet
        i = next(places)
        return i, records[i], records[i]["id"]
    for _ in range(4): # captions of another world
        _, record, name = take()
        record["captions"][0] = str(random.choice(["A doctor reads the newspaper.", "Some musicians play guitars.", "A train stops at the station.", "Waiters serve soup."]))
        planted.add(("no shared word", name))
    for _ in range(4): # more than are marked
        _, record, name = take()
        noun = record["objects"][-1]["name"]
        record["captions"][2] = f"{random.choice(['Seven', 'Eight', '9'])} {random.choice(['', 'big ', 'big shiny '])}{noun}s under the sky."
        planted.add(("count", name))
    for _ in range(4): # a box marked twice, by a pixel or not at all displaced
        _, record, name = take()
        large = max(record["objects"], key=lambda o: o["box"][2] * o["box"][3])
        left, top, width, height = large["box"]
        record["objects"].append({**large, "box": [left, top, width - random.integers(2), height]})
        planted.add(("double box", name))
    for _ in range(4): # a box with a second name
        _, record, name = take()
        record["objects"].append({"name": "giraffe", "synsets": ["giraffe.n.01"], "box": record["objects"][0]["box"]})
        planted.add(("one box, two names", name))
    for _ in range(3): # a picture twice
        i, one, first = take()
        k, other, second = take()
        other |= {"captions": one["captions"], "objects": one["objects"]}
        planted |= {(check, records[min(i, k)]["id"]) for check in ("same sentences", "same objects")}
        planted |= {("superset", first), ("superset", second)}
        assert checks(report([one, other]), "same query") == {("same query", first)}
    for _ in range(3): # everything about one is also said of another
        _, one, name = take()
        _, other, told = take()
        other["captions"][1:] = [*one["captions"][1:], *other["captions"][1:]]
        planted.add(("superset", name))
        also.add(("count", told)) # what was said of one may count more than the other has
    for _ in range(3):
        _, record, name = take()
        record["captions"].append(record["captions"][1].upper())
        planted.add(("repeated caption", name))
    after = report(records)
    assert planted <= checks(after)
    assert checks(after, *PRECISE) - also == {pair for pair in planted if pair[0] in PRECISE} # and nothing else
    assert len(checks(before, "superset", "same query")) < 12 # of 240: true of their few words


def test_numbers_are_questioned_only_where_the_grammar_and_the_marks_allow_it():
    def said(text, *names) -> bool:
        held = annotate([{"id": 1, "captions": [text], "objects": [{"name": name} for name in names]}])
        return bool([*cleaning._contradicting_counts(held)])
    for text, names in {"Two dogs on a lawn.": ["dog"], "two big brown dogs": ["dog"], "A man and 3 dogs.": ["dog", "man"], "Three sheep.": ["sheep", "sheep"],
                        "Two people walk.": ["woman"], "Four animals.": ["dog", "cat"], "Three Dining Tables": ["dining table"]}.items():
        assert said(text, *names), text
    for text, names in {"Two dogs.": ["dog", "dog"], "Two dogs": ["dog"] * 3, "two dogs": ["cat"], "A two story house.": ["house"], "a ten speed bicycle": ["bicycle"],
                        "One dog.": ["dog"], "Dogs.": ["dog"], "Two dogs": [], "Two people.": ["woman", "man"], "Two animals.": ["dog", "cat"], "Two of the dogs": ["dog", "dog"],
                        "two red apples and three green apples": ["apple"] * 3}.items():
        assert not said(text, *names), text


def test_overlapping_boxes_equal_brute_force_in_parts_of_any_size(monkeypatch):
    random = np.random.default_rng(0)
    held = annotate({"id": i, "objects": [{"name": "thing", "box": None if random.random() < .1 else [*random.uniform(0, 4, 2), *random.uniform(6, 9, 2)]}
                                          for _ in range(random.integers(12))]} for i in range(60))
    def iou(a, b):
        across = [max(0, min(a[k] + a[k + 2], b[k] + b[k + 2]) - max(a[k], b[k])) for k in (0, 1)]
        return across[0]*across[1] / (a[2]*a[3] + b[2]*b[3] - across[0]*across[1])
    o = held.objects
    expected = {(i, k): iou(o.box[i].astype(float), o.box[k].astype(float)) for i in range(len(o)) for k in range(i + 1, len(o)) if o.image[i] == o.image[k]}
    for pairs in (1, 50, 2**20):
        monkeypatch.setattr(cleaning, "_PAIRS", pairs)
        found = {(i, k): share for i, k, share in zip(*_overlapping_boxes(held, .6))}
        assert found.keys() == {pair for pair, share in expected.items() if share > .6} and len(found) > 20
        assert all(abs(share - expected[pair]) < 1e-12 for pair, share in found.items())
    assert all(len(part) == 0 for part in _overlapping_boxes(annotate([{"id": 1}])))


def test_entries_with_all_words_of_another_equal_brute_force():
    random = np.random.default_rng(1)
    words = [{f"w{k}" for k in random.integers(12, size=random.integers(1, 7))} for _ in range(150)]
    posted = cleaning._Postings(words)
    for i, own in enumerate(words): assert posted.containing(i).tolist() == [k for k, other in enumerate(words) if own <= other]


def test_failures_with_the_same_concepts_are_told():
    five = [{"name": name, "synsets": [f"{name}.n.01"]} for name in ("dog", "cat", "tree", "car", "boat")]
    held = annotate([{"id": "a", "captions": ["one", "x"], "objects": five}, {"id": "b", "captions": ["two", "y"], "objects": five},
                     {"id": "c", "captions": ["three", "z"], "objects": [*five, five[0]]}])
    task = ranking_task(held)
    why = explain_failures(concepts_of(held), [0, 1, 2], [1, 2, 0], [2, 2, 3], [0, 1, 2])
    found = cleaning_report(task, explanations=why)
    assert found[["kind", "id", "other"]].values.tolist() == [["truth not identifiable", "a", "b"]]


def test_strangers_need_a_bad_rank_and_no_word_or_kind_in_common():
    pictures = [{"id": i, "captions": [f"Word{i} here.", f"A word{i}."], "objects": [{"name": "dog", "synsets": ["dog.n.01"]}]} for i in range(40)]
    for i, text in enumerate(["A bus stops.", "An animal sleeps.", "Two red ones.", "A bus and word3."]): pictures[i]["captions"][0] = text
    task = ranking_task(annotate(pictures))
    ranks = lambda rank: SimpleNamespace(rank=np.full(40, rank), size=40)
    assert checks(cleaning_report(task, ranks(30)), "no shared word") == {("no shared word", "0")} # an animal is a dog; numbers and colors fit everything
    for good in (1, 10): assert not checks(cleaning_report(task, ranks(good)), "no shared word")
    assert not checks(cleaning_report(task), "no shared word")
    alone = ranking_task(annotate({**p, "captions": p["captions"][:1], "regions": ["a thing"], "objects": []} for p in pictures))
    assert len(cleaning_report(alone, ranks(30)))
    assert "40 ranks for 39 queries" in str(pytest.raises(InputError, cleaning_report, task.take(range(39)), ranks(30)).value)


def test_pictures_as_corpus_both_directions_and_an_empty_report():
    held = scene_annotations(12)
    shown = annotate({**record, "picture": f"{record['id']}.png"} for record in annotation_records(held))
    for task in (ranking_task(shown, corpus="pictures"), ranking_task(held, reverse=True), ranking_task(held)):
        assert list(cleaning_report(task).columns) == list(_CLEANING_COLUMNS)
    hostile = "<script>alert(1)</script> ' \" \0 | {x}"
    same = annotate({"id": f"<{i}>", "captions": [f"Unlike {'dog cat'.split()[i]}.", hostile]} for i in range(2))
    found = cleaning_report(ranking_task(same))
    assert set(found["kind"]) <= set(_CLEANING_KINDS) and ("same caption", "<0>") in checks(found) and found["other"].iloc[0] == "<1>"
    empty = cleaning_report(ranking_task(annotate({"id": i, "captions": [f"Word{i}.", f"Other{i}."]} for i in range(3))))
    assert len(empty) == 0 and list(empty.columns) == list(_CLEANING_COLUMNS)


def test_words_that_count():
    assert _telling_words(["There is a photo of three people standing on the beach.", "PERSONS stand"]) == {"three", "person", "stand", "beach"}
    assert _telling_words([]) == set() == _telling_words(["", "of the", "!?"])


def test_real_photographs_of_coco():
    held = load_annotations(data_path("coco_mini/instances.json"), synsets=data_path("lvis_sample/coco_to_synset.json"))
    task = ranking_task(held)
    found = cleaning_report(task, ranked(task))
    assert found[["check", "id", "what"]].values.tolist() == [["count", "516916", "A desk with five computers in a row on it."]] # three are marked
    captions = load_annotations(data_path("coco_captions/val2017_1000.jsonl.gz"))
    task = ranking_task(captions)
    found = cleaning_report(task, ranked(task))
    assert ("no shared word", "360393") in checks(found) # of a pizza: "A thing is in the outline and it shows up like something"
    assert found["check"].value_counts().to_dict() == {"same caption": 8, "no shared word": 4, "repeated caption": 4, "same query": 1}
