"FID, KID and their encoder against the four public pipelines, on the same images and the same (random) weights."
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import data_path

from invariant_metrics.core import InputError, Signature
from invariant_metrics.encoders.base import get_encoder
from invariant_metrics.encoders.inception import TAPS, Inception, InceptionInput, pillow_bicubic, tf1_bilinear

SIZES = [(299, 299), (64, 64), (410, 333), (150, 620), (1, 5)]


def image(h, w, seed=0):
    "8-bit, with blotches and with noise: both low and high frequencies."
    r = np.random.default_rng([seed, h, w])
    coarse = Image.fromarray(r.integers(0, 256, (7, 7, 3), dtype=np.uint8)).resize((w, h), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(coarse) + r.normal(0, 20, (h, w, 3)), 0, 255).round().astype(np.uint8)


def rgb(array): return torch.from_numpy(array).permute(2, 0, 1)[None].float()/255


@pytest.fixture(scope="module")
def network():
    return get_encoder("inception", untrained=True)


@pytest.fixture(scope="module")
def weights(network, tmp_path_factory):
    "The random weights as the public file would be: an ordered dict in PyTorch's format."
    path = tmp_path_factory.mktemp("weights")/"inception.pth"
    torch.save(OrderedDict(network.net.state_dict()), path)
    return path


@pytest.fixture(scope="module")
def behind(network):
    return {resize: Inception(network.net, network.revision, resize) for resize in ("tf1", "pytorch", "clean")}


@pytest.fixture(scope="module")
def theirs(weights):
    "pytorch-fid's network with the same tensors: nothing is downloaded."
    peer = pytest.importorskip("pytorch_fid.inception")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer, "load_state_dict_from_url", lambda *_, **__: torch.load(weights, weights_only=True))
        return {dims: peer.InceptionV3([block]).eval() for dims, block in peer.InceptionV3.BLOCK_INDEX_BY_DIM.items()}


def relative(a, b): return float((a - b).norm()/b.norm())


# --- the three resizes

@pytest.mark.parametrize("h, w", SIZES)
def test_tf1_resize_is_torch_fidelitys_to_the_bit(h, w):
    from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x as peer
    x = 255*rgb(image(h, w))
    assert torch.equal(tf1_bilinear(x), peer(x, size=(299, 299), align_corners=False))


@pytest.mark.parametrize("h, w", SIZES)
def test_clean_resize_is_clean_fids_to_the_bit_and_torchs_to_rounding(h, w):
    peer = pytest.importorskip("cleanfid.resize").build_resizer("clean")
    x = image(h, w)
    ours = pillow_bicubic(255*rgb(x))
    assert np.array_equal(ours[0].permute(1, 2, 0).numpy(), peer(x))
    assert (pillow_bicubic((255*rgb(x)).requires_grad_()) - ours).abs().max() < 1e-4


@pytest.mark.parametrize("h, w", SIZES)
def test_pytorch_resize_is_the_legacy_one_of_clean_fid(h, w):
    peer = pytest.importorskip("cleanfid.resize").build_resizer("legacy_pytorch")
    ours = 255*InceptionInput(resize="pytorch").resized(rgb(image(h, w)))
    assert np.abs(ours[0].permute(1, 2, 0).numpy() - peer(image(h, w))).max() < 1e-3


def test_images_of_any_size_are_prepared_one_by_one_and_run_together(behind):
    images = [rgb(image(h, w)) for h, w in SIZES[:3]]
    for encoder in behind.values():
        together = encoder.embed(torch.cat([encoder.prepare(x) for x in images]), "192")
        for row, x in zip(together, images): assert relative(row, encoder.encode(x, "192")[0]) < 1e-5


@pytest.mark.parametrize("resize", ["pytorch", "clean"])
def test_gradients_reach_the_pixels_where_nothing_is_rounded(behind, resize):
    x = rgb(image(64, 64)).requires_grad_()
    behind[resize].encode(x, "64").square().sum().backward()
    assert x.grad.abs().sum() > 0


# --- the network

@pytest.mark.parametrize("h, w", SIZES[:4])
def test_every_output_is_that_of_torch_fidelitys_own_forward(network, h, w):
    x = image(h, w)
    own = network.net(torch.from_numpy(x).permute(2, 0, 1)[None])
    for layer, row in zip([*TAPS, "logits"], own): assert relative(network.encode(rgb(x), layer), row) < 1e-5, layer


def test_pytorch_fids_network_takes_the_same_tensors_and_gives_the_same_features(network, behind, theirs):
    for (h, w), dims in zip(SIZES, (2048, 768, 192, 64)):
        with torch.no_grad(): maps = theirs[dims](rgb(image(h, w)))[0]
        assert relative(behind["pytorch"].encode(rgb(image(h, w)), str(dims)), maps.mean((2, 3))) < 1e-5


def clean_fids(network):
    "clean-fid's wrapper, around the network at hand instead of the one it downloads."
    from cleanfid.inception_torchscript import InceptionV3W
    class Trunk(torch.nn.Module):
        def forward(self, x): return network.embed(x, "2048")
    wrapper = InceptionV3W.__new__(InceptionV3W)
    torch.nn.Module.__init__(wrapper)
    wrapper.layers, wrapper.resize_inside = Trunk(), False
    return wrapper


def test_clean_fids_wrapper_feeds_the_network_the_same(network, behind):
    resizer = pytest.importorskip("cleanfid.resize").build_resizer("clean")
    x = image(410, 333)
    with torch.no_grad(): peer = clean_fids(network)(torch.from_numpy(resizer(x)).permute(2, 0, 1)[None])
    assert torch.equal(behind["clean"].encode(rgb(x)), peer)


def test_the_default_is_fids_layer_and_the_resize_is_in_the_signature(behind):
    assert {e.layers[-1] for e in behind.values()} == {"2048"} and "logits" in behind["tf1"].layers
    told = {name: e.describe()["input"] for name, e in behind.items()}
    assert told == {"tf1": "8bit-299-squash-tf1bilinear", "pytorch": "299-squash-bilinear-pytorch", "clean": "299-squash-pilbicubic-clean"}
    with pytest.raises(InputError, match="did you mean clean"): get_encoder("inception", untrained=True, resize="cleen")
