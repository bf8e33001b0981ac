"CLIPScore on miniatures of both families against direct formulas; long captions; published values where the weights are present."
import json

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from real_data import data_path
from safetensors.torch import save_file

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import CLIP
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.encoders.image_text import PillowCrop, TextTokens, fit_texts, image_text, _split_text
from invariant_metrics.encoders.weights import resolve
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.caption import PREFIX, harmonic_mean

CAPTIONS = ["a cat sleeps on a bed", "two dogs run", "a cat sleeps on a bed", "", "an old man rides a bicycle down the road."]
REFERENCES = [("a cat on a bed", "a sleeping cat"), ("dogs run", "two brown dogs", "animals"), ("a bed",), ("nothing", ""), ("a man on a bicycle",)]
LONG = " ".join(["a cat sleeps on a bed."]*12)


def mini_clip(folder, end=None):
    "Random CLIP with a tokenizer of single letters; 64 tokens."
    import transformers
    letters = [*"abcdefghijklmnopqrstuvwxyz.", *(c + "</w>" for c in "abcdefghijklmnopqrstuvwxyz.")]  # inside a word, and at its end
    tokenizer = transformers.CLIPTokenizer(vocab={w: i for i, w in enumerate(["<|startoftext|>", "<|endoftext|>", *letters])}, merges=[])
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    text = dict(small, vocab_size=len(tokenizer), max_position_embeddings=64, bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id if end is None else end)
    config = transformers.CLIPConfig(text_config=text, vision_config=dict(small, patch_size=14, image_size=56), projection_dim=16)
    with fixed_seed(0): net = transformers.CLIPModel(config).eval()
    with torch.no_grad():  # pictures lean toward the mean caption, so that cosines are positive
        ends = [net.text_model(torch.tensor([tokenizer(c)["input_ids"]])).last_hidden_state[:, -1] for c in CAPTIONS]
        said = net.text_projection(torch.cat(ends)).mean(0)
        seen = net.vision_model(torch.zeros(1, 3, 56, 56)).pooler_output[0]
        net.visual_projection.weight += net.visual_projection(seen).norm()*torch.outer(said/said.norm(), seen/(seen @ seen))
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def mini_open_clip(folder, words=49408, pool="argmax"):
    "Random open_clip model with the library's tokenizer; 40 tokens."
    import open_clip
    towers = dict(embed_dim=16, vision_cfg=dict(image_size=56, layers=2, width=64, patch_size=14),
                  text_cfg=dict(context_length=40, vocab_size=words, width=32, heads=2, layers=2, pool_type=pool))
    with fixed_seed(0): net = open_clip.CLIP(**towers)
    with fixed_seed(1): net.text_projection.data.normal_()
    if words > 49000:  # as above
        with torch.no_grad():
            said, proj = net.eval().encode_text(open_clip.SimpleTokenizer(context_length=40)(CAPTIONS)).mean(0), net.visual.proj.clone()
            net.visual.proj = None
            seen = net.visual(torch.zeros(1, 3, 56, 56))[0]
            net.visual.proj = torch.nn.Parameter(proj + (seen @ proj).norm()*torch.outer(seen/(seen @ seen), said/said.norm()))
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, folder/"open_clip_model.safetensors")
    (folder/"open_clip_config.json").write_text(json.dumps(dict(model_cfg=towers, preprocess_cfg=dict(mean=CLIP[0], std=CLIP[1]))))
    return folder


MAKE = {"clip": mini_clip, "open_clip": mini_open_clip}


@pytest.fixture(scope="module", params=MAKE)
def family(request): return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory): return MAKE[family](tmp_path_factory.mktemp(family))


@pytest.fixture(scope="module")
def pictures():
    g = torch.Generator().manual_seed(0)
    sizes = [(80, 100), (56, 56), (70, 60), (64, 90), (120, 57)]
    made = [torch.nn.functional.interpolate(torch.rand(1, 3, 5, 5, generator=g), s, mode="bilinear")[0] for s in sizes]
    return [made[0], made[1], made[0], made[3], made[4]]


def unit(x): return (x/x.norm(dim=-1, keepdim=True)).double()


