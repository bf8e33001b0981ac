"Published protocols: the authors' formats by hand, their programs written out again, and the numbers that were measured elsewhere."
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from handmade import fails
from real_data import data_path
from scipy.io import savemat
from scipy.stats import kendalltau

from commands import cli
from invariant_metrics.core import rng
from invariant_metrics.data.judgment_tables import Choices
from invariant_metrics.data.judgments import load_judgments
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.people.human import agree
from invariant_metrics.people.protocols import _FORCED_CHOICE, PROTOCOLS, _find_pictures, protocol, _protocol_data
from invariant_metrics.people.protocols import _reference_variants, _right_choices
from test_caption import mini_clip

WORDS = ["dog", "cat", "horse", "boat", "child", "ball", "street", "beach", "grass", "wall"]


def sentence(draw) -> str: return "a " + " ".join(draw.choice(WORDS, 4)) + " ."


def score(name: str, texts: list, references: list) -> np.ndarray:
    metric = get_metric(name)
    return metric.values(extract([metric], texts, references)[metric.name].pred).numpy()


def values(result) -> dict: return {(row.metric, row.split): row.value for row in result.table.itertuples()}


# Flickr8k

@pytest.fixture(scope="module")
def flickr(tmp_path_factory) -> Path:
    "Both files of judgments over twelve images, with captions that are references of their image by number and by text."
    folder, draw = tmp_path_factory.mktemp("Flickr8k_text"), rng(0, "flickr")
    tokens = {f"{i}_ab.jpg#{k}": sentence(draw) for i in range(12) for k in range(5)}
    tokens["3_ab.jpg#0"] = tokens["2_ab.jpg#0"]                   # the same text under two images
    (folder/"Flickr8k.token.txt").write_text("".join(f"{key}\t{text}\n" for key, text in tokens.items()))
    pairs = [(f"{i}_ab.jpg", key) for i in range(12) for key in draw.choice([*tokens], 6, replace=False)]
    pairs += [("2_ab.jpg", "2_ab.jpg#1"), ("2_ab.jpg", "3_ab.jpg#0"), ("5_ab.jpg", "5_ab.jpg#4")]
    expert = [(*pair, *draw.integers(1, 5, 3)) for pair in pairs]
    crowd = [(*pair, int(draw.integers(0, 4)), 3) for pair in pairs]
    (folder/"ExpertAnnotations.txt").write_text("".join("\t".join(map(str, row)) + "\n" for row in expert))
    (folder/"CrowdFlowerAnnotations.txt").write_text("".join(f"{i}\t{c}\t{y/n:.7g}\t{y}\t{n - y}\n" for i, c, y, n in crowd))
    return folder


def authors_flickr(folder: Path) -> tuple[dict, dict]: # what the authors' program writes: flickr8k.json, crowdflower_flickr8k.json
    text, of = {}, {}
    for line in (folder/"Flickr8k.token.txt").read_text().splitlines():
        key, caption = line.split("\t")
        text[key] = caption
        of.setdefault(key.split("#")[0], []).append(caption)
    expert, crowd = {}, {}
    for line in (folder/"CrowdFlowerAnnotations.txt").read_text().splitlines():
        image, key, share, _, _ = line.split("\t")
        entry = crowd.setdefault(image, {"human_judgement": [], "ground_truth": list(of[image])})
        if text[key] in entry["ground_truth"]: entry["ground_truth"].remove(text[key])
        entry["human_judgement"].append({"caption": text[key], "rating": float(share)})
    for line in (folder/"ExpertAnnotations.txt").read_text().splitlines():
        image, key, *ratings = line.split("\t")
        if text[key] in of[image]: continue
        entry = expert.setdefault(image, {"human_judgement": [], "ground_truth": of[image]})
        entry["human_judgement"] += [{"caption": text[key], "rating": float(r)} for r in ratings]
    return expert, crowd


def authors_tau(held: dict, name: str, variant: str) -> tuple[float, int]:
    rows = [(one["caption"], entry["ground_truth"], one["rating"]) for entry in held.values() for one in entry["human_judgement"]]
    texts, references, ratings = zip(*rows)
    return kendalltau(score(name, list(texts), list(references)), ratings, variant=variant).statistic, len(rows)


