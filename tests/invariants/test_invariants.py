"""The contract every invariant of images in the registry keeps, embedded, public or a user's own; texts: tests/invariants/test_text_invariants.py."""
import json

import pytest
import torch
from tiny_networks import save_san

from invariant_metrics.core import InputError, Signature, import_object
from invariant_metrics.color import scale_chroma
from invariant_metrics.worlds.scenes import make_scenes
from invariant_metrics.encoders.weights import PUBLIC
from invariant_metrics.invariants.invariant import Invariant, get_invariant, inputs_of, invariant_names

PUBLIC_NAMES = {card.name for card in PUBLIC}


def tiny_model(name):
    "A random model of the family of a public invariant, small enough to run here."
    import transformers as t
    if name == "segformer":
        small = dict(hidden_sizes=[8] * 4, depths=[1] * 4, num_attention_heads=[1] * 4, decoder_hidden_size=8)
        return t.SegformerForSemanticSegmentation(t.SegformerConfig(num_labels=5, **small))
    if name == "mask2former":
        stages = ["stage1", "stage2", "stage3", "stage4"]
        swin = t.SwinConfig(embed_dim=8, depths=[1] * 4, num_heads=[1] * 4, window_size=4, image_size=64, out_features=stages)
        small = dict(feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=8, dim_feedforward=8,
                     encoder_layers=1, decoder_layers=2, num_attention_heads=2, num_queries=6)
        return t.Mask2FormerForUniversalSegmentation(t.Mask2FormerConfig(backbone_config=swin, num_labels=5, **small))
    model = t.DPTForDepthEstimation(t.DPTConfig(hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8] * 4, fusion_hidden_size=8))
    for p in model.parameters():
        if p.ndim > 1: torch.nn.init.normal_(p, std=0.3)
    for p in model.head.parameters(): # positive, or the last ReLU gives zeros
        if p.ndim == 1: torch.nn.init.ones_(p)
    return model


@pytest.fixture(scope="module", params=[name for name in invariant_names() if inputs_of(name) == "images"])
def invariant(request, tmp_path_factory):
    if request.param not in PUBLIC_NAMES: return get_invariant(request.param)
    folder, side = tmp_path_factory.mktemp(request.param), 64 if request.param == "mask2former" else 32
    if request.param == "san":
        save_san(folder)
        return get_invariant("san", weights=folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tiny_model(request.param).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"height": side, "width": side}}))
    return get_invariant(request.param, weights=folder)


@pytest.fixture(scope="module")
def pair():
    truth = make_scenes(3, 32, seed=5).rgb
    return scale_chroma(truth, 0.5), truth


def test_every_kind_is_registered():
    expected = {"segmentation", "depth", "edges", "segmentation-judge", "depth-judge", "segmentation-random", "depth-random",
                "segformer", "mask2former", "midas", "san"}
    assert expected <= set(invariant_names())


def test_the_truth_costs_nothing_and_nothing_is_negative(invariant, pair):
    pred, truth = pair
    assert invariant.loss(truth, truth).tolist() == [0.0] * 3
    loss = invariant.loss(pred, truth)
    assert loss.shape == (3,) and loss.isfinite().all() and (loss >= 0).all() and loss.sum() > 0


def test_the_gradient_reaches_the_prediction_and_nothing_else(invariant, pair):
    pred, truth = pair[0].clone().requires_grad_(), pair[1].clone().requires_grad_()
    invariant.loss(pred, truth).sum().backward()
    assert pred.grad.isfinite().all() and (pred.grad.flatten(1).abs().sum(1) > 0).all()
    assert truth.grad is None
    assert all(not p.requires_grad and p.grad is None for p in invariant.parameters())


def test_the_gradient_is_finite_at_the_truth_and_on_flat_pictures(invariant, pair):
    for target in (pair[1], torch.zeros(2, 3, 32, 32), torch.ones(2, 3, 32, 32)):
        pred = target.clone().requires_grad_()
        invariant.loss(pred, target).sum().backward()
        assert pred.grad.isfinite().all()


def test_it_points_downhill(invariant, pair):
    pred, truth = pair
    pred = pred.clone().requires_grad_()
    before = invariant.loss(pred, truth).sum()
    step, = torch.autograd.grad(before, pred)
    lengths = [1e-2, 1e-3, 1e-4, 1e-5]
    after = [invariant.violation((pred - length * step / step.norm()).clamp(0, 1).detach(), truth).sum() for length in lengths]
    assert min(after) < before


def test_frozen_stays_frozen(invariant, pair):
    before = {k: v.clone() for k, v in invariant.state_dict().items()}
    parent = torch.nn.ModuleDict({"g": invariant}).train()
    assert not any(m.training for m in parent["g"].modules())
    first = invariant.violation(*pair)
    assert torch.equal(first, invariant.violation(*pair))
    assert all(torch.equal(v, before[k]) for k, v in invariant.state_dict().items())


