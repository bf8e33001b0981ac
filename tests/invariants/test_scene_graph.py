"The scene graph of a caption: rules on parses written by hand, oracles for its distance and F, and what it gets right on real captions."
import builtins
import re
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from caption_gold import accuracy
from matplotlib.figure import Figure
from real_data import data_path

from invariant_metrics.core import InputError
from invariant_metrics.worlds.scene_captions import relation_captions, read_claims
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.invariants.invariant import get_invariant, inputs_of
from invariant_metrics.invariants.parse import Parse, from_rows, _from_spacy, pattern_parse, spacy_parse
from invariant_metrics.invariants.scene_graph import Entity, Graph, SceneGraph, _graph_difference, draw_graphs
from invariant_metrics.invariants.scene_graph import graph_of, parse, tuples
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.scene_graph_match import scene_graph_f1, _scene_graph_rows


def by_hand(text: str, chunks) -> Parse:
    "A parse from `word/lemma/POS/label/head` for each word."
    return from_rows([row.rsplit("/", 4) for row in text.split()], chunks)


FIGURE = by_hand("A/a/DET/det/1 cat/cat/NOUN/ROOT/1 standing/stand/VERB/acl/1 on/on/ADP/prep/2 a/a/DET/det/5 couch/couch/NOUN/pobj/3 in/in/ADP/prep/2 "
                 "a/a/DET/det/10 cluttered/cluttered/ADJ/amod/10 living/living/NOUN/compound/10 room/room/NOUN/pobj/6", [(0, 2, 1), (4, 6, 5), (7, 11, 10)])
HANDS = {  # rule: parse, chunks, relations as text
    "object of a verb": ("man/man/NOUN/nsubj/1 rides/ride/VERB/ROOT/1 horses/horse/NOUN/dobj/1", [(0, 1, 0), (2, 3, 2)], "man, horse; (man, ride, horse)"),
    "agent of the passive": ("horse/horse/NOUN/nsubjpass/2 is/be/AUX/auxpass/2 ridden/ride/VERB/ROOT/2 by/by/ADP/agent/2 men/man/NOUN/pobj/3",
                             [(0, 1, 0), (4, 5, 4)], "horse, man; (man, ride, horse)"),
    "phrasal verb": ("dog/dog/NOUN/nsubj/1 looks/look/VERB/ROOT/1 at/at/ADP/prep/1 cats/cat/NOUN/pobj/2", [(0, 1, 0), (3, 4, 3)], "dog, cat; (dog, look at, cat)"),
    "preposition of three words": ("dog/dog/NOUN/ROOT/0 in/in/ADP/prep/0 front/front/NOUN/pobj/1 of/of/ADP/prep/2 house/house/NOUN/pobj/3",
                                   [(0, 1, 0), (2, 3, 2), (4, 5, 4)], "dog, house; (dog, in front of, house)"),
    "adjective and preposition": ("bowl/bowl/NOUN/ROOT/0 full/full/ADJ/amod/0 of/of/ADP/prep/1 fruit/fruit/NOUN/pobj/2", [(0, 1, 0), (3, 4, 3)],
                                  "bowl(full), fruit; (bowl, full of, fruit)"),
    "auxiliary": ("cat/cat/NOUN/nsubj/1 is/be/AUX/ROOT/1 on/on/ADP/prep/1 couch/couch/NOUN/pobj/2", [(0, 1, 0), (3, 4, 3)], "cat, couch; (cat, on, couch)"),
    "existential": ("there/there/PRON/expl/1 is/be/AUX/ROOT/1 cat/cat/NOUN/attr/1 on/on/ADP/prep/1 couch/couch/NOUN/pobj/3", [(2, 3, 2), (4, 5, 4)],
                    "cat, couch; (cat, on, couch)"),
    "cross product": ("cats/cat/NOUN/ROOT/0 and/and/CCONJ/cc/0 dogs/dog/NOUN/conj/0 on/on/ADP/prep/0 beds/bed/NOUN/pobj/3 and/and/CCONJ/cc/4 mats/mat/NOUN/conj/4",
                      [(0, 1, 0), (2, 3, 2), (4, 5, 4), (6, 7, 6)],
                      "cat, dog, bed, mat; (cat, on, bed); (cat, on, mat); (dog, on, bed); (dog, on, mat)"),
    "pronouns are no things": ("she/she/PRON/nsubj/1 holds/hold/VERB/ROOT/1 cups/cup/NOUN/dobj/1", [(0, 1, 0), (2, 3, 2)], "cup"),
}


