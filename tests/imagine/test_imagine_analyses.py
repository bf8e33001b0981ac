"Which words matter, which entities are visible, panels: with a generator of angles and a judge that reads them, every number by hand."
import math
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student, ttest_1samp
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, recall_score

from invariant_metrics.core import InputError, rng
from invariant_metrics.encoders.image_text import TextTokens
from invariant_metrics.generators.generator import derived_seeds, get_generator
from invariant_metrics.imagine.imagine_tables import table_of_scores
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.imagined import ImagineModel, imagine_vectors
from invariant_metrics.worlds.scene_captions import read_claims
from invariant_metrics.worlds.scene_text import captions
from invariant_metrics.worlds.scenes import make_scenes

from open_cells import open_cells

RESULTS = Path(__file__).parents[2]/"nbs"/"results"
analyses = open_cells("papers/60_imagine_analyses")
NamedThing = analyses.NamedThing
clip_beaten = analyses.clip_beaten
clustered_share = analyses.clustered_share
entity_answers = analyses.entity_answers
entity_recall = analyses.entity_recall
judge_reliability = analyses.judge_reliability
other_phrases = analyses.other_phrases
read_marked_entities = analyses.read_marked_entities
scene_foils = analyses.scene_foils
scene_questions = analyses.scene_questions
scene_things = analyses.scene_things
text_questions = analyses.text_questions
backend_table = analyses.backend_table
cosines_and_scores = analyses.cosines_and_scores
count_scores = analyses.count_scores
draw_backends = analyses.draw_backends
draw_frequent_words = analyses.draw_frequent_words
draw_histograms = analyses.draw_histograms
format_backends = analyses.format_backends
frequent_words = analyses.frequent_words
published_backends = analyses.published_backends
draw_word_importance = analyses.draw_word_importance
mask_texts = analyses.mask_texts
mask_word = analyses.mask_word
picture_similarity = analyses.picture_similarity
tag_texts = analyses.tag_texts
tagged_words = analyses.tagged_words
word_importance = analyses.word_importance
DEGREES = {"red": 30, "ball": 60, "boat": 45, "car": 20, "green": 10}


class Angles:
    "Draws the sum of its words' degrees as a gray level, 10 more for each further seed."
    name, size, tokens, language = "angles", (4, 4), None, ""
    def __init__(self, turn=10): self.turn = {seed: turn*k for side in ("pred", "target") for k, seed in enumerate(derived_seeds(0, 8, side))} | {"turn": turn}
    def describe(self): return {"generator": self.name, "turn": str(self.turn["turn"])}
    def level(self, text): return sum(DEGREES.get(word, 0) for word in re.findall(r"[a-z]+", text.lower())) + sum(map(int, re.findall(r"\d+", text)))
    def __call__(self, texts, seeds):
        return torch.stack([torch.full((3, 4, 4), self.level(t) + self.turn.get(s, 0), dtype=torch.uint8) for t, s in zip(texts, seeds)])


class Reader:
    "Turns a gray level, or the number in a phrase, into a direction in the plane."
    tokens = TextTokens(lambda texts: [[0, *([2]*len(t.split())), 1] for t in texts], 99, "words")
    def describe(self): return {"encoder": "reader"}
    def images(self, pictures): return direction([round(float(pictures[i].mean()*255)) for i in range(len(pictures))])
    def texts(self, texts, prefix="", long="refuse"): return direction([Angles().level(t) for t in texts]), 0


def direction(degrees): return torch.stack([torch.tensor([math.cos(math.radians(x)), math.sin(math.radians(x))], dtype=torch.float64) for x in degrees])
def cos(degrees): return math.cos(math.radians(degrees))


@pytest.fixture
def model(tmp_path): return ImagineModel(Angles(), Reader(), seeds=3, folder=tmp_path)


# ---- words