@torch.no_grad()
def direct(family, folder, texts, picture, prefix=PREFIX):
    "Unit vectors by the library alone, one at a time."
    import open_clip
    import transformers
    prepared = image_text(folder).prepare(picture[None])
    if family == "clip":
        net = transformers.CLIPModel.from_pretrained(folder, local_files_only=True).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        words = [net.get_text_features(**tokenizer([prefix + t], return_tensors="pt")).pooler_output[0] for t in texts]
        return unit(net.get_image_features(prepared).pooler_output[0]), [unit(w) for w in words]
    net, tokenizer = open_clip.create_model(f"local-dir:{folder}").eval(), open_clip.get_tokenizer(f"local-dir:{folder}")
    return unit(net.encode_image(prepared)[0]), [unit(net.encode_text(tokenizer([prefix + t]))[0]) for t in texts]


def test_both_scores_are_the_published_formulas_on_the_librarys_own_vectors(family, folder, pictures):
    metrics = [get_metric(name, weights=folder) for name in ("clipscore", "refclipscore")]
    rows = extract(metrics, CAPTIONS, REFERENCES, pictures)
    for i in (0, 1, 3, 4):
        image, (caption, *refs) = direct(family, folder, [CAPTIONS[i], *REFERENCES[i]], pictures[i])
        plain, text = 2.5*max((image @ caption).item(), 0), max(max((r @ caption).item() for r in refs), 0)
        assert rows[metrics[0].name].pred[i].item() == pytest.approx(plain, abs=1e-5)
        assert rows[metrics[1].name].pred[i].item() == pytest.approx(2*plain*text/(plain + text) if plain*text else 0, abs=1e-5)
    assert rows[metrics[0].name].pred[0] == rows[metrics[0].name].pred[2]
    assert (rows[metrics[0].name].pred > 0.1).sum() >= 3 and len(rows[metrics[1].name].pred.unique()) >= 4
    assert [note.code for note in rows[metrics[0].name].notes] == ["empty-predictions"]


def test_neither_the_batch_nor_the_order_nor_the_company_matters(folder, pictures):
    built = [get_metric(name, weights=folder) for name in ("clipscore", "refclipscore")]
    whole = extract(built, CAPTIONS, REFERENCES, pictures)
    for batch in (1, 3):
        model = image_text(folder)
        model.held.clear(); model.batch = batch
        order = [4, 2, 0, 3, 1]
        metrics = [get_metric(name, weights=folder) for name in ("clipscore", "refclipscore")]
        again = extract(metrics, [CAPTIONS[i] for i in order], [REFERENCES[i] for i in order], [pictures[i] for i in order])
        for name, rows in again.items(): assert torch.allclose(rows.pred, whole[name].pred[order], atol=1e-6)
    model.batch = 32


def test_each_picture_and_text_is_encoded_once_by_all_metrics_together(folder, pictures):
    metrics = [get_metric(name, weights=folder) for name in ("clipscore", "refclipscore")]
    model, seen, read = image_text(folder), [], []
    image, text = model.image, model.text
    model.held.clear()
    model.image, model.text = lambda x: (seen.append(len(x)), image(x))[1], lambda rows: (read.append(len(rows)), text(rows))[1]
    copies = [p.clone() for p in pictures]  # the same content, decoded again
    extract(metrics, CAPTIONS, REFERENCES, copies)
    model.image, model.text = image, text
    assert sum(seen) == 4 and sum(read) == len({*CAPTIONS, *sum(REFERENCES, ())})


def test_pictures_of_a_batch_are_prepared_together_and_equal_those_alone(folder):
    draw, model, prepared = torch.Generator().manual_seed(0), image_text(folder), []
    pictures = [torch.rand(3, 40 + 8*(k % 2), 48, generator=draw) for k in range(7)]
    model.held.clear()
    alone = torch.cat([model.images([picture]) for picture in pictures])
    keys = [*model.held]
    model.held.clear()
    prepare = model.prepare
    model.prepare = lambda x: (prepared.append(len(x)), prepare(x))[1]
    together = model.images([*pictures, pictures[0]])
    model.prepare = prepare
    assert prepared == [4, 3] and sorted(model.held) == sorted(keys) and torch.allclose(together, alone[[*range(7), 0]], atol=1e-6)


