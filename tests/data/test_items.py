"Images and texts from wherever they are: names, fingerprints, everything unreadable said at once, lines that stay lines."
import os
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

from invariant_metrics.core import InputError
from invariant_metrics.data.items import Images, map_ahead, as_images, batches, load_images, matching
from invariant_metrics.data.text_sides import load_items
from invariant_metrics.data.items import _without_partners
from invariant_metrics.data.texts import Texts, read_lines
from invariant_metrics.data.text_sides import load_texts
from invariant_metrics.scoring.score import score
from real_data import data_path

TMP = dict(suppress_health_check=[HealthCheck.function_scoped_fixture])


def picture(seed=0, height=24, width=32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path, array=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture() if array is None else array).save(path, **options)
    return path


def one_line(error) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# images

def test_every_format_and_mode_is_three_channels_in_the_unit_interval(tmp_path):
    image = Image.fromarray(picture())
    for name, mode in {"a.png": "RGB", "b.jpg": "L", "c.webp": "RGBA", "d.bmp": "RGB", "e.tiff": "CMYK", "f.gif": "P", "g.png": "1", "h.png": "LA"}.items():
        image.convert(mode).save(tmp_path/name)
    Image.fromarray(np.full((24, 32), 0x8000, np.uint16)).save(tmp_path/"i.png")
    images = load_images(tmp_path)
    assert images.names == list("abcdefghi") and images.where == str(tmp_path)
    for i in range(len(images)):
        assert images[i].shape == (3, 24, 32) and images[i].dtype == torch.float32 and 0 <= images[i].min() <= images[i].max() <= 1
    assert torch.equal(images[0], torch.from_numpy(picture()).movedim(-1, 0).float()/255) and (65535*images[8].double()).round().unique().tolist() == [0x8000]
    assert images.items[8].note == "gray, 16 bits" and images.items[0].note == ""


