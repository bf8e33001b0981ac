"Files that leave their pixels open: bits, alpha, frames, sizes; gray and stacked arrays, archives. Nothing is dropped in silence."
import os
import struct
import zipfile
import zlib
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from invariant_metrics.core import InputError
from invariant_metrics.data.items import as_images, load_images
from invariant_metrics.data.photos import ImageReading, read_pixels, zip_pictures
from invariant_metrics.encoders.store import load_features
from invariant_metrics.scoring.score import score

COLOR = {1: 0, 2: 4, 3: 2, 4: 6} # channels -> type of PNG


def png16(values: np.ndarray) -> bytes:
    "A PNG of 16 bits, in color or with alpha, which Pillow reads but does not write."
    def chunk(kind, body): return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, COLOR[values.shape[2]], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff16(values: np.ndarray) -> bytes: # (H, W, 3), little-endian, without compression
    h, w, c = values.shape
    at = 8 + 2 + 12*9 + 4
    bits = at + values.size*2
    tags = [(256, 3, 1, w), (257, 3, 1, h), (258, 3, c, bits), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, at), (277, 3, 1, c), (278, 3, 1, h),
            (279, 4, 1, values.size*2)]
    head = b"II*\0" + struct.pack("<IH", 8, 9) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + struct.pack("<I", 0)
    return head + values.astype("<u2").tobytes() + struct.pack("<3H", 16, 16, 16)


def levels(top: int, channels: int, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, top + 1, (20, 24, channels)).astype(np.uint16)


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
@pytest.mark.parametrize("kind", ["gray.png", "color.png", "alpha.png", "color.tif", "gray.tif"])
def test_every_bit_of_sixteen_counts(tmp_path, kind, bits):
    white = 2**bits - 1
    x = levels(white, {"gray": 1, "color": 3, "alpha": 4}[kind.split(".")[0]])
    x[..., 3:] = white
    if kind == "gray.tif": Image.fromarray(x[..., 0]).save(tmp_path/kind)
    else: (tmp_path/kind).write_bytes(tiff16(x) if kind.endswith("tif") else png16(x))
    found = read_pixels(tmp_path/kind, ImageReading(data_range=white))
    wanted = np.repeat(x, 3, -1) if x.shape[-1] == 1 else x[..., :3]
    np.testing.assert_allclose(found.rgb, wanted/white, atol=1e-6)
    assert found.brightest == x[..., :3].max()
    assert "16 bits" in found.changes


@pytest.mark.parametrize("channels", [1, 3])
def test_less_than_sixteen_bits_are_refused_until_white_is_said(tmp_path, channels):
    for side, seed in (("pred", 0), ("target", 1)):
        (tmp_path/side).mkdir()
        for i in range(3): (tmp_path/side/f"{i}.png").write_bytes(png16(levels(4095, channels, 10*seed + i)))
    with pytest.raises(InputError, match=r"pred: 3 images of 16 bits .* --data-range 4095 \(data_range=\) for 12 bits"): score(tmp_path/"pred", tmp_path/"target", "psnr", ci=False)
    found = score(tmp_path/"pred", tmp_path/"target", "psnr", ci=False, data_range=4095)["psnr"]
    errors = [((levels(4095, channels, i).astype(float) - levels(4095, channels, 10 + i))/4095) for i in range(3)]
    assert found.value == pytest.approx(np.mean([-10*np.log10((e**2).mean()) for e in errors]), abs=1e-5)
    assert "data_range:4095" in str(found.signature) and any("3 of 3 images" in n and "white is 4,095" in n for n in found.notes)
    with pytest.raises(InputError, match="above data_range 1,023"): score(tmp_path/"pred", tmp_path/"target", "psnr", ci=False, data_range=1023)
    dark = score(tmp_path/"pred", tmp_path/"target", "psnr", ci=False, data_range=65535)["psnr"]
    assert dark.value == pytest.approx(found.value + 20*np.log10(65535/4095), abs=1e-3)


def test_sixteen_bits_that_are_used_need_nothing_and_are_said(tmp_path):
    (tmp_path/"a.png").write_bytes(png16(levels(65535, 3)))
    found = score(tmp_path, None, "colorfulness", ci=False)["colorfulness"]
    assert "data_range" not in str(found.signature) and "white is 65,535 (--data-range)" in found.notes[0]