@pytest.mark.parametrize("name, place, variant", [("flickr8k-expert", 0, "c"), ("flickr8k-cf", 1, "b")])
def test_flickr8k_is_what_the_authors_program_gives(flickr, tmp_path, name, place, variant):
    "From the text files, from the .json that the program writes, and with the published variant of tau."
    held = authors_flickr(flickr)[place]
    (tmp_path/"prepared.json").write_text(json.dumps(held))
    found = [protocol(name, path, ["bleu-1", "rouge-l"], reps=20) for path in (flickr, tmp_path/"prepared.json")]
    for metric in ("bleu-1", "rouge-l"):
        tau, n = authors_tau(held, metric, variant)
        for result in found:
            assert values(result)[metric, "all"] == pytest.approx(tau, abs=1e-12)
            assert set(result.table["n"]) == {n} and set(result.table["n_images"]) == {12}
    assert {row.statistic for row in found[0].table.itertuples()} == {f"tau_{variant}"}


def test_own_captions_leave_the_pairs_of_experts_and_the_references_of_the_crowd(flickr):
    expert, crowd = _protocol_data("flickr8k-expert", flickr), _protocol_data("flickr8k-cf", flickr)
    own = {(i, t) for i, t in zip(crowd.outputs["item"].str.split("#").str[0], crowd.outputs["output"])} - \
          {(i, t) for i, t in zip(expert.outputs["item"].str.split("#").str[0], expert.outputs["output"])}
    assert len(own) >= 3 and crowd.scores["group"].nunique() == expert.scores["group"].nunique() == 12
    for data in (expert, crowd): assert not any(text in refs for text, refs in zip(data.outputs["output"], data.outputs["references"]))
    assert expert.outputs["references"].map(len).eq(5).all() and crowd.outputs["references"].map(len).lt(5).any()


def test_intervals_are_over_images_and_differences_are_paired(flickr):
    found = protocol("flickr8k-expert", flickr, ["bleu-1", "rouge-l"], reps=200)
    plain = agree(load_judgments(flickr, "flickr8k-expert"), ["bleu-1", "rouge-l"], statistics=["tau_c"], ratings="each", reps=200)
    assert found.table[["value", "ci_low", "ci_high"]].to_numpy() == pytest.approx(plain.table[["value", "ci_low", "ci_high"]].to_numpy())
    row, both = found.comparisons.iloc[0], found.table.set_index("metric")
    assert row["difference"] == pytest.approx(both.loc["bleu-1", "value"] - both.loc["rouge-l", "value"])
    own, paired = both["ci_high"] - both["ci_low"], plain.comparisons.iloc[0]
    assert row["ci_high"] - row["ci_low"] < 0.9*np.hypot(*own) and row[["ci_low", "ci_high", "p"]].tolist() == paired[["ci_low", "ci_high", "p"]].tolist()


def test_flickr8k_expert_has_the_measured_numbers():
    "tau_c x 100 of pycocoevalcap's scores, and of this package's own; with intervals that hold the numbers that papers print."
    expected = json.loads(data_path("flickr8k_expert/kendall_tau_measured.json").read_text())["tau_c"]
    found = protocol("flickr8k-expert", data_path("flickr8k_expert"), ["METEOR", "ROUGE_L", "CIDEr", "fleur", "bleu-1", "bleu-4", "rouge-l", "cider-d"], reps=20)
    measured = {metric: 100*value for (metric, _), value in values(found).items()}
    for name in ("METEOR", "ROUGE_L", "CIDEr", "fleur"): assert measured[name] == pytest.approx(expected[name], abs=1e-3), name
    for own, theirs in (("bleu-1", "Bleu_1"), ("bleu-4", "Bleu_4"), ("rouge-l", "ROUGE_L"), ("cider-d", "CIDEr")):
        assert measured[own] == pytest.approx(expected[theirs], abs=0.03), own
    assert [round(measured[m], 1) for m in ("METEOR", "cider-d", "rouge-l", "bleu-4")] == [41.8, 43.9, 32.3, 30.8]
    assert set(found.table["n"]) == {16992} and set(found.table["n_images"]) == {1000} and found.table["metric"].iloc[0] == "METEOR"


# Composite

