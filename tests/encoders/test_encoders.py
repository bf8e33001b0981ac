"""The contract that every encoder passes, built in, public (as a random miniature) or one's own."""
import json

import pytest
import torch

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import CLIP, encoders, get_encoder
from invariant_metrics.models.colorizer import fixed_seed

SMALL = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, patch_size=14, image_size=56)


def mini_dinov2(folder):
    import transformers
    transformers.Dinov2Model(transformers.Dinov2Config(**SMALL)).save_pretrained(folder)


def mini_clip(folder):
    import transformers
    text = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50, bos_token_id=0, eos_token_id=1)
    transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=SMALL, projection_dim=16)).save_pretrained(folder)


def mini_open_clip(folder):
    import open_clip
    from safetensors.torch import save_file
    towers = dict(embed_dim=16, vision_cfg=dict(image_size=56, layers=3, width=64, patch_size=14),
                  text_cfg=dict(context_length=8, vocab_size=50, width=32, heads=2, layers=1))
    save_file(open_clip.CLIP(**towers).state_dict(), folder/"open_clip_model.safetensors")
    (folder/"open_clip_config.json").write_text(json.dumps(dict(model_cfg=towers, preprocess_cfg=dict(mean=CLIP[0], std=CLIP[1]))))


def mini_lclip(folder):
    import transformers
    from invariant_metrics.encoders.encoder import Preprocess
    from invariant_metrics.encoders.lclip_student import save_lclip
    from invariant_metrics.models.multiplexed import LClip, tiny_lclip
    words = {"<|startoftext|>": 0, "<|endoftext|>": 1, "a": 2, "a</w>": 3}
    transformers.CLIPTokenizer(vocab=words, merges=[]).save_pretrained(folder)
    save_lclip(folder, LClip(tiny_lclip(end=1)), folder, Preprocess(32, "crop", "bicubic", CLIP))


MINIATURES = {"dinov2": mini_dinov2, "clip": mini_clip, "open_clip": mini_open_clip, "lclip": mini_lclip}


@pytest.fixture(scope="module", params=[*(n for n in encoders.names() if n != "bert"), "embedded, untrained"])
def encoder(request, tmp_path_factory):
    name, _, untrained = request.param.partition(", ")
    if name in MINIATURES:
        folder = tmp_path_factory.mktemp(name)
        with fixed_seed(0): MINIATURES[name](folder)
        return get_encoder(name, weights=str(folder))
    return get_encoder(name, untrained=bool(untrained) or name == "inception")


@pytest.fixture(scope="module")
def images():
    return torch.rand(3, 3, 48, 64, generator=torch.Generator().manual_seed(0))


def test_rows_of_every_layer(encoder, images):
    for layer in encoder.layers:
        rows = encoder.encode(images, layer)
        assert rows.ndim == 2 and len(rows) == 3 and torch.isfinite(rows).all()
        assert not torch.allclose(rows[0], rows[1])
    assert torch.equal(encoder(images), encoder.encode(images, encoder.layers[-1]))


def test_an_image_does_not_know_its_batch(encoder, images):
    torch.testing.assert_close(encoder(images)[1:2], encoder(images[1:2]), rtol=1e-4, atol=1e-4)


def test_it_is_frozen_and_stays_so(encoder, images):
    before = encoder(images)
    torch.nn.ModuleList([encoder]).train()
    assert not any(module.training for module in encoder.modules()) and not any(p.requires_grad for p in encoder.parameters())
    assert torch.equal(encoder(images), before)


def test_gradients_reach_the_pixels(encoder, images):
    if encoder.name == "inception": pytest.skip("its input is 8-bit, as the notebook says")
    x = images.clone().requires_grad_()
    encoder(x).square().sum().backward()
    assert x.grad.abs().sum() > 0


def test_maps_are_maps(encoder, images):
    maps = encoder.feature_maps(images)
    assert maps and all(m.ndim == 4 and len(m) == 3 for m in maps)


def test_the_signature_tells_layers_apart(encoder):
    first, last = encoder.describe(encoder.layers[0]), encoder.describe()
    assert {k for k in first if first[k] != last[k]} == {"layer"} and all(last.values())


def test_bad_input_is_one_line(encoder, images):
    for wrong in (images*255, images[:, :1], images[0], (images*255).byte(), images*float("nan")):
        with pytest.raises(InputError) as error: encoder(wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="unknown layer"): encoder.encode(images, "no such layer")


@pytest.mark.parametrize("name", MINIATURES)
def test_the_untrained_control_is_seeded_and_does_not_collapse(name, tmp_path, images):
    with fixed_seed(0): MINIATURES[name](tmp_path)
    a, b, c = (get_encoder(name, weights=str(tmp_path), untrained=True, seed=s)(images) for s in (0, 0, 1))
    assert torch.equal(a, b) and not torch.allclose(a, c)
    assert (a - a.mean(0)).norm() > 0.01*a.norm()