def test_a_file_that_says_its_white_is_believed(tmp_path):
    (tmp_path/"a.pgm").write_bytes(b"P5 2 1 4095\n" + np.array([2048, 4095], ">u2").tobytes())
    found = read_pixels(tmp_path/"a.pgm")
    np.testing.assert_allclose(found.rgb[0, :, 0], [2048/4095, 1], atol=1e-4)
    assert found.brightest is None


def test_arrays_of_sixteen_bits_need_their_white_too():
    x = levels(1023, 3)[None]
    with pytest.raises(InputError, match="--data-range 1023"): load_images(x)
    np.testing.assert_allclose(load_images(x, reading=ImageReading(data_range=1023))[0].movedim(0, -1), x[0]/1023, atol=1e-6)


GLASS = np.zeros((8, 8, 4), np.uint8) + np.uint8([200, 100, 0, 128])


@pytest.mark.parametrize("background, color", [("white", (255, 255, 255)), ("black", (0, 0, 0)), ("#102030", (16, 32, 48))])
@pytest.mark.parametrize("source", ["folder", "pil"])
def test_alpha_lies_on_the_background_and_a_note_says_so(tmp_path, background, color, source):
    Image.fromarray(GLASS).save(tmp_path/"a.png")
    flat = (GLASS[..., :3]*(128/255) + np.array(color)*(127/255))/255
    given = tmp_path if source == "folder" else [Image.fromarray(GLASS)]
    found = score(given, flat[None], "psnr", ci=False, background=background, match="order" if source == "folder" else None)["psnr"]
    assert found.value > 50
    assert any(f"1 of 1 images of {tmp_path if source == 'folder' else 'pred'} have an alpha channel and are laid on {background}" in n for n in found.notes)
    assert (f"background:{background.replace(':', '_')}" in str(found.signature)) == (background != "white")


def test_an_opaque_alpha_channel_is_nothing_to_speak_of(tmp_path):
    Image.new("RGBA", (8, 8), "red").save(tmp_path/"a.png")
    assert load_images(tmp_path, reading=ImageReading(background="black")).notes() == ()
    assert load_images(tmp_path, reading=ImageReading(background="black")).choices() == {}


@pytest.mark.parametrize("ending", ["gif", "tif", "webp", "png"])
def test_a_frame_may_be_chosen_and_the_first_is_said(tmp_path, ending):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime", "blue")]
    frames[0].save(tmp_path/f"a.{ending}", save_all=True, append_images=frames[1:], **({"lossless": True} if ending == "webp" else {}))
    for frame in range(3):
        side = load_images(tmp_path, reading=ImageReading(frame=frame))
        assert side[0][:, 0, 0].argmax() == frame and side[0].sum() == 64
        assert "several frames" in side.notes()[0] and side.choices() == ({"frame": frame} if frame else {})
    with pytest.raises(InputError, match="3 frames, none of number 3"): load_images(tmp_path, reading=ImageReading(frame=3))


def test_what_is_chosen_belongs_to_the_fingerprint_of_what_it_changes(tmp_path):
    Image.fromarray(GLASS).save(tmp_path/"glass.png"); Image.new("RGB", (8, 8)).save(tmp_path/"plain.png")
    white, black = (load_images(tmp_path, reading=ImageReading(background=b)).fingerprints() for b in ("white", "black"))
    assert white[0] != black[0] and white[1] == black[1]


def test_a_large_picture_is_refused_with_the_option_that_allows_it(tmp_path, monkeypatch):
    Image.new("1", (300, 200)).save(tmp_path/"slide.png")
    with pytest.raises(InputError, match=r"slide.png \(60,000 pixels, and 50,000 are the most; --max-pixels \(max_pixels=\)"): load_images(tmp_path, reading=ImageReading(max_pixels=50_000))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InputError, match="--max-pixels"): load_images(tmp_path)
    assert score(tmp_path, None, "colorfulness", ci=False, max_pixels=60_000)["colorfulness"].value == 0
    assert Image.MAX_IMAGE_PIXELS == 1000 # as it was
    with pytest.raises(InputError, match="--max-pixels"): load_images(tmp_path)


@pytest.mark.parametrize("options, says", [({"data_range": 0}, "1 to 65,535"), ({"data_range": "12"}, "whole number"), ({"background": "blakc"}, "no color"),
                                           ({"frame": -1}, "0 or more"), ({"max_pixels": 0}, "1 or more")])
