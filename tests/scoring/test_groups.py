"Scores by group: what the same call prints for the items of the group alone, and the mean of the groups over clips."
import json

import numpy as np
import pytest
from PIL import Image

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.scoring.score import score

SIZES = {f"clip{c:02}": 2 + c % 3 for c in range(9)}


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    top = tmp_path_factory.mktemp("clips")
    draw = np.random.default_rng(0)
    for c, (clip, count) in enumerate(SIZES.items()):
        for side in ("pred", "target"): (top/side/clip).mkdir(parents=True)
        for i in range(count):
            x = draw.integers(40, 200, (16, 18, 3))
            noise = (3 + 2*c)*draw.standard_normal(x.shape)
            Image.fromarray(x.astype(np.uint8)).save(top/"target"/clip/f"{i}.png")
            Image.fromarray((x + noise).clip(0, 255).astype(np.uint8)).save(top/"pred"/clip/f"{i}.png")
    return top


def test_groups_of_folders_are_the_scores_of_the_folders(clips):
    whole = score(clips/"pred", clips/"target", ["psnr", "psnr-pooled", "fd"], recursive=True, group="folder", ci=False)
    assert list(whole.groups) == list(SIZES)
    for clip in ("clip01", "clip08"):
        alone = score(clips/"pred"/clip, clips/"target"/clip, ["psnr", "psnr-pooled", "fd"], ci=False)
        for name in alone:
            assert whole.groups[clip][name].value == pytest.approx(alone[name].value, rel=1e-6)
            assert whole.groups[clip][name].n == SIZES[clip]
    values = [whole.groups[clip]["psnr"].value for clip in SIZES]
    assert whole.group_mean["psnr"].value == pytest.approx(np.mean(values)) != pytest.approx(whole["psnr"].value, abs=1e-3)
    assert whole.group_mean["psnr"].n == 9 and "mean:groups" in str(whole.group_mean["psnr"].signature)


def test_the_mean_of_groups_has_an_interval_over_groups(clips):
    whole = score(clips/"pred", clips/"target", "psnr", recursive=True, group="folder")
    ci = whole.group_mean["psnr"].ci
    assert ci.low < whole.group_mean["psnr"].value < ci.high and ci.high - ci.low > whole["psnr"].ci.high - whole["psnr"].ci.low
    few = score(clips/"pred", clips/"target", "psnr", recursive=True, group=["a", "b"]*(sum(SIZES.values())//2) + ["a"]*(sum(SIZES.values()) % 2))
    assert few.group_mean["psnr"].ci is None and "2 groups are too few" in few.group_mean["psnr"].notes[0]
    assert few.groups["a"]["psnr"].ci is not None
    frame = whole.by_group()
    assert list(frame.group) == [*SIZES, "mean of groups"]


def test_clusters_by_folder_are_the_labels_of_the_folders(clips):
    by_word = score(clips/"pred", clips/"target", "psnr", recursive=True, clusters="folder")["psnr"]
    labels = [clip for clip, count in SIZES.items() for _ in range(count)]
    by_labels = score(clips/"pred", clips/"target", "psnr", recursive=True, clusters=labels)["psnr"]
    assert by_word.ci == by_labels.ci and "clusters:9" in str(by_word.signature)
    assert by_word.ci != score(clips/"pred", clips/"target", "psnr", recursive=True)["psnr"].ci


def test_systems_side_by_side_each_have_their_groups(clips):
    found = score({"a": clips/"pred", "b": clips/"target"}, clips/"target", "psnr", recursive=True, group="folder", ci=False)
    assert found["b"].groups["clip00"]["psnr"].value == 100 > found["a"].groups["clip00"]["psnr"].value


WORDS = "a cat sits on the mat while two dogs run over green grass near the old red barn".split()


@pytest.fixture
def nocaps(tmp_path):
    draw = np.random.default_rng(0)
    def sentence(): return " ".join(draw.choice(WORDS, 7))
    images = [{"id": 100 + i, "file_name": f"{i:012}.jpg", "domain": ("in-domain", "near-domain", "out-domain")[i % 3]} for i in range(15)]
    captions = [{"id": 10*i + k, "image_id": 100 + i, "caption": sentence()} for i in range(15) for k in range(3)]
    (tmp_path/"val.json").write_text(json.dumps({"images": images, "annotations": captions}))
    (tmp_path/"pred.json").write_text(json.dumps([{"image_id": 100 + i, "caption": captions[3*i]["caption"][:-4] + sentence()} for i in range(15)]))
    return tmp_path


@pytest.mark.parametrize("metric", ["cider-d", "bleu-4", "rouge-l"])
def test_domains_of_nocaps(nocaps, metric):
    whole = score(nocaps/"pred.json", nocaps/"val.json", metric, group="domain", ci=False)
    assert list(whole.groups) == ["in-domain", "near-domain", "out-domain"]
    data = json.loads((nocaps/"val.json").read_text())
    keep = {image["id"] for image in data["images"] if image["domain"] == "near-domain"}
    (nocaps/"near.json").write_text(json.dumps({"annotations": [a for a in data["annotations"] if a["image_id"] in keep]}))
    (nocaps/"some.json").write_text(json.dumps([p for p in json.loads((nocaps/"pred.json").read_text()) if p["image_id"] in keep]))
    alone = score(nocaps/"some.json", nocaps/"near.json", metric, ci=False)[metric]
    assert whole.groups["near-domain"][metric].value == pytest.approx(alone.value, rel=1e-9) and whole.groups["near-domain"][metric].n == 5


def test_the_command_prints_groups_and_their_mean(nocaps, clips):
    done = cli("score", "bleu-4", "--pred", "pred.json", "--target", "val.json", "--ci", "none", "--group", "domain", "--json", cwd=nocaps)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["result"]["groups"]["pred"]
    assert set(found["groups"]) == {"in-domain", "near-domain", "out-domain"} and found["mean"]["bleu-4"]["n"] == 3
    shown = cli("score", "psnr", "--pred", str(clips/"pred"), "--target", str(clips/"target"), "--recursive", "--group", "folder", cwd=nocaps)
    assert "mean of groups" in shown.stdout and "clip08" in shown.stdout
    assert "groups" not in json.loads(cli("score", "bleu-4", "--pred", "pred.json", "--target", "val.json", "--ci", "none", "--json", cwd=nocaps).stdout)["result"]


@pytest.mark.parametrize("group, says", [("split", "nothing says split of its items; give folder, or one of .*domain"), ("folder", "lie in no folders"), ([1, 2], "2 labels for 15 items")])
def test_groups_that_cannot_be_told_are_one_line(nocaps, group, says):
    with pytest.raises(InputError, match=says) as error: score(nocaps/"pred.json", nocaps/"val.json", "bleu-4", group=group, ci=False)
    assert "\n" not in str(error.value)


def test_items_without_a_group_and_sides_without_items_are_refused(nocaps):
    data = json.loads((nocaps/"val.json").read_text())
    del data["images"][3]["domain"]
    (nocaps/"val.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="1 of 15 items have no domain: 103"): score(nocaps/"pred.json", nocaps/"val.json", "bleu-4", group="domain", ci=False)
    with pytest.raises(InputError, match="groups are of items"): score(np.eye(4), np.eye(4), "fd", group=["a"]*4)
    with pytest.raises(InputError, match="a paired difference has no groups"): score({"a": ["x"], "b": ["x"]}, ["x"], "bleu", group=["a"], paired=True)
