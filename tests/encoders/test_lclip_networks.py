"Networks of L-CLIP against independent references, a student's folder and its accidents, and the scores on it from any folder."
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import CLIP, Preprocess, get_encoder
from invariant_metrics.encoders.image_text import image_text
from invariant_metrics.encoders.lclip_student import RECORD, WEIGHTS, config_fields, read_config, read_lclip, save_lclip
from invariant_metrics.encoders.weights import Card, all_cards, list_weights, save_embedded_folder, verify_weights
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.caption import PREFIX, clip_scores
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.models.multiplexed import LClip, LClipConfig, _MultiplexedText, _RepeatParts, _SharedAttention, _SharedBlock, TowerConfig, tiny_lclip

CAPTIONS = {"1": "a cat on a bed", "2": "two dogs run", "3": "a man"}
REFERENCES = {"1": ["a cat", "a bed"], "2": ["dogs run"], "3": ["a man", "an old man", "a dog"]}
LONG = "a cat sleeps. a dog runs. a man reads a book."
PREPARE = Preprocess(32, "crop", "bicubic", CLIP)


def letters(folder, first="a"):
    "A tokenizer of single letters whose last token is number 1."
    import transformers
    marks = [first, *(c for c in "abcdefghijklmnopqrstuvwxyz." if c != first)]
    words = ["<|startoftext|>", "<|endoftext|>", *marks, *(c + "</w>" for c in marks)]
    transformers.CLIPTokenizer(vocab={w: i for i, w in enumerate(words)}, merges=[]).save_pretrained(folder)
    return folder


def student(seed=0, **changes):
    "An untrained student whose cosines are positive: both towers lean to one direction."
    with fixed_seed(seed): net = LClip(tiny_lclip(**{"end": 1, "context": 77, **changes})).eval()
    for tower in (net.vision, net.text): tower.head.bias.data[0] += 4
    return net


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    "A teacher's tokenizer, a student, pictures and captions."
    home = tmp_path_factory.mktemp("lclip")
    letters(home/"teacher")
    save_lclip(home/"student", student(), home/"teacher", PREPARE, {"teacher": "letters", "steps": 3})
    (home/"pictures").mkdir()
    for i, (name, _) in enumerate(CAPTIONS.items()):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(home/"pictures"/f"{name}.png")
    (home/"captions.json").write_text(json.dumps(CAPTIONS))
    (home/"references.json").write_text(json.dumps(REFERENCES))
    (home/"elsewhere").mkdir()
    return home


@pytest.fixture
def copy(home, tmp_path):
    "A student's folder that a test may damage."
    return save_lclip(tmp_path/"copy", student(), home/"teacher", PREPARE)


# ---------------------------------------------------------------- the networks


def attention_by_hand(x, attention, own, mask):
    "Head by head, place by place: the formula of the paper in float64."
    qkv = x @ attention.qkv.weight.T + (0 if attention.qkv.bias is None else attention.qkv.bias)
    heads, width = attention.heads, x.shape[-1]
    size = width//heads
    q, k, v = (qkv[..., i*width:(i + 1)*width] for i in range(3))
    part = lambda y, h: y[..., h*size:(h + 1)*size]
    scores = [part(q, h) @ part(k, h).transpose(1, 2)/math.sqrt(size) for h in range(heads)]
    def mix(mixer, maps):
        if mixer is None: return maps
        bias = torch.zeros(heads, dtype=x.dtype) if mixer.bias is None else mixer.bias
        return [sum(mixer.weight[i, j]*maps[j] for j in range(heads)) + bias[i] for i in range(heads)]
    hidden = 0 if mask is None else mask[:, 0]
    weights = mix(own.mix_weights, [(s + hidden).softmax(-1) for s in mix(own.mix_scores, scores)])
    out = torch.cat([weights[h] @ part(v, h) for h in range(heads)], -1)
    return out @ attention.proj.weight.T + attention.proj.bias


