"Explanations of failures: the paper's worked example, brute force with networkx on random pictures, every choice, what is undefined, bad input, speed."
import time

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from drawn_corpus import COMMON, EXCLUSIVE, FAILURES, MATCHED, drawn_annotations, drawn_failures, write_visual_genome
from drawn_ranking import zebra_pictures
from real_data import data_path

from invariant_metrics.core import InputError, rng
from invariant_metrics.data.annotations import annotate
from invariant_metrics.data.wordnet import wordnet
from invariant_metrics.rankings import explain as module
from invariant_metrics.rankings.concepts import ConceptChoice, concepts_of, _known_synsets
from invariant_metrics.rankings.explain import concept_overlap, explain_failures, _match_exclusive, match_groups

# path similarities of the zebra example, WordNet 3.0: each exclusive concept of the right picture with grassland and grass
ZEBRA = {"trunk": (.0833, .0769), "hill": (.1111, .0833), "tree": (.0769, .1667), "sky": (.0833, .0667), "branch": (.1, .0526), "head": (.0833, .0667),
         "leg": (.0714, .0588), "leaf": (.0909, .0833)}
MEASURES = ["ca", "ncs", "ce", "sd"]


def thing(name, *synsets, box=(0, 0, 10, 10)): return {"name": name, "synsets": synsets, "box": box}


def pictures(*objects): return annotate([{"id": k, "width": 100, "height": 100, "objects": held} for k, held in enumerate(objects)])


def random_pictures(seed: int, n: int = 40, words: int = 16):
    "Pictures of few concepts, some of them no nouns, unknown, without synset, of several synsets, without box, or empty."
    g = rng(seed, "pictures")
    names = [name for pos, many in (("n", words), ("v", 3), ("a", 2)) for name in g.choice(np.array([*wordnet().all_synsets(pos)], object), many)] + ["smartphone.n.01"]
    def one():
        senses = [] if g.random() < .1 else [names[k] for k in g.integers(len(names), size=1 + int(g.random() < .1))]
        box = None if g.random() < .1 else (0, 0, *g.integers(1, 60, size=2).tolist())
        return thing(f"thing {senses[0] if senses else 'without'}", *senses, box=box)
    held = [[one() for _ in range(g.integers(0, 25))] for _ in range(n - 1)] + [[]]
    return annotate([{"id": k, "width": int(g.integers(60, 200)), "height": int(g.integers(60, 200)), "objects": objects} for k, objects in enumerate(held)])


def matched(weights: dict, best=max) -> dict: # edge -> weight, of a full matching by networkx
    "The full matching of largest (or smallest) weight of a complete bipartite graph given by its edges (a, b)."
    graph, top = nx.Graph(), max(weights.values(), default=0)
    graph.add_weighted_edges_from((("left", a), ("right", b), w if best is max else top - w) for (a, b), w in weights.items())
    pairs = [dict([x, y]) for x, y in nx.max_weight_matching(graph, maxcardinality=True)]
    return {(p["left"], p["right"]): weights[p["left"], p["right"]] for p in pairs}


def by_hand(annotations, i: int, j: int, choice: ConceptChoice) -> tuple[list, dict]: # CA, NCS, CE, SD; sums of both matchings
    "One failure straight from the definitions."
    wn, o = wordnet(), annotations.objects
    found = _known_synsets(o.synsets, wn)
    def held(picture):
        out, names = {}, set()
        for k in np.flatnonzero(o.image == picture):
            senses = [found[o.synsets[s]] for s in o.sense[o.start[k]:o.start[k + 1]]]
            if choice.senses == "first": senses = senses[:1]
            area = float(o.box[k, 2].astype(float)*o.box[k, 3].astype(float))
            if choice.area_unit == "share": area /= float(annotations.sizes[picture].prod())
            for name in {name for name, number in senses if number >= 0 or choice.unknown == "keep"}: out.setdefault(name, []).append(area)
            names.add(o.names[o.name[k]])
        return out, names
    (g, g_names), (r, r_names) = held(i), held(j)
    mine, its = (g_names, r_names) if choice.concepts == "names" else (set(g), set(r))
    ca = len(mine & its)/len(mine) if mine else np.nan
    number = dict(found.values())
    def similar(a, b): return wn.path_similarity(a, b) if min(number[a], number[b]) >= 0 else 0.
    pairs = matched({(a, b): similar(a, b) for a in g.keys() - r.keys() for b in r.keys() - g.keys()})
    ncs = np.mean(list(pairs.values())) if pairs else np.nan
    ce = sum(abs(len(g[v]) - len(r[v])) for v in g.keys() & r.keys())
    base = {"truth": lambda a, b: a, "smaller": min, "larger": max}[choice.area]
    each, total = [], 0.
    for v in g.keys() & r.keys():
        known = [[x for x in side[v] if not np.isnan(x)] for side in (g, r)]
        weights = {(x, y): abs(a - b)/base(a, b) for x, a in enumerate(known[0]) for y, b in enumerate(known[1])}
        if weights: each.append(list(matched(weights, min).values())); total += sum(each[-1])
    value = (lambda w: float(w >= choice.threshold)) if choice.binary else float
    sd = np.nan
    if each and choice.size_mode == "matches": sd = np.mean([value(w) for ws in each for w in ws])
    elif each: sd = sum(np.mean([value(w) for w in ws]) for ws in each)
    return [ca, ncs, ce, sd], {"similarity": sum(pairs.values()), "difference": total}


