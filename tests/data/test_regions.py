"Region features of pictures: three formats give the same numbers, nothing lies and nothing leaves its folder; the captioner that reads them."
import io
import json
import pickle
import tracemalloc
from base64 import b64encode
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.data.regions import _LONGEST_ROW, _MOST_REGIONS, _WIDEST, open_regions, _pad_regions, _stream_regions
from invariant_metrics.models.generators import _CAPTION_SIZES, Captioner, Shape
from invariant_metrics.models.text_networks import Vocabulary
from invariant_metrics.training.text_training import text_batches, text_loss

WORDS = Vocabulary.of(["a red circle", "a blue square on a red circle"])


def parameters_by_hand(features: int, entries: int, d: int, ffn: int, layers: int) -> int:
    attention, norm = 4*(d*d + d), 2*d
    feed = d*ffn + ffn + ffn*d + d
    encoder, decoder = attention + feed + 2*norm, 2*attention + feed + 3*norm
    return features*d + d + entries*d + layers*(encoder + decoder) + 2*norm + entries*d + entries


def test_the_captioner_of_the_paper_has_its_parameters():
    "6 + 6 layers, 512 wide, on regions of 2048 numbers, with 9,487 words and one entry beside them; heads add none."
    shape = _CAPTION_SIZES["base"]
    assert (shape.heads, shape.input_dropout, shape.dropout, shape.pre_norm, shape.tie_weights) == (8, .5, .1, True, False)
    words = Vocabulary(tuple(map(str, range(9_488))))
    with torch.device("meta"): net = Captioner(2048, words, shape)
    assert sum(p.numel() for p in net.parameters()) == parameters_by_hand(2048, 9_488, 512, 2048, 6) == 54_914_832
    with torch.device("meta"): wider = Captioner(2054, words, shape)
    assert sum(p.numel() for p in wider.parameters()) == 54_914_832 + 6*512  # VinVL's six coordinates beside the 2048


def test_regions_behind_the_mask_change_nothing_and_get_no_gradient():
    net = Captioner(6, WORDS, Shape(encoder=2, width=32, hidden=48, dropout=0., unbiased_norm=True), seed=1).eval()
    features = torch.randn(2, 5, 6, generator=torch_rng(1)).requires_grad_()
    there = torch.arange(5) < torch.tensor([[5], [3]])
    tokens = WORDS.batch(["a red circle", "a blue square"], 8)
    both = net({"features": features, "mask": there}, tokens)
    other = net({"features": torch.where(there[..., None], features, torch.full_like(features, 7.)), "mask": there}, tokens)
    alone = net({"features": features[1:, :3]}, tokens[1:])
    assert torch.allclose(both, other, atol=1e-6) and torch.allclose(both[1:], alone, atol=1e-5)
    assert not torch.allclose(net({"features": features}, tokens), both, atol=1e-3)
    slope, = torch.autograd.grad(both.sum(), features)
    assert (slope[1, 3:] == 0).all() and slope[1, :3].abs().sum() > 0 and slope.isfinite().all()


def letters(numbers) -> str: return b64encode(np.asarray(numbers, "<f4").tobytes()).decode()


DRAW = np.random.default_rng(0)
PICTURES = {str(40 + i): DRAW.random((2 + i, 2054), np.float32) for i in range(4)}  # name -> (R, 2048 and the six of a box)


def genome(name, x) -> str: # of a picture of 640 by 480
    return "\t".join([name, "640", "480", str(len(x)), letters(x[:, 2048:2052]*[640, 480, 640, 480]), letters(x)])


def three_fields(name, x) -> str: return f"{name}\t{len(x)}\t{letters(x)}"


def two_fields(name, x) -> str: return f"{name}\t" + json.dumps({"num_boxes": len(x), "features": letters(x)})


def predictions(name, x) -> str:
    found = [{"rect": (row[2048:2052]*[640, 480, 640, 480]).tolist(), "class": "cat", "feature": letters(row)} for row in x]
    return f"{name}\t" + json.dumps({"image_w": 640, "image_h": 480, "objects": found})


ROWS = (genome, three_fields, two_fields, predictions)