@pytest.fixture(scope="module")
def composite(tmp_path_factory) -> Path:
    folder, draw = tmp_path_factory.mktemp("composite"), rng(0, "composite")
    names = {"8k": [f"{i}_cd" for i in range(5)], "30k": [f"{i}" for i in range(100, 104)], "coco": [f"COCO_val2014_{i:012d}" for i in range(4)]}
    held = {name: [sentence(draw) for _ in range(5)] for images in names.values() for name in images}
    for kind, images in names.items():
        n = 3 if kind == "8k" else 4
        head = ["HITId", "Input.image_url", *(f"Input.text{k}" for k in range(1, n + 1)), *(f"Answer.Q{k}Answer" for k in range(1, n + 1))]
        for aspect in ("correctness", "throughness"):
            rows = [["h", f"http://x.org/{kind}/{i}.jpg", held[i][0], *(sentence(draw) for _ in range(n - 1)), *map(str, draw.integers(1, 6, n))] for i in images]
            rows += [[""]*len(head)]*2
            (folder/f"{kind}_{aspect}.csv").write_text("\n".join(";".join(row) for row in [head, *rows]) + "\n")
    token = lambda images: "".join(f"{i}.jpg#{k}\t{text}\n" for i in images for k, text in enumerate(held[i]))
    (folder/"captions").mkdir()
    (folder/"captions"/"Flickr8k.token.txt").write_text(token(names["8k"]))
    (folder/"captions"/"results_20130124.token").write_text(token(names["30k"]))
    coco = {"images": [{"id": i, "file_name": f"{name}.jpg"} for i, name in enumerate(names["coco"])],
            "annotations": [{"id": 10*i + k, "image_id": i, "caption": text} for i, name in enumerate(names["coco"]) for k, text in enumerate(held[name])]}
    (folder/"captions"/"captions_val2014.json").write_text(json.dumps(coco))
    return folder


def test_composite_is_what_the_authors_program_gives(composite):
    "Files of correctness alone, row by row; three candidates of Flickr8k without those that are references, four of the others with them."
    references = {}
    for file in ("Flickr8k.token.txt", "results_20130124.token"):
        for line in (composite/"captions"/file).read_text().splitlines(): references.setdefault(line.split(".jpg#")[0], []).append(line.split("\t")[1])
    coco = json.loads((composite/"captions"/"captions_val2014.json").read_text())
    for a in coco["annotations"]: references.setdefault(f"COCO_val2014_{a['image_id']:012d}", []).append(a["caption"])
    rows = []
    for kind, n in (("8k", 3), ("30k", 4), ("coco", 4)):
        for line in (composite/f"{kind}_correctness.csv").read_text().splitlines()[1:-2]:
            _, url, *cells = line.split(";")
            image = url.split("/")[-1].split(".")[0]
            rows += [(text, references[image], float(rating)) for text, rating in zip(cells[:n], cells[n:]) if kind != "8k" or text not in references[image]]
    texts, refs, ratings = zip(*rows)
    found = protocol("composite", composite, ["rouge-l"], captions=composite/"captions", reps=20)
    assert values(found)["rouge-l", "all"] == pytest.approx(kendalltau(score("rouge-l", list(texts), list(refs)), ratings, variant="c").statistic, abs=1e-12)
    assert set(found.table["n"]) == {len(rows)} == {5*2 + 4*4 + 4*4} and sum(text in r for text, r, _ in rows) == 8
    assert any("5 ratings left out" in note for note in found.notes)


def test_composite_without_captions_says_what_metrics_need(composite):
    said = fails(protocol, "composite", composite, ["rouge-l"], reps=20)
    assert said == "rouge-l: needs references; give the captions of the images (--captions)"


# Pascal-50S

PAIRS = [ # kind, votes for the first of 48, scores of a metric for both captions; right as the authors' program counts
    ("HC", 40, .5, .2, 1), ("HC", 24, .5, .2, 0), ("HC", 24, .2, .5, 1), ("HC", 24, .4, .4, 0),
    ("HI", 48, .4, .4, 1), ("HI", 0, .4, .4, 0), ("HI", 10, .1, .3, 1), ("HI", 47, .1, .3, 0),
    ("HI", 48, .3, .1, 1), ("HM", 25, .3, .1, 1), ("HM", 23, .3, .1, 0), ("HM", 48, .2, .1, 1), ("HM", 24, .1, .1, 0),
    ("MM", 12, .1, .9, 1), ("MM", 12, .9, .1, 0), ("MM", 47, .9, .1, 1), ("MM", 1, .1, .2, 1)]