CHOICES = [ConceptChoice(), ConceptChoice(concepts="names"), ConceptChoice(senses="every", unknown="keep"), ConceptChoice(area="smaller", binary=False),
           ConceptChoice(area="larger", size_mode="sum", binary=False, area_unit="share"), ConceptChoice(size_mode="sum", threshold=.3)]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: "-".join(str(v) for k, v in vars(c).items() if v != getattr(ConceptChoice(), k)) or "default")
def test_all_four_are_what_the_definitions_and_networkx_say(choice):
    annotations = random_pictures(0)
    concepts = concepts_of(annotations, choice)
    truth, retrieved = rng(1).integers(len(annotations), size=(2, 40))
    truth[0], retrieved[1] = len(annotations) - 1, len(annotations) - 1 # the empty picture on either side
    got = explain_failures(concepts, truth, retrieved)
    wanted = [by_hand(annotations, i, j, choice) for i, j in zip(truth, retrieved)]
    f, sums = got.frame, pd.DataFrame([s for _, s in wanted])
    for part, column in ((got.matches, "similarity"), (got.sizes, "difference")): # ties may fall otherwise, sums may not
        assert np.allclose(part.groupby("failure")[column].sum().reindex(f.index, fill_value=0), sums[column], rtol=0, atol=1e-9)
    measures = pd.DataFrame([m for m, _ in wanted], columns=MEASURES)
    assert np.allclose(f[MEASURES], measures, rtol=0, atol=1e-9, equal_nan=True)
    assert measures.notna().sum().min() >= 20 and measures.ncs.nunique() > 15


def test_photographs_of_coco_are_explained_as_the_definitions_say():
    files = pytest.importorskip("invariant_metrics.data.annotation_files")
    folder, synsets = data_path("coco_mini"), data_path("lvis_sample/coco_to_synset.json")
    annotations = files.load_annotations(folder/"instances.json", synsets=synsets)
    concepts = concepts_of(annotations)
    assert len(concepts.vocabulary) > 40 and any("pictures have no concept" in note for note in concepts.notes)
    shown = np.flatnonzero(np.diff(concepts.start))
    truth, retrieved = shown[rng(0).integers(len(shown), size=(2, 60))]
    got = explain_failures(concepts, truth, retrieved).frame[MEASURES]
    wanted = [by_hand(annotations, i, j, ConceptChoice())[0] for i, j in zip(truth, retrieved)]
    assert np.allclose(got, wanted, equal_nan=True, rtol=0, atol=1e-9) and got.ncs.notna().sum() > 30 and got.sd.notna().sum() > 5