def write_rows(path, form, pictures=PICTURES, index=False):
    rows = [form(name, x).encode() + b"\n" for name, x in pictures.items()]
    path.write_bytes(b"".join(rows))
    starts = np.cumsum([0, *map(len, rows)])[:-1]
    if index: path.with_suffix(".lineidx").write_text("".join(f"{n}\n" for n in starts))
    return path


def write_npz(folder, pictures=PICTURES):
    folder.mkdir()
    for name, x in pictures.items(): np.savez_compressed(folder/f"{name}.npz", feat=x)
    return folder


def test_all_formats_give_the_same_numbers_streamed_and_by_name(tmp_path):
    places = [write_rows(tmp_path/f"{form.__name__}.tsv", form, index=index) for form, index in zip(ROWS, (False, True, True, False))]
    for place in (*places, write_npz(tmp_path/"att")):
        streamed = {p.name: p for p in _stream_regions(place)}
        assert [*streamed] == [*PICTURES]
        files = open_regions(place)
        assert files.names == (*PICTURES,) and files.repeated == 0
        batch = files.batch(["43", "40", "42"])
        assert batch.names == ("43", "40", "42") and batch.mask.sum(1).tolist() == [5, 2, 4] and batch.features.dtype == torch.float32
        for k, name in enumerate(batch.names):
            x = PICTURES[name]
            assert np.array_equal(streamed[name].features, x) and np.array_equal(batch.features[k][batch.mask[k]], x)
            if place.name != "att": assert np.allclose(batch.boxes[k][batch.mask[k]], x[:, 2048:2052], atol=1e-6)
        assert (batch.features[~batch.mask] == 0).all() and (batch.boxes is None) == (place.name == "att")


def test_several_files_are_one_collection_and_a_repeated_picture_is_counted(tmp_path):
    first, second = dict([*PICTURES.items()][:3]), dict([*PICTURES.items()][2:])
    parts = [write_rows(tmp_path/"train.tsv.0", genome, first), write_rows(tmp_path/"train.tsv.1", genome, second)]
    files = open_regions(parts)
    assert files.names == (*PICTURES,) and files.repeated == 1
    assert sum(1 for _ in _stream_regions(parts)) == 5


def test_a_grid_of_features_is_a_list_of_regions(tmp_path):
    grid = DRAW.random((3, 4, 5), np.float32)
    np.savez(tmp_path/"7.npz", feat=np.asfortranarray(grid), other=np.zeros(2))
    assert np.array_equal([*_stream_regions(tmp_path/"7.npz")][0].features, grid.reshape(12, 5))