def test_one_picture_one_number(invariant, pair):
    together = invariant.violation(*pair)
    alone = torch.cat([invariant.violation(p[None], t[None]) for p, t in zip(*pair)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-5)


def test_a_kept_target_is_the_target(invariant, pair):
    pred, truth = pair
    value = invariant.value(truth)
    assert not value.requires_grad and len(value) == len(truth)
    assert torch.equal(invariant.loss(pred, target_value=value), invariant.loss(pred, truth))
    kept = invariant.loss(pred, target_value=value.half()) # a cache may keep sixteen bits
    torch.testing.assert_close(kept, invariant.loss(pred, truth), rtol=2e-2, atol=2e-3)
    with pytest.raises(InputError, match="either"): invariant.loss(pred)
    with pytest.raises(InputError, match="either"): invariant.loss(pred, truth, value)


def test_other_precisions(invariant, pair):
    pred, truth = pair
    loss = invariant.loss(pred, truth)
    for dtype in (torch.float64, torch.float16):
        other = invariant.loss(pred.to(dtype), truth.to(dtype))
        assert other.is_floating_point() and other.isfinite().all()
        torch.testing.assert_close(other.float(), loss, rtol=0.1, atol=2e-2)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype): assert invariant.loss(pred, truth).isfinite().all()


def test_other_sizes(invariant):
    truth = make_scenes(2, 40, seed=5).rgb[..., :36, :]
    assert invariant.violation(scale_chroma(truth, 0.5), truth).shape == (2,)


def test_what_it_refuses(invariant, pair):
    pred, truth = pair
    with pytest.raises(InputError, match="differ in shape"): invariant.loss(pred[..., :16], truth)
    with pytest.raises(InputError, match=r"\[0, 1\]"): invariant.violation(255 * pred, truth)


def test_its_signature_names_it(invariant):
    parts = dict(invariant.signature.items)
    assert parts["invariant"] == invariant.name and "version" in parts
    assert Signature.parse(str(invariant.signature)) == invariant.signature


@pytest.mark.parametrize("name", ["segmentation", "depth", "segmentation-judge", "depth-judge"])
def test_embedded_networks_need_color(name):
    card = get_invariant(name).card
    better = 1 if name.startswith("segmentation") else -1
    for size in (32, 64):
        color, valid, gray = (better * card[f"{size}px {view}"] for view in ("color", "valid", "gray"))
        assert color > gray + 0.05 and abs(color - valid) < 0.05
    assert card["epsilon"]["bleeding"]["auc"] > 0.6


def test_judges_share_nothing_with_what_they_judge():
    for kind in ("segmentation", "depth"):
        own, judge = get_invariant(kind), get_invariant(f"{kind}-judge")
        assert type(own.network) is not type(judge.network)
        assert not {tuple(p.shape) for p in own.parameters() if p.ndim == 4} & {tuple(p.shape) for p in judge.parameters() if p.ndim == 4}


def test_random_controls_are_not_constant_and_follow_their_seed():
    rgb = make_scenes(8, 32, seed=5).rgb
    for kind in ("segmentation", "depth"):
        a, again, b = (get_invariant(f"{kind}-random", seed=s)(rgb) for s in (0, 0, 1))
        assert torch.equal(a, again) and not torch.equal(a, b) and a.std() > 0.05


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_an_accelerator(pair):
    for name in ("segmentation", "depth", "edges"):
        g = get_invariant(name, device="cuda")
        torch.testing.assert_close(g.violation(*(x.cuda() for x in pair)).cpu(), get_invariant(name).violation(*pair), rtol=1e-2, atol=1e-3)


def plain_brightness(weights="embedded", **options):
    "A user's own: how light the picture is."
    class Brightness(Invariant):
        def forward(self, rgb): return rgb.mean((1, 2, 3))
        def distance(self, prediction, target): return (prediction - target).abs()
    return Brightness("brightness")


def test_an_invariant_of_the_users_own(pair, monkeypatch):
    import sys, types
    module = types.ModuleType("users_own_invariants")
    module.brightness = plain_brightness
    monkeypatch.setitem(sys.modules, module.__name__, module)
    g = get_invariant("users_own_invariants:brightness")
    torch.testing.assert_close(g.violation(*pair), (pair[0].mean((1, 2, 3)) - pair[1].mean((1, 2, 3))).abs())
    with pytest.raises(InputError, match="has no 'britness'"): get_invariant("users_own_invariants:britness")
    assert import_object("users_own_invariants:brightness") is plain_brightness


def test_missing_public_weights_name_the_command():
    with pytest.raises(InputError, match="weights fetch"): get_invariant("midas", weights="someone/something@" + "0" * 40)
