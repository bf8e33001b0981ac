"METEOR twice: nltk's form equals nltk on nltk's own WordNet; METEOR 1.5 equals the Java program's own values of items and of corpora."
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from real_data import data_path, lines
from test_wordnet import nltk_reader, source

from commands import HUNG
from invariant_metrics.core import InputError, rng
from invariant_metrics.data.tokens import get_tokenizer
from invariant_metrics.metrics import meteor as module
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.scoring.inference import score_rows
from invariant_metrics.metrics.meteor import _meteor_jar, meteor_nltk, _meteor_of_sums, _meteor_rows
from invariant_metrics.metrics.meteor import _meteor_stats, _run_meteor, _score_line

TABLE = Path(__file__).parent/"meteor_java.json"
WORDS = ("a the on in of two small big large dog dogs cat cats couch sofa car cars automobile run runs running ran quickly fast boy boys child children kid man men woman "
         "women person happy glad red crimson street road walking walks walked sits sitting sat bicycle bike table near beside stands standing , .").split()


def random_pairs(seed: int, n: int) -> tuple[list[str], list[list[str]]]:
    "Captions of few words, so that forms, stems and synonyms meet; references are changed copies or new."
    g = rng(seed, "meteor")
    sentence = lambda: [str(w) for w in g.choice(WORDS, g.integers(0, 13))]
    def like(words): # some words out, some others in, the rest moved
        out = [str(g.choice(WORDS)) if g.random() < 0.25 else w for w in words if g.random() > 0.15]
        return [out[i] for i in np.argsort(np.arange(len(out)) + g.normal(0, g.choice([0, 2]), len(out)))]
    hyps = [sentence() for _ in range(n)]
    refs = [[" ".join(like(h) if g.random() < 0.7 else sentence()) for _ in range(g.integers(1, 4))] for h in hyps]
    return [" ".join(h) for h in hyps], refs


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    if source() is None: pytest.skip("no WordNet files: install wordnet-base or set INVARIANT_METRICS_WORDNET")
    return nltk_reader(source(), tmp_path_factory.mktemp("wordnet"))


def nltks(reader, hyps, refs, tokenizer="none", **form) -> np.ndarray:
    from nltk.translate.meteor_score import meteor_score
    words = get_tokenizer(tokenizer)
    return np.array([meteor_score([words(r) for r in rs], words(h), wordnet=reader, **form) for h, rs in zip(hyps, refs)])


def test_two_thousand_random_pairs_equal_nltk(reader):
    hyps, refs = random_pairs(0, 2000)
    assert np.abs(meteor_nltk(hyps, refs, "none") - nltks(reader, hyps, refs)).max() <= 1e-12
    form = dict(alpha=0.7, beta=1.5, gamma=0.3)
    assert np.abs(meteor_nltk(hyps[:200], refs[:200], "none", **form) - nltks(reader, hyps[:200], refs[:200], **form)).max() <= 1e-12


def test_captions_of_photographs_equal_nltk(reader):
    rows = [row["captions"] for row in lines("coco_captions/val2017_1000.jsonl.gz")]
    hyps, refs = [r[0] for r in rows], [r[1:] for r in rows]
    assert np.abs(meteor_nltk(hyps, refs) - nltks(reader, hyps, refs, "ptb")).max() <= 1e-12


def test_nltks_own_example():
    "The value in nltk's documentation, 0.6944, with the WordNet that comes with the package."
    hyp = "It is a guide to action which ensures that the military always obeys the commands of the party"
    refs = ["It is a guide to action that ensures that the military will forever heed Party commands",
            "It is the guiding principle which guarantees the military forces always being under the command of the Party",
            "It is the practical guide for the army always to heed the directions of the party"]
    assert round(meteor_nltk([hyp], [refs], "none").item(), 4) == 0.6944
    assert meteor_nltk(["non matching hypothesis"], [["this is a cat"]], "none").item() == 0


def test_synonyms_are_those_of_stems():
    assert meteor_nltk(["sofa", "car", "dogs", "mice"], [["couch"], ["automobile"], ["dog"], ["mouse"]], "none").tolist() == [0.5, 0, 0.5, 0] # automobil, mous


@settings(max_examples=40)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=10))
def test_a_sentence_against_itself_is_one_chunk_unless_words_repeat(words):
    value = meteor_nltk([" ".join(words)], [[" ".join(words)]], "none").item()
    assert value == pytest.approx(1 - 0.5/len(words)**3, abs=1e-12)