def test_the_papers_example_by_hand_and_by_the_built_in_parser():
    wanted = Graph((Entity("cat"), Entity("couch"), Entity("living room", ("cluttered",), "scene")), ((0, "on", 1), (0, "in", 2)))
    assert graph_of(FIGURE) == parse(FIGURE) == wanted
    assert parse("A cat standing on a couch in a cluttered living room") == wanted
    assert parse("A cat standing on a couch in a cluttered living room.", parser=lambda text: FIGURE) == wanted


@pytest.mark.parametrize("rule", HANDS)
def test_rules_on_parses_by_hand(rule):
    rows, chunks, wanted = HANDS[rule]
    assert str(graph_of(by_hand(rows, chunks))) == wanted


CAPTIONS = {
    "a man and a woman riding horses on a beach": "man, woman, horse, beach; (man, ride, horse); (woman, ride, horse); (man, on, beach); (woman, on, beach)",
    "There are two dogs and a cat in front of a house.": "dog(two), cat, house; (dog, in front of, house); (cat, in front of, house)",
    "a plate of food on a table next to a glass": "plate, food, table, glass; (plate, of, food); (plate, on, table); (table, next to, glass)",
    "A boy wearing a hat sitting on a bench": "boy, hat, bench; (boy, wear, hat); (boy, on, bench)",
    "the dog is black and fluffy": "dog(black, fluffy)",
    "a red ball is to the left of a blue boat": "ball(red), boat(blue); (ball, left of, boat)",
    "a white car that is parked by a tree": "car(white), tree; (car, by, tree)",
    "a horse ridden by a boy": "horse, boy; (boy, ride, horse)",
    "A couple of people watch a game on top of a hill while holding umbrellas":
        "people, game, hill, umbrella; (people, watch, game); (people, on top of, hill); (people, hold, umbrella)",
    "a man in a suit and a woman in a dress": "man, suit, woman, dress; (man, in, suit); (woman, in, dress)",
}


@pytest.mark.parametrize("text", CAPTIONS)
def test_the_built_in_parser_on_constructions_of_captions(text): assert str(parse(text)) == CAPTIONS[text]


@pytest.mark.parametrize("text", ["", " ", ".", "of", "and and and", "the", "the the of of by", "!?", "in front of", "'s", "日本語", "that that is is", "a\nb\tc", "to to", "there is",
                                  "is is is", "while", ", , and", "by by by a by", "who", "a " * 300, "dog " * 200, "x" * 5000])
def test_anything_has_a_graph(text):
    graph = parse(text)
    assert all(0 <= i < len(graph.entities) for a, _, b in graph.relations for i in (a, b))
    assert all(0 <= t.head < len(pattern_parse(text).tokens) for t in pattern_parse(text).tokens)


def test_random_words_never_break_the_parser():
    words = "a the of in on and , is was that who while to by there dogs cat riding parked rides red 's front her with as not . two".split()
    draw_ = np.random.default_rng(0)
    for _ in range(1500):
        graph = parse(" ".join(draw_.choice(words, draw_.integers(1, 14))))
        assert all(0 <= i < len(graph.entities) for a, _, b in graph.relations for i in (a, b))


def test_circles_in_an_injected_parse_come_to_an_end():
    rows = [("runs", "run", "VERB", "conj", 1), ("sits", "sit", "VERB", "conj", 0), ("on", "on", "ADP", "prep", 1), ("mat", "mat", "NOUN", "pobj", 2)]
    assert graph_of(from_rows(rows, [(3, 4, 3)])).relations == ()


def test_injected_parses_are_checked():
    with pytest.raises(InputError, match="hangs on word 5"): from_rows([("cat", "cat", "NOUN", "ROOT", 5)], [])
    with pytest.raises(InputError, match="holds its own root"): from_rows([("cat", "cat", "NOUN", "ROOT", 0)], [(0, 1, 3)])
    with pytest.raises(InputError, match="not from int"): parse(3)


def test_a_spacy_document_is_read_by_its_attributes():
    tokens = [SimpleNamespace(i=t.index, text=t.text, lemma_=t.lemma, pos_=t.pos, dep_=t.dep) for t in FIGURE.tokens]
    for token, t in zip(tokens, FIGURE.tokens): token.head = tokens[t.head]
    chunks = [SimpleNamespace(start=c.start, end=c.stop, root=tokens[c.root]) for c in FIGURE.chunks]
    assert _from_spacy(type("Doc", (list,), {"noun_chunks": chunks})(tokens)) == FIGURE


def test_without_spacy_or_its_model_there_is_one_line(monkeypatch):
    with pytest.raises(InputError, match="use the built-in parser") as error: spacy_parse("a cat", "no_such_model_here")
    assert "\n" not in str(error.value)
    real = builtins.__import__
    def without(name, *args, **options):
        if name.split(".")[0] == "spacy": raise ImportError(name)
        return real(name, *args, **options)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="pip install spacy"): parse("a cat", parser="spacy:another_model")