def test_unreadable_images_are_all_named_at_once_or_left_out_and_counted(tmp_path):
    for k in range(3): save(tmp_path/f"good{k}.png", picture(k))
    whole = save(tmp_path/"z.jpg", picture(9, 200, 300)).read_bytes()
    (tmp_path/"z.jpg").unlink()
    for name, content in {"cut.jpg": whole[:len(whole)//2], "empty.png": b"", "text.webp": b"hello"}.items(): (tmp_path/name).write_bytes(content)
    with pytest.raises(InputError) as error: load_images(tmp_path)
    says = one_line(error)
    assert "3 of 6 images" in says and all(n in says for n in ("cut.jpg", "empty.png", "text.webp", "--skip-bad")) and "good" not in says
    images = load_images(tmp_path, skip_bad=True)
    assert images.names == ["good0", "good1", "good2"] and sorted(images.skipped) == ["cut", "empty", "text"]
    assert "not an image" in images.skipped["text"]


def test_a_thousand_bad_files_are_still_one_line(tmp_path):
    save(tmp_path/"good.png")
    for k in range(40): (tmp_path/f"bad{k:02}.png").write_bytes(b"")
    with pytest.raises(InputError) as error: load_images(tmp_path)
    assert "40 of 41" in one_line(error) and "(40 in all)" in str(error.value) and "bad09" in str(error.value) and "bad10" not in str(error.value)


def test_nothing_left_is_an_error_even_when_skipping(tmp_path):
    (tmp_path/"bad.png").write_bytes(b"")
    with pytest.raises(InputError, match="1 of 1 images .* cannot be read: bad.png"): load_images(tmp_path, skip_bad=True)


def test_missing_and_empty_sources_are_one_line(tmp_path):
    for source, says in ((tmp_path/"none", "is not a folder"), (tmp_path, "no photographs in"), ([], "the list is empty"),
                         (np.zeros((0, 3, 8, 8)), "the array is empty"), (np.zeros((3, 8, 8)), "images\\[None\\]|image\\[None\\]"),
                         ([str(tmp_path/"gone.png")], "gone.png \\(no such file\\)")):
        with pytest.raises(InputError, match=says) as error: load_images(source)
        one_line(error)


def test_names_are_stems_and_twice_is_refused(tmp_path):
    save(tmp_path/"0.png"), save(tmp_path/"0.jpg"), save(tmp_path/"1.png")
    with pytest.raises(InputError, match="1 names occur twice with different endings: 0"): load_images(tmp_path)
    files = [str(tmp_path/"0.png"), str(tmp_path/"1.png")]
    assert load_images(files[::-1]).names == ["0", "1"]
    with pytest.raises(InputError, match="occur twice"): load_images([files[0], files[0]])


def test_equal_stems_in_different_folders_are_different_images(tmp_path):
    for k, name in enumerate(("cats/7.png", "dogs/7.png", "8.png")): save(tmp_path/name, picture(k))
    assert load_images(tmp_path).names == ["8"]
    assert load_images(tmp_path, recursive=True).names == ["8", "cats/7", "dogs/7"]
    listed = load_images([tmp_path/"cats"/"7.png", tmp_path/"dogs"/"7.png"])
    assert listed.names == ["cats/7", "dogs/7"] and not torch.equal(listed[0], listed[1])


def test_links_that_loop_or_break_do_no_harm(tmp_path):
    folder = tmp_path/"data"
    save(folder/"a.png")
    (folder/"loop").symlink_to(folder)
    assert load_images(folder, recursive=True).names == ["a"]
    (folder/"broken.png").symlink_to("gone.png")
    with pytest.raises(InputError, match="broken.png"): load_images(folder, recursive=True)
    assert load_images(folder, skip_bad=True).names == ["a"]


def test_an_enormous_image_is_refused_in_every_thread(tmp_path, monkeypatch):
    import warnings
    for k in range(30): save(tmp_path/f"{k:02}.png", picture(k))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24*32 - 1)
    before = list(warnings.filters)
    with pytest.raises(InputError, match="30 of 30"): load_images(tmp_path)
    assert warnings.filters == before


def test_fingerprints_are_of_content_alone(tmp_path):
    a, b = save(tmp_path/"x"/"a.png", picture(1)), save(tmp_path/"x"/"b.png", picture(2))
    first = load_images(tmp_path/"x")
    assert first.fingerprints() == load_images(tmp_path/"x").fingerprints() and len(set(first.fingerprints())) == 2
    (tmp_path/"y").mkdir(); a.rename(tmp_path/"y"/"q.png"); b.rename(tmp_path/"y"/"r.png")
    assert load_images(tmp_path/"y").fingerprints() == first.fingerprints()
    import hashlib
    assert first.fingerprints()[0] == hashlib.sha256((tmp_path/"y"/"q.png").read_bytes()).hexdigest()


@given(st.integers(0, 3), st.integers(0, 2), st.integers(0, 7), st.integers(0, 7))
@settings(max_examples=25)
def test_one_level_of_one_pixel_changes_one_fingerprint(i, c, y, x):
    stack = np.random.default_rng(0).integers(0, 255, (4, 3, 8, 8), dtype=np.uint8)
    changed = stack.copy(); changed[i, c, y, x] += 1
    same = [p == q for p, q in zip(load_images(stack).fingerprints(), load_images(changed).fingerprints())]
    assert same == [k != i for k in range(4)]


def test_a_shape_is_content_too():
    x = torch.zeros(1, 3, 4, 16)
    assert load_images(x).fingerprints() != load_images(x.reshape(1, 3, 8, 8)).fingerprints()


def test_a_file_that_changed_since_it_was_looked_at_says_so(tmp_path):
    save(tmp_path/"a.png", picture(1)), save(tmp_path/"b.png", picture(2))
    images = load_images(tmp_path)
    images[0], images[1]
    save(tmp_path/"b.png", picture(3))
    images[0]
    for read in (lambda: images[1], lambda: list(batches([images]))):
        with pytest.raises(InputError, match="b.png was changed"): read()
    (tmp_path/"b.png").unlink()
    with pytest.raises(InputError, match="b.png .No such file"): images[1]


OPENED = [] # paths, while somebody counts
COUNTING = []
sys.addaudithook(lambda event, words: OPENED.append(str(words[0])) if event == "open" and COUNTING else None)


@pytest.mark.parametrize("metrics", [["fd"], ["psnr"], ["fd", "psnr"]])
def test_a_score_opens_each_file_twice_at_most_for_features_and_for_items(metrics, tmp_path, monkeypatch):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    for side in "ab":
        for k in range(3): save(tmp_path/side/f"{k}.{'jpg' if k else 'png'}", picture(k + len(side)))
        save(tmp_path/side/"3.png", picture(9 + ord(side)))
    COUNTING.append(True)
    try: score(tmp_path/"a", tmp_path/"b", metrics, ci=False)
    finally: COUNTING.clear()
    found = Counter(path for path in OPENED if path.endswith((".png", ".jpg")))
    OPENED.clear()
    assert len(found) == 8 and set(found.values()) == {1 + len(metrics)} # one look, one decoding for each of the two uses


@pytest.mark.parametrize("where", ["folder", "list"])
def test_parts_are_the_whole_and_open_no_file_of_another_part(where, tmp_path):
    for k in range(7): save(tmp_path/f"{k}.png", picture(k))
    source = tmp_path if where == "folder" else sorted(tmp_path.iterdir())
    (tmp_path/"6.png").write_bytes(b"")
    parts = [load_images(source, part=(k, 3)) for k in (1, 2)]
    assert [part.names for part in parts] == [["0", "1"], ["2", "3", "4"]] and parts[0].fingerprints() == load_images(tmp_path, skip_bad=True).fingerprints()[:2]
    with pytest.raises(InputError, match="1 of 2 images"): load_images(source, part=(3, 3))
    assert load_images(torch.rand(7, 3, 4, 4), part=(2, 3)).names == ["2", "3", "4"]


def test_one_worker_and_many_read_the_same(tmp_path):
    for k in range(9): save(tmp_path/f"{k}.png", picture(k, 24 + 4*(k//3)))
    one, many = (load_images(tmp_path, workers=n) for n in (1, 64))
    assert one.fingerprints() == many.fingerprints() and one.sizes == many.sizes
    cuts = [[(start, x) for start, (x,) in batches([side], 2)] for side in (one, many)]
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in zip(*cuts, strict=True))


def test_arrays_in_every_usual_form_are_the_same_images():
    x = np.random.default_rng(0).integers(0, 256, (3, 8, 10, 3), dtype=np.uint8)
    for form in (x, np.moveaxis(x, -1, 1), torch.from_numpy(x), x/255, x.astype(np.float32)/np.float32(255), list(x)):
        torch.testing.assert_close(as_images(form), torch.from_numpy(x).movedim(-1, 1).float()/255)
    assert load_images(x).names == ["0", "1", "2"]
    for wrong in (x.astype(int), x[..., :2], x[0], "text", x.astype(object).astype(bool)):
        with pytest.raises(InputError): as_images(wrong)


def test_a_list_of_arrays_of_several_sizes():
    images = load_images([picture(0, 8, 8), picture(1, 8, 12)])
    assert [tuple(images[i].shape) for i in range(2)] == [(3, 8, 8), (3, 8, 12)]


def test_what_one_side_lost_leaves_the_other_too(tmp_path):
    for side in ("made", "truth"):
        for k in range(4): save(tmp_path/side/f"{k}.png", picture(k))
    (tmp_path/"made"/"1.png").write_bytes(b""), (tmp_path/"truth"/"3.png").write_bytes(b"")
    made, truth = _without_partners(*(load_images(tmp_path/side, skip_bad=True) for side in ("made", "truth")))
    assert made.names == truth.names == ["0", "2"] and matching(made, truth, "psnr")
    assert sorted(made.skipped) == sorted(truth.skipped) == ["1", "3"] and "partner" in made.skipped["3"] and "not an image" in made.skipped["1"]
    assert made.fingerprints() == truth.fingerprints()


def test_matching_names_those_who_are_alone():
    sides = [Images(list(n), torch.zeros(len(n), 3, 4, 4), w) for n, w in (("ab", "made"), ("bc", "truth"))]
    assert matching(sides[0], sides[0], "psnr") and not matching(*sides)
    with pytest.raises(InputError, match="psnr .*: 1 without a prediction: c; 1 without a target: a"): matching(*sides, "psnr")


@given(st.lists(st.sampled_from([8, 12, 16]), min_size=1, max_size=12), st.integers(1, 5))
@settings(max_examples=40)
def test_batches_hold_every_image_once_in_order(sizes, batch):
    images = Images([str(i) for i in range(len(sizes))], [torch.full((3, s, s), i/20) for i, s in enumerate(sizes)], "made")
    found = [(start + j, x) for start, (stack,) in batches([images], batch) for j, x in enumerate(stack)]
    assert [i for i, _ in found] == list(range(len(sizes))) and all(torch.equal(x, images[i]) for i, x in found)
    assert all(len(stack) <= batch for _, (stack,) in batches([images], batch))


def test_ahead_keeps_order_bounds_and_errors():
    import threading
    held, most, lock = 0, 0, threading.Lock()
    def work(i):
        nonlocal held, most
        with lock: held += 1; most = max(most, held)
        if i == 60: raise InputError("sixty")
        return i
    got = []
    with pytest.raises(InputError, match="sixty"):
        for x in map_ahead(work, range(1000), depth=5, workers=3):
            got.append(x)
            with lock: held -= 1
    assert got == list(range(60)) and most <= 6


def test_real_photographs(tmp_path):
    images = load_images(data_path("imagenet_sample/images"))
    assert len(images) > 50 and not images.skipped and len(set(images.fingerprints())) == len(images)
    assert images[0].shape[0] == 3


# texts

def written(path, content: bytes):
    path.write_bytes(content)
    return path


WORDS = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8)


@given(st.lists(WORDS, min_size=1, max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.booleans())
@settings(max_examples=60, **TMP)
def test_lines_come_back_as_they_were(tmp_path, lines, end, closed, marked):
    if not closed and lines[-1] == "": closed = True   # an empty last line is one only if it is closed
    if lines[0].startswith("\ufeff"): lines[0] = "x" + lines[0]
    content = (b"\xef\xbb\xbf" if marked else b"") + end.join(line.encode() for line in lines) + (end if closed else b"")
    assert read_lines(written(tmp_path/"t.txt", content)) == lines


@pytest.mark.parametrize("content, lines", [(b"a\n\nb\n", ["a", "", "b"]), (b"a\n\n", ["a", ""]), (b"\n", [""]), ("a\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),
                                            (b"a\rb\n", ["a\rb"]), ("\ufeffa".encode(), ["a"])])
def test_what_a_line_is(tmp_path, content, lines):
    assert load_texts(written(tmp_path/"t.txt", content)).items == lines


def test_texts_that_are_none_are_one_line(tmp_path):
    for content, says in ((b"", "no texts; it is empty"), (b"fine\nfine\nna\xefve\n", "line 3: not UTF-8"), ("a\nb".encode("utf-16"), "line 1: not UTF-8")):
        with pytest.raises(InputError, match=says) as error: load_texts(written(tmp_path/"t.txt", content))
        one_line(error)
    for source, says in ((tmp_path/"none.txt", "cannot read .*none.txt"), (tmp_path, "cannot read"), ([], "no texts"), (["a", 3, None], "2 items are not texts: 2, 3"),
                         (5, "expected a text file or a list"), (["a", ("b", "c")], "give one kind"), ([("a", "b", "c")], "not texts: 1")):
        with pytest.raises(InputError, match=says) as error: load_texts(source)
        one_line(error)


def test_queries_go_line_by_line(tmp_path):
    texts, queries = written(tmp_path/"t.txt", b"a cat\na dog\n"), written(tmp_path/"q.txt", b"who mews?\nwho barks?\n")
    pairs = load_texts(texts, query=queries)
    assert pairs.items == [("who mews?", "a cat"), ("who barks?", "a dog")] and pairs.names == ["1", "2"]
    assert load_texts([list(p) for p in pairs.items]).fingerprints() == pairs.fingerprints() == load_texts(["a cat", "a dog"], query=load_texts(queries)).fingerprints()
    with pytest.raises(InputError, match="2 texts for 1 queries"): load_texts(texts, query=["one"])


@given(WORDS, WORDS, WORDS, WORDS)
@settings(max_examples=60)
def test_fingerprints_of_pairs_tell_all_pairs_apart(a, b, c, d):
    one, other = (load_texts([pair]).fingerprints() for pair in ((a, b), (c, d)))
    assert (one == other) == ((a, b) == (c, d))
    assert load_texts([a]).fingerprints() != one


def test_items_of_the_wrong_kind_are_refused():
    assert isinstance(load_items(["a"], "texts"), Texts) and isinstance(load_items(torch.rand(1, 3, 4, 4)), Images)
    with pytest.raises(InputError, match="holds texts, and images are needed"): load_items(load_texts(["a"]), "images")
    with pytest.raises(InputError, match="did you mean texts"): load_items(["a"], "textss")


def test_no_permission_is_one_line(tmp_path):
    if os.geteuid() == 0: pytest.skip("root may read everything")
    path = save(tmp_path/"a.png"); path.chmod(0)
    with pytest.raises(InputError, match="a.png \\(Permission denied\\)"): load_images(tmp_path)