def test_choices_that_cannot_be_are_one_line(tmp_path, options, says):
    with pytest.raises(InputError, match=says): score(tmp_path, None, "colorfulness", **options)


# gray arrays

GRAYS = np.random.default_rng(0).integers(0, 256, (9, 16, 18), dtype=np.uint8)


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x[:, None], lambda x: x[..., None], lambda x: torch.from_numpy(x), lambda x: torch.from_numpy(x)[:, None].double()/255,
                                  lambda x: x/255, list, lambda x: [*torch.from_numpy(x)], lambda x: iter(torch.from_numpy(x))])
def test_gray_arrays_score_as_three_equal_channels(form):
    wanted = score(np.repeat(GRAYS[..., None], 3, -1), np.repeat(GRAYS[::-1, ..., None], 3, -1), ["psnr", "fd"], ci=False)
    found = score(form(GRAYS), form(GRAYS[::-1].copy()), ["psnr", "fd"], ci=False)
    for name in found: assert found[name].value == pytest.approx(wanted[name].value, rel=1e-5)


def test_gray_pictures_of_several_sizes():
    side = load_images([GRAYS[0], GRAYS[1, :8]])
    assert [tuple(side[i].shape) for i in range(2)] == [(3, 16, 18), (3, 8, 18)]


@pytest.mark.parametrize("shape", [(3, 8, 8), (8, 8, 3), (2, 2, 8, 8), (2, 8, 8, 4), (8, 8)])
def test_what_could_be_two_things_is_refused_with_the_remedy(shape):
    with pytest.raises(InputError, match=r"image\[None\]|background"): as_images(torch.rand(shape))


# stacks in files, and archives

def write(path, x, **more):
    if path.suffix == ".npz": np.savez(path, x, **more)
    elif path.suffix == ".npy": np.save(path, x)
    else: torch.save(torch.from_numpy(np.ascontiguousarray(x)), path)
    return path


PICTURES = np.random.default_rng(1).integers(0, 256, (7, 16, 18, 3), dtype=np.uint8)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt"])
@pytest.mark.parametrize("form", ["bytes", "first", "floats", "gray"])
def test_a_stack_of_pictures_is_a_set_of_pictures(tmp_path, ending, form):
    x = {"bytes": PICTURES, "first": np.moveaxis(PICTURES, -1, 1), "floats": PICTURES.astype(np.float32)/255, "gray": PICTURES[..., 0]}[form]
    more = {"labels": np.arange(7)} if ending == ".npz" else {}
    path = write(tmp_path/f"stack{ending}", x, **more)
    side = load_images(path)
    assert side.names == [str(i) for i in range(7)]
    assert torch.equal(side[3], as_images(x)[3])
    target = np.ascontiguousarray(x[::-1])
    found, wanted = (score(s, target, ["psnr", "fd"], ci=False) for s in (path, x))
    for name in found: assert found[name].value == pytest.approx(wanted[name].value, rel=1e-6)


def test_reference_batches_with_statistics_beside_their_pictures(tmp_path):
    np.savez(tmp_path/"reference.npz", arr_0=PICTURES, arr_1=np.arange(7), mu=np.zeros(4), sigma=np.eye(4))
    assert score(tmp_path/"reference.npz", PICTURES, "psnr", ci=False)["psnr"].value == 100


def test_features_beside_other_things(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 6))
    np.savez(tmp_path/"p.npz", pool_3=rows, logits=rows[:, :3], labels=np.arange(30)); np.savez(tmp_path/"f.npz", features=rows + .2, other=rows)
    np.savez(tmp_path/"l.npz", z=rows, labels=np.arange(30)); np.savez(tmp_path/"two.npz", a=rows, b=rows); torch.save(torch.from_numpy(rows), tmp_path/"r.pt")
    assert score(tmp_path/"p.npz", tmp_path/"f.npz", "fd", ci=False)["fd"].value == pytest.approx(6*.04)
    for name in ("p.npz", "l.npz", "r.pt"): assert torch.equal(load_features(tmp_path/name).rows, torch.from_numpy(rows))
    with pytest.raises(InputError, match="holds a, b"): load_features(tmp_path/"two.npz")