def test_a_spacy_folder_says_what_is_missing(monkeypatch, tmp_path):
    model = tmp_path/"en_model"/"en_model-3.8.0"
    model.mkdir(parents=True)
    (model/"config.cfg").write_text("[nlp]")
    def load(name):
        if name.endswith("-3.8.0"): return SimpleNamespace(has_pipe=lambda part: False, pipe_names=["tagger"])
        raise OSError("[E053] Could not read config")
    monkeypatch.setitem(sys.modules, "spacy", SimpleNamespace(load=load))
    for name, says in ((tmp_path/"en_model", f"no folder of a spaCy model; take {model}, or"), (tmp_path/"none", "name the one with config.cfg in it"),
                       ("en_core_web_xx", "run: python -m spacy download en_core_web_xx"), (model, "has no parser, only tagger")):
        with pytest.raises(InputError, match=re.escape(says)): spacy_parse("a cat", str(name))


def test_the_signature_of_a_spacy_folder_holds_its_files_and_not_its_path(tmp_path):
    names = []
    for home, text in (("a", "one"), ("b", "one"), ("c", "two")):
        model = tmp_path/home/"en_model-3.8.0"
        (model/"parser").mkdir(parents=True)
        (model/"config.cfg").write_text("[nlp]")
        (model/"parser"/"model").write_text(text)
        names.append(str(get_invariant("scene-graph", parser=f"spacy:{model}").signature))
        assert str(get_metric("scene-graph-f1", parser=f"spacy:{model}").signature).count("en_model-3.8.0@local-") == 1
    assert names[0] == names[1] != names[2] and str(tmp_path) not in "".join(names)


@pytest.mark.parametrize("caption, said", [("A kitchen with a refrigerator, stove and oven", ("kitchen", "with", "stove")), ("a mini orange train", ("train", "mini")),
                                           ("An old stove in a parking lot", ("stove", "in", "parking lot")), ("A dove on a rose", ("dove", "on", "rose"))])
def test_things_whose_names_are_also_old_pasts(caption, said): assert said in tuples(parse(caption))


def test_unknown_options_are_refused():
    for options in ({"parser": "parsley"}, {"references": "worst"}):
        with pytest.raises(InputError, match="unknown"): get_invariant("scene-graph", **options)
    with pytest.raises(InputError, match="no weights"): get_invariant("scene-graph", weights="somewhere")
    with pytest.raises(InputError, match="unknown parser"): get_metric("scene-graph-f1", parser="parsley")


def random_graph(draw_: np.random.Generator) -> Graph:
    heads = draw_.choice(list("abcde"), draw_.integers(0, 5))
    pairs = [] if len(heads) < 2 else [(int(i), str(draw_.choice(["on", "in"])), int(j)) for i, j in draw_.integers(0, len(heads), (draw_.integers(0, 4), 2)) if i != j]
    return Graph(tuple(Entity(str(h), tuple(sorted(set(draw_.choice(["red", "two"], draw_.integers(0, 3)))))) for h in heads), tuple(pairs))


def test_difference_equals_its_formula_on_random_graphs():
    draw_ = np.random.default_rng(1)
    for _ in range(300):
        a, b = random_graph(draw_), random_graph(draw_)
        apart = []
        for read in (lambda g: {e.head for e in g.entities}, lambda g: {(g.entities[i].head, r, g.entities[j].head) for i, r, j in g.relations},
                     lambda g: {(e.head, m) for e in g.entities for m in e.modifiers}):
            one, two = read(a), read(b)
            apart.append(1 - len(one & two)/len(one | two) if one | two else 0)
        assert _graph_difference(a, b) == pytest.approx(sum(apart[:2])/2) == _graph_difference(b, a)
        assert _graph_difference(a, b, attributes=True) == pytest.approx(sum(apart)/3)
        assert _graph_difference(a, a) == 0 and len(tuples(a)) <= sum(1 + len(e.modifiers) for e in a.entities) + len(a.relations)


def test_empty_graphs():
    empty, cat = Graph(), parse("a cat")
    assert _graph_difference(empty, empty) == 0 and _graph_difference(empty, cat) == 0.5 and tuples(empty) == frozenset()


def test_violation_takes_the_nearest_reference_or_the_mean():
    texts, references = ["a cat on a couch", "a dog"], [("a cat on a couch", "a dog in a park"), ("a cat", "a dog")]
    best, mean = get_invariant("scene-graph"), get_invariant("scene-graph", references="mean")
    assert best.violation(texts, references).tolist() == [0, 0]
    assert mean.violation(texts, references).tolist() == [0.5, 0.25]
    assert best.reward(texts, references).tolist() == [0, 0] and (mean.reward(texts, references) == [-0.5, -0.25]).all()
    assert best.violation(texts, ["a cat on a couch", "a dog"]).tolist() == [0, 0]