@pytest.mark.parametrize("grad", [False, True])
def test_attention_is_the_formula_of_the_paper(grad):
    tried = 0
    for heads in (1, 2, 6):
        for qkv_bias, mix_heads, mix_bias, masked in ((True, True, False, False), (False, True, True, False), (True, True, False, True),
                                                      (False, False, False, True), (True, False, False, False)):
            config = TowerConfig(width=12, heads=heads, qkv_bias=qkv_bias, mix_heads=mix_heads, mix_bias=mix_bias)
            torch.manual_seed(heads)
            attention, own = _SharedAttention(config).double(), _RepeatParts(config).double()
            for p in own.parameters(): torch.nn.init.normal_(p)
            x = torch.randn(3, 5, 12, dtype=torch.float64)
            mask = torch.zeros(3, 1, 5, 5, dtype=torch.float64)
            mask[1, :, :, 3:] = -torch.inf
            mask = mask if masked else None
            with torch.set_grad_enabled(grad): found = attention(x, own, mask)
            torch.testing.assert_close(found, attention_by_hand(x, attention, own, mask), rtol=1e-9, atol=1e-11)
            tried += 1
    assert tried == 15


def test_gradients_of_mixers_and_attention_are_those_of_finite_differences():
    config = TowerConfig(width=4, heads=2, repeats=1, ratio=1, mix_bias=True)
    torch.manual_seed(0)
    attention, own = _SharedAttention(config).double(), _RepeatParts(config).double()
    for p in own.parameters(): torch.nn.init.normal_(p)
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    class Both(torch.nn.Module):
        def __init__(self): super().__init__(); self.attention, self.own = attention, own
        def forward(self, x): return self.attention(x, self.own)
    both = Both()
    names = [f"own.{mixer}.{part}" for mixer in ("mix_scores", "mix_weights") for part in ("weight", "bias")]
    given = [both.get_parameter(name).detach().requires_grad_() for name in names]
    def run(x, *mixers): return torch.func.functional_call(both, dict(zip(names, mixers)), (x,))
    assert torch.autograd.gradcheck(run, (x, *given))


def test_identity_mixers_are_torchs_attention_and_a_block_is_clips_layer():
    from transformers import CLIPTextConfig
    from transformers.models.clip.modeling_clip import CLIPEncoderLayer
    config = TowerConfig(width=32, heads=4, blocks=1, repeats=2)
    torch.manual_seed(0)
    block, x = _SharedBlock(config).eval(), torch.randn(2, 7, 32)
    for own in block.own:
        for p in own.parameters(): torch.nn.init.normal_(p, 1., .1)
        for mixer in (own.mix_scores, own.mix_weights): mixer.weight.data.copy_(torch.eye(4))
    other = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    other.in_proj_weight, other.in_proj_bias = block.attention.qkv.weight, block.attention.qkv.bias
    other.out_proj.weight, other.out_proj.bias = block.attention.proj.weight, block.attention.proj.bias
    with torch.no_grad():
        torch.testing.assert_close(block.attention(x, block.own[0]), other(x, x, x)[0], rtol=1e-5, atol=1e-5)
        expected = x
        for own in block.own:
            layer = CLIPEncoderLayer(CLIPTextConfig(hidden_size=32, num_attention_heads=4, intermediate_size=128, hidden_act="gelu")).eval()
            layer.layer_norm1.load_state_dict(own.norm1.state_dict())
            layer.layer_norm2.load_state_dict(own.norm2.state_dict())
            for i, part in enumerate((layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)):
                part.weight.data, part.bias.data = block.attention.qkv.weight[32*i:32*i + 32].data, block.attention.qkv.bias[32*i:32*i + 32].data
            layer.self_attn.out_proj.load_state_dict(block.attention.proj.state_dict())
            layer.mlp.fc1.load_state_dict(block.ffn[0].state_dict())
            layer.mlp.fc2.load_state_dict(block.ffn[2].state_dict())
            out = layer(expected, None)
            expected = out[0] if isinstance(out, tuple) else out
        torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-5)


