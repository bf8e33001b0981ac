"What cannot see anything notices nothing and prefers nothing, in every table of every kind of probe."
import itertools
import json

import pytest

from invariant_metrics.core import Signature
from invariant_metrics.metrics.metric import SetMetric
from invariant_metrics.probes import images, own_images, own_texts, worlds
from invariant_metrics.probes.probe_figures import all_levels, profile_heat, _profile_words
from invariant_metrics.probes.tables import kind_verdicts, summarize_probe
from invariant_metrics.probes.probe_task import ProbeSize

COUNT = SetMetric("count", lambda rgb: rgb.mean((2, 3)), lambda p, t, w=None, v=None: 1.0, False, Signature.of(metric="count"), "means")
SENTENCES = [[f"a {color} {noun} {does}", f"the {noun} , {color} , {does}", f"there is a {color} {noun} that {does}"] for noun, color, does
             in itertools.product("cat dog man woman horse".split(), "red blue green black".split(), ("sits on a mat", "runs near a bus", "stands by a river"))]


def captions(foils=None):
    refs = {str(i): said for i, said in enumerate(SENTENCES)}
    return own_texts.own_probe("captioning", refs, {"first": {i: said[0] for i, said in refs.items()}}, metrics=["bleu"], foils=foils, scale="quick", progress=False)


def foils(folder):
    rows = [dict(type="replace-att", caption=said[0], negative_caption=said[0].replace(*colors), image_id=str(i))
            for i, said in enumerate(SENTENCES) for colors in [("red ", "pink ")] if "red " in said[0]]
    (folder/"foils.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return captions([folder/"foils.jsonl"])


def single(task):
    refs = {str(i): said[:1] for i, said in enumerate(SENTENCES)}
    return own_texts.own_probe(task, refs, {"second": {i: said[1] for i, said in enumerate(SENTENCES) for i in [str(i)]}}, metrics=["rouge-l"], scale="quick", progress=False)


PROBES = {
    "own captions": lambda folder: captions(),
    "foils": foils,
    "translations": lambda folder: single("translation"),
    "summaries": lambda folder: single("summarization"),
    "captions of scenes": lambda folder: worlds.text_probe("captioning", ["rouge-l"], scale="quick", progress=False),
    "translations of a world": lambda folder: worlds.text_probe("translation", ["rouge-l"], scale="quick", progress=False),
    "pictures": lambda folder: own_images.image_probe("scenes", metrics=["psnr", COUNT], scale="quick", progress=False),
    "colors of scenes": lambda folder: images.color_probe("scenes", ["psnr", COUNT], scale="quick", progress=False),
    "colors of photographs": lambda folder: images.color_probe("photos", ["psnr", COUNT], scale="quick", progress=False)}


SLOW = ("own captions", "summaries", "colors of scenes") # each of the others has what these have


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PROBES])
def test_a_constant_notices_nothing_and_prefers_nothing(name, monkeypatch, tmp_path):
    monkeypatch.setitem(own_texts.OWN_SIZES, "quick", ProbeSize(60, 8, 40, 12))
    monkeypatch.setitem(worlds._WORLD_SIZES, "quick", ProbeSize(24, 8, 40, 12))
    monkeypatch.setitem(own_images.PICTURE_SIZES, "quick", ProbeSize(12, 8, 40))
    monkeypatch.setitem(images.COLOR_SIZES, "quick", ProbeSize(12, 8, 40, per_photo=1))
    found = PROBES[name](tmp_path)
    blind = {"constant", *({"count"} & set(found.auc["metric"]))}
    verdicts = kind_verdicts(found)
    of_blind = verdicts[verdicts["metric"].isin(blind)]
    assert set(of_blind["metric"]) == blind and set(of_blind["verdict"]) <= {"undecided", "too few"} and "undecided" in set(of_blind["verdict"])
    counts = summarize_probe(found).counts
    assert not counts.loc[counts["metric"].isin(blind), ["notices", "prefers"]].to_numpy().any()
    for (source, view, level), rows in found.auc.groupby(["source", "view", "level"]):
        rows = all_levels(found.auc, source, view, level)
        assert set(rows.loc[rows["metric"].isin(blind), "verdict"]) <= {"undecided"}
    for source, view in found.profile[["source", "view"]].drop_duplicates().itertuples(index=False):
        for row in profile_heat(found.profile, source, view)["rows"]: assert row["name"] not in blind or not any(cell["sure"] for cell in row["cells"])
        for metric in blind:
            said = _profile_words(found.profile, source, metric, view)
            assert not said or "it scores 0 worse than a valid alternative; none better" in said[0]