@pytest.mark.parametrize("make, says", [
    (lambda p: np.savez(p/"x.npz", a=PICTURES, b=PICTURES), "holds several stacks of pictures: a, b"),
    (lambda p: np.savez(p/"x.npz", a=np.zeros((2, 2, 2, 2, 2))), r"must be \(items, width\)"),
    (lambda p: np.save(p/"x.npy", PICTURES[0]), "one image in color or 16 gray ones"),
    (lambda p: np.save(p/"x.npy", np.zeros((2, 8, 8, 4))), "alpha channel"),
    (lambda p: np.save(p/"x.npy", 300*PICTURES.astype(float)), r"values in \[0, 1\]"),
    (lambda p: torch.save({"model": torch.nn.Linear(2, 2)}, p/"x.pt"), "not a readable .pt file"),
    (lambda p: torch.save({"a": 1}, p/"x.pt"), "holds nothing"),
    (lambda p: (p/"x.pt").write_bytes(b"PK"), "not a readable .pt file"),
    (lambda p: (p/"x.npz").write_bytes(b"PK\x03\x04"), "not a readable .npz file")])
def test_files_that_hold_no_stack_are_one_line(tmp_path, make, says):
    make(tmp_path)
    path, = tmp_path.iterdir()
    with pytest.raises(InputError, match=says) as error: score(path, PICTURES, "psnr", ci=False)
    assert "\n" not in str(error.value)


def zipped(path, *names, **infos):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for k, name in enumerate(names):
            dot = BytesIO()
            Image.fromarray(PICTURES[k % 7]).save(dot, "PNG")
            file.writestr(name, dot.getvalue())
    return path


@pytest.mark.parametrize("prefix", ["", "results/", "a/b/"])
def test_a_zip_archive_is_a_folder(tmp_path, prefix):
    names = [f"{prefix}{i}.png" for i in range(4)]
    archive = zipped(tmp_path/"x.zip", *names, f"{prefix}notes.txt", f"__MACOSX/{prefix}._0.png", f"{prefix}.hidden.png")
    (tmp_path/"folder").mkdir()
    for i in range(4): Image.fromarray(PICTURES[i]).save(tmp_path/"folder"/f"{i}.png")
    side = load_images(archive)
    assert side.names == list("0123") and all(torch.equal(side[i], load_images(tmp_path/"folder")[i]) for i in range(4))
    assert score(archive, tmp_path/"folder", "psnr", ci=False)["psnr"].value == 100
    assert not any(p.name not in ("x.zip", "folder") for p in tmp_path.iterdir())


def test_folders_in_an_archive_are_read_when_asked(tmp_path):
    archive = zipped(tmp_path/"x.zip", "a/0.png", "b/0.png")
    with pytest.raises(InputError, match="--recursive"): load_images(archive)
    assert load_images(archive, recursive=True).names == ["a/0", "b/0"]


@pytest.mark.parametrize("name", ["../x.png", "/etc/x.png", "a/../../x.png", "C:/x.png"])
def test_names_that_lead_out_of_an_archive_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="leads out of the archive"): zip_pictures(zipped(tmp_path/"x.zip", "0.png", name))


def test_archives_that_claim_too_much_or_are_damaged_are_one_line(tmp_path, monkeypatch):
    from invariant_metrics.data import photos
    archive = zipped(tmp_path/"x.zip", *(f"{i}.png" for i in range(3)))
    for limit, value, says in (("_UNPACKED", 10, "unpacks to"), ("_MEMBERS", 2, "holds 3 files, and 2 are the most")):
        with monkeypatch.context() as patch:
            patch.setattr(photos, limit, value)
            with pytest.raises(InputError, match=says): zip_pictures(archive)
    content = bytearray(archive.read_bytes())
    content[60] ^= 255
    archive.write_bytes(content); os.utime(archive, ns=(1, 1))
    with pytest.raises(InputError, match="1 of 3 images .* cannot be read"): load_images(archive)
    archive.write_bytes(b"PK"); os.utime(archive, ns=(2, 2))
    with pytest.raises(InputError, match="not a readable zip archive"): load_images(archive)
    with pytest.raises(InputError, match="no photographs in"): zip_pictures(zipped(tmp_path/"y.zip", "a.txt"))
    with pytest.raises(InputError, match="no file"): load_images(tmp_path/"gone.zip")
