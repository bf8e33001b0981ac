"Photographs from folders: every kind of bad input is converted and said so, or refused in one line; and the tiles cut from them."
import struct
import zlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from invariant_metrics.core import InputError
from invariant_metrics.data.photos import folder_photos, image_paths, packaged_photos, shrink, split_photos
from invariant_metrics.data.photos import cut_tiles
from real_data import data_path


def picture(width=96, height=80, seed=0) -> np.ndarray:
    "Two halves of clearly different color with some noise: two regions, plenty of chroma."
    noise = np.random.default_rng(seed).integers(0, 20, (height, width, 3))
    flat = np.where((np.arange(width) < width // 2)[None, :, None], [200, 40, 40], [30, 60, 200])
    return (flat + noise).astype(np.uint8)


def save(path, array=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture() if array is None else array).save(path, **options)
    return path


def png_16_bit_rgb(path, values: np.ndarray) -> None:
    "A 16-bit RGB PNG, which Pillow reads but does not write."
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_no_such_folder_and_a_file_instead(tmp_path):
    with pytest.raises(InputError, match="is not a folder"): folder_photos(tmp_path/"none")
    with pytest.raises(InputError, match="is not a folder"): folder_photos(save(tmp_path/"a.png"))


def test_no_images_says_what_is_there_and_where_images_are(tmp_path):
    (tmp_path/"list.txt").write_text("x")
    (tmp_path/"IMG.HEIC").write_bytes(b"x")
    save(tmp_path/"images"/"a.png")
    with pytest.raises(InputError) as error: folder_photos(tmp_path)
    assert "1 .txt" in str(error.value) and "1 .heic" in str(error.value)
    assert "(images)" in str(error.value) and "--recursive" in str(error.value)
    assert "\n" not in str(error.value)


def test_recursive_only_when_asked_in_sorted_order(tmp_path):
    for name in ("b.png", "a.png", "deep/c.png", "deep/er/d.png", ".hidden.png", ".git/e.png"): save(tmp_path/name)
    assert [p.name for p in folder_photos(tmp_path)] == ["a.png", "b.png"]
    assert [p.name for p in folder_photos(tmp_path, recursive=True)] == ["a.png", "b.png", "deep/c.png", "deep/er/d.png"]


def test_all_corrupt_files_in_one_message(tmp_path):
    for k in range(4): save(tmp_path/f"good{k}.png")
    whole = save(tmp_path/"z.jpg", picture(400, 300)).read_bytes()
    (tmp_path/"truncated.jpg").write_bytes(whole[:len(whole) // 2])
    (tmp_path/"empty.png").write_bytes(b"")
    (tmp_path/"text.jpg").write_text("not a picture")
    damaged = bytearray((tmp_path/"good0.png").read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path/"flipped.png").write_bytes(damaged)
    with pytest.raises(InputError) as error: folder_photos(tmp_path)
    for name in ("truncated.jpg", "empty.png", "text.jpg", "flipped.png"): assert name in str(error.value)
    assert "4 of 9 images" in str(error.value) and "good1" not in str(error.value) and "\n" not in str(error.value)


def test_an_enormous_image_is_refused_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5000)
    save(tmp_path/"bomb.png")
    with pytest.raises(InputError, match="bomb.png"): folder_photos(tmp_path)


def test_a_program_in_disguise_is_not_run(tmp_path):
    (tmp_path/"drawing.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 96 96\nshowpage\n")
    with pytest.raises(InputError, match="not an image"): folder_photos(tmp_path)


MODES = [("L", "x.png", "gray"), ("1", "x.png", "gray"), ("LA", "x.png", "gray"), ("P", "x.png", "palette to RGB"),
         ("RGBA", "x.png", ""), ("CMYK", "x.jpg", "CMYK to RGB")]


@pytest.mark.parametrize("mode, name, note", MODES)
def test_other_modes_are_converted_and_said(tmp_path, mode, name, note):
    image = Image.fromarray(picture()).convert("L").convert(mode) if mode in ("LA", "L") else Image.fromarray(picture()).convert(mode)
    image.save(tmp_path/name)
    photo, = folder_photos(tmp_path)
    assert photo.note == note
    assert photo.rgb.shape == (80, 96, 3) and photo.rgb.dtype == np.uint8


def test_sixteen_bits_gray_and_color_keep_their_brightness(tmp_path):
    Image.fromarray(np.full((80, 96), 0x8000, np.uint16)).save(tmp_path/"gray.png")
    png_16_bit_rgb(tmp_path/"rgb.png", np.full((80, 96, 3), 0x8000, np.uint16))
    gray, rgb = folder_photos(tmp_path)
    assert gray.note == "gray, 16 bits to 8" and rgb.note == "16 bits to 8"
    assert abs(int(gray.rgb[0, 0, 0]) - 128) <= 1 and abs(int(rgb.rgb[0, 0, 0]) - 128) <= 1


def test_floating_point_pixels_are_refused(tmp_path):
    Image.fromarray(np.ones((80, 96), np.float32)).save(tmp_path/"x.tif")
    with pytest.raises(InputError, match="x.tif .*floating-point"): folder_photos(tmp_path)


def test_transparent_pixels_show_white_not_what_lies_beneath(tmp_path):
    hidden = np.zeros((80, 96, 4), np.uint8)
    hidden[..., 0] = 255
    Image.fromarray(hidden).save(tmp_path/"x.png")
    assert (folder_photos(tmp_path)[0].rgb == 255).all()


def test_camera_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path/"x.jpg", exif=exif, quality=95)
    photo, = folder_photos(tmp_path)
    assert photo.rgb.shape == (96, 80, 3) and photo.note == "turned upright"
    assert photo.rgb[5, 40, 0] > photo.rgb[5, 40, 2] # red, once on the left, is now on top


def test_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (96, 80), color) for color in ("red", "blue")]
    frames[0].save(tmp_path/"x.gif", save_all=True, append_images=frames[1:])
    photo, = folder_photos(tmp_path)
    assert "first of several frames" in photo.note and photo.rgb[0, 0].tolist() == [255, 0, 0]