def pascal(folder: Path, rows=PAIRS, references=48) -> Path: # as the authors give it out
    def cells(rows, names):
        out = np.empty((1, len(rows)), dtype=[(n, object) for n in names])
        for i, row in enumerate(rows): out[0, i] = row
        return out
    draw = rng(0, "pascal")
    pairs = [(f"2008_{i % 9:06d}.jpg", f"A {WORDS[i % 10]} runs .", f"A {WORDS[(i + 3) % 10]} sits . ") for i in range(len(rows))]
    votes = [(sentence(draw), *((a, b, 1) if v < first else (a, b, -1))) for (_, a, b), (_, first, *_) in zip(pairs, rows) for v in range(references)]
    folder.mkdir(exist_ok=True)
    savemat(folder/"pair_pascal.mat", {"new_input": cells(pairs, "iab"), "category": [[1 + ["HC", "HI", "HM", "MM"].index(kind) for kind, *_ in rows]]})
    savemat(folder/"consensus_pascal.mat", {"triplets": cells(votes, "abcd")})
    return folder


def hand_scores(data: Choices, rows=PAIRS) -> pd.DataFrame:
    return pd.DataFrame([dict(item=item, system=side, hand=row[k]) for item, row in zip(data.table["item"], rows) for side, k in (("first", 2), ("second", 3))])


def test_pascal_by_hand(tmp_path):
    "Equal votes mean the second caption, equal scores choose the first, and the mean is that of four kinds however many pairs they have."
    data = _protocol_data("pascal50s", pascal(tmp_path/"p"))
    found = protocol("pascal50s", data, hand_scores(data), reps=50)
    expected = {kind: np.mean([row[4] for row in PAIRS if row[0] == kind]) for kind in ("HC", "HI", "HM", "MM")}
    assert values(found) == pytest.approx({("hand", kind): v for kind, v in {**expected, "mean": np.mean([*expected.values()])}.items()})
    half = protocol("pascal50s", data, hand_scores(data), vote_ties="half", reps=50)
    assert values(half)["hand", "HC"] == pytest.approx((1 + .5 + .5 + .5)/4) and "vote_ties:half" in half.signature and "vote_ties:second" in found.signature


def test_the_choices_of_the_authors_program():
    rows = PAIRS
    first, second, votes = (np.array([row[k] for row in rows], float) for k in (2, 3, 1))
    label = [0 if v > 48 - v else 1 for v in votes]
    assert (_right_choices(first, second, votes, np.full(len(rows), 48), "first") == ((first < second).astype(int) == label)).all()
    assert _right_choices(first, second, votes, np.full(len(rows), 48), "first").tolist() == [row[4] for row in rows]


def test_five_draws_of_references_are_averaged(tmp_path):
    data = _protocol_data("pascal50s", pascal(tmp_path/"p"))
    variants, right = _reference_variants(data, 5, 5, seed=3), []
    assert len(variants) == 5 and {len(set(refs)) for drawn in variants.values() for refs in drawn} <= {4, 5}
    assert all(set(refs) <= set(own) for drawn in variants.values() for refs, own in zip(drawn, data.table["references"])) and variants["draw 1"] != variants["draw 2"]
    for drawn in variants.values():
        first, second = (score("bleu-1", list(data.table[side]), drawn) for side in ("first", "second"))
        right.append(_right_choices(first, second, data.table["votes_first"], data.table["votes"], "first"))
    found, kinds = protocol("pascal50s", data, ["bleu-1"], seed=3, reps=20), data.table["category"].to_numpy()
    for kind in ("HC", "HI", "HM", "MM"): assert values(found)["bleu-1", kind] == pytest.approx(np.mean(right, 0)[kinds == kind].mean())
    assert len({tuple(r) for r in right}) > 1
    assert "2008_000000.jpg#1 has 48 references; draw as many or fewer, not 50 (--references)" in fails(_reference_variants, data, 50)


def test_forced_choice_over_weights_is_the_mean_over_kinds():
    draw = rng(0, "forced")
    x, Y, rows, W = draw.integers(0, 3, 40), draw.random((2, 40)), draw.integers(0, 9, 40), draw.integers(0, 3, (7, 9))
    brute = [[np.mean([np.average(y[x == k], weights=w[rows][x == k]) for k in range(3)]) for w in W] for y in Y]
    assert _FORCED_CHOICE.many(x, Y, W, rows) == pytest.approx(np.array(brute))
    assert _FORCED_CHOICE.many(x, Y, W[:, rows]) == pytest.approx(np.array(brute))