def test_parameters_are_the_formula_of_a_block_and_the_papers_totals():
    count = lambda module: sum(p.numel() for p in module.parameters())
    with torch.device("meta"):
        for width, heads, repeats, bias in ((768, 24, 2, True), (768, 12, 2, False), (96, 6, 3, True)):
            found = count(_SharedBlock(TowerConfig(width=width, heads=heads, repeats=repeats, qkv_bias=bias)))
            attention = 4*width**2 + width + 3*width*bias
            assert found == attention + 8*width**2 + 5*width + repeats*(4*width + 2*heads**2)
        lclip, whole = LClip(), LClip(LClipConfig(factor=None))
    assert (count(lclip.vision), count(lclip.text), count(whole.text)) == (24_074_240, 27_478_656, 52_578_176)
    assert (count(lclip), count(whole)) == (51_552_896, 76_652_416)


def test_a_text_is_read_at_its_end_and_sees_what_its_configuration_lets_it_see():
    tokens = torch.tensor([[0, 30, 40, 1, 0, 0], [0, 50, 1, 0, 0, 0]])
    behind = tokens.clone()
    behind[:, -1] = 33
    first = tokens.clone()
    first[:, 1] = 34
    for changes, sees in ({}, True), ({"mask_padding": True}, False), ({"causal": True}, False), ({"mean_pool": True, "mask_padding": True}, False):
        tower = student(**changes).text
        assert tower.ends(tokens).tolist() == [3, 2] and _MultiplexedText(tiny_lclip()).ends(tokens).tolist() == [2, 1]
        with torch.no_grad(): plain, moved, other, longer = (tower(t) for t in (tokens, behind, first, torch.nn.functional.pad(tokens, (0, 5))))
        assert ((plain - moved).abs().max() > 1e-6) == sees, changes
        assert (plain - other).abs().amax(1).min() > 1e-6
        torch.testing.assert_close(plain, longer, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- the folder


def test_a_folder_gives_back_the_student_and_what_is_known_of_it(home):
    before = torch.get_rng_state()
    found, record = read_lclip(home/"student")
    assert torch.equal(torch.get_rng_state(), before) and not found.training
    expected = student().state_dict()
    assert found.state_dict().keys() == expected.keys() and all(torch.equal(x, expected[k]) for k, x in found.state_dict().items())
    assert record.about == {"teacher": "letters", "steps": 3} and record.prepare == PREPARE and record.config == found.config
    assert read_lclip(home/"student", found.config)[1] == record


def test_half_the_bytes_move_little(home, tmp_path):
    packed = save_lclip(tmp_path/"half", student(), home/"teacher", PREPARE, half=True)
    assert (packed/WEIGHTS).stat().st_size < .65*(home/"student"/WEIGHTS).stat().st_size
    found = read_lclip(packed)[0]
    assert all(p.dtype == torch.float32 for p in found.parameters())
    with torch.no_grad(): a, b = (net.vision(torch.ones(1, 3, 32, 32)) for net in (found, student()))
    assert 0 < (a - b).abs().max() < 1e-2


def test_every_field_of_a_configuration_comes_back_and_is_named_where_it_differs(home):
    config = student().config
    other = {"width": 64, "heads": 8, "blocks": 3, "repeats": 3, "ratio": 2, "qkv_bias": None, "mix_heads": False, "mix_bias": True, "mix_identity": True}
    flat = {"image": 48, "patch": 16, "vocabulary": 70, "context": 9, "factor": None, "dim": 8, "causal": True, "mask_padding": True, "mean_pool": True, "end": 2}
    fields = config_fields(config)
    for name, value in fields.items():
        side, dot, part = name.partition(".")
        new = not value if part == "qkv_bias" else other[part] if dot else flat[name]
        wanted = read_config({**fields, name: new}, "test")
        assert config_fields(wanted) == {**fields, name: new} and wanted != config
        with pytest.raises(InputError, match=f"student is a checkpoint of another configuration: {name} {value} instead of {new}$"): read_lclip(home/"student", wanted)


def test_a_save_that_dies_leaves_no_student(home, copy, monkeypatch):
    assert read_lclip(copy)
    from invariant_metrics.encoders import lclip_student as lclip
    def full(*_): raise OSError(28, "No space left on device")
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(InputError, match="No space left"): save_lclip(copy, student(1), home/"teacher", PREPARE)
    with pytest.raises(InputError, match=f"copy holds no L-CLIP: {RECORD} is missing"): read_lclip(copy)
    monkeypatch.undo()
    monkeypatch.setattr(lclip, "file_sha256", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt): save_lclip(copy, student(1), home/"teacher", PREPARE)
    monkeypatch.undo()
    with pytest.raises(InputError, match="holds no L-CLIP"): read_lclip(copy)
    save_lclip(copy, student(1), home/"teacher", PREPARE)
    assert torch.equal(read_lclip(copy)[0].vision.token, student(1).vision.token)


def test_weights_of_another_student_are_refused_by_field_and_damaged_ones_by_checksum(home, copy, tmp_path):
    whole, record = (copy/WEIGHTS).read_bytes(), (copy/RECORD).read_text()
    other = save_lclip(tmp_path/"other", student(causal=True), home/"teacher", PREPARE)
    (copy/WEIGHTS).write_bytes((other/WEIGHTS).read_bytes())
    with pytest.raises(InputError, match="copy/lclip.safetensors is a checkpoint of another configuration: causal True instead of False"): read_lclip(copy)
    same = save_lclip(tmp_path/"same", student(1), home/"teacher", PREPARE)
    (copy/WEIGHTS).write_bytes((same/WEIGHTS).read_bytes())
    with pytest.raises(InputError, match="is damaged"): read_lclip(copy)
    (copy/WEIGHTS).write_bytes(whole[:-9])
    with pytest.raises(InputError, match="no weights of an L-CLIP: SafetensorError"): read_lclip(copy)
    save_file(load_file(home/"student"/WEIGHTS), copy/WEIGHTS)
    with pytest.raises(InputError, match="no weights of an L-CLIP: KeyError"): read_lclip(copy)
    (copy/WEIGHTS).unlink()
    with pytest.raises(InputError, match="no weights of an L-CLIP"): read_lclip(copy)
    (copy/WEIGHTS).write_bytes(whole)
    for harm, says in ((record.replace('"format": 1', '"format": 7'), "format 7"), (record[:40], "is no record"), ("[]", "is no record"),
                       (record.replace('"dim"', '"dims"'), "unknown fields of an L-CLIP: dims"), (record.replace('"dim": 16', '"dim": "x"'), "lclip.json")):
        (copy/RECORD).write_text(harm)
        with pytest.raises(InputError, match=says) as error: read_lclip(copy)
        assert "\n" not in str(error.value)


def test_what_does_not_fit_is_not_saved(home, tmp_path):
    broken = student()
    broken.text.head.weight.data[0, 0] = float("nan")
    letters(tmp_path/"z", "z")
    for net, tokens, prepare, says in (
            (broken, home/"teacher", PREPARE, "text.head.weight of the student is not finite"),
            (student(), home/"teacher", replace(PREPARE, size=None), "pictures of None pixels for a student of 32"),
            (student(vocabulary=20), home/"teacher", PREPARE, "has 56 tokens and the network 20"),
            (student(end=5), home/"teacher", PREPARE, "at token 5, and the tokenizer ends it with 1"),
            (student(), home/"pictures", PREPARE, "no weights in"), (student(), "clip-vit-b-33", PREPARE, "did you mean clip-vit-b-32")):
        with pytest.raises(InputError, match=says): save_lclip(tmp_path/"out", net, tokens, prepare)
    assert not (tmp_path/"out").exists()


# ---------------------------------------------------------------- both towers, and the scores


def test_vectors_are_the_towers_own_whoever_else_is_there(home):
    model, net = image_text(home/"student"), student()
    texts, over = model.texts([*CAPTIONS.values()], PREFIX)
    pictures = [torch.rand(3, 40, 50, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    images = model.images(pictures)
    assert over == 0 and model.describe()["encoder"] == "lclip" and model.tokens.limit == 77
    for i, caption in enumerate(CAPTIONS.values()):
        with torch.no_grad(): v, c = net(PREPARE(pictures[i][None]), torch.tensor(model.tokens.ids([PREFIX + caption])))
        torch.testing.assert_close(texts[i], c[0].double(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(images[i], v[0].double(), rtol=1e-5, atol=1e-6)
    assert image_text(home/"student") is model
    encoder = get_encoder("lclip", weights=home/"student")
    torch.testing.assert_close(encoder.encode(pictures[0][None])[0].double(), images[0]*encoder.encode(pictures[0][None])[0].double().norm(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("context", [77, 12])
def test_long_captions_are_refused_split_or_cut_and_counted(home, tmp_path, context):
    model = image_text(save_lclip(tmp_path/"s", student(context=context), home/"teacher", PREPARE))
    texts = ["a cat", LONG if context == 12 else LONG + LONG + LONG]
    assert model.tokens.limit == context
    with pytest.raises(InputError, match=f"1 texts have more than {context} tokens"): model.texts(texts)
    split, cut = (model.texts(texts, long=long) for long in ("split", "cut"))
    assert split[1] == cut[1] == 1 and torch.equal(split[0][0], cut[0][0]) and (split[0][1] - cut[0][1]).norm() > 1e-4
    row = model.tokens.rows(texts)[1]
    assert len(row) == context and row[-1] == 1
    with torch.no_grad(): by_hand = student(context=context).text(torch.tensor([row]))[0].double()
    torch.testing.assert_close(cut[0][1], by_hand/by_hand.norm(), rtol=1e-5, atol=1e-6)


def test_a_student_that_cannot_tell_texts_apart_or_has_another_tokenizer_is_refused(home, copy, tmp_path):
    flat = student()
    flat.text.head.weight.data.zero_()
    with pytest.raises(InputError, match="different texts get one vector"): image_text(save_lclip(tmp_path/"flat", flat, home/"teacher", PREPARE))
    letters(copy, "b")
    with pytest.raises(InputError, match="copy: the student learned with the tokenizer .*, and this is") as error: image_text(copy)
    assert "\n" not in str(error.value)
    for name in ("tokenizer.json", "vocab.json", "merges.txt"): (copy/name).unlink(missing_ok=True)
    with pytest.raises(InputError, match="copy has no tokenizer"): image_text(copy)


def test_a_student_of_an_open_clip_teacher_reads_its_tokens(tmp_path):
    from test_caption import mini_open_clip
    for name in ("open", "other"): (tmp_path/name).mkdir()
    teacher = mini_open_clip(tmp_path/"open")
    net = student(vocabulary=49408, context=40, end=None, factor=4)
    folder = save_lclip(tmp_path/"student", net, teacher, PREPARE)
    mine, theirs = image_text(folder), image_text(teacher)
    texts = ["a cat &amp; a dog", "Zwei Hunde"]
    assert mine.tokens.ids(texts) == theirs.tokens.ids(texts) and (mine.tokens.mark, mine.tokens.limit) == (theirs.tokens.mark, 40)
    assert sorted(p.name for p in folder.iterdir()) == [RECORD, WEIGHTS] and read_lclip(folder)[1].tokenizer == "clip-bpe-49408"
    with torch.no_grad(): by_hand = net.text(torch.tensor(theirs.tokens.ids(texts[1:])))[0].double()
    torch.testing.assert_close(mine.texts(texts)[0][1], by_hand/by_hand.norm(), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="ends no text with 5"): save_lclip(tmp_path/"x", student(vocabulary=49408, end=5, factor=4), teacher, PREPARE)
    with pytest.raises(InputError, match="do not belong together"): save_lclip(tmp_path/"x", student(end=None), teacher, PREPARE)


def test_vectors_of_other_sizes_do_not_meet(home, tmp_path):
    small = image_text(save_lclip(tmp_path/"small", student(dim=8), home/"teacher", PREPARE))
    one, other = small.texts(["a cat"])[0], image_text(home/"student").texts(["a cat"])[0]
    with pytest.raises(InputError, match=r"of one space: \(1, 8\) against \(1, 16\)"): clip_scores(one, other)


def test_l_clipscore_is_clipscore_on_a_student_and_on_nothing_else(home, tmp_path):
    from test_caption import mini_clip
    pictures = [torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    captions, references = [*CAPTIONS.values()], [tuple(r) for r in REFERENCES.values()]
    for light, plain in (("l-clipscore", "clipscore"), ("refl-clipscore", "refclipscore")):
        a, b = (get_metric(name, weights=home/"student") for name in (light, plain))
        rows = extract([a, b], captions, references, pictures)
        assert torch.equal(rows[a.name].pred, rows[b.name].pred) and a.name == light
        assert {"metric"} == set(a.signature.differences(b.signature)) and a.card["weights"] == "embedded-lclip"
        with pytest.raises(InputError, match=f"{light} is defined on an L-CLIP, .* is a clip; use {plain}"): get_metric(light, weights=mini_clip(tmp_path/plain))
    model = image_text(home/"student")
    by_hand = 2.5*(model.images(pictures)*model.texts(captions, PREFIX)[0]).sum(1).clamp(min=0)
    found = extract([get_metric("l-clipscore", weights=home/"student")], captions, source=pictures)["l-clipscore"].pred
    torch.testing.assert_close(found, by_hand)
    assert found.min() > .1 and len(found.unique()) == 3


def test_an_embedded_student_is_the_default_and_is_listed_and_verified(home, tmp_path, monkeypatch):
    monkeypatch.setattr("invariant_metrics.encoders.weights.assets_folder", lambda: tmp_path)
    save_embedded_folder("embedded-lclip", home/"student", Card("", "a student", command="invariant-metrics lclip distill"))
    assert {r["name"]: r["present"] for r in list_weights()}["embedded-lclip"] and verify_weights("embedded-lclip")[0]["ok"]
    metric = get_metric("l-clipscore")
    assert metric.name == "l-clipscore-embedded-lclip" == dict(metric.signature.items)["metric"] # not that of a paper
    assert dict(metric.signature.items)["weights"] == image_text("embedded-lclip").revision
    assert get_encoder("lclip").net.config == student().config


@pytest.mark.parametrize("name, options", [("clipscore", {"weights": "embedded-clip"}), ("l-clipscore", {})])
def test_embedded_judges_need_no_download_and_tell_a_wrong_noun(name, options):
    "Offline, by the weights that come with the package: the true caption of a scene above one with another noun."
    from invariant_metrics.color import lab_to_rgb
    from invariant_metrics.worlds.foils import foils
    from invariant_metrics.worlds.scenes import make_scenes
    card = options.get("weights", "embedded-lclip")
    if card not in all_cards(): pytest.skip(f"{card} does not come with this version")
    scenes = make_scenes(40, 64, seed=777_000)
    draw = np.random.default_rng(0)
    pairs = {i: pair for i in range(40) if (pair := foils(scenes, i, "noun", draw)) is not None}
    pictures = [torch.as_tensor(lab_to_rgb(scenes.lab[i:i + 1]))[0].float().clamp(0, 1) for i in pairs]
    metric = get_metric(name, **options)
    true, wrong = (extract([metric], [pair[k] for pair in pairs.values()], source=pictures)[metric.name].pred for k in (0, 1))
    assert len(pairs) >= 20 and (true > wrong).double().mean() >= .8


def test_words_of_photographs_are_unknown_to_the_embedded_students():
    pictures = torch.rand(3, 3, 64, 64)
    for name, options in (("l-clipscore", {}), ("clipscore", {"weights": "embedded-clip"})):
        found = extract([metric := get_metric(name, **options)], ["a giraffe on grass", "a red ball", "zebras graze"], source=pictures)
        note, = [note for note in found[metric.name].notes if note.code == "unknown-words"]
        assert note.startswith("42 % of the words are unknown to") and note.endswith("all of them in 1 of 3 texts")
        known = extract([metric], ["a red ball"], source=pictures[:1])[metric.name]
        assert not known.notes


def test_a_run_folder_names_its_student(home, tmp_path):
    shutil.copytree(home/"student", tmp_path/"run"/"student")
    (tmp_path/"run"/"run.json").write_text("{}")
    for opens in (image_text, read_lclip):
        with pytest.raises(InputError, match="is a run folder; the weights of its student are in .*run/student"): opens(tmp_path/"run")


def test_scores_from_another_folder(home):
    sides = ["--pred", "../captions.json", "--target", "../references.json", "--source", "../pictures", "--json", "--reps", 50]
    work = home/"elsewhere"
    done = cli("score", "l-clipscore,refl-clipscore", *sides, "--weights", "../student", cwd=work)
    assert done.returncode == 0, done.stderr
    (scores,) = json.loads(done.stdout)["result"]["scores"].values()
    assert set(scores) == {"l-clipscore", "refl-clipscore"} and all(s["n"] == 3 and s["value"] > .1 for s in scores.values())
    plain = cli("score", "clipscore", *sides[:2], *sides[4:], "--weights", "../student", cwd=work)
    assert plain.returncode == 0, plain.stderr
    ((name, found),) = next(iter(json.loads(plain.stdout)["result"]["scores"].values())).items()
    assert found["value"] == scores["l-clipscore"]["value"] and name == "clipscore-student" and "encoder:lclip" in found["signature"]


def test_mistakes_are_one_line_and_exit_code_2(home, copy):
    work = home/"elsewhere"
    (work/"bad").mkdir()
    for name in CAPTIONS: (work/"bad"/f"{name}.png").write_bytes((home/"pictures"/f"{name}.png").read_bytes())
    (work/"bad"/"2.png").write_bytes((home/"pictures"/"2.png").read_bytes()[:200])
    (work/"long.json").write_text(json.dumps(CAPTIONS | {"2": " ".join([LONG]*4)}))
    (copy/RECORD).write_text("{}")
    score = lambda pred, source, *more: cli("score", "l-clipscore", "--pred", pred, "--source", source, "--ci", "none", *more, cwd=work)
    student = ["--weights", "l-clipscore=../student"]
    for done, says in ((score("../captions.json", "bad", *student), "2.png"), (score("long.json", "../pictures", *student), "1 texts have more than 77 tokens"),
                       (score("../captions.json", "../pictures", "--weights", f"l-clipscore={copy}"), "lclip.json is no record of an L-CLIP"),
                       (score("../captions.json", "../pictures", "--weights", "../teacher"), "config.json")):
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    for long, says in ("split", "vectors of their parts averaged"), ("cut", "the end token kept"):
        done = score("long.json", "../pictures", *student, "--option", f"long={long}")
        assert done.returncode == 0 and "1 of 3 texts have more than 77 tokens" in done.stdout + done.stderr and says in done.stdout + done.stderr, done.stdout + done.stderr