def test_counts_of_the_table_and_its_details_agree():
    annotations = random_pictures(2)
    concepts = concepts_of(annotations)
    truth, retrieved = rng(3).integers(len(annotations), size=(2, 60))
    e = explain_failures(concepts, truth, retrieved)
    f = e.frame
    def each(part, side=None): return (part if side is None else part[part.side == side]).groupby("failure").size().reindex(f.index, fill_value=0).to_numpy()
    sets = [set(concepts.of(i)) for i in range(len(concepts))]
    assert f.common.tolist() == [len(sets[i] & sets[j]) for i, j in zip(truth, retrieved)] == each(e.counts).tolist()
    assert f.only_truth.tolist() == [len(sets[i] - sets[j]) for i, j in zip(truth, retrieved)] == (each(e.matches) + each(e.unmatched, "truth")).tolist()
    assert f.only_retrieved.tolist() == (each(e.matches) + each(e.unmatched, "retrieved")).tolist()
    assert (f.matched == np.minimum(f.only_truth, f.only_retrieved)).all() and (f.matched == each(e.matches)).all() and (f.sizes == each(e.sizes)).all()
    o = annotations.objects
    for row in e.sizes.sample(20, random_state=0).itertuples(): # boxes lead back to the objects that were compared
        for k, picture, area in ((row.truth_object, truth, row.truth_area), (row.retrieved_object, retrieved, row.retrieved_area)):
            assert o.image[k] == picture[row.failure] and np.isclose(o.box[k, 2]*o.box[k, 3], area)
            assert concepts.vocabulary[concepts.of_object[k]] == row.concept
    one = e.one(7)
    assert one.frame.index.tolist() == [7] and set(one.matches.failure) <= {7} and len(one.counts) == f.common[7]
    with pytest.raises(InputError, match="no failure 60; there are 60"): e.one(60)


def test_zebras_with_the_similarities_of_the_facts_sheet():
    concepts = concepts_of(zebra_pictures())
    net = concepts.wordnet
    for name, near in ZEBRA.items():
        assert [round(net.path_similarity(f"{name}.n.01", f"{other}.n.01"), 4) for other in ("grassland", "grass")] == list(near), name
    best = matched({(name, other): near[k] for name, near in ZEBRA.items() for k, other in enumerate(("grassland", "grass"))})
    assert set(best) == {("hill", "grassland"), ("tree", "grass")}
    e = explain_failures(concepts, [0], [1], rank=[294], query=[5])
    assert np.allclose(e.frame[MEASURES].iloc[0], [3/11, 5/36, 6, 2/7]) and e.frame[["query", "rank"]].values.tolist() == [[5, 294]]
    assert e.matches[["truth_concept", "retrieved_concept"]].values.tolist() == [["hill.n.01", "grassland.n.01"], ["tree.n.01", "grass.n.01"]]
    four = explain_failures(concepts_of(zebra_pictures(4)), [0], [1])
    assert np.isclose(four.frame.sd[0], 1/3) and (four.sizes.difference >= 1).sum() == 2 and len(four.sizes) == 6
    assert {round(d, 3) for d in four.sizes.difference if d >= 1} == {2.3, 1.369}


def test_every_choice_changes_what_it_says():
    annotations = pictures([thing("dog", "dog.n.01", box=(0, 0, 10, 10)), thing("phone", "smartphone.n.01"), thing("plant", "plant.n.02", "tree.n.01")],
                           [thing("puppy", "domestic_dog.n.01", box=(0, 0, 5, 10)), thing("thingy"), thing("tree", "tree.n.01")])
    def explained(**fields): return explain_failures(concepts_of(annotations, ConceptChoice(**fields)), [0], [1]).frame.iloc[0]
    assert explained().ca == 1/2 and explained(concepts="names").ca == 0 and explained(senses="every").ca == 2/3 and explained(unknown="keep").ca == 1/3
    assert explained(concepts="names").common_synsets == 1 and explained(concepts="names").common == 0 and explained(concepts="names").only_retrieved == 3
    assert explained(unknown="keep").ncs == explained().ncs                # the phone stays without a partner
    assert explained(binary=False).sd == .5 and explained(binary=False, area="smaller").sd == 1 and explained(binary=False, area="larger").sd == .5
    assert explained(threshold=.5).sd == 1 and explained().sd == 0 and explained(area="smaller").sd == 1


def test_unknown_synsets_are_similar_to_nothing_but_matched():
    annotations = pictures([thing("a", "smartphone.n.01"), thing("b", "dog.n.01")], [thing("c", "selfie.n.01"), thing("d", "cat.n.01")])
    e = explain_failures(concepts_of(annotations, ConceptChoice(unknown="keep")), [0], [1])
    assert sorted(e.matches.similarity) == [0, 1/5] and e.frame.ncs[0] == 1/10
    dropped = concepts_of(annotations)
    assert explain_failures(dropped, [0], [1]).frame.ncs[0] == 1/5
    assert any("2 synsets are left out, since WordNet 3.0 lacks them: selfie.n.01, smartphone.n.01" in note for note in dropped.notes)