def test_shares_stay_between_0_and_1_and_a_perfect_metric_has_an_interval():
    table = pd.DataFrame([dict(item=f"{i}#1", first="a", second="b", category="HC", votes_first=48*(i % 2), votes=48, group=f"{i}.jpg") for i in range(12)])
    scores = pd.DataFrame([dict(item=f"{i}#1", system=s, good=float((i % 2) == (s == "first")), alike=1.0, bad=-float((i % 2) == (s == "first"))) for i in range(12) for s in ("first", "second")])
    found = protocol("pascal50s", Choices("pascal50s", table), scores, reps=50)
    rows = found.table[found.table["split"] == "HC"].set_index("metric")
    assert rows["value"].to_dict() == {"good": 1, "alike": 0.5, "bad": 0} and rows["ci_high"].max() <= 1 and rows["ci_low"].min() >= 0
    assert 0.6 < rows.loc["good", "ci_low"] < 1 and any("bad points the wrong way" in note for note in found.notes)


# FOIL

@pytest.fixture(scope="module")
def foil(tmp_path_factory) -> Path:
    "Rows that alternate, a caption and its foil, two captions of each image."
    folder, draw = tmp_path_factory.mktemp("foil"), rng(0, "foil")
    images = [{"id": i, "file_name": f"COCO_val2014_{i:012d}.jpg"} for i in range(1, 9)]
    held = {i["id"]: [sentence(draw) for _ in range(5)] for i in images}
    ids, rows = {}, []
    for image, texts in held.items():
        for k in range(5): ids[image, k] = 100*image + k
        for k in (1, 3):
            words = texts[k].split()
            wrong = " ".join([*words[:2], "zebra", *words[3:]])
            rows.append({"id": ids[image, k], "image_id": image, "caption": texts[k], "foil": False, "foil_id": ids[image, k], "foil_word": "ORIG", "target_word": "ORIG"})
            rows.append({**rows[-1], "caption": wrong, "foil": True, "foil_id": 10_000 + len(rows), "foil_word": "zebra", "target_word": words[2]})
    (folder/"foilv1.0_test_2017.json").write_text(json.dumps({"images": images, "annotations": rows}))
    (folder/"captions").mkdir()
    texts = [{"id": ids[i, k], "image_id": i, "caption": text} for k in range(5) for i, own in held.items() for j, text in [(k, own[k])]]
    (folder/"captions"/"captions_val2014.json").write_text(json.dumps({"images": images, "annotations": texts}))
    return folder


def authors_foil(folder: Path, one: bool) -> tuple[list, list]: # captions, references: true, foil, true, foil, …
    of, by_image, texts, references = {}, {}, [], []
    for row in json.loads((folder/"captions"/"captions_val2014.json").read_text())["annotations"]: of.setdefault(row["image_id"], []).append(row["caption"])
    for row in json.loads((folder/"foilv1.0_test_2017.json").read_text())["annotations"]: by_image.setdefault(row["image_id"], []).append(row)
    for image, rows in by_image.items():
        for row in rows:
            if not row["foil"]:
                other = [c for c in of[image] if c != row["caption"]]
                references += [[other[2]] if one else other]*2
            texts.append(row["caption"])
    return texts, references


def test_foil_is_what_the_authors_program_gives(foil):
    "Rows alternate; the references are the captions other than the true one, or the third of these; equal scores are wrong."
    found, expected = protocol("foil", foil, ["bleu-1", "rouge-l"], captions=foil/"captions", reps=50), {}
    for metric in ("bleu-1", "rouge-l"):
        for split in ("1-ref", "4-ref"):
            scores = score(metric, *authors_foil(foil, split == "1-ref"))
            expected[metric, split] = np.mean([scores[k] > scores[k + 1] for k in range(0, len(scores), 2)])
        expected[metric, "mean"] = (expected[metric, "1-ref"] + expected[metric, "4-ref"])/2
    assert values(found) == pytest.approx(expected) and set(found.table["n"]) == {16} and set(found.table["n_images"]) == {8}
    assert expected["bleu-1", "1-ref"] < expected["bleu-1", "4-ref"] <= 1
    same = {(m, s): v for (m, s), v in values(protocol("foil", foil, _same_for_both(foil), captions=foil/"captions", reps=50)).items()}
    assert same == {("tied", s): 0 for s in ("1-ref", "4-ref", "mean")}


