"Sentence pairs as published translators learn from them: the limits by hand, parts that are measured stay whole, notes."
import pytest

from invariant_metrics.core import InputError
from invariant_metrics.data.parallel import ParallelTexts, load_parallel
from invariant_metrics.data.prepared_texts import TextPreparation, prepare_pairs
from handmade import fails
from real_data import data_path


def pairs(*rows): # words of the source, words of the target, part
    source, target, split = zip(*rows)
    return ParallelTexts([str(i) for i in range(len(rows))], [("b "*n, "another") for n in target], list(split), "made", ("a note",), ["a "*n for n in source])


@pytest.mark.parametrize("source, target, kept", [(1, 1, True), (2, 3, True), (3, 2, True), (2, 4, False), (4, 2, False), (175, 175, True), (176, 175, False),
                                                  (175, 176, False), (0, 1, False), (100, 150, True), (100, 151, False)])
def test_limits_of_both_sides(source, target, kept):
    found = prepare_pairs(pairs((source, target, "train"), (1, 1, "train")))
    assert found.names == (["0", "1"] if kept else ["1"]) and found.notes[0] == "a note" and len(found.notes) == (2 if kept else 3)


def test_parts_that_are_measured_stay_whole_and_what_goes_is_counted():
    made = pairs((9, 1, "validation"), (200, 1, "test"), (9, 1, ""), (200, 200, "train"), (5, 5, "train"))
    found = prepare_pairs(made)
    assert found.names == ["0", "1", "4"] and found.split == ["validation", "test", "train"] and len(found.references[0]) == 2
    assert "2 of 3 pairs to learn from are left out: 1 with more than 175 words, 1 with more than 1.5 words" in found.notes[-1]
    assert [note.code for note in found.notes[1:]] == ["preparation", "left-out"]
    assert prepare_pairs(made, TextPreparation(longest=300, ratio=300)).names == made.names


def test_lower_case_is_of_all_parts_and_all_references():
    made = ParallelTexts(["1", "2"], [("Yes, street", "YES")]*2, ["train", "test"], "made", (), ["JA, Straße"]*2)
    found = prepare_pairs(made, TextPreparation(lower=True))
    assert found.source == ["ja, straße"]*2 and found.references == [("yes, street", "yes")]*2 and "lower case" in found.notes[-1]


def test_what_cannot_be_is_one_line():
    assert "none of 2 pairs to learn from has at most 175 words a side and 1.5" in fails(prepare_pairs, pairs((9, 1, "train"), (9, 1, "train")))
    assert len(prepare_pairs(pairs((9, 1, "test")))) == 1 # nothing to learn from was asked for
    for wrong in ({"longest": 0}, {"ratio": .9}, {"ratio": float("nan")}):
        with pytest.raises(InputError, match="longest >= 1 and ratio >= 1"): TextPreparation(**wrong)


def test_real_captions_are_mostly_even():
    data = load_parallel(data_path("multi30k/train_2000.jsonl.gz"))
    found = prepare_pairs(data)
    assert 1800 < len(found) < 2000 and found.names == [n for n in data.names if n in set(found.names)]