def test_the_drop_of_a_word_is_the_one_computed_by_hand(model):
    found = word_importance(model, ["The red ball."], each=None)
    rows = found.rows.set_index("word")
    base = (2*cos(10) + cos(20))/3
    without = lambda d: (2*cos(d + 10) + 2*cos(d - 10) + cos(d + 20) + cos(d - 20))/6 # all pairs of different seeds
    for word, degrees in {"The": 0, "red": 30, "ball": 60, ".": 0}.items():
        assert rows.loc[word, "base"] == pytest.approx(base, abs=1e-6) and rows.loc[word, "masked"] == pytest.approx(without(degrees), abs=1e-6)
        assert rows.loc[word, "drop"] == pytest.approx(1 - without(degrees)/base, abs=1e-6)
    assert rows.loc["The", "drop"] == pytest.approx(0, abs=1e-12) and rows.loc["red", "text"] == "The ball." and rows.loc["ball", "tag"] == "NOUN"


def test_equal_seeds_are_no_pairs():
    a = direction([0, 10, 25])
    assert picture_similarity(a, a).item() == pytest.approx((cos(10) + cos(15) + cos(25))/3)
    far = direction([90, 100, 115])
    assert picture_similarity(a, far).item() == pytest.approx((cos(100) + cos(115) + cos(80) + cos(105) + cos(65) + cos(75))/6)


def test_the_table_is_students_interval_over_texts(model):
    texts = ["a red ball", "a green boat", "the car", "a red car and a red boat"]
    found = word_importance(model, texts)
    table = found.table().set_index("tag")
    by_text = found.rows[found.rows.tag == "NOUN"].sort_values("item")["drop"].to_numpy()
    ends = ttest_1samp(by_text, 0).confidence_interval() # one baseline for all texts, so the ratio of means is the mean of ratios
    assert (table.loc["NOUN", "drop"], table.loc["NOUN", "low"], table.loc["NOUN", "high"]) == pytest.approx((by_text.mean(), ends.low, ends.high), abs=1e-6)
    assert table.loc["NOUN", "n"] == 4 and table.loc["ADJ", "n"] == 3 and "CCONJ" not in table.index
    tags = Counter(tag for text in texts for *_, tag in tagged_words(text))
    assert table["share"].to_dict() == pytest.approx({tag: tags[tag]/tags.total() for tag in table.index})
    assert (found.table()["drop"].diff().dropna() <= 0).all() and len(draw_word_importance(found, top=2).axes[1].patches) == 2
    every = word_importance(model, texts, each=None)
    assert (every.rows.groupby(["item", "tag"]).size() >= found.rows.groupby(["item", "tag"]).size()).all() and len(every.rows) == len(every.words)
    assert repr(found) and "drop" in found._repr_html_() and dict(found.signature.items)["mask"] == "deleted"


def test_ratio_of_means_when_baselines_differ(model):
    found = word_importance(model, ["red ball", "red boat"])
    rows = pd.DataFrame({"tag": ["ADJ"]*3, "item": [0, 1, 2], "base": [1., .5, .3], "masked": [.5, .4, .3]})
    table = type(found)(rows, pd.DataFrame({"tag": ["ADJ", "NOUN"]}), found.signature).table()
    b, m = rows.base.to_numpy(), rows.masked.to_numpy()
    leave_out = [1 - np.delete(m, k).mean()/np.delete(b, k).mean() for k in range(3)]
    assert table["drop"][0] == pytest.approx(1 - 1.2/1.8) and table["low"][0] < min(leave_out) and table["high"][0] > max(leave_out)