def _same_for_both(foil: Path) -> pd.DataFrame: # a metric of which all scores are equal
    data = _protocol_data("foil", foil, foil/"captions")
    return pd.DataFrame([dict(item=item, system=side, tied=1.0) for item in data.table["item"] for side in ("first", "second")])


def test_foil_needs_three_other_captions(foil, tmp_path):
    held = json.loads((foil/"captions"/"captions_val2014.json").read_text())
    held["annotations"] = [a for a in held["annotations"] if a["image_id"] != 4 or a["id"] % 100 in (0, 1, 3)]
    (tmp_path/"few.json").write_text(json.dumps(held))
    assert "has 2 other captions, and the protocol takes the third" in fails(protocol, "foil", foil, ["bleu-1"], captions=tmp_path/"few.json")


# pictures

@pytest.fixture(scope="module")
def pictured(foil, tmp_path_factory) -> tuple[Path, Path]: # pictures of FOIL in two folders, a CLIP
    folder, draw = tmp_path_factory.mktemp("val2014"), rng(0, "pixels")
    for i in range(1, 9):
        (folder/"ab"[i % 2]).mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(folder/"ab"[i % 2]/f"COCO_val2014_{i:012d}.png")
    return folder, mini_clip(tmp_path_factory.mktemp("clip"))


def test_clipscore_finds_the_pictures_of_coco_by_their_numbers(foil, pictured):
    pictures, weights = pictured
    found = protocol("foil", foil, ["clipscore", "refclipscore"], images=pictures, captions=foil/"captions", weights=weights, reps=50)
    data, metric = _protocol_data("foil", foil, foil/"captions").table, get_metric("clipscore", weights=weights)
    seen, there = _find_pictures(pictures, data["group"])
    assert there.all() and [photo.path.stem for photo in seen.items] == [f"COCO_val2014_{int(g):012d}" for g in data["group"]]
    pixels = [torch.from_numpy(np.array(Image.open(next(pictures.rglob(f"*{int(g):012d}.png"))))).movedim(-1, 0)/255 for g in data["group"]]
    first, second = (extract([metric], list(data[side]), None, pixels)[metric.name].pred for side in ("first", "second"))
    own = {split: value for (name, split), value in values(found).items() if name == metric.name}
    assert set(own.values()) == {float((first > second).double().mean())} and len(own) == 3
    assert found.table["metric"].nunique() == 2 and np.isfinite(found.table["value"]).all()


def test_a_metric_that_lacks_something_keeps_its_row(foil, pictured, tmp_path):
    pictures, weights = pictured
    found = protocol("foil", foil, ["bleu-1", "clipscore", "comet"], captions=foil/"captions", reps=20, weights={"clipscore": weights})
    rows = found.table[found.table["split"] == "4-ref"].set_index("metric")
    assert np.isfinite(rows["value"]).tolist() == [True, False, False] and rows["note"].iloc[1] == "needs the pictures; give their folder (--images)" and "\n" not in rows["note"].iloc[2]
    assert rows["note"].iloc[2] and found.published_form()["note"].tolist() == rows["note"].tolist()
    for i in (1, 2): (tmp_path/f"COCO_val2014_{i:012d}.png").write_bytes(next(pictures.rglob(f"*{i:012d}.png")).read_bytes())
    run = dict(captions=foil/"captions", images=tmp_path, weights=weights, reps=20)
    assert "no picture for 6 of 8 images" in fails(protocol, "foil", foil, ["clipscore"], **run)
    for i in (3, 4): (tmp_path/f"COCO_val2014_{i:012d}.png").write_bytes(next(pictures.rglob(f"*{i:012d}.png")).read_bytes())
    left = protocol("foil", foil, ["clipscore", "bleu-1"], intersect=True, **run)
    assert set(left.table["n"]) == {8} and set(left.table["n_images"]) == {4} and any("the 8 that all have are used" in note for note in left.notes)


def test_a_picture_that_does_not_decode_is_named_in_the_row(foil, pictured, tmp_path):
    pictures, weights = pictured
    for i in range(1, 9): (tmp_path/f"{i}.png").write_bytes(next(pictures.rglob(f"*{i:012d}.png")).read_bytes()[:200 if i == 5 else None])
    found = protocol("foil", foil, ["clipscore", "bleu-1"], captions=foil/"captions", images=tmp_path, weights={"clipscore": weights}, reps=20)
    notes = found.table.drop_duplicates("metric").set_index("metric")["note"]
    assert "5.png" in notes.iloc[0] and "\n" not in notes.iloc[0] and notes.iloc[1] == ""