def test_the_metric_of_nltks_form():
    hyps, refs = random_pairs(3, 40)
    metric = get_metric("meteor-nltk", tokenizer="none")
    rows = extract([metric], hyps, refs)["meteor-nltk"]
    assert np.array_equal(rows.pred.numpy(), meteor_nltk(hyps, refs, "none"))
    score = score_rows(metric, rows)
    assert score.ci.low < score.value < score.ci.high and score.value == pytest.approx(rows.pred.mean().item())
    parts = dict(metric.signature.items)
    assert parts["wordnet"].startswith("3.0-") and parts["tokenizer"] == "none" and parts["nltk"]
    assert get_metric("meteor-nltk", gamma=0.4).phi_key != get_metric("meteor-nltk").phi_key


# METEOR 1.5: rows and formula, without Java

def made_stats(seed: int, n: int) -> np.ndarray:
    "Counts as the program could print them."
    g = rng(seed, "stats")
    stages = g.integers(0, 3, (n, 4, 4))
    matched = np.stack([stages[:, :, [0, 2]].sum((1, 2)), stages[:, :, [1, 3]].sum((1, 2))], 1)
    function = np.stack([stages[:, :, 2].sum(1), stages[:, :, 3].sum(1)], 1)
    more, chunks = g.integers(0, 3, (n, 2)), g.integers(1, 4, n)
    return np.concatenate([matched + more, function, stages.reshape(n, 16), chunks[:, None], matched], 1).astype(float)


def by_hand(s: np.ndarray) -> float:
    "The formula of Denkowski and Lavie (2014) written out for one line of counts."
    weights, delta, p, r, words = (1, 0.6, 0.8, 0.6), 0.75, 0, 0, (s[21] + s[22])/2
    for k, w in enumerate(weights):
        content_h, content_r, function_h, function_r = s[4 + 4*k:8 + 4*k]
        p += w*(delta*content_h + (1 - delta)*function_h)
        r += w*(delta*content_r + (1 - delta)*function_r)
    p, r = p/(delta*(s[0] - s[2]) + (1 - delta)*s[2]), r/(delta*(s[1] - s[3]) + (1 - delta)*s[3])
    whole = s[21] == s[0] and s[22] == s[1] and s[20] == 1
    return p*r/(0.85*p + 0.15*r)*(1 - (0 if whole else 0.6*(s[20]/words)**0.2))


def test_rows_and_formula_by_hand():
    stats = made_stats(0, 200)
    assert _meteor_of_sums(torch.from_numpy(_meteor_rows(stats))).numpy() == pytest.approx([by_hand(s) for s in stats], abs=1e-12)


def test_the_pool_is_differentiable_also_where_nothing_matches():
    rows = torch.from_numpy(np.concatenate([_meteor_rows(made_stats(1, 30)), np.zeros((2, 6)), [[0, 2, 0, 3, 0, 0], [2, 2, 2, 2, 0, 2]]])).requires_grad_()
    values = _meteor_of_sums(rows)
    values.sum().backward()
    assert torch.isfinite(rows.grad).all() and values[-4:].tolist() == [0, 0, 0, 1]
    good = rows.detach()[:30][rows[:30, 4] > 0].requires_grad_()
    assert torch.autograd.gradcheck(_meteor_of_sums, (good,))


# METEOR 1.5: the program itself

@pytest.fixture(scope="module")
def jar():
    try: return _meteor_jar()
    except InputError as error: pytest.skip(str(error))


HARD = [("", ["a dog"]), ("a dog", [""]), (".", ["."]), ("a|||b cat", ["c ||| d", "a b"]), ("line\nbreak\r\n\u2028 tab\t.", ["line break tab"]), ("Über größere 日本 語", ["über Größe 日本 語"]),
        ("SCORE ||| a ||| b", ["EVAL ||| 1.0"]), ("the large dog runs fast", ["the big dogs ran quickly"]), ("a " * 60, ["a " * 60])]


def asked() -> tuple[list[str], list[list[str]]]:
    hyps, refs = random_pairs(7, 150)
    return hyps + [h for h, _ in HARD], refs + [r for _, r in HARD]


def stored_answers() -> tuple[np.ndarray, list, list]: # counts (N, 23), groups of items, (items, corpus) as printed for each group
    table = json.loads(TABLE.read_text())
    return np.array(table["stats"], float), table["groups"], table["printed"]