def test_masks_and_draws():
    text = "A red ball, a boat."
    words = tag_texts([text])
    assert (words.word.tolist(), words.place.tolist()) == (["A", "red", "ball", ",", "a", "boat", "."], [*range(7)])
    masked = mask_texts([text], words, each=None)
    assert masked.set_index("place")["text"].to_dict() == {0: "red ball, a boat.", 1: "A ball, a boat.", 2: "A red, a boat.", 3: "A red ball a boat.",
                                                           4: "A red ball, boat.", 5: "A red ball, a.", 6: "A red ball, a boat"}
    assert mask_texts([text], words, ["NOUN"], "[MASK]", None)["text"].tolist() == ["A red [MASK], a boat.", "A red ball, a [MASK]."]
    drawn = [tuple(mask_texts([text], words, ["NOUN"], seed=s)["word"]) for s in range(20)]
    assert set(drawn) == {("ball",), ("boat",)} and mask_texts([text], words, seed=3).equals(mask_texts([text], words, seed=3))
    assert mask_word("  ball", 2, 6) == "" and mask_word("don't go", 3, 4) == "dont go"


def test_taggers_by_name(monkeypatch, model):
    own = lambda text: [(w, text.index(w), text.index(w) + len(w), "X") for w in text.split()]
    assert set(word_importance(model, ["red ball"], tagger=own).rows.tag) == {"X"}
    monkeypatch.setitem(sys.modules, "stanza", None)
    with pytest.raises(InputError, match="pip install stanza"): tagged_words("a ball", "stanza")
    token = lambda start, end, tag: SimpleNamespace(start_char=start, end_char=end, words=[SimpleNamespace(upos=tag)])
    made = lambda text: SimpleNamespace(sentences=[SimpleNamespace(tokens=[token(0, 1, "DET"), token(2, 6, "NOUN")])])
    def pipeline(language, processors, **how):
        if language != "xx": raise FileNotFoundError(language)
        return made
    monkeypatch.setitem(sys.modules, "stanza", SimpleNamespace(Pipeline=pipeline))
    assert tagged_words("a ball", "stanza:xx") == [("a", 0, 1, "DET"), ("ball", 2, 6, "NOUN")]
    with pytest.raises(InputError, match="stanza has no model of 'yy' here"): tagged_words("a ball", "stanza:yy")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match="pip install spacy"): tagged_words("a ball", "spacy:none")
    with pytest.raises(InputError, match="unknown tagger"): tagged_words("a ball", "nltk")


def test_what_words_cannot_be_asked(model, tmp_path):
    for wrong, says in ((lambda: word_importance(ImagineModel(Angles(), Reader(), seeds=1, folder=tmp_path), ["a ball"]), "seeds=2 or more"),
                        (lambda: word_importance(model, "a ball"), "a list of texts"), (lambda: word_importance(model, ["ball"]), "no text has a word"),
                        (lambda: word_importance(model, ["a ball", ""]), "say nothing that can be drawn"),
                        (lambda: word_importance(ImagineModel(Angles(100), Reader(), seeds=2, folder=tmp_path), ["a red ball"]), "not alike at all")):
        with pytest.raises(InputError, match=says): wrong()
    assert word_importance(model, ["a red ball", "ball"]).notes == ("1 of 2 texts have one word only, and nothing is left without it",)
    assert word_importance(model, ["a red ball", "the boat"], ["ADJ"]).notes == ("1 of 2 texts have no word of these tags",)


def test_a_generator_that_does_not_read_drops_nothing(tmp_path):
    blind = ImagineModel(get_generator("one-picture", size=8), Reader(), seeds=2, folder=tmp_path)
    assert word_importance(blind, ["a red ball", "the boat"]).rows["drop"].abs().max() < 1e-9


# ---- entities


def test_foils_are_never_named_and_always_possible():
    scenes = make_scenes(60, 16, seed=4)
    texts = [text for i in range(60) for text in captions(scenes, i)]
    for text in texts:
        named, said = scene_things(text), read_claims(text)
        for thing in named:
            for foil in scene_foils(thing, named):
                assert foil.noun not in said.objects or (foil.noun == thing.noun and (foil.noun, foil.color) not in said.attributes)
                assert bool(foil.color) == bool(thing.color) and (foil.noun == thing.noun) != (foil.color == thing.color)
    asked = scene_questions(texts[:40], absent=True)
    for row in asked.itertuples():
        there = {t.phrase for t in scene_things(row.text)}
        assert row.named == (row.phrase in there) and row.phrase not in row.foils and row.foils
    assert set(scene_questions(texts[:40]).phrase) <= set(asked.phrase[asked.named])