def test_pictures_of_experts_by_name(flickr, pictured, tmp_path):
    _, weights = pictured
    for i in range(12): Image.fromarray(rng(i, "p").integers(0, 256, (30, 30, 3), dtype=np.uint8)).save(tmp_path/f"{i}_ab.png")
    found = protocol("flickr8k-expert", flickr, ["clipscore"], images=tmp_path, weights=weights, reps=20)
    data, metric = _protocol_data("flickr8k-expert", flickr), get_metric("clipscore", weights=weights)
    image = dict(zip(data.scores["item"], data.scores["group"]))
    pixels = [torch.from_numpy(np.array(Image.open(tmp_path/f"{Path(image[i]).stem}.png"))).movedim(-1, 0)/255 for i in data.outputs["item"]]
    y = dict(zip(data.outputs["item"], extract([metric], list(data.outputs["output"]), None, pixels)[metric.name].pred.tolist()))
    assert found.table["value"].iloc[0] == pytest.approx(kendalltau([y[i] for i in data.scores["item"]], data.scores["score"], variant="c").statistic, abs=1e-12)
    (tmp_path/"more").mkdir()
    (tmp_path/"more"/"3_ab.png").write_bytes((tmp_path/"4_ab.png").read_bytes())
    assert "several pictures for one image: 3_ab" in fails(protocol, "flickr8k-expert", flickr, ["clipscore"], images=tmp_path, weights=weights, reps=20)


# what is wrong is said in one line

def test_what_does_not_fit_is_said(flickr, foil, composite, tmp_path):
    assert "unknown protocol 'pascal'; did you mean pascal50s?" in fails(protocol, "pascal", flickr)
    assert "no file or folder at" in fails(protocol, "foil", tmp_path/"gone")
    said = fails(protocol, "flickr8k-cf", flickr/"ExpertAnnotations.txt")
    assert "it holds flickr8k-expert, and this protocol is for flickr8k-cf; invariant-metrics agree protocol flickr8k-expert --path" in said
    assert "it holds foil" in fails(protocol, "pascal50s", foil/"foilv1.0_test_2017.json") and "no judgments in it of format foil" in fails(protocol, "foil", flickr)
    held = authors_flickr(flickr)[1]
    (tmp_path/"crowd.json").write_text(json.dumps(held))
    assert "it holds flickr8k-cf, and this protocol is for flickr8k-expert" in fails(protocol, "flickr8k-expert", tmp_path/"crowd.json")
    (tmp_path/"own.csv").write_text("item,score\n1,3\n2,4\n")
    assert "`invariant-metrics agree` measures agreement with any judgments" in fails(protocol, "composite", tmp_path/"own.csv")
    assert "did you mean bleu-1" in fails(protocol, "flickr8k-expert", flickr, ["blue-1"])
    assert "captions (--captions) has no effect on flickr8k-expert" in fails(protocol, "flickr8k-expert", flickr, captions=foil/"captions")
    assert "compares whole sets" in fails(protocol, "flickr8k-expert", flickr, ["fbd"])
    assert "unknown way with equal votes 'coin'" in fails(protocol, "foil", foil, ["bleu-1"], captions=foil/"captions", vote_ties="coin", reps=20)
    assert "reps" in fails(protocol, "flickr8k-expert", flickr, reps=1) and "draws" in fails(protocol, "flickr8k-expert", flickr, draws=0)
    assert "foil takes one file of captions" in fails(protocol, "foil", foil, captions=composite/"captions")
    odd = Choices("pascal50s", pd.DataFrame([dict(item=str(i), first="a", second="b", category="XX", votes_first=1, votes=1) for i in range(5)]))
    scores = pd.DataFrame([dict(item=str(i), system=s, m=i*(s == "first")) for i in range(5) for s in ("first", "second")])
    assert "'XX' is none of the kinds HC, HI, HM, MM" in fails(protocol, "pascal50s", odd, scores)


def test_every_protocol_says_what_it_does():
    for plan in PROTOCOLS.values():
        assert plan.cite and plan.dropped and plan.references and plan.traps and plan.statistic in ("tau_b", "tau_c", "forced_choice")
        assert (plan.statistic == "forced_choice") == bool(plan.metric_ties) == (plan.splits[-1] == "mean")