def test_a_loaded_model_is_shared_while_it_lives_and_not_between_settings(folder):
    model = image_text(folder)
    assert image_text(str(folder)) is model and image_text(folder, resize="pillow") is not model


def test_long_captions_are_refused_by_default_with_their_names(folder, pictures):
    metric = get_metric("clipscore", weights=folder)
    with pytest.raises(InputError, match=r"1 texts have more than \d+ tokens: 'a cat sleeps on a bed. .*; choose long=") as error:
        extract([metric], [*CAPTIONS[:4], LONG], source=pictures)
    assert "\n" not in str(error.value)


def test_cut_keeps_the_end_token_and_says_how_many(family, folder, pictures):
    import open_clip
    import transformers
    metric, model = get_metric("clipscore", weights=folder, long="cut"), image_text(folder)
    rows = extract([metric], [*CAPTIONS[:4], LONG], source=pictures)[metric.name]
    assert rows.notes[-1:] == (f"1 of 5 texts have more than {model.tokens.limit} tokens and were cut, the end token kept",)
    ids = model.tokens.rows([PREFIX + LONG])[0]
    assert len(ids) == model.tokens.limit and ids[-1] == model.tokens.ids(["a"])[0][-1]
    if family == "open_clip":
        assert ids == open_clip.get_tokenizer(f"local-dir:{folder}")([PREFIX + LONG])[0].tolist()
        _, (expected,) = direct(family, folder, [LONG], pictures[4])
        assert torch.allclose(model.texts([LONG], PREFIX, "cut")[0][0], expected, atol=1e-5)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert ids == tokenizer(PREFIX + LONG, truncation=True, max_length=64)["input_ids"]


def test_split_averages_the_unit_vectors_of_runs_of_sentences_and_loses_nothing(folder):
    model = image_text(folder)
    (pieces,), over = fit_texts([LONG], model.tokens, PREFIX, "split")
    assert over == 1 and len(pieces) > 1 and " ".join(p.removeprefix(PREFIX) for p in pieces) == LONG
    assert max(model.tokens.count(pieces)) <= model.tokens.limit and all(p.endswith("bed.") for p in pieces)
    mean = torch.stack([model.texts([p])[0][0] for p in pieces]).mean(0)
    assert torch.allclose(model.texts([LONG], PREFIX, "split")[0][0], mean/mean.norm(), atol=1e-6)
    short = model.texts(CAPTIONS, PREFIX, "split")[0]
    assert torch.equal(short, model.texts(CAPTIONS, PREFIX)[0])
    one, other = (model.texts([f"{LONG} {end}"], PREFIX, "split")[0] for end in ("a dog.", "an old man."))
    assert (one - other).norm() > 1e-4


@settings(max_examples=100)
@given(st.text(alphabet="ab .!?;\n", max_size=60), st.integers(1, 12))
def test_splitting_keeps_every_letter_in_order_and_every_piece_fits(text, room):
    pieces = _split_text(text, lambda piece: len(piece) <= room)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(p) <= room for p in pieces)


class Shim(torch.nn.Module):
    "transformers' model as torchmetrics expects it: features as tensors."
    def __init__(self, net): super().__init__(); self.net, self.config = net, net.config
    def get_image_features(self, x): return self.net.get_image_features(x).pooler_output
    def get_text_features(self, ids, mask): return self.net.get_text_features(ids, mask).pooler_output


