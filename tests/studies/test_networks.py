"""Public networks where users need them: every command takes them by name, from a folder, and says so; what has no effect is refused."""
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import invariant_metrics as im
from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.weights import load_pretrained, _local_place
from invariant_metrics.invariants.invariant import get_invariant
from invariant_metrics.metrics.metric import get_metric, weight_names
from invariant_metrics.probes import images, own_images, worlds
from invariant_metrics.probes.probe_task import ProbeSize
from invariant_metrics.studies import search
from invariant_metrics.studies.colorizers import _COLORIZATION
from invariant_metrics.studies.plan import StudySize
from invariant_metrics.studies.tasks import make_plan
from invariant_metrics.studies.writers import _CAPTIONING, _TRANSLATION
from tiny_networks import save_tiny, save_vision

SMALL = StudySize(32, 24, 10, 12, 4, 2, 8, 10)
NER = {i: label for i, label in enumerate(("O", "B-PER", "I-PER", "B-LOC"))}
MOODS = {0: "NEGATIVE", 1: "POSITIVE"}


@pytest.fixture(scope="module")
def nets(tmp_path_factory, one_thread) -> Path:
    "A folder for each public class that a user may have on disk."
    root = tmp_path_factory.mktemp("networks")
    for kind in ("segformer", "mask2former", "dpt", "dinov2", "clip"): save_vision(root/kind, kind)
    save_tiny(root/"ner", labels=len(NER), head="TokenClassification", id2label=NER, label2id={v: k for k, v in NER.items()})
    save_tiny(root/"mood", kind="distilbert", labels=2, id2label=MOODS, label2id={v: k for k, v in MOODS.items()})
    return root


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    "Twelve pictures of blobs and what a system made of them, with captions."
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for side in ("real", "made"): (root/side).mkdir()
    for i in range(12):
        y, x = np.mgrid[:64, :64]
        inside = ((y - 32)**2 + (x - 20 - i)**2 < 300)[..., None]
        rgb = np.where(inside, rng.uniform(60, 250, 3), rng.uniform(0, 180, 3)) + rng.normal(0, 4, (64, 64, 3))
        Image.fromarray(rgb.clip(0, 255).astype(np.uint8)).save(root/"real"/f"p{i}.png")
        Image.fromarray((0.8*rgb + 30).clip(0, 255).astype(np.uint8)).save(root/"made"/f"p{i}.png")
    return root


def revision(folder: Path) -> str: return _local_place(folder).revision
def result(done): return json.loads(done.stdout)["result"]


def test_every_public_class_is_taken_by_its_own_name_and_by_that_of_the_invariant(nets):
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for folder, names in (("segformer", ("segformer", "segmentation", "segmentation-judge")), ("mask2former", ("mask2former", "segmentation")), ("dpt", ("midas", "depth"))):
        for name in names:
            g = get_invariant(name, nets/folder)
            told = dict(g.signature.items)
            assert (told["invariant"], told["weights"], told["revision"]) == (name, folder, revision(nets/folder))
            assert torch.isfinite(g.violation(x, x.flip(0))).all() and g.violation(x, x.flip(0)).sum() > 0
    for name, folder in (("entities", "ner"), ("sentiment", "mood")):
        assert dict(get_invariant(name, nets/folder).signature.items)["revision"] == revision(nets/folder)
    for name, folder, says in (("segmentation", "dpt", "holds a 'dpt' model, not 'segformer' or 'mask2former'"), ("depth", "segformer", "not 'dpt'"),
                               ("segformer", "mask2former", "not 'segformer'"), ("entities", "mood", "has a label O")):
        with pytest.raises(InputError, match=says): get_invariant(name, nets/folder)