BAD_ROWS = {  # what is wrong -> the row, and what the message says
    "no number of boxes": ("7\t640\t480\tmany\t\t", "num_boxes is 'many'"),
    "no boxes": (f"7\t0\t{letters([[1.]])}", "num_boxes is '0'"),
    "a million boxes": (f"7\t1000000\t{letters([[1.]])}", f"expected 1 to {_MOST_REGIONS:,} regions"),
    "a number of boxes without end": ("7\t" + "9"*3000 + "\t" + letters([[1.]]), "regions"),
    "another number of boxes": (f"7\t3\t{letters([[1., 2.]])}", "8 bytes, which are no 3 rows"),
    "too wide": (f"7\t1\t{letters([[0.]*(_WIDEST + 1)])}", "at most"),
    "empty": ("7\t1\t", "0 bytes"),
    "not base64": ("7\t1\tAAAA!AAA", "not base64"),
    "infinite": (f"7\t1\t{letters([[1., np.inf]])}", "features hold NaN or infinity"),
    "no name": (f"\t1\t{letters([[1.]])}", "no name"),
    "too many fields": ("7\t1\t2\t3", "4 field(s); expected 6"),
    "no fields": ("", "1 field(s); expected 6"),
    "boxes of three numbers": (f"7\t640\t480\t1\t{letters([[1., 2., 3.]])}\t{letters([[1.]])}", "boxes have 3 numbers each"),
    "a picture without width": (f"7\t0\t480\t1\t{letters([[1.]*4])}\t{letters([[1.]])}", "image_w is '0'"),
    "no JSON": ("7\t{'num_boxes': 1}", "not JSON"),
    "deep JSON": ("7\t" + "["*100_000, "not JSON"),
    "a JSON list": ("7\t[1]", "no JSON object"),
    "no features": ('7\t{"num_boxes": 1}', "features are not base64"),
    "features as a list": ('7\t{"num_boxes": 1, "features": [1.0]}', "features are not base64"),
    "no objects": ('7\t{"objects": []}', "0 regions"),
    "objects of text": ('7\t{"objects": ["a"]}', "no list of objects"),
    "no rect": ('7\t' + json.dumps({"objects": [{"feature": letters([1.])}]}), "no box of four numbers"),
    "rect of text": ('7\t' + json.dumps({"objects": [{"feature": letters([1.]), "rect": ["a"]*4}]}), "no box of four numbers"),
    "features of two lengths": ('7\t' + json.dumps({"objects": [{"feature": letters(x), "rect": [0]*4} for x in ([1.], [1., 2.])]}), "different lengths")}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_bad_row_is_named_by_its_line(what, tmp_path):
    row, says = BAD_ROWS[what]
    (tmp_path/"f.tsv").write_text(f"{three_fields('1', [[1.]])}\n{row}\n")
    found = _stream_regions(tmp_path/"f.tsv")
    assert next(found).name == "1"
    with pytest.raises(InputError) as error: next(found)
    assert str(error.value).startswith("f.tsv, line 2: ") and says in str(error.value) and len(str(error.value)) < 4000
    with pytest.raises(InputError, match="f.tsv, line 2: "): open_regions(tmp_path/"f.tsv").picture(row.partition("\t")[0])


def test_bytes_that_are_no_text_and_rows_without_end(tmp_path, monkeypatch):
    (tmp_path/"f.tsv").write_bytes(b"\xff\xfe\t1\t2\n")
    with pytest.raises(InputError, match="line 1: not UTF-8"): [*_stream_regions(tmp_path/"f.tsv")]
    from invariant_metrics.data import regions
    monkeypatch.setattr(regions, "_LONGEST_ROW", 1000)
    (tmp_path/"long.tsv").write_bytes(b"7\t1\t" + b"A"*5000)
    with pytest.raises(InputError, match="long.tsv, line 1: over"): [*_stream_regions(tmp_path/"long.tsv")]
    assert _LONGEST_ROW > 4/3*4*(_MOST_REGIONS*2054)  # what a detector could write fits