def test_a_constant_metric_keeps_its_row_and_a_lower_one_is_turned(flickr):
    data = _protocol_data("flickr8k-expert", flickr)
    keys = data.outputs[["item", "system"]]
    table = keys.assign(same=1.0, length=data.outputs["output"].map(len).astype(float)*-1 + np.arange(len(keys)))
    plain, turned = (protocol("flickr8k-expert", data, table, lower=lower, reps=20) for lower in ((), ["length"]))
    assert values(plain)["length", "all"] == -values(turned)["length", "all"] and turned.table.set_index("metric").loc["length", "turned"]
    assert plain.table.set_index("metric").loc["same", "note"] == "gives every caption the same score"
    assert "gives every caption the same score" in fails(protocol, "flickr8k-expert", data, keys.assign(same=1.0))
    assert "--intersect" in fails(protocol, "flickr8k-expert", data, table.iloc[3:])
    assert protocol("flickr8k-expert", data, table.iloc[3:], intersect=True, reps=20).table["n"].iloc[-1] == 3*(len(keys) - 3)


def test_results_are_saved_whole(flickr, tmp_path):
    found = protocol("flickr8k-expert", flickr, ["bleu-1", "clipscore"], reps=20)
    folder = found.save(tmp_path/"out")
    assert sorted(p.name for p in folder.iterdir()) == ["comparisons.parquet", "protocol.json", "table.parquet"]
    assert pd.read_parquet(folder/"table.parquet")["value"].tolist()[0] == found.table["value"][0]


# from a shell

def test_the_command_prints_the_table_of_a_paper(flickr, foil):
    done = cli("agree", "protocol", "flickr8k-expert", "--path", flickr, "--metrics", "bleu-1,clipscore", "--metrics", "rouge-l", "--reps", 20, "--pairs", cwd=flickr)
    assert done.returncode == 0 and "tau_c" in done.stdout and "needs the pictures" in done.stdout and "differences between metrics" in done.stdout, done.stderr
    done = cli("agree", "protocol", "foil", "--path", foil, "--captions", foil/"captions", "--metrics", "bleu-1", "--reps", 20, "--json", cwd=foil)
    found = json.loads(done.stdout)
    assert found["kind"] == "protocol" and [row["split"] for row in found["result"]["table"]] == ["1-ref", "4-ref", "mean"] and found["result"]["protocol"] == "foil"
    done = cli("agree", "protocol", "foil", "--path", foil, "--captions", foil/"captions", "--metrics", "bleu-1", "--reps", 20, "--format", "csv", cwd=foil)
    assert done.stdout.splitlines()[0].startswith("metric,protocol,split,statistic,value,ci_low,ci_high,n,n_images")


def test_long_captions_are_refused_or_split_as_asked_and_counted(foil, pictured, tmp_path):
    pictures, weights = pictured                # a CLIP of 64 tokens, each a letter
    told = json.loads((foil/"foilv1.0_test_2017.json").read_text())
    for row in told["annotations"][:2]: row["caption"] = " ".join([row["caption"]]*5)
    (tmp_path/"foilv1.0_test_2017.json").write_text(json.dumps(told))
    asked = ["agree", "protocol", "foil", "--path", tmp_path, "--captions", foil/"captions", "--images", pictures,
             "--metrics", "clipscore", "--weights", weights, "--reps", 20, "--json"]
    refused = cli(*asked, cwd=tmp_path)
    assert "long=split" in refused.stdout + refused.stderr and "have more than 64 tokens" in refused.stdout + refused.stderr
    done = cli(*asked, "--option", "long=split", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [note for note in found["result"]["notes"] if "have more than 64 tokens" in note and "parts averaged" in note], found["result"]


def test_the_command_refuses_in_one_line(flickr, tmp_path):
    for words, says in ((["pascal", "--path", flickr], "did you mean pascal50s?"), (["foil", "--path", flickr], "no judgments in it of format foil"),
                        (["flickr8k-expert", "--path", flickr, "--metrics", "clipscore"], "give their folder (--images)"), (["flickr8k-expert"], "Missing option '--path'"),
                        (["flickr8k-expert", "--path", tmp_path/"gone"], "no file or folder"), (["pascal50s", "--path", flickr, "--vote-ties", "coin"], "coin")):
        done = cli("agree", "protocol", *words, cwd=tmp_path)
        said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 2 and len(said) == 1 and says in said[0] and done.stdout == "", (words, done.stderr)