def test_damaged_files_are_one_line_and_no_pickle_is_opened(nets, tmp_path):
    import transformers
    shutil.copytree(nets/"dpt", tmp_path/"old")
    net = load_pretrained(transformers.DPTForDepthEstimation, _local_place(nets/"dpt"))
    (tmp_path/"old"/"model.safetensors").unlink()
    torch.save(net.state_dict(), tmp_path/"old"/"pytorch_model.bin")
    again = load_pretrained(transformers.DPTForDepthEstimation, _local_place(tmp_path/"old"))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True)), "old files give the same network"
    class Evil:
        def __reduce__(self): return (Path.touch, (tmp_path/"ran",))
    torch.save({"x": Evil()}, tmp_path/"old"/"pytorch_model.bin")
    with pytest.raises(InputError, match="no code in it was run"): get_invariant("depth", tmp_path/"old")
    assert not (tmp_path/"ran").exists()
    for kind, names in (("segformer", ["segmentation", "segformer"]), ("dpt", ["depth", "midas"]), ("ner", ["entities"]), ("mood", ["sentiment"])):
        shutil.copytree(nets/kind, tmp_path/kind)
        (tmp_path/kind/"model.safetensors").write_bytes(b"\x08" + bytes(30))
        for name in names:
            with pytest.raises(InputError) as error: get_invariant(name, tmp_path/kind)
            assert "\n" not in str(error.value) and kind in str(error.value)
    bad = tmp_path/"bad.safetensors"
    bad.write_bytes(b"\x08" + bytes(30))
    for make in (lambda: get_encoder("embedded", str(bad)), lambda: get_invariant("segmentation", bad), lambda: get_invariant("entities", bad),
                 lambda: get_metric("lpips-alex", weights=str(bad)), lambda: get_metric("fid", weights=str(bad))):
        with pytest.raises(InputError, match="bad.safetensors is not a readable weights file: SafetensorError"): make()