def test_things_of_captions_and_of_marked_sentences():
    assert [t.phrase for t in scene_things("Three oranges, an orange tree and a boat.")] == ["an orange", "an orange tree", "a boat"]
    text, things = read_marked_entities("[/EN#1/people/other Two young men] play [/EN#0/notvisual it] with [/EN#7/other a ball] .")
    assert text == "Two young men play it with a ball ." and things == [NamedThing("two young men", "man"), NamedThing("a ball", "ball")]
    pool = [NamedThing(f"a {noun}", noun) for noun in ("dog", "cat", "ball", "man", "cat")]
    chosen = other_phrases(things[1], text, pool, many=9)
    assert {t.noun for t in chosen} == {"dog", "cat"} and len(other_phrases(things[1], text, pool, many=1)) == 1
    questions = text_questions(["Men play.", "A dog runs.", "One cat."], [[things[0]], [pool[0]], [pool[1]]])
    assert questions.foils.tolist() == [("a dog", "a cat"), ("two young men", "a cat"), ("two young men", "a dog")]
    with pytest.raises(InputError, match="1 lists of things for 2 texts"): text_questions(["a", "b"], [[]])


def asked(*rows): return pd.DataFrame(rows, columns=["item", "text", "phrase", "noun", "color", "named", "foils"])


def test_clip_says_what_the_angles_say(tmp_path):
    model = ImagineModel(Angles(14), Reader(), seeds=2, folder=tmp_path) # pictures at 12 and 26 degrees
    questions = asked((0, "at 12", "p10", "p", "", True, ("p20", "p30")), (0, "at 12", "p20", "p", "", True, ("p10", "p30")), (1, "at 40", "p30", "p", "", False, ("p70",)))
    assert clip_beaten(model, questions, "{}").tolist() == [[1, 0], [.5, .5], [1, 0]]
    answers = entity_answers(model, questions, frame="see {}", least=.5)
    assert answers["clip"].tolist() == [True, False, True, True, True, False] and answers["draw"].tolist() == [0, 1]*3
    row, = entity_recall({"angles": answers}).itertuples()
    assert (row.recall, row.visible, row.asked, row.captions) == (.75, 3, 4, 1)
    with pytest.raises(InputError, match="painted world, not p"): entity_answers(model, questions, ["found"])


def test_recall_is_micro_and_its_interval_minds_captions():
    hits, cluster = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 1]), np.array([0]*3 + [1]*4 + [2]*3)
    value, low, high = clustered_share(hits, cluster)
    moved = (np.array([3, 1, 1]) - .5*np.array([3, 4, 3]))/(10/3)
    variance = moved.var(ddof=1)/3
    z, n = student.ppf(.975, 2), .25/variance
    half = z/(1 + z**2/n)*np.sqrt(.25/n + z**2/(4*n**2))                                # Wilson's, around a half
    assert (value, low, high) == pytest.approx((.5, .5 - half, .5 + half))              # by caption the share would be (1 + 1/4 + 1/3)/3
    alone = clustered_share(hits, np.arange(10))
    assert high - low > alone[2] - alone[1] and clustered_share(hits, np.zeros(10)) == (.5, 0, 1)
    assert clustered_share(np.ones(5), np.arange(5)) == pytest.approx((1, 1/(1 + student.ppf(.975, 4)**2/5), 1))
    with pytest.raises(InputError, match="a share of nothing"): clustered_share(np.array([]), np.array([]))


def test_the_interval_of_recall_covers():
    draw, inside = rng(0, "coverage"), 0
    for _ in range(600): # 40 captions of 3 entities that are alike
        luck = draw.beta(4, 1.5, 40)
        hits = (draw.random((40, 3)) < luck[:, None]).reshape(-1)
        _, low, high = clustered_share(hits, np.repeat(np.arange(40), 3))
        inside += low <= 4/5.5 <= high
    assert .93 < inside/600 <= .98


