"What was done to the data stands beside the score: one note for each kind, with its code, in Python, in JSON and under --strict."
import json

import numpy as np
import pytest
import torch

import invariant_metrics as im
from invariant_metrics.commands.shell import main
from invariant_metrics.core import Note, Score, Signature
from invariant_metrics.metrics.metric import Rows, get_metric
from invariant_metrics.scoring.inference import score_rows

PICTURES = torch.rand(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
FADED = 0.9*PICTURES + 0.02


def codes(pred, target, metric: str, **options) -> dict[str, str]:
    "The notes of a score by their codes."
    return {note.code: str(note) for note in im.score(pred, target, [metric], **{"ci": False, **options})[metric].notes}


@pytest.mark.parametrize("metric, pred, refs, code, says", [
    ("bleu", ["猫がマットの上に座っている", "the cat"], ["猫はマットの上だ", "a cat"], "no-blanks", "1 of 2 items are written without blanks"),
    ("bleu-4", ["แมวนั่งบนเสื่อ"], ["แมวอยู่บนเสื่อ"], "no-blanks", "tokenizer ptb splits at blanks"),
    ("ter", ["我喜欢这只猫"], ["我爱这只猫"], "no-blanks", "words are runs between blanks"),
    ("rouge-1-f", ["बिल्ली चटाई पर बैठी", "a cat"], ["बिल्ली चटाई पर है", "a cat"], "no-words", "1 of 2 texts have no word of a-z or 0-9 and count as 0; "
                                                                                        "--option tokenizer=intl"),
    ("rouge-l-f", ["แมวนั่งบนเสื่อ"], ["แมวอยู่บนเสื่อ"], "no-words", "tokenizer=char"),
    ("rouge-1-f", ["в 2020 году"], ["в 2020 году был"], "few-words", "more letters beyond a-z than in it"),
    ("bleu", ["a cat", "a dog"], ["a cat sat", ""], "empty-references", "1 of 2 references are empty"),
    ("chrf", ["a cat", ""], ["a cat sat", "a dog"], "empty-predictions", "1 of 2 predictions are empty"),
    ("bleu", ["a cat , a dog .", "it is so ."], ["A cat, a dog.", "It is so."], "tokenized-input", "2 of 2 predictions look tokenized"),
    ("chrf", ["A cat, a dog.", "It isn't."], ["a cat , a dog .", "it is n't ."], "tokenized-input", "2 of 2 references look tokenized"),
    ("bleu", ["a cat", "a dog", "a cat"], ["the cat", "the dog", "the cat"], "repeated-items", "1 of 3 items repeat another one, on all sides,")])
def test_texts(metric, pred, refs, code, says):
    found = codes(pred, refs, metric)
    assert says in found[code]
    together = im.TorchMetric(metric)
    for i in range(len(pred)): together.update(pred[i:i + 1], refs[i:i + 1])
    assert says in {note.code: note for note in together.score().notes}[code]  # counted over all batches


@pytest.mark.parametrize("metric, pred, refs", [
    ("bleu", ["The cat sat.", "고양이가 매트 위에 앉아 있다", "une question : laquelle ?"], ["A cat sat.", "고양이가 있다", "une question : quoi ?"]),
    ("bleu-4", ["a cat , a dog .", "it is so ."], ["a cat , a cow .", "it was so ."]),             # dropped by the tokenizer of captions
    ("bleu", ["a cat .", "a dog.", "a cow."], ["a cat", "a dog", "a cow"]),                      # one of three
    ("rouge-1-f", ["größe über alles"], ["große höhe"])])
def test_texts_of_which_there_is_nothing_to_say(metric, pred, refs):
    assert not codes(pred, refs, metric)


def test_a_tokenizer_that_fits_needs_no_note():
    assert "no-blanks" not in codes(["我喜欢这只猫"], ["我爱这只猫"], "bleu", metric_options={"tokenizer": "zh"})
    assert not codes(["बिल्ली चटाई पर"], ["बिल्ली चटाई पर है"], "rouge-1-f", metric_options={"tokenizer": "intl"})


def test_items_that_repeat():
    twice = [0, 1, 2, 0, 1]
    assert codes(FADED[twice], PICTURES[twice], "psnr")["repeated-items"].startswith("2 of 5 items repeat another one, on all sides,")
    assert "repeated-items" not in codes(FADED[[0, 1, 0]], PICTURES[:3], "psnr")  # the same prediction for another target
    of_sets = codes(FADED[twice], PICTURES, "fd", encoder="mean-color")
    assert of_sets["repeated-items"].startswith("2 of 5 items of pred repeat another one and")
    rows = np.random.default_rng(0).normal(size=(20, 4))
    assert codes(rows[[*range(20), 3]], rows + 1, "fd")["repeated-items"].startswith("1 of 21 items of pred")


@pytest.mark.parametrize("ci", [False, True, "bootstrap"])
def test_reduced_subsets_of_kid_whatever_the_interval(ci):
    metric = get_metric("kid", untrained=True)
    p, t = torch.randn(2, 30, 2048, generator=torch.Generator().manual_seed(0))
    found = {n.code for n in score_rows(metric, Rows(p, t, matched=False), method={False: None, True: "auto"}.get(ci, ci), reps=20).notes}
    assert "reduced-subsets" in found
    assert not any(n.code == "reduced-subsets" for n in score_rows(get_metric("kid", untrained=True, size=20), Rows(p, t, matched=False), method=None).notes)


def test_statistics_that_do_not_say_their_number(tmp_path, capsys):
    r = np.random.default_rng(0)
    for name in "ab": np.savez(tmp_path/name, mu=r.normal(size=8), sigma=np.eye(8))
    paths = str(tmp_path/"a.npz"), str(tmp_path/"b.npz")
    found = im.score(*paths, "fd")["fd"]
    assert found.n is None and "n=unknown" in str(found) and "n=unknown" in found._repr_html_() and found.to_dict()["n"] is None
    for form, shown in (("json", '"n": null'), ("csv", ",,")):
        assert main(["score", "fd", "--pred", paths[0], "--target", paths[1], "--format", form]) == 0
        assert shown in capsys.readouterr().out


def stream(items): yield from items


def test_the_order_of_streams():
    loader = torch.utils.data.DataLoader(PICTURES, batch_size=5)
    shuffled = torch.utils.data.DataLoader(PICTURES, batch_sampler=[[3, 1], [0, 2]])
    assert "pred came as a stream" in codes(stream(FADED), PICTURES, "psnr")["order-of-streams"]
    assert "pred and target came as a stream" in codes(stream(["a", "b"]), stream(["a", "c"]), "bleu")["order-of-streams"]
    assert "target came" in codes(FADED[:4], shuffled, "psnr")["order-of-streams"]
    for known in (loader, PICTURES, [*PICTURES], loader.dataset): assert "order-of-streams" not in codes(FADED, known, "psnr")
    assert "order-of-streams" not in codes(stream(FADED[:9]), PICTURES, "fd", encoder="mean-color")  # sets have no order


def test_json_has_a_code_beside_each_note_and_strict_prints_the_notes_alone(tmp_path, capsys):
    for name, text in (("pred", "a cat\na dog\n"), ("good", "the cat\nthe dog\n"), ("empty", "the cat\n\n")): (tmp_path/name).with_suffix(".txt").write_text(text)
    call = ["score", "chrf", "--ci", "none", "--pred", str(tmp_path/"pred.txt"), "--target"]
    assert main([*call, str(tmp_path/"empty.txt"), "--json"]) == 0
    score = json.loads(capsys.readouterr().out)["result"]["scores"]["pred"]["chrf"]
    assert dict(zip(score["note_codes"], score["notes"], strict=True))["empty-references"] == "1 of 2 references are empty"
    assert main([*call, str(tmp_path/"empty.txt"), "--strict"]) == 2
    out, err = capsys.readouterr()
    assert not out and "note: chrf: 1 of 2 references are empty\n" in err and "error: one note, and --strict takes none" in err
    assert main([*call, str(tmp_path/"good.txt"), "--strict"]) == 0  # that no interval was asked for is nothing to stop at
    assert "chrf" in capsys.readouterr().out


def test_plain_sentences_go_on_working():
    found = Score(1.0, None, 3, True, Signature.of(metric="psnr"), notes=("no interval: too few", "a plain sentence", Note("said", "with-code")))
    assert found.notes == ("no interval: too few", "a plain sentence", "said") and "; ".join(found.notes)
    assert [note.code for note in found.notes] == ["no-interval", "other", "with-code"]