def test_links_loops_and_pipes_are_harmless(tmp_path):
    import os
    folder = tmp_path/"data"
    save(folder/"a.png")
    save(tmp_path/"outside.png")
    (folder/"same.png").symlink_to(folder/"a.png")
    (folder/"other.png").symlink_to(tmp_path/"outside.png")
    (folder/"loop").symlink_to(folder)
    os.mkfifo(folder/"pipe.png")
    assert [p.name for p in image_paths(folder, recursive=True)] == ["a.png", "other.png"]
    (folder/"broken.png").symlink_to("gone.png")
    with pytest.raises(InputError, match="broken.png"): folder_photos(folder)


def test_small_images_are_listed_and_refused_only_when_nothing_is_left(tmp_path):
    save(tmp_path/"small.png", picture(40, 40))
    save(tmp_path/"tiny.png", picture(20, 90))
    with pytest.raises(InputError, match="smaller than a tile of 64 pixels: small.png, tiny.png"): cut_tiles(folder_photos(tmp_path))
    save(tmp_path/"large.png")
    ledger = cut_tiles(folder_photos(tmp_path), per_photo=4).ledger.set_index("photo")
    assert ledger["small"].to_dict() == {"large.png": False, "small.png": True, "tiny.png": True}
    assert ledger["used"].to_dict() == {"large.png": 4, "small.png": 0, "tiny.png": 0}


def test_gray_photographs_give_no_tiles_and_say_why(tmp_path):
    save(tmp_path/"g.png", picture()[..., 0])
    with pytest.raises(InputError, match="were colorless"): cut_tiles(folder_photos(tmp_path))


def test_the_smallest_photograph_gives_its_only_tile(tmp_path):
    save(tmp_path/"x.png", picture(64, 64))
    assert len(cut_tiles(folder_photos(tmp_path), size=64)) == 1


def test_fewer_photographs_than_parts(tmp_path):
    save(tmp_path/"a.png")
    with pytest.raises(InputError, match="1 independent photographs cannot be split into 2 parts"):
        split_photos(folder_photos(tmp_path), {"validation": 1, "test": 1})


@pytest.mark.parametrize("parts", [{"a": 1, "b": 1}, {"a": 1, "b": 100}, {"a": 1, "b": 2, "c": 3}])
@pytest.mark.parametrize("seed", range(3))
def test_split_keeps_clusters_whole_and_every_part_filled(parts, seed):
    photos = packaged_photos()
    split = split_photos(photos, parts, seed)
    clusters = [{p.cluster for p in part} for part in split.values()]
    assert all(clusters) and sum(map(len, clusters)) == len(set.union(*clusters)) == 11
    assert sorted(p.name for part in split.values() for p in part) == sorted(p.name for p in photos)