def test_reliability_is_what_scikit_learn_says():
    draw = rng(1, "answers")
    true = draw.random(200) < .4
    said = np.where(draw.random(200) < .8, true, ~true)
    answers = pd.DataFrame({"item": np.arange(200)//4, "clip": said, "found": true})
    table = judge_reliability(answers, truth="found", reps=300).set_index("measure")
    expected = {"sensitivity": recall_score(true, said), "specificity": recall_score(~true, ~said),
                "balanced accuracy": balanced_accuracy_score(true, said), "kappa": cohen_kappa_score(true, said)}
    assert table["value"].to_dict() == pytest.approx(expected) and ((table.low < table.value) & (table.value < table.high)).all()
    with pytest.raises(InputError, match="yes to all questions"): judge_reliability(answers.assign(found=True), truth="found")
    with pytest.raises(InputError, match="drawn was not asked"): judge_reliability(answers)


def test_exact_judges_look_at_nouns_and_colors(tmp_path):
    model = ImagineModel(get_generator("exact"), Reader(), seeds=2, folder=tmp_path)
    texts = ["A red ball is to the left of a gray boat.", "There are two green pines and a blue mug."]
    answers = entity_answers(model, scene_questions(texts, absent=True), ["found", "drawn"])
    assert answers["drawn"].tolist() == answers["named"].tolist() and "clip" not in answers
    assert (answers.found == answers.drawn).mean() > .7
    uncolored = asked((0, texts[0], "a ball", "ball", "", True, ("a car",)), (0, texts[0], "a blue ball", "ball", "blue", True, ("a car",)))
    assert entity_answers(model, uncolored, ["drawn"])["drawn"].tolist() == [True, True, False, False]
    with pytest.raises(InputError, match="only the generator exact"): entity_answers(ImagineModel(Angles(), Reader(), folder=tmp_path), uncolored, ["drawn"])


# ---- panels


def test_histograms_count_everything():
    values = {"a": rng(0, "h").normal(.5, .4, (50, 4)), "b": np.array([0, 1, 1, .5])}
    counts = count_scores(values, 20)
    for name, x in values.items():
        part = counts[counts.score == name]
        assert part["count"].tolist()[1:-1] == np.histogram(x, 20, (0, 1))[0].tolist() and part["count"].sum() == x.size
        assert part["count"].iloc[0] == (x < 0).sum() and part["count"].iloc[-1] == (x > 1).sum()
    figure = draw_histograms({"before": counts, "after": counts})
    assert len(figure.axes) == 2 and "outside" in figure.axes[0].get_legend().get_texts()[0].get_text()


def test_cosines_come_back(model):
    vectors = imagine_vectors(model, ["red ball", "boat"], [["red boat"], ["boat"]])
    both = cosines_and_scores(vectors)
    np.testing.assert_allclose(both["before"]["imagine-image"], (vectors.pred*vectors.target).sum(-1), atol=1e-9)
    np.testing.assert_allclose(both["after"]["imagine-text-image"], vectors.text_image_scores(), atol=1e-12)
    assert np.abs(both["before"]["imagine-text-image"]).max() <= 1 + 1e-9


def test_frequent_words_are_counted():
    texts = ["A red ball and a red boat.", "The ball is near Gaza.", "Gaza has a green boat, a ball."]
    words = tag_texts(texts)
    found = frequent_words(words, ("NOUN", "ADJ", "PROPN"), top=2)
    nouns = Counter(w.word.lower() for text in texts for w in tagged_words(text) if w.tag == "NOUN")
    assert found[found.tag == "NOUN"].set_index("word")["count"].to_dict() == dict(nouns.most_common(2)) == {"ball": 3, "boat": 2}
    assert found[found.tag == "ADJ"]["share"].tolist() == pytest.approx([2/3, 1/3]) and found["rank"].tolist()[:2] == [1, 2]
    drops = pd.DataFrame({"tag": ["NOUN", "NOUN"], "word": ["ball", "Ball"], "drop": [.1, .2]})
    moved = frequent_words(words, ("NOUN",), drops=drops)
    assert moved.loc[0, "drop"] == pytest.approx(.15) and moved["masked"].tolist() == [2, 0, 0]
    assert [ax.get_title() for ax in draw_frequent_words(found).axes] == list(dict.fromkeys(found.tag))


def test_back_ends_are_rows_of_the_papers_table(tmp_path):
    draw = rng(3, "pairs")
    vocabulary = [*DEGREES]
    target = [" ".join(draw.choice(vocabulary, 3)) for _ in range(30)]
    pred = [t if k % 3 else " ".join(draw.choice(vocabulary, 3)) for k, t in enumerate(target)]
    human = np.array([float(k % 3 > 0) for k in range(30)]) + .3*draw.standard_normal(30)
    models = {name: ImagineModel(Angles(turn), Reader(), seeds=2, folder=tmp_path) for name, turn in (("near", 1), ("far", 30))}
    models["constant"] = ImagineModel(get_generator("one-picture", size=8), Reader(), seeds=2, folder=tmp_path)
    questions = asked((0, "at 12", "p10", "p", "", True, ("p50",)), (1, "at 70", "p10", "p", "", True, ("p50",)))
    found = backend_table(models, pred, target, human, "rouge-l", questions=questions, timed=2, reps=100)
    built = get_metric("rouge-l")
    values = built.values(extract([built], pred, [[t] for t in target])["rouge-l"].pred).numpy()
    cells = found.set_index(["generator", "metric"])
    for name in ("near", "far"):
        scores = imagine_vectors(models[name], pred, [[t] for t in target]).image_scores().numpy()
        by_hand = table_of_scores(human, {"rouge-l": values}, {"image": scores}, reps=100).frame.set_index(["metric", "added"])
        for key in ("mean", "deviation", "gain", "gain_low", "gain_high"):
            assert cells.loc[(name, "rouge-l"), key] == pytest.approx(by_hand.loc[("rouge-l", "image"), key])
        assert cells.loc[(name, "rouge-l"), "original"] == pytest.approx(np.corrcoef(human, values)[0, 1])
        assert cells.loc[(name, "IMAGINE"), "mean"] == pytest.approx(by_hand.loc[("IMAGINE", "image"), "mean"])
    assert (cells.loc["near", "recall"] == .5).all() and (found["seconds"] > 0).all()
    assert cells.loc[("constant", "IMAGINE"), "verdict"] == "all scores are equal"
    shown = format_backends(found)
    assert list(shown.columns) == ["IMAGINE", "rouge-l", "entities", "seconds"] and list(shown.index) == ["none", "near", "far", "constant"]
    assert shown.loc["constant", "rouge-l"] == "–" and shown.loc["none", "rouge-l"] == f"{100*np.corrcoef(human, values)[0, 1]:.1f}"
    assert shown.loc["near", "entities"].startswith("50.0 [") and len(draw_backends(found).axes) == 2
    with pytest.raises(InputError, match="unknown score of IMAGINE"): backend_table(models, pred, target, human, added="pictures")


def test_published_rows_are_as_printed():
    paper = pd.read_csv(RESULTS/"imagine_paper.csv", keep_default_na=False, na_values={"mean": "", "deviation": ""})
    shown = format_backends(published_backends(paper))
    assert shown["entities"].to_dict() == {"none": "", "dVAE": "88.8", "BigGAN": "41.2", "VQGAN": "87.2", "StableDiffusion": "94.1"}
    assert shown.loc["none", ["ROUGE-1", "ROUGE-2", "ROUGE-L"]].tolist() == ["13.7", "9.7", "13.1"] and shown.loc["VQGAN", "ROUGE-L"] == "16.0±0.9"