def test_nothing_depends_on_the_order_of_pictures_objects_or_failures():
    annotations = random_pictures(4)
    truth, retrieved = rng(5).integers(len(annotations), size=(2, 50))
    plain = explain_failures(concepts_of(annotations), truth, retrieved).frame
    order = rng(6).permutation(len(annotations))
    place = np.argsort(order)
    moved = explain_failures(concepts_of(annotations.take(order)), place[truth][::-1], place[retrieved][::-1]).frame[::-1].reset_index(drop=True)
    columns = [*MEASURES, "common", "only_truth", "only_retrieved", "matched", "sizes"]
    assert np.allclose(plain[columns], moved[columns], equal_nan=True, rtol=0, atol=1e-12)
    doubled = explain_failures(concepts_of(annotations), np.tile(truth, 2), np.tile(retrieved, 2)).frame
    assert np.array_equal(doubled[columns], pd.concat([plain[columns]]*2), equal_nan=True)


def test_pieces_and_look_ups_give_the_same_numbers(monkeypatch):
    annotations = random_pictures(7)
    truth, retrieved = rng(8).integers(len(annotations), size=(2, 50))
    for choice in (ConceptChoice(), ConceptChoice(unknown="keep")):
        concepts = concepts_of(annotations, choice)
        plain = explain_failures(concepts, truth, retrieved)
        with monkeypatch.context() as small:
            small.setattr(module, "_EDGES", 10)  # a graph or two at a time
            small.setattr(module, "TABLE", 0)   # no table: pairs are looked up
            pieces = explain_failures(concepts, truth, retrieved)
        for name in ("frame", "matches", "sizes", "counts", "unmatched"): pd.testing.assert_frame_equal(getattr(plain, name), getattr(pieces, name))


def test_matchings_are_full_and_optimal():
    g = rng(9)
    rows, columns = g.integers(1, 7, size=(2, 200))
    weight = g.integers(0, 4, size=(rows.sum(), columns.sum())).astype(float) # many ties and zeros
    left, right = np.cumsum(rows) - rows, np.cumsum(columns) - columns
    for largest in (True, False):
        found = match_groups(left, rows, right, columns, lambda a, b: weight[a, b], maximize=largest)
        assert np.array_equal(np.bincount(found.graph, minlength=200), np.minimum(rows, columns))
        assert len(np.unique(found.left)) == len(np.unique(found.right)) == len(found.graph)
        sums = np.bincount(found.graph, found.weight, 200)
        for k in range(0, 200, 5):
            block = {(a, b): weight[a, b] for a in range(left[k], left[k] + rows[k]) for b in range(right[k], right[k] + columns[k])}
            assert np.isclose(sums[k], sum(matched(block, max if largest else min).values()))


def test_what_is_undefined_is_nan_and_counted():
    annotations = pictures([thing("dog", "dog.n.01")], [thing("cat", "cat.n.01")], [], [thing("dog", "dog.n.01", box=None)], [thing("blob")])
    concepts = concepts_of(annotations)
    assert {"1 of 4 objects have no synset and count for nothing", "2 of 5 pictures have no concept",
            "1 objects have no box with an area; they are counted and not measured"} <= set(concepts.notes)
    e = explain_failures(concepts, [0, 0, 2, 0, 4], [1, 2, 0, 3, 2])
    nan = np.nan
    assert np.array_equal(e.frame[MEASURES], [[0, 1/5, 0, nan], [0, nan, 0, nan], [nan, nan, 0, nan], [1, nan, 0, nan], [nan, nan, 0, nan]], equal_nan=True)
    told = "\n".join(e.notes)
    for part in ("2 of 5 failures have no CA", "2 of 5 failures retrieved a picture without concepts", "4 of 5 failures have no NCS", "4 of 5 failures share no concept",
                 "5 of 5 failures have no SD"): assert part in told
    none = explain_failures(concepts, [], [])
    assert len(none) == len(none.matches) == len(none.sizes) == len(none.counts) == 0 and list(none.frame) == list(e.frame) and none.notes == ()
    bare = concepts_of(annotate([{"id": 1}, {"id": 2}]))                                     # nothing is marked anywhere
    assert explain_failures(bare, [0], [1]).frame[["ca", "ncs", "sd"]].isna().all(axis=None)