def test_items_and_corpora_equal_the_programs_own_values():
    stats, groups, printed = stored_answers()
    rows = torch.from_numpy(_meteor_rows(stats))
    for group, (items, corpus) in zip(groups, printed, strict=True):
        assert _meteor_of_sums(rows[group]).numpy() == pytest.approx(items, abs=1e-12)
        assert _meteor_of_sums(rows[group].sum(0)[None]).item() == pytest.approx(corpus, abs=1e-12)


def coco_and_flickr() -> tuple: # hypotheses and references, what was stored of each, and of all of the first
    rows = lines("coco_captions/fakecap_partial.jsonl")
    stored = [row["METEOR"] for row in lines("coco_captions/fakecap_partial_pycocoevalcap.jsonl.gz")]
    stored_corpus = json.loads(data_path("coco_captions/fakecap_partial_corpus_scores.json").read_text())["METEOR"]
    judged = lines("flickr8k_expert/judgments.jsonl")
    images = {r["image_id"]: r["references"] for r in lines("flickr8k_expert/images.jsonl")}
    flickr = np.array([row["METEOR"] for row in lines("flickr8k_expert/pycocoevalcap_scores.jsonl.gz")])
    pick = rng(0, "flickr").choice(len(judged), 200, replace=False)
    hyps = [r["caption"] for r in rows] + [judged[i]["candidate"] for i in pick]
    return hyps, [r["references"] for r in rows] + [images[judged[i]["image_id"]] for i in pick], stored, flickr[pick], stored_corpus


def lines_for(hyps, refs, tokenizer, jar) -> list[str]: # what would be written to the program
    found = []
    def noted(lines, *rest):
        found.extend(lines)
        raise InputError("only noted")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InputError, match="only noted"):
        patch.setattr(module, "_run_meteor", noted)
        _meteor_stats(hyps, refs, tokenizer, jar)
    return found


@pytest.fixture(scope="module")
def one_process(jar):
    "The program takes ten seconds to begin: one process answers the lines of both tests that ask it."
    written = lines_for(*asked(), "none", jar)
    try: written += lines_for(*coco_and_flickr()[:2], "ptb", jar)
    except pytest.skip.Exception: pass # the test says so
    known = dict(zip(written, _run_meteor(written, jar, HUNG), strict=True))
    return lambda lines, *rest: [known[line] for line in lines]


def test_the_program_here_counts_what_it_counted_when_stored(jar, one_process, monkeypatch):
    monkeypatch.setattr(module, "_run_meteor", one_process)
    stats, *_ = stored_answers()
    assert np.array_equal(_meteor_stats(*asked(), "none", jar), stats)


def test_hard_texts_get_an_answer_each():
    values = _meteor_of_sums(torch.from_numpy(_meteor_rows(stored_answers()[0][-len(HARD):])))
    assert values[:2].tolist() == [0, 0] and values[2] == 1 and values[8] == 1 and 0.5 < values[4] < 1 and 0 < values[5] < 1
    assert values[7].item() == pytest.approx(0.7230769230769232, abs=1e-12)


def test_coco_captions_give_the_published_tools_numbers(jar, one_process, monkeypatch):
    monkeypatch.setattr(module, "_run_meteor", one_process)
    hyps, refs, stored, flickr, stored_corpus = coco_and_flickr()
    metric, n = get_metric("meteor-1.5"), len(stored)
    found = extract([metric], hyps, refs)["meteor-1.5"]
    weights = torch.zeros(len(found)); weights[:n] = 1
    assert metric.statistic(found, weights) == pytest.approx(stored_corpus, abs=1e-9)
    assert metric.values(found.pred)[:n].numpy() == pytest.approx(stored, abs=1e-6)
    assert metric.values(found.pred)[n:].numpy() == pytest.approx(flickr, abs=1e-6)
    assert metric.values(found.pred)[:n].mean() > stored_corpus + 0.005           # the corpus value is no mean
    score = score_rows(metric, found)
    assert score.ci.low < score.value < score.ci.high
    assert metric.replicates(found, weights[None]*2) == pytest.approx([stored_corpus], abs=1e-9)
    assert {"jar", "paraphrases", "tokenizer"} <= dict(metric.signature.items).keys()


def test_a_slow_program_is_ended(jar):
    with pytest.raises(InputError, match="took more than 0 s for 1 items and was ended; give timeout=SECONDS"): _meteor_stats(["a"], [["a"]], jar=jar, timeout=0.2)


