"A folder of pictures reads the same in every command that reads pictures: refused alike, with the same pixels where the choice is made."
import json
import re

import numpy as np
import pytest
from PIL import Image

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.data.annotations import annotate
from invariant_metrics.data.items import load_images
from invariant_metrics.data.photos import ImageReading, folder_photos
from invariant_metrics.probes.own_images import open_pictures
from invariant_metrics.rankings.rank_task import ranking_task
from invariant_metrics.rankings.represent import represent

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = [f"p{i}" for i in range(8)]
TEXTS = ["a red ball", "two cups", "a cat", "a boat", "an old man", "a tree", "a house", "a blue car"]


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    "Folders twelve/ and bytes/ of the same gray pictures in 12 bits of 16 and in 8; twelve-pred/ and bytes-pred/ beside them; coco.json about them."
    place, draw = tmp_path_factory.mktemp("scans"), np.random.default_rng(0)
    for name in ("twelve", "bytes", "twelve-pred", "bytes-pred"): (place/name).mkdir()
    y, x = np.mgrid[:120, :130]
    for i, name in enumerate(NAMES):
        clean = 128 + 90*np.sin(x/(9 + i))*np.cos(y/13)
        for ending, noise in (("", 4), ("-pred", 12)):
            levels = (clean + draw.normal(0, noise, clean.shape)).round().clip(0, 255)
            Image.fromarray(levels.astype(np.uint8)).save(place/f"bytes{ending}"/f"{name}.png")
            Image.fromarray((levels*4095/255).round().astype(np.uint16)).save(place/f"twelve{ending}"/f"{name}.png")
    images = [{"id": i, "file_name": f"{name}.png"} for i, name in enumerate(NAMES)]
    rows = [{"id": i, "image_id": i, "caption": text} for i, text in enumerate(TEXTS)]
    (place/"coco.json").write_text(json.dumps({"images": images, "annotations": rows}))
    lines = [{"id": f"p{i}", "captions": [text, f"{text} again"]} for i, text in enumerate(TEXTS)]
    (place/"captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return place


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    from test_caption import mini_clip
    mini_clip(tmp_path_factory.mktemp("clip")/"clip")
    return next(tmp_path_factory.getbasetemp().glob("clip*/clip"))


def commands(clip, kind: str) -> dict[str, list]:
    "A short call of every command that reads pictures."
    sides = ["--pred", f"{kind}-pred", "--target", kind]
    quick = ["--scale", "quick"]
    return {"score": ["score", "psnr", *sides, "--ci", "none"],
            "probe of pictures": ["probe", "images", *sides, *quick, "--metrics", "psnr", "--families", "noise"],
            "probe of the truth": ["probe", "images", "--target", kind, *quick, "--metrics", "psnr", "--families", "noise"],
            "probe of colors": ["probe", "colorization", "--target", kind, *quick, "--metrics", "psnr"],
            "probe of an encoder": ["probe", "encoder", "embedded", "--target", kind, *quick],
            "advise": ["advise", "images", *sides, *quick, "--metrics", "psnr", "--cases", "20", "--families", "noise"],
            "rank": ["rank", "coco.json", "--images", kind, "--corpus", "pictures", "--models", clip, "--steps", "rules"]}


def test_twelve_bits_are_refused_by_every_command_with_the_same_remedy(scans, clip):
    for name, words in commands(clip, "twelve").items():
        done = cli(*words, *([] if name == "probe of pictures" else ["--quiet"]), cwd=scans)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, (name, done.stderr)
        assert re.search(r"8 images of 16 bits whose brightest value is [\d,]+ of 65,535; say which value is white: --data-range 4095", done.stderr), (name, done.stderr)


def test_a_stated_white_gives_the_numbers_of_the_same_folder_in_bytes(scans, tmp_path):
    how = ImageReading(4095)
    psnr = {}
    for kind, more in (("twelve", ["--data-range", 4095]), ("bytes", [])):
        done = cli("score", "psnr", "--pred", f"{kind}-pred", "--target", kind, "--json", *more, cwd=scans)
        psnr[kind] = next(iter(json.loads(done.stdout)["result"]["scores"].values()))["psnr"]["value"]
    assert psnr["twelve"] == pytest.approx(psnr["bytes"], abs=1e-3)
    for pred in (None, "pred"):
        twelve, same = ({**open_pictures(scans/kind, [scans/f"{kind}-pred"] if pred else None, reading=reading)} for kind, reading in (("twelve", how), ("bytes", ImageReading())))
        (a,), (b,) = twelve.values(), same.values()
        assert (a.items.rgb == b.items.rgb).all() and (a.items.regions == b.items.regions).all()
        assert dict(a.signature.items)["data_range"] == "4095" and "data_range" not in dict(b.signature.items)
    for one, other in zip(folder_photos(scans/"twelve", reading=how), folder_photos(scans/"bytes")): np.testing.assert_array_equal(one.rgb, other.rgb)


def test_rank_sees_the_pixels_that_score_sees(scans, clip):
    def task(kind):
        records = [{"id": name, "captions": [text], "picture": str(scans/kind/f"{name}.png")} for name, text in zip(NAMES, TEXTS)]
        return ranking_task(annotate(records), corpus="pictures")
    with pytest.raises(InputError, match="--data-range 4095"): represent(task("twelve"), str(clip))
    twelve = represent(task("twelve"), str(clip), reading=ImageReading(4095))
    same = represent(task("bytes"), str(clip))
    np.testing.assert_allclose(twelve.corpora, same.corpora, rtol=0, atol=1e-3)
    assert any("white is 4,095 (--data-range)" in note for note in twelve.notes) and dict(twelve.signature.items)["data_range"] == "4095"
    black = represent(task("twelve"), str(clip), reading=ImageReading(65535)) # as it was read before: sixteen levels near black
    assert np.abs(black.corpora - same.corpora).max() > 0.01


def test_every_command_takes_the_choice_and_says_what_it_did(scans, clip, tmp_path):
    for name, words in commands(clip, "twelve").items():
        out = [] if name == "score" else ["--out", tmp_path/name.replace(" ", "-")]
        if name in ("probe of an encoder", "probe of colors", "advise"): continue # gray and few: nothing to change
        done = cli(*words, "--data-range", 4095, *out, cwd=scans)
        assert done.returncode == 0, (name, done.stderr)
        assert "white is 4,095 (--data-range)" in done.stderr + done.stdout, (name, done.stderr)


def test_transparent_pixels_lie_on_the_same_background_everywhere(tmp_path):
    from PIL import ImageDraw
    for i in range(8):
        image = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
        ImageDraw.Draw(image).rectangle((20, 20, 60 + i, 70), fill=(250, 20 + 9*i, 30, 255))
        (tmp_path/"a").mkdir(exist_ok=True)
        image.save(tmp_path/"a"/f"{i}.png")
    for background in ("white", "#0080ff"):
        how = ImageReading(background=background)
        scored = load_images(tmp_path/"a", reading=how)
        probed = next(iter(open_pictures(tmp_path/"a", reading=how, side=100).values())).items.rgb
        assert all((scored[i] - probed[i]).abs().max() < 1/500 for i in range(8)), background


def test_names_that_differ_are_matched_in_the_probe_as_in_score(scans, tmp_path):
    for name in NAMES: Image.open(scans/"bytes-pred"/f"{name}.png").save(tmp_path/f"{name}_fake_B.png")
    words = ["--pred", tmp_path, "--target", "bytes"]
    probe = ["probe", "images", *words, "--scale", "quick", "--metrics", "psnr", "--families", "noise", "--out", tmp_path/"run"]
    for command in (["score", "psnr", *words], probe):
        refused, done = cli(*command, cwd=scans), cli(*command, "--match", r"p\d", cwd=scans)
        assert refused.returncode == 2 and "--match" in refused.stderr, refused.stderr
        assert done.returncode == 0 and r"paired by p\d in their names: p0_fake_B answers p0" in done.stderr, done.stderr


@pytest.mark.parametrize("words, says", [
    ("probe images --data-range 4095", "--data-range has no effect on the probe of images without --target"),
    ("probe images --target bytes --match order", "--match has no effect on the probe of images"),
    ("probe captioning --target coco.json --frame 1", "--frame has no effect on the probe of captioning"),
    ("probe encoder embedded --background black", "--background has no effect without --target"),
    ("rank captions.jsonl --background black", "--background has no effect without pictures of your own"),
    ("rank --max-pixels 5", "--max-pixels has no effect without pictures of your own"),
    ("probe images --target bytes --background blakc", "'blakc' is no color"),
    ("probe images --target bytes --max-pixels 5", "15,600 pixels, and 5 are the most; --max-pixels")])
def test_choices_without_effect_are_refused(words, says, scans):
    done = cli(*words.split(), cwd=scans)
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
