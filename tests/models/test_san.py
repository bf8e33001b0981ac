"""SAN: equal to the authors' code on weights filled by rule, under the published names of tensors; attention, words, files.

san.json holds what the published side network, FeatureExtractor and RecWithAttnbiasHead give for the picture and weights of `filled` in a
tiny size and in the published one: masks, biases, vectors of the queries, and the class maps for seven random words at five times their
cosine, the last of them nothing."""
import json
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from filled import filled, ramp, sample
from torch.nn import functional as F

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import CLIP
from invariant_metrics.models.san import (_CLIP_STATS, _PROMPTS, COCO_STUFF, SAN, SANConfig, _query_mask, _word_vectors,
                                          read_san)

PUBLISHED = json.loads((Path(__file__).parent/"san.json").read_text())
TINY = SANConfig(24, 3, 6, 4, 5, 16, 3, 16, 64, 4, 2, 3, 1, 16, 6)
CONFIGS = {"tiny": TINY, "full": SANConfig(classes=6)}
GAINS = {"tiny": 1., "full": .8}


def tensors(kind: str) -> dict:
    config = CONFIGS[kind]
    with torch.device("meta"): names = SAN(config).state_dict()
    state = {name: torch.from_numpy(filled(name, tuple(value.shape), GAINS[kind])) for name, value in names.items()}
    words = F.normalize(torch.from_numpy(filled("classes", (7, config.embed))), dim=-1)
    return state | {"ov_classifier.text_embeddings": words[:6], "ov_classifier.bg_embed": words[6:],
                    "ov_classifier.logit_scale": torch.tensor(5.).log()}


@pytest.mark.parametrize("kind", ["tiny", pytest.param("full", marks=pytest.mark.slow)])
def test_forward_equals_the_original(kind):
    network = read_san(tensors(kind))
    assert network.config == CONFIGS[kind]
    rgb = 255*torch.from_numpy(ramp(1, 3, 96, 128)) # sides that resize both tables of positions
    seen = {}
    network.side_adapter_network.register_forward_hook(lambda m, given, out: seen.update(masks=out[0], bias=out[1]))
    network.clip_rec_head.register_forward_hook(lambda m, given, out: seen.update(embeddings=out))
    seen["sem_seg"] = network(rgb, (96, 128))
    for name, expected in PUBLISHED[kind].items():
        scale = max(1, np.abs(expected).max())
        assert np.abs(np.array(sample(seen[name])) - expected).max() < 1e-5*scale, name


def test_published_counts_and_names():
    with torch.device("meta"): network = SAN()
    assert sum(p.numel() for p in network.side_adapter_network.parameters()) == 8_219_058
    clip = [*network.clip_visual_extractor.parameters(), *network.clip_rec_head.parameters()]
    assert sum(p.numel() for p in [*network.side_adapter_network.parameters(), *clip]) == 94_411_698
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert shapes["side_adapter_network.vit_model.blocks.7.attn.qkv.weight"] == (720, 240)
    assert shapes["side_adapter_network.fusion_layers.layer_3.input_proj.1.weight"] == (240, 768, 1, 1)
    assert shapes["side_adapter_network.mask_decoder.attn_mlp.layers.2.weight"] == (3072, 256, 1, 1)
    assert shapes["side_adapter_network.vit_model.pos_embed"] == (1, 1600, 240)
    assert shapes["clip_visual_extractor.resblocks.8.attn.in_proj_weight"] == (2304, 768) and shapes["clip_rec_head.proj"] == (768, 512)
    assert "clip_rec_head.resblocks.3.ln_1.weight" not in shapes and shapes["ov_classifier.bg_embed"] == (1, 512)


def test_who_sees_whom():
    "Places and the class token attend as if there were no queries; a query sees itself and the places."
    seen = torch.randn(2, 3, 4)
    mask = _query_mask(seen)
    visible = mask > -50
    assert mask.shape == (2, 8, 8) and torch.equal(mask[:, :3, 4:], seen)
    assert torch.equal(visible[0, :3, :3], torch.eye(3, dtype=torch.bool)) and not visible[:, :3, 3].any()
    assert not visible[:, 3:, :3].any() and (mask[:, 3:, 3:] == 0).all()


def test_maps_by_hand():
    network = read_san(tensors("tiny"))
    rgb = 255*torch.rand(2, 3, 64, 64)
    classes, masks = network.queries(rgb)
    expected = torch.zeros(2, 6, 4, 4)
    for q in range(5):
        share = classes[:, q].exp()/classes[:, q].exp().sum(1, keepdim=True)
        expected += share[:, :6, None, None]/(1 + (-masks[:, q:q + 1]).exp())
    assert torch.allclose(network(rgb), expected, atol=1e-6)
    assert torch.allclose(network(rgb[:1]), network(rgb)[:1], atol=1e-5) # no matter what is in the batch


def test_statistics_are_those_of_clip(): assert _CLIP_STATS == CLIP


def test_vectors_of_words():
    "Cut to the longest text they are those of the whole context; the mean over prompts by hand."
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        text = dict(context_length=77, vocab_size=49408, width=16, heads=1, layers=2)
        clip = open_clip.CLIP(8, dict(image_size=16, layers=1, width=64, patch_size=16), text, quick_gelu=True).eval()
    side = {name: value for name, value in clip.state_dict().items() if not name.startswith("visual.")}
    names = COCO_STUFF[:3] + ("window-blind",)
    tokenizer = open_clip.SimpleTokenizer()
    by_hand = torch.stack([F.normalize(torch.stack([clip.encode_text(tokenizer([p.format(name)]), normalize=True)[0] for p in _PROMPTS]).mean(0), dim=-1)
                           for name in names])
    assert torch.allclose(_word_vectors(side, names), by_hand, atol=1e-5)


def test_a_whole_checkpoint_is_read():
    "The text side is used and dropped, as is what belongs to training."
    text = dict(context_length=77, vocab_size=49408, width=16, heads=1, layers=1)
    clip = open_clip.CLIP(16, dict(image_size=16, layers=1, width=64, patch_size=16), text, quick_gelu=True)
    side = {f"ov_classifier.{name}": value for name, value in clip.state_dict().items() if not name.startswith("visual.")}
    whole = {name: value for name, value in tensors("tiny").items() if "text_embeddings" not in name} | side
    network = read_san({"model": whole | {"criterion.empty_weight": torch.zeros(1)}}, COCO_STUFF[:6])
    assert network.config == TINY and not any(p.requires_grad for p in network.parameters())
    assert torch.allclose(network.ov_classifier.text_embeddings.norm(dim=1), torch.ones(6), atol=1e-5)
    assert network.ov_classifier.logit_scale.item() == pytest.approx(clip.logit_scale.item())


def test_what_is_no_whole_san_says_so():
    state = tensors("tiny")
    def without(*parts): return {name: value for name, value in state.items() if not any(part in name for part in parts)}
    with pytest.raises(InputError, match="has no CLIP, CLIP's last layers; expected"): read_san(without("clip_"))
    with pytest.raises(InputError, match="no whole SAN: the file has no side network"): read_san({"a": torch.zeros(1)})
    with pytest.raises(InputError, match="neither CLIP's text side nor vectors"): read_san(without("text_embeddings"))
    with pytest.raises(InputError, match="vit_model.pos_embed is missing"): read_san(without("pos_embed"))
    with pytest.raises(InputError, match="2 tensors are missing, side_adapter_network.fusion_layers.layer_1"): read_san(without("layer_1.input_proj.0"))