def test_boxes_outside_the_picture_or_without_area_are_not_measured():
    annotations = pictures([thing("dog", "dog.n.01", box=(200, 0, 10, 10)), thing("dog", "dog.n.01", box=(0, 0, 0, 10)), thing("dog", "dog.n.01", box=(90, 0, 20, 10))],
                           [thing("dog", "dog.n.01", box=(0, 0, 20, 10))])
    e = explain_failures(concepts_of(annotations, ConceptChoice(binary=False)), [0], [1])
    assert e.frame.ce[0] == 2 and len(e.sizes) == 1 and e.sizes.truth_area[0] == 100 and e.frame.sd[0] == 1


@pytest.mark.parametrize("run, message", [
    (lambda c: explain_failures(c, [0], [2]), "retrieved: there is no picture 2; positions go from 0 to 1"),
    (lambda c: explain_failures(c, [-1], [0]), "truth: there is no picture -1"), (lambda c: explain_failures(c, [.5], [0]), "truth: expected positions of pictures"),
    (lambda c: explain_failures(c, [0, 1], [0]), "2 of truth, 1 of retrieved"), (lambda c: explain_failures(c, [0], [1], rank=[1, 2]), "2 of rank"),
    (lambda c: ConceptChoice(senses="second"), "unknown choice of senses"), (lambda c: ConceptChoice(threshold=float("nan")), "0 or more"),
    (lambda c: ConceptChoice(threshold="1"), "0 or more"), (lambda c: ConceptChoice(binary=1), "True or False")])
def test_bad_input_is_one_line(run, message):
    concepts = concepts_of(zebra_pictures())
    with pytest.raises(InputError) as error: run(concepts)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_signatures_say_what_shaped_the_numbers():
    annotations, seen = zebra_pictures(), set()
    for choice in [*CHOICES, ConceptChoice(senses="every"), ConceptChoice(unknown="keep"), ConceptChoice(area_unit="share"), ConceptChoice(threshold=2)]:
        seen.add(str(explain_failures(concepts_of(annotations, choice), [0], [1]).signature))
    assert len(seen) == 10 and all("wordnet:3.0-" in s for s in seen)


def test_a_drawn_collection_is_like_the_papers_and_quick():
    annotations = drawn_annotations(3000)
    start = time.process_time()
    concepts = concepts_of(annotations)
    truth, retrieved = drawn_failures(concepts, 6000)
    e = explain_failures(concepts, truth, retrieved)
    assert time.process_time() - start < 5
    share = 6000/FAILURES
    sums = e.frame[["common", "only_truth", "only_retrieved", "matched"]].sum()
    assert .8 < sums.common/COMMON/share < 1.2 and .8 < (sums.only_truth + sums.only_retrieved)/EXCLUSIVE/share < 1.2 and .8 < sums.matched/MATCHED/share < 1.2
    assert 7 < e.frame.ce.mean() < 10 and all(annotations.captions) and all(annotations.regions)


def test_similarity_is_far_faster_than_one_pair_at_a_time():
    annotations = drawn_annotations(400)
    concepts = concepts_of(annotations)
    truth, retrieved = drawn_failures(concepts, 400)
    start = time.process_time(); overlap = concept_overlap(concepts, truth, retrieved); pairs = _match_exclusive(concepts, overlap); ours = (time.process_time() - start)/400
    sets, similar = [set(concepts.of(i)) for i in range(len(concepts))], wordnet().path_similarity
    start = time.process_time()
    exclusive = [(sets[i] - sets[j], sets[j] - sets[i]) for i, j in zip(truth[:10], retrieved[:10])]
    sums = [sum(matched({(a, b): similar(a, b) for a in mine for b in its}).values()) for mine, its in exclusive]
    theirs = (time.process_time() - start)/10
    assert np.allclose(np.bincount(pairs.graph, pairs.weight, 400)[:10], sums)
    assert theirs > 10*ours, (theirs, ours)


def test_a_drawn_collection_goes_through_files(tmp_path):
    files = pytest.importorskip("invariant_metrics.data.annotation_files")
    drawn = drawn_annotations(60)
    folder = write_visual_genome(drawn, tmp_path/"drawn")
    read = files.load_annotations(folder, captions=tmp_path/"drawn_captions.json")
    assert (read.ids, read.captions, read.regions, read.attributes, read.relations) == (drawn.ids, drawn.captions, drawn.regions, drawn.attributes, drawn.relations)
    a, b = concepts_of(read), concepts_of(drawn)
    assert [a.of(i) for i in range(60)] == [b.of(i) for i in range(60)]
    assert np.allclose(read.objects.box, drawn.objects.box, atol=.01)