def test_it_is_a_reward_and_no_loss():
    found = SceneGraph()
    assert inputs_of("scene-graph") == found.inputs == "texts" and not found.differentiable
    for call in (found.loss, found.bind):
        with pytest.raises(InputError, match="use its reward"): call(["a cat"], ["a cat"])
    with pytest.raises(InputError, match="one string"): found.value("a cat")


def test_f_equals_its_formula():
    texts = ["a cat on a red couch", "", "two dogs", "a horse ridden by a boy"]
    references = [("a black cat on a couch", "a cat on a sofa"), ("a cat",), ("",), ("a boy riding a horse", "a small boy")]
    for row, text, refs in zip(_scene_graph_rows(texts, references), texts, references):
        said_, right = tuples(parse(text)), set().union(*(tuples(parse(r)) for r in refs))
        both = len(said_ & right)
        p, r = (both/len(side) if side else 0 for side in (said_, right))
        np.testing.assert_allclose(row, [p, r, 2*p*r/(p + r) if both else 0])
    assert scene_graph_f1(texts, references)[3] == pytest.approx(2*(1)*(3/4)/(1 + 3/4))


def test_synonyms_only_add_matches():
    texts, references = ["a cat on a couch", "a kid on a bike"], [("a cat on a sofa",), ("a child on a bicycle",)]
    plain, wide = scene_graph_f1(texts, references), scene_graph_f1(texts, references, synonyms=True)
    assert (wide == 1).all() and (plain < wide).all()


def test_metrics_share_a_parse_and_say_what_they_are():
    names = ["scene-graph-p", "scene-graph-r", "scene-graph-f1"]
    built = [get_metric(name) for name in names]
    rows = extract(built, ["a cat on a red couch"], [("a black cat on a couch", "a cat on a sofa")])
    assert [m.statistic(rows[m.name]) for m in built] == pytest.approx([3/4, 3/6, 3/5])
    assert len({m.phi_key for m in built}) == 1 and "synonyms:no" in str(built[0].signature)


def test_captions_of_own_scenes_are_understood():
    scenes = make_scenes(40, 64, seed=9)
    for text in (text for i in range(40) for text in relation_captions(scenes, i)):
        graph, truth = parse(text), read_claims(text)
        assert {e.head for e in graph.entities} == truth.objects, text
        assert {(e.head, m) for e in graph.entities for m in e.modifiers} == truth.attributes, text
        assert {(graph.entities[a].head, graph.entities[b].head) for a, _, b in graph.relations} == {(a, b) for a, _, b in truth.relations}, text


def test_accuracy_on_captions_read_by_eye():
    found = {kind: table.sum(0) for kind, table in accuracy(parse, data_path("coco_captions/val2017_1000.jsonl.gz")).items()}
    shares = {kind: (a/b, c/d) for kind, (a, b, c, d) in found.items()}
    assert min(shares["things"]) > 0.92 and min(shares["relations"]) > 0.74 and min(shares["related pairs"]) > 0.76, shares


def test_it_is_quick_enough_to_be_a_reward():
    texts = [f"a {a} {b} {verb} a {c} on a {place} next to two {d}" for a in ("red", "small", "old") for b in ("dog", "man", "boy") for verb in ("chasing", "watches")
             for c in ("ball", "cat") for place in ("table", "road") for d in ("trees", "cars", "birds", "chairs")]
    parse(texts[0])
    start = time.process_time()
    for text in texts: graph_of(pattern_parse(text))
    assert len(texts)/(time.process_time() - start) > 700   # thousands on an idle machine


def test_drawings_are_figures_of_their_own_and_always_the_same():
    import matplotlib.pyplot as plt
    before, graphs = plt.get_fignums(), [parse("a cat on a couch in a room"), parse("a dog on a couch"), parse("")]
    figures = [draw_graphs([graphs[0]], [""]), draw_graphs([graphs[2]], [""]), draw_graphs(graphs, ["truth", "one", "none"])]
    assert all(isinstance(f, Figure) for f in figures) and plt.get_fignums() == before
    places = [[(t.get_text(), tuple(np.round(t.get_position(), 6))) for t in draw_graphs([graphs[0]], [""]).axes[0].texts] for _ in range(2)]
    assert places[0] == places[1] and len(figures[2].axes) == 3
    with pytest.raises(InputError, match="a name for each"): draw_graphs(graphs, ["one"])