def one_array(path, header, content, name="feat.npy"):
    with ZipFile(path, "w", ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        np.lib.format.write_array_header_1_0(file, {"fortran_order": False, **header})
        file.write(content)
    return path


class Trap:
    def __reduce__(self): return exec, ("raise SystemExit('unpickled')",)


def test_an_npz_file_cannot_run_code_lie_about_its_size_or_fill_the_memory(tmp_path):
    trap = pickle.dumps(np.array([[Trap(), Trap()]], object))
    bad = {"objects": one_array(tmp_path/"objects.npz", {"descr": "|O", "shape": (1, 2)}, trap),
           "has 5": one_array(tmp_path/"short.npz", {"descr": "<f4", "shape": (1000, 2048)}, b"short"),
           "1,000,000,000 regions": one_array(tmp_path/"huge.npz", {"descr": "<f4", "shape": (10**9, 2048)}, b"short"),
           "the array says 8 bytes and has": one_array(tmp_path/"bomb.npz", {"descr": "<f4", "shape": (1, 2)}, bytes(2**27)),
           "regions of": one_array(tmp_path/"negative.npz", {"descr": "<f4", "shape": (-1, 2)}, bytes(8)),
           "expected floats": one_array(tmp_path/"letters.npz", {"descr": "<U2", "shape": (1, 2)}, bytes(16)),
           "holds x.npy": one_array(tmp_path/"other.npz", {"descr": "<f4", "shape": (1, 2)}, bytes(8), "x.npy")}
    (tmp_path/"text.npz").write_text("no archive")
    np.savez(tmp_path/"object.npz", feat=np.array([[1, Trap()]], object))
    tracemalloc.start()
    for says, path in (*bad.items(), ("no readable .npz", tmp_path/"text.npz"), ("of object", tmp_path/"object.npz")):
        with pytest.raises(InputError) as error: [*_stream_regions(path)]
        assert says.replace("objects", "of object") in str(error.value) and str(error.value).startswith(f"{path.name}: "), path
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_a_cut_archive_is_one_line(tmp_path):
    held = io.BytesIO()
    np.savez_compressed(held, feat=PICTURES["40"])
    whole = held.getvalue()
    for end in range(0, len(whole), 997):
        (tmp_path/"7.npz").write_bytes(whole[:end] + whole[end + 100:])
        with pytest.raises(InputError): [*_stream_regions(tmp_path/"7.npz")]


def test_no_name_leads_out_of_the_folder(tmp_path):
    folder = write_npz(tmp_path/"att")
    np.savez(tmp_path/"secret.npz", feat=np.zeros((1, 2054), np.float32))
    files = open_regions(folder)
    for name in ("../secret", "../secret.npz", str(tmp_path/"secret"), "", "..", "a/../40"):
        with pytest.raises(InputError, match="no regions of picture"): files.picture(name)
    for place, says in ((tmp_path/"none", "no such file"), (tmp_path/"a\0b", "NUL"), (tmp_path, None)):
        if says is None: assert open_regions(place).names == ("secret",); continue
        with pytest.raises(InputError, match=says): open_regions(place)
    (tmp_path/"empty").mkdir()
    with pytest.raises(InputError, match="no .npz files"): open_regions(tmp_path/"empty")


@pytest.mark.parametrize("index, says", [("0\n17\n", "no row begins at byte 17"), ("0\nx\n", "line 2: b'x' is no place"), ("0\n999999999\n", "is no place"),
                                         ("0\n" + "9"*1000, "is no place"), ("-1\n", "is no place"), ("\n", "is no place")])
def test_places_beside_a_file_are_not_believed(index, says, tmp_path):
    place = write_rows(tmp_path/"f.tsv", three_fields)
    place.with_suffix(".lineidx").write_text(index)
    with pytest.raises(InputError, match=says): open_regions(place)


def test_a_long_file_passes_through_little_memory(tmp_path):
    row = three_fields("{}", np.zeros((36, 2048)))
    with open(tmp_path/"f.tsv", "w") as file:
        for i in range(60): file.write(row.replace("{}", str(i)) + "\n")
    tracemalloc.start()
    assert sum(len(p.features) for p in _stream_regions(tmp_path/"f.tsv")) == 60*36
    files = open_regions(tmp_path/"f.tsv")
    assert len(files.batch(["59", "0"])) == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6 < 20e6 < (tmp_path/"f.tsv").stat().st_size


def test_a_tiny_captioner_trains_on_region_files(tmp_path):
    "What the files say reaches the network: the right picture's text gets likelier, and regions are not shuffled."
    said = ["a red circle", "a blue square", "a blue square on a red circle", "a red square"]
    words = Vocabulary.of(said)
    regions = open_regions(write_rows(tmp_path/"f.tsv", genome)).batch(PICTURES)
    net = Captioner(2054, words, Shape(1, 1, 32, 48, 4, 0., tie_weights=False, unbiased_norm=True), seed=3)
    at = text_batches(regions.inputs, words.batch(said, 12), words, 4)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    losses = []
    for step in range(12):
        batch = at(step)
        assert batch["features"].shape == (4, 5, 2054) and batch["mask"].shape == (4, 5)
        optimizer.zero_grad()
        loss = text_loss(net(batch, batch["tokens"]), batch["tokens"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0] and losses[-1] < .7*losses[0], losses
    assert len(net.texts(regions.inputs, length=8)) == 4


def test_features_of_two_detectors_are_no_batch(tmp_path):
    both = {"1": PICTURES["40"], "2": PICTURES["41"][:, :2048]}
    with pytest.raises(InputError, match="come from different detectors"): _pad_regions(_stream_regions(write_npz(tmp_path/"att", both)))
    with pytest.raises(InputError, match="no pictures"): _pad_regions([])