def fake_java(folder, monkeypatch, body: str):
    (folder/"bin").mkdir()
    (folder/"bin"/"java").write_text(f"#!/bin/sh\n{body}\n")
    (folder/"bin"/"java").chmod(0o755)
    (folder/"data").mkdir()
    for name in ("meteor-1.5.jar", "data/paraphrase-en.gz"): (folder/name).write_bytes(b"x")
    monkeypatch.setenv("PATH", f"{folder/'bin'}:/usr/bin:/bin")


@pytest.mark.parametrize("body, message", [
    ("cat > /dev/null; echo Exception in thread main: no memory >&2; exit 1", "answered 0 of 2 items and ended with status 1; it said: Exception in thread main: no memory"),
    ("exit 0", "answered 0 of 2 items"), ("cat > /dev/null; echo 1 2 3; echo 1 2 3", "does not answer as METEOR 1.5 does"), ("cat", "does not answer as METEOR 1.5 does")])
def test_a_broken_program_is_one_line(tmp_path, monkeypatch, body, message):
    fake_java(tmp_path, monkeypatch, body)
    with pytest.raises(InputError) as error: _meteor_stats(["a", "b"], [["a"], ["b"]], "none", tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_much_text_does_not_lock_up(tmp_path, monkeypatch):
    "A program that answers while it is still being written to: more than any pipe holds, both ways."
    fake_java(tmp_path, monkeypatch, "exec cat")
    lines = [_score_line("word " * 200, ["other " * 200])] * 2000
    assert _run_meteor(lines, tmp_path/"meteor-1.5.jar", 60) == lines


def test_where_the_program_is_looked_for(tmp_path, monkeypatch):
    fake_java(tmp_path, monkeypatch, "exit 0")
    assert _meteor_jar(tmp_path) == _meteor_jar(tmp_path/"meteor-1.5.jar") == (tmp_path/"meteor-1.5.jar").resolve()
    monkeypatch.setenv("INVARIANT_METRICS_METEOR", str(tmp_path))
    assert _meteor_jar() == (tmp_path/"meteor-1.5.jar").resolve()
    (tmp_path/"data"/"paraphrase-en.gz").unlink()
    with pytest.raises(InputError, match="there is no .*paraphrase-en.gz"): _meteor_jar()


def test_without_java_or_jar_both_ways_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("INVARIANT_METRICS_METEOR", raising=False)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    for path in (str(tmp_path), shutil.which("sh").rsplit("/", 1)[0]):
        monkeypatch.setenv("PATH", path)
        for call in (_meteor_jar, lambda: get_metric("meteor-1.5")):
            with pytest.raises(InputError) as error: call()
            assert all(part in str(error.value) for part in ("pip install pycocoevalcap", "apt-get install default-jre-headless", "jar=FOLDER")) and "\n" not in str(error.value)


@pytest.mark.parametrize("call", [lambda: meteor_nltk(["a"], []), lambda: meteor_nltk("a", ["a"]), lambda: meteor_nltk(["a"], [[]]), lambda: meteor_nltk(["a"], [["a"]], "nothing"),
                                  lambda: meteor_nltk(["a"], [["a"]], wordnet="nowhere"), lambda: get_metric("meteor-nltk", tokenizer="nothing")])
def test_mistakes_are_one_line(call):
    with pytest.raises(InputError) as error: call()
    assert "\n" not in str(error.value)


def write_table() -> None:
    "Ask the program and store its answers; run by hand where Java and the jar are."
    stats = _meteor_stats(*asked(), "none")
    groups = [[*range(len(stats))], [*range(0, len(stats), 3)], [0], [*range(len(stats) - 9, len(stats))]]
    lines = ["EVAL ||| " + " ||| ".join(" ".join(map(str, stats[i])) for i in group) for group in groups]
    command = ["java", "-Xmx2G", "-jar", str(_meteor_jar()), "-", "-", "-stdio", "-l", "en", "-norm"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True, timeout=HUNG, check=True)
    values, printed = [float(x) for x in done.stdout.split()], []
    for group in groups: printed.append([values[:len(group)], values[len(group)]]); values = values[len(group) + 1:]
    TABLE.write_text(json.dumps({"stats": stats.astype(int).tolist(), "groups": groups, "printed": printed}, separators=(",", ":")) + "\n")


if __name__ == "__main__": write_table()