def test_score_stats_and_invariants_take_weights_by_name(nets, pictures, tmp_path):
    sides = ["--pred", pictures/"made", "--target", pictures/"real", "--ci", "none"]
    done = cli("score", "violation-segmentation,violation-depth,violation-mask2former,fd", *sides, "--weights", f"segmentation={nets/'segformer'}",
               "--weights", f"depth={nets/'dpt'}", "--weights", f"mask2former={nets/'mask2former'}", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = next(iter(result(done)["scores"].values()))
    for metric, folder in (("violation-segmentation", "segformer"), ("violation-depth", "dpt"), ("violation-mask2former", "mask2former")):
        assert f"revision:{revision(nets/folder)}" in scores[metric]["signature"] and scores[metric]["value"] > 0
    assert "encoder:embedded" in scores["fd"]["signature"]
    named = {"segmentation": nets/"segformer", "violation-depth": str(nets/"dpt")}
    same = im.score(str(pictures/"made"), str(pictures/"real"), ["violation-segmentation", "violation-depth"], weights=named, ci=False)
    assert {k: s.value for k, s in same.items()} == {k: scores[k]["value"] for k in same}

    done = cli("score", "fd,encoder-distance", *sides, "--encoder", "dinov2", "--weights", f"dinov2={nets/'dinov2'}", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count(f"weights:{revision(nets/'dinov2')}") == 2
    assert re.search(r"metric +encoder +value", done.stdout) and re.search(r"\nfd.*dinov2", done.stdout), "the table says on which encoder"
    made = cli("stats", pictures/"real", "--out", "real.safetensors", "--encoder", "dinov2", "--weights", str(nets/"dinov2"), "--json", cwd=tmp_path)
    assert f"weights:{revision(nets/'dinov2')}" in result(made)["signature"]
    rows = {row["name"]: row for row in result(cli("invariants", "--weights", f"mask2former={nets/'mask2former'}", "--json", cwd=tmp_path))}
    assert rows["mask2former"]["here"] and revision(nets/"mask2former") in rows["mask2former"]["signature"] and not rows["segformer"]["here"]

    for words, says in (
            (["violation-edges", "--weights", f"edges={nets/'dpt'}"], "weights has no effect on violation-edges"),
            (["violation-depth", "--weights", f"dept={nets/'dpt'}"], "weights of 'dept' have no effect on violation-depth; names that have: violation-depth, depth"),
            (["violation-depth", "--weights", "depth=nowhere"], "unknown weights 'nowhere'"),
            (["violation-depth", "--weights", f"depth={tmp_path}/nowhere"], "no weights in"),
            (["violation-mask2former"], "weights fetch mask2former@COMMIT, then --weights mask2former@COMMIT"),
            (["violation-mask2former", "--weights", "mask2former@" + "0"*40], "weights fetch mask2former@0000"),
            (["fid,fdd,cmmd,kid,psnr"], "run: invariant-metrics weights fetch inception dinov2-large clip-vit-large-patch14-336")):
        done = cli("score", *words, *sides, cwd=tmp_path, TORCH_HOME=tmp_path)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_published_name_stands_for_the_published_network_alone(nets, pictures, tmp_path):
    x, y = torch.rand(2, 20, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert list(im.score(x, y, ["cmmd"], weights=str(nets/"clip"), ci=False)) == ["cmmd-clip"] # a CLIP, and not the published one
    assert list(im.score(x, y, ["cmmd"], encoder="dinov2", weights=str(nets/"dinov2"), ci=False)) == ["cmmd-dinov2"]
    found = im.score(x, y, ["cmmd"], encoder="embedded", ci=False)
    assert list(found) == ["cmmd-embedded"] and found["cmmd-embedded"].value == im.score(x, y, ["cmmd-embedded"], ci=False)["cmmd-embedded"].value
    assert str(found["cmmd-embedded"].signature).startswith("metric:cmmd-embedded|encoder:embedded|")
    assert list(im.score(torch.rand(20, 8), torch.rand(20, 8), ["cmmd"], ci=False)) == ["cmmd"] # features of somebody's own CLIP
    assert get_metric("fdd", weights=str(nets/"dinov2")).name == "fdd-dinov2"
    assert [get_metric(n, untrained=True).name for n in ("lpips-squeeze", "lpips")] == ["lpips-squeeze-untrained", "lpips-alex-untrained"]
    assert get_metric("lpips-embedded").name == "lpips-embedded" and get_metric("lpips-embedded", untrained=True).name == "lpips-embedded-untrained"
    listed = {m["name"]: m for m in json.loads(cli("metrics", "--json", cwd=tmp_path).stdout)["result"]}
    for name in ("clipscore", "refclipscore", "fid", "fid-clean", "fdd", "kid", "cmmd", "inception-score", "lpips", "lpips-vgg", "fbd", "bertscore", "bleurt", "comet"):
        assert "; unverified: " in listed[name]["measures"], name
    for name in ("fd", "psnr", "cmmd-embedded", "lpips-embedded", "l-clipscore", "cider-d"): assert "unverified" not in listed[name]["measures"], name
    wrong = cli("score", "metrik", "--pred", pictures/"made", "--target", pictures/"real", cwd=tmp_path)
    assert wrong.stderr == "error: unknown metric 'metrik'; for all of them: invariant-metrics metrics\n"
    wrong = cli("score", "lpipss", "--pred", pictures/"made", "--target", pictures/"real", cwd=tmp_path)
    assert "did you mean lpips" in wrong.stderr and "clipscore" not in wrong.stderr and len(wrong.stderr) < 150


def test_a_copy_of_the_published_file_is_the_published_network(tmp_path, monkeypatch):
    from dataclasses import replace
    from invariant_metrics.encoders import weights as w
    from invariant_metrics.files import file_sha256
    from invariant_metrics.metrics.metric import _network_suffix
    path = tmp_path/"mine.pth"
    torch.save({"a": torch.zeros(2)}, path)
    card = replace(w.get_card("inception"), sha256=file_sha256(path))
    monkeypatch.setattr("invariant_metrics.metrics.metric.get_card", lambda name: card)
    told = {"encoder": "inception", "weights": w._local_place(path).revision}
    assert _network_suffix(told, "inception", weights=path) == "" and _network_suffix(told, "inception") == f"-{told['weights']}"
    monkeypatch.setattr("invariant_metrics.metrics.metric.get_card", lambda name: replace(card, sha256="0"*64))
    assert _network_suffix(told, "inception", weights=path) == "-mine"


def test_every_metric_with_weights_goes_by_a_name():
    for name in ("bleu", "psnr", "violation-edges", "violation-scene-graph", "violation-depth-random"): assert weight_names(name) == ()
    for name, card in (("fid", "inception"), ("fdd", "dinov2-large"), ("cmmd", "clip-vit-large-patch14-336"), ("lpips", "alexnet"), ("clipscore", "clip-vit-b-32"),
                       ("violation-midas", "midas"), ("violation-paraphrase", "minilm"), ("bertscore", "roberta-large"), ("bleurt", "bleurt-base-128")):
        assert name in weight_names(name) and card in weight_names(name)
    assert weight_names("fd", "dinov2") == ("fd", "dinov2", "dinov2-large") and weight_names("fd", "mean-color") == ()


@pytest.fixture
def small(monkeypatch):
    "Studies and probes of a size for tests, in this process."
    for design in (_COLORIZATION, _TRANSLATION, _CAPTIONING): monkeypatch.setitem(design.sizes, "quick", SMALL)
    for sizes in (images.COLOR_SIZES, own_images.PICTURE_SIZES): monkeypatch.setitem(sizes, "quick", ProbeSize(10, 6, 20))
    monkeypatch.setitem(worlds._WORLD_SIZES, "quick", ProbeSize(16, 8, 20, 8))
    train = search.train_systems
    monkeypatch.setattr(search, "train_systems", lambda folder, s, device, workers, **more: train(folder, s, device=device, workers=0, **more))


def test_probe_takes_weights_and_encoder(nets, pictures, tmp_path, small):
    words = ["probe", "images", "--target", pictures/"real", "--metrics", "violation-segmentation,fd", "--families", "noise", "--scale", "quick", "--side", 32, "--workers", 1, "--json"]
    own = ["--weights", f"segmentation={nets/'segformer'}", "--encoder", "dinov2", "--weights", f"dinov2={nets/'dinov2'}"]
    done = cli(*words, *own, "--out", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path/"a"/"run.json").read_text())["settings"]
    assert settings["encoder"] == "dinov2"
    assert settings["weights"]["segmentation"] == {"weights": str(nets/"segformer"), "revision": revision(nets/"segformer")}
    plain = cli(*words, "--out", "b", cwd=tmp_path)
    assert result(plain)["signatures"] != result(done)["signatures"], "what was chosen is in the signature"
    again = cli(*words, "--out", "a", cwd=tmp_path)
    assert again.returncode == 2 and "holds another run" in again.stderr and "weights" in again.stderr
    for extra, says in ((["--weights", f"depth={nets/'dpt'}"], "weights of 'depth' have no effect on violation-segmentation, fd"),
                        (["--weights", str(nets/"dpt")], "say what the weights"), (["--encoder", "dinov3"], "did you mean dinov2")):
        wrong = cli(*words, *extra, "--out", "c", cwd=tmp_path)
        assert wrong.returncode == 2 and says in wrong.stderr and not (tmp_path/"c").exists(), wrong.stderr
    text = cli("probe", "translation", "--encoder", "bert", cwd=tmp_path)
    assert text.returncode == 2 and "--encoder has no effect on the probe of translation" in text.stderr


def test_probe_of_texts_takes_weights(nets, tmp_path, small):
    words = ["probe", "translation", "--metrics", "bleu,violation-entities,violation-sentiment", "--families", "entity-replaced", "--scale", "quick", "--workers", 1, "--json"]
    done = cli(*words, "--weights", f"entities={nets/'ner'}", "--weights", f"sentiment={nets/'mood'}", "--out", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"bleu", "violation-entities", "violation-sentiment"} <= {row["metric"] for row in result(done)["auc"]}
    assert result(done)["signatures"] != result(cli(*words, "--out", "b", cwd=tmp_path))["signatures"]


def test_agree_takes_weights_for_metrics_that_are_run(nets, tmp_path):
    words = "the red cat sees a blue dog . a house with two trees . the old ball under the tree is not red".split()
    rng = np.random.default_rng(0)
    rows = [{"item": f"i{i}", "system": s, "output": " ".join(rng.choice(words, 6)), "references": " ".join(rng.choice(words, 6)), "score": float(rng.normal())}
            for i in range(20) for s in ("a", "b")]
    pd.DataFrame(rows).to_csv(tmp_path/"judged.csv", index=False)
    done = cli("agree", "judged.csv", "--metrics", "bleu,violation-entities", "--weights", f"entities={nets/'ner'}", "--reps", 20, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ledger = {row["metric"]: row["signature"] for row in result(done)["ledger"]}
    assert revision(nets/"ner") in ledger["violation-entities"]
    done = cli("agree", "judged.csv", "--metrics", "bleu", "--weights", f"entities={nets/'ner'}", cwd=tmp_path)
    assert done.returncode == 2 and "weights has no effect on bleu" in done.stderr


def test_study_of_photographs_with_public_networks_and_chosen_systems(nets, pictures, tmp_path, small):
    words = ["study", "colorization", "--data", pictures/"real", "--scale", "quick", "--parts", "training", "--seeds", 1, "--alphas", 0.3, "--workers", 1, "--json"]
    done = cli(*words, "--systems", "segmentation,segmentation+depth", "--weights", f"segmentation={nets/'segformer'}", "--weights", f"depth={nets/'dpt'}",
               "--encoder", "dinov2", "--weights", f"dinov2={nets/'dinov2'}", "--out", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = pd.read_parquet(tmp_path/"a"/"training"/"results.parquet")
    assert set(results["system"]) == {"baseline", "saturation", "gray", "blurred-color", "constant-color", "+segmentation", "+segmentation+depth", "+segmentation-random",
                                       "+segmentation-random+depth-random"}
    told = results.drop_duplicates("metric").set_index("metric")["signature"]
    assert revision(nets/"segformer") in told["violation-segmentation"] and revision(nets/"dpt") in told["violation-depth"]
    assert revision(nets/"dinov2") in told["fd"] and "encoder:dinov2" in told["fd-untrained"] and "encoder:embedded" in told["cmmd-embedded"]
    run = json.loads((tmp_path/"a"/"run.json").read_text())["settings"]
    assert run["systems"] == ["segmentation", "segmentation+depth"] and set(run["weights"]) == {"segmentation", "depth", "dinov2"}
    page = (tmp_path/"a"/"index.html").read_text()
    assert "no valid labels" not in page, "the networks were named"
    for extra, says in ((["--weights", f"sentiment={nets/'mood'}"], "weights of 'sentiment' have no effect"), (["--systems", "segmantation"], "did you mean segmentation"),
                        (["--systems", "+"], "name at least one system"), (["--weights", "mask2former@" + "1"*40], "weights fetch mask2former@1111")):
        wrong = cli(*words, *extra, "--out", "b", cwd=tmp_path)
        assert wrong.returncode == 2 and says in wrong.stderr and not (tmp_path/"b").exists(), wrong.stderr


def test_a_page_of_photographs_says_that_scene_networks_have_no_labels_there():
    from invariant_metrics.studies.study_report import _study_limits
    said = lambda *args: " ".join(_study_limits(None, None, *args))
    assert "Segmentation and depth are read" in said("colorization", "photos/") and "no valid labels" in said("colorization", "photos/")
    assert "Depth is read" in said("colorization", "photos/", {"segmentation": {}})
    assert "no valid labels" not in said("colorization", None) + said("colorization", "p/", {"segmentation": {}, "depth": {}})
    assert "sees your pictures" in said("captioning", "photos/") and "sees your pictures" not in said("captioning", "photos/", None, "dinov2")


def test_a_captioner_sees_own_photographs_through_a_chosen_encoder(nets, pictures, tmp_path, small):
    from invariant_metrics.studies.corpora import own_corpora
    shutil.copytree(pictures/"real", tmp_path/"own")
    captions = [{"image": f"p{i}.png", "captions": [f"a red ball {i}", "the ball is red"], "split": part} for i, part in
                enumerate(["train"]*4 + ["validation"]*4 + ["test"]*4)]
    found = {}
    for encoder in (None, "dinov2"):
        record = None if encoder is None else {"dinov2": {"weights": str(nets/"dinov2"), "revision": revision(nets/"dinov2")}}
        plan = make_plan({"task": "captioning", "scale": "quick", "encoder": encoder, "weights": record}, SMALL)
        from invariant_metrics.studies.corpora import _scene_corpora
        found[encoder] = _scene_corpora(plan, ["validation"])["validation"].features
    assert found[None].shape[0] == found["dinov2"].shape[0] == SMALL.validation and found[None].shape[2] != found["dinov2"].shape[2]
    wrong = cli("study", "translation", "--encoder", "dinov2", "--parts", "training", "--scale", "quick", "--out", "a", cwd=tmp_path)
    assert wrong.returncode == 2 and "--encoder has no effect on translation" in wrong.stderr