def labelled(folder, names=("a.png", "b.png")):
    half = np.zeros((80, 96), np.uint8)
    half[:, 48:] = 7
    for name in names:
        save(folder/"photos"/name)
        save(folder/"labels"/f"{name.rsplit('.', 1)[0]}_a0.png", half)
    return folder/"photos", folder/"labels"


def test_label_maps_become_regions_cropped_alike(tmp_path):
    photos, labels = labelled(tmp_path)
    cut = cut_tiles(folder_photos(photos), per_photo=3, regions=labels)
    assert "regions:labels-0" in str(cut.signature)
    red = cut.rgb[:, 0] > cut.rgb[:, 2]
    assert ((cut.regions == 0) == red).all()


def test_label_maps_missing_damaged_or_of_another_size_are_all_named(tmp_path):
    photos, labels = labelled(tmp_path, ("a.png", "b.png", "c.png"))
    save(photos/"d.png"); save(photos/"e.png")
    with pytest.raises(InputError, match="2 of 5 photographs: d.png, e.png"): cut_tiles(folder_photos(photos), regions=labels)
    save(labels/"d_a0.png", np.zeros((10, 10), np.uint8)); save(labels/"e_a0.png")
    with pytest.raises(InputError) as error: cut_tiles(folder_photos(photos), regions=labels)
    assert "2 label maps" in str(error.value) and "10×10" in str(error.value) and "e_a0.png (RGB" in str(error.value)
    with pytest.raises(InputError, match="is not a folder"): cut_tiles(folder_photos(photos), regions=labels/"none")


def test_label_maps_in_the_same_folder_are_no_photographs(tmp_path):
    photos, labels = labelled(tmp_path)
    for file in labels.iterdir(): file.rename(photos/file.name)
    assert [p.name for p in folder_photos(photos, regions=photos)] == ["a.png", "b.png"]
    assert len(cut_tiles(folder_photos(photos, regions=photos), per_photo=2, regions=photos)) == 4


def test_a_name_with_wildcards_finds_only_its_own_map(tmp_path):
    photos, labels = labelled(tmp_path, ("x1.png",))
    save(photos/"x[1].png"); save(photos/"x*.png")
    with pytest.raises(InputError, match=r"2 of 3 photographs: x\*.png, x\[1\].png"): cut_tiles(folder_photos(photos), regions=labels)


def test_same_tiles_whatever_the_company_and_other_tiles_for_another_seed():
    photos = packaged_photos()
    few, one = cut_tiles(photos[1:4], per_photo=5), cut_tiles(photos[2:3], per_photo=5)
    mine = [i for i, name in enumerate(few.names) if name == "coffee"]
    assert (few[mine].rgb == one.rgb).all() and (few[mine].regions == one.regions).all()
    assert not (cut_tiles(photos[2:3], per_photo=5, seed=1).rgb == one.rgb).all()


def test_weights_give_every_cluster_the_same_say():
    photos = packaged_photos()
    cut = cut_tiles(photos[6:11], per_photo=6) # retina, two motorcycles, china, flower
    sums = {c: float(cut.weight[cut.cluster == c].sum()) for c in cut.cluster.unique().tolist()}
    assert len(sums) == 4 and max(sums.values()) - min(sums.values()) < 1e-4
    assert float(cut.weight.mean()) == pytest.approx(1)


def test_shrinking_never_enlarges():
    assert shrink(picture(96, 80), 40).shape == (40, 48, 3)
    assert shrink(picture(96, 80), 200).shape == (80, 96, 3)


def test_stored_survey_of_real_photographs_is_what_the_code_measures():
    root = data_path("bsds500/images").parent.parent
    import sys
    from pathlib import Path
    home = Path(__file__).parents[2]
    sys.path.insert(0, str(home/"benchmarks"))
    try: from photos import survey
    finally: sys.path.pop(0)
    row = survey("bsds500", folder_photos(root/"bsds500"/"images"), root/"bsds500"/"segmentations")
    stored = pd.read_csv(home/"nbs"/"results"/"photos.csv").query("photographs == 'bsds500' and regions == 'people'").iloc[0]
    for key in ("n", "tiles", "regions per tile"): assert row[key] == pytest.approx(stored[key], rel=0.02), key