def test_torchmetrics_gives_different_long_captions_one_score_and_ours_does_not(tmp_path, pictures):
    import transformers
    from torchmetrics.functional.multimodal.clip_score import _clip_score_update
    folder = mini_clip(tmp_path)
    net, tokenizer = transformers.CLIPModel.from_pretrained(folder, local_files_only=True).eval(), transformers.AutoTokenizer.from_pretrained(folder)
    size = dict(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    processor = transformers.CLIPProcessor(transformers.CLIPImageProcessor(**size), tokenizer)
    texts = [LONG, " ".join(["two dogs run down the old road."]*12)]
    with torch.no_grad(), pytest.warns(UserWarning): theirs, _ = _clip_score_update([(255*pictures[0]).byte()]*2, texts, Shim(net), processor)
    assert theirs[0].item() == pytest.approx(theirs[1].item(), abs=1e-4)
    for long in ("split", "cut"):
        found = image_text(folder).texts(texts, PREFIX, long)[0]
        assert (found[0] - found[1]).norm() > 1e-3


def test_an_end_token_inside_a_caption_is_refused(family, folder):
    word = {"clip": "<|endoftext|>", "open_clip": "<end_of_text>"}[family]
    with pytest.raises(InputError, match="1 texts contain the model's end token as a word: .*a cat"):
        image_text(folder).texts([f"a cat {word} a dog", "a dog"])


@pytest.mark.parametrize("end", [5, 0, 2])
def test_a_configuration_that_reads_texts_elsewhere_is_refused(tmp_path, end):
    with pytest.raises(InputError, match="different texts would get one vector") as error: image_text(mini_clip(tmp_path, end))
    assert "\n" not in str(error.value)


def test_folders_that_cannot_be_used_are_refused_in_one_line(tmp_path):
    for name in ("bare", "first", "small"): (tmp_path/name).mkdir()
    bare = mini_clip(tmp_path/"bare")
    for file in ("tokenizer.json", "vocab.json", "merges.txt"): (bare/file).unlink(missing_ok=True)
    with pytest.raises(InputError, match="bare has no tokenizer"): image_text(bare)
    with pytest.raises(InputError, match="different texts get one vector"): image_text(mini_open_clip(tmp_path/"first", pool="first"))
    with pytest.raises(InputError, match="do not belong together"): image_text(mini_open_clip(tmp_path/"small", words=500))
    with pytest.raises(InputError, match="unknown resize"): image_text(bare, resize="nearest")


def test_signatures_name_everything(folder):
    parts = dict(get_metric("clipscore", weights=folder, long="cut", resize="pillow").signature.items)
    assert {"metric", "encoder", "weights", "input", "tokens", "prefix", "w", "long"} <= set(parts)
    assert parts["input"].endswith("pillow") and parts["long"] == "cut" and parts["prefix"] == "A_photo_depicts"


@settings(max_examples=50)
@given(st.floats(0, 2.5), st.floats(0, 1))
@example(0.5, 5e-324) # their product is 0 though neither is
@example(0.0, 0.3)
def test_the_harmonic_mean_lies_between_its_arguments_and_is_0_with_either(a, b):
    value = harmonic_mean(torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64)).item()
    assert min(a, b) - 1e-12 <= value <= max(a, b) + 1e-12 and (min(a, b) > 0 or value == 0)


@pytest.mark.parametrize("size", [(224, 224), (300, 451), (451, 300), (333, 224), (640, 427), (97, 61)])
def test_pillow_crop_is_the_reference_preprocessing_to_the_bit(size):
    import torchvision.transforms as T
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))
    expected = T.Compose([T.Resize(224, T.InterpolationMode.BICUBIC), T.CenterCrop(224), T.ToTensor(), T.Normalize(*CLIP)])(picture)
    found = PillowCrop(224, "crop", "bicubic", CLIP)(torch.from_numpy(np.array(picture)).movedim(-1, 0)[None]/255)[0]
    assert torch.allclose(found, expected, atol=1e-6)


def test_published_example_with_the_real_weights():
    "Values of the authors' README, which were computed in half precision on a GPU."
    try: resolve("clip-vit-b-32")
    except InputError as missing: pytest.skip(str(missing))
    root = data_path("parity/clipscore_example")
    read = lambda name: json.loads((root/f"{name}.json").read_text())
    refs, expected, names = read("refs"), read("expected"), sorted(read("refs"))
    photos = [torch.from_numpy(np.array(Image.open(root/f"images/{n}.jpg").convert("RGB"))).movedim(-1, 0)/255 for n in names]
    metrics = [get_metric(name, resize="pillow", long="cut") for name in ("clipscore", "refclipscore")]
    for kind in ("good", "bad"):
        rows = extract(metrics, [read(f"{kind}_captions")[n] for n in names], [refs[n] for n in names], photos)
        assert rows["clipscore"].pred.mean().item() == pytest.approx(expected[kind]["CLIPScore"], abs=1e-3)
        assert rows["refclipscore"].pred.mean().item() == pytest.approx(expected[kind]["RefCLIPScore"], abs=1e-3)
