"FID, KID and their encoder against the four public pipelines, on the same images and the same (random) weights."
from collections import OrderedDict

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import data_path

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import IMAGENET, get_encoder
from invariant_metrics.encoders.inception import _TAPS, Inception, InceptionInput, _pillow_bicubic, _tf1_bilinear
from invariant_metrics.metrics.metric import Rows, get_metric
from invariant_metrics.metrics.gaussian import GaussianStats
from invariant_metrics.scoring.inference import score_rows
from invariant_metrics.metrics.mmd import kid_subsets
from invariant_metrics.metrics.named import kid_distance, stats_signature

SIZES = [(299, 299), (64, 64), (410, 333), (150, 620), (1, 5)]


def image(h, w, seed=0):
    "8-bit, with blotches and with noise: both low and high frequencies."
    r = np.random.default_rng([seed, h, w])
    coarse = Image.fromarray(r.integers(0, 256, (7, 7, 3), dtype=np.uint8)).resize((w, h), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(coarse) + r.normal(0, 20, (h, w, 3)), 0, 255).round().astype(np.uint8)


def rgb(array): return torch.from_numpy(array.copy()).permute(2, 0, 1)[None].float()/255


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
    assert torch.equal(_tf1_bilinear(x), peer(x, size=(299, 299), align_corners=False))


@pytest.mark.parametrize("h, w", SIZES)
def test_clean_resize_is_clean_fids_to_the_bit_and_torchs_to_rounding(h, w):
    peer = pytest.importorskip("cleanfid.resize").build_resizer("clean")
    x = image(h, w)
    ours = _pillow_bicubic(255*rgb(x))
    assert np.array_equal(ours[0].permute(1, 2, 0).numpy(), peer(x))
    assert (_pillow_bicubic((255*rgb(x)).requires_grad_()) - ours).abs().max() < 1e-4


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
    for layer, row in zip([*_TAPS, "logits"], own): assert relative(network.encode(rgb(x), layer), row) < 1e-5, layer


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


# --- the named distances against whole pipelines: folders of files in, one number out

N = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    "Two folders of images of mixed sizes; the second has other ones, darker."
    root, sizes = tmp_path_factory.mktemp("images"), [(64, 64), (96, 120), (330, 310), (299, 299), (150, 200)]
    for name, shade in (("made", 0.8), ("real", 1.0)):
        (root/name).mkdir()
        for i in range(N):
            x = shade*image(*sizes[i % 5], seed=i + N*(name == "real"))
            Image.fromarray(x.round().astype(np.uint8)).save(root/name/f"{i:02}.png")
    return root/"made", root/"real"


def read(folder): return [rgb(np.asarray(Image.open(file))) for file in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def rows(folders, behind):
    "Features of both folders by metric name and layer, extracted once."
    held = {}
    def get(name, layer="2048"):
        if (name, layer) not in held:
            metric = named(name, behind, layer)
            held[name, layer] = [torch.cat([metric.phi(x) for x in read(folder)]) for folder in folders]
        return held[name, layer]
    return get


RESIZE = {"fid": "tf1", "fid-pytorch": "pytorch", "fid-clean": "clean", "kid": "tf1", "kid-full": "tf1"}


def named(name, behind, layer="2048", **options):
    if not name.startswith("kid"): options["layer"] = layer
    return get_metric(name, encoder=behind[RESIZE[name]], **options)


def value(name, behind, rows, layer="2048"): return named(name, behind, layer).compare(*rows(name, layer))


@pytest.fixture(scope="module")
def fidelity(folders, weights):
    "torch-fidelity's own pipeline on one image at a time, since it wants equal sizes in a batch."
    import torch_fidelity
    options = dict(feature_extractor_weights_path=str(weights), cuda=False, cache=False, verbose=False, batch_size=1, save_cpu_ram=True)
    return torch_fidelity.calculate_metrics(input1=str(folders[0]), input2=str(folders[1]), fid=True, feature_layer_fid="64",
                                            kid=True, kid_subsets=10, kid_subset_size=6, rng_seed=2020, **options)


def test_fid_is_torch_fidelitys(fidelity, behind, rows):
    assert value("fid", behind, rows, "64") == pytest.approx(fidelity["frechet_inception_distance"], rel=1e-5)


def test_fid_at_2048_is_torch_fidelitys_distance(behind, rows):
    "In the span of the features, which the distance does not notice: their eigenvalues of 2048² take half a minute."
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
    made, real = rows("fid")
    span = torch.linalg.qr(torch.cat([made, real]).double().T)[0]
    theirs = fid_statistics_to_metric(*(fid_features_to_statistics(x.double() @ span) for x in (made, real)), verbose=False)
    assert value("fid", behind, rows) == pytest.approx(theirs["frechet_inception_distance"], rel=1e-6)


def test_fid_is_torchmetrics_without_its_antialiasing(folders, weights, behind, rows):
    from torchmetrics.image.fid import FrechetInceptionDistance
    peer = FrechetInceptionDistance(feature=64, antialias=False, feature_extractor_weights_path=str(weights))
    for folder, real in zip(folders, (False, True)):
        for x in read(folder): peer.update((255*x).round().to(torch.uint8), real=real)
    assert value("fid", behind, rows, "64") == pytest.approx(float(peer.compute()), rel=1e-4)   # float32, squares not centered


def test_fid_pytorch_is_pytorch_fids(folders, weights, behind, rows):
    score = pytest.importorskip("pytorch_fid.fid_score")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytorch_fid.inception.load_state_dict_from_url", lambda *_, **__: torch.load(weights, weights_only=True))
        theirs = score.calculate_fid_given_paths([str(f) for f in folders], 1, "cpu", 64, num_workers=0)
    assert value("fid-pytorch", behind, rows, "64") == pytest.approx(theirs, rel=1e-4)   # sqrtm of singular matrices has fewer digits


def test_fid_clean_is_clean_fids(folders, behind, rows):
    peer = pytest.importorskip("cleanfid.fid")
    def first_tap(x): return behind["clean"].embed((x - 128)/128, "64")
    theirs = peer.compute_fid(*map(str, folders), mode="clean", custom_feat_extractor=first_tap, num_workers=0, batch_size=4,
                              device=torch.device("cpu"), verbose=False)
    assert value("fid-clean", behind, rows, "64") == pytest.approx(theirs, rel=1e-4)


def test_the_three_resizes_are_three_numbers(behind, rows):
    values = [value(name, behind, rows, "64") for name in ("fid", "fid-pytorch", "fid-clean")]
    assert min(abs(a - b) for a in values for b in values if a is not b) > 1e-3*max(values)


@pytest.mark.parametrize("name, published", [("fid-pytorch", "FID dist vs ref (legacy_pytorch)"), ("fid-clean", "FID dist vs ref (clean)")])
def test_published_values_with_the_real_weights(name, published):
    "Five pairs of TID2013; runs where the weights have been fetched."
    import json
    folder = data_path("tid2013_calibration")
    try: metric = get_metric(name)
    except InputError as error: pytest.skip(str(error))
    made, real = (torch.cat([metric.phi(x) for x in read(folder/side)]) for side in ("dist_dir", "ref_dir"))
    assert metric.compare(made, real) == pytest.approx(json.loads((folder/"expected_fid_is.json").read_text())[published], abs=0.02)


# --- what they refuse, and what they say of themselves

@pytest.mark.parametrize("name, instead", [("fid", "fd --encoder"), ("fid-pytorch", "fd --encoder"), ("fid-clean", "fd --encoder"),
                                           ("fdd", "fd --encoder"), ("kid", "mmd-poly --encoder"), ("kid-full", "mmd-poly --encoder")])
def test_another_encoder_is_refused_and_the_generic_metric_named(name, instead):
    for given in ("embedded", "inception", get_encoder("mean-color")):
        with pytest.raises(InputError, match=instead) as error: get_metric(name, encoder=given)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="takes no option 'sigma'"): get_metric(name, sigma=1.0)


def test_another_resize_or_layer_is_refused(behind):
    with pytest.raises(InputError, match="not on input 299-squash-pilbicubic-clean"): get_metric("fid", encoder=behind["clean"])
    for layer in ("logits", "1024"):
        with pytest.raises(InputError, match="unknown layer of fid.*2048"): get_metric("fid", layer=layer, untrained=True)


def test_untrained_controls_are_said_to_be_untrained_and_seeded():
    parts = dict(get_metric("fid-clean", untrained=True, seed=3).signature.items)
    told = [parts[k] for k in ("metric", "weights", "layer", "input")]
    assert told == ["fid-clean-untrained", "untrained-3", "2048", "299-squash-pilbicubic-clean"]


def test_signatures_of_files_are_those_of_the_encoders(behind):
    for name in ("fid", "fid-pytorch", "fid-clean"):
        assert list(stats_signature(name).differences(behind[RESIZE[name]].signature)) == ["weights"]
    with pytest.raises(InputError, match="did you mean"): stats_signature("fid-cleen")


def test_fdd_is_the_frechet_distance_of_class_tokens_at_224(tmp_path):
    import transformers
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, patch_size=14, image_size=56)
    torch.manual_seed(0)
    transformers.Dinov2Model(transformers.Dinov2Config(**small)).save_pretrained(tmp_path)
    metric, net = get_metric("fdd", weights=str(tmp_path)), transformers.Dinov2Model.from_pretrained(tmp_path).eval()
    x = torch.cat([rgb(image(224, 224, i)) for i in range(6)])
    mean, std = (torch.tensor(s).view(3, 1, 1) for s in IMAGENET)
    with torch.no_grad(): tokens = net((x - mean)/std).last_hidden_state[:, 0]
    assert relative(metric.phi(x), tokens) < 1e-5
    generic = get_metric("fd", encoder=metric.encoder).compare(tokens[:3], tokens[3:])
    assert metric.compare(metric.phi(x[:3]), metric.phi(x[3:])) == pytest.approx(generic, rel=1e-4)
    assert dict(metric.signature.items)["input"] == "224-squash-bicubic-imagenet"
    with pytest.raises(InputError, match="fdd takes no option 'layer'"): get_metric("fdd", layer="block1")


# --- KID

def clouds(n=60, m=75, d=12):
    g = torch.Generator().manual_seed(n*m)
    return torch.randn(n, d, generator=g), 1.1*torch.randn(m, d, generator=g) + 0.2


def test_kid_is_torch_fidelitys_whole_pipeline(fidelity, behind, rows):
    ours = kid_subsets(*rows("kid"), subsets=10, size=6)
    assert ours.mean == pytest.approx(fidelity["kernel_inception_distance_mean"], rel=1e-4)
    assert ours.std == pytest.approx(fidelity["kernel_inception_distance_std"], rel=1e-4)
    assert named("kid", behind, subsets=10, size=6).compare(*rows("kid")) == ours.mean


@pytest.mark.parametrize("subsets, size, seed", [(100, 50, 2020), (7, 2, 0), (1, 60, 11)])
def test_kid_given_the_same_draws_is_torch_fidelitys(subsets, size, seed):
    from torch_fidelity.metric_kid import kid_features_to_metric
    p, t = (x.double() for x in clouds())
    theirs = kid_features_to_metric(p, t, kid_subsets=subsets, kid_subset_size=size, rng_seed=seed, verbose=False)
    ours = kid_distance(p, t, subsets=subsets, size=size, seed=seed)
    assert ours == pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-6, abs=2e-8)  # inner products in float32: see 02_kernel


def test_kid_full_by_hand(behind):
    "Two points against two, with kernel (x·y/2 + 1)³: 9/8."
    p, t = torch.tensor([[1., 0.], [0., 1.]]), torch.tensor([[1., 1.], [2., 0.]])
    assert named("kid-full", behind).compare(p, t) == pytest.approx(1.125, abs=1e-14)
    assert named("kid", behind, subsets=3, size=2).compare(p, t) == pytest.approx(1.125, abs=1e-14)   # every subset is everything


@pytest.mark.parametrize("name, options", [("kid", dict(subsets=5, size=20)), ("kid-full", {}), ("fid", {})])
def test_weights_are_copies_and_replicates_are_the_statistic(behind, name, options):
    metric, (p, t) = named(name, behind, **options), clouds()
    r = np.random.default_rng(0)
    w, v = (torch.from_numpy(r.multinomial(len(x), np.full(len(x), 1/len(x)), size=3)).double() for x in (p, t))
    copies = [metric.compare(p.repeat_interleave(a.long(), 0), t.repeat_interleave(b.long(), 0)) for a, b in zip(w, v)]
    assert np.allclose([metric.compare(p, t, a, b) for a, b in zip(w, v)], copies, rtol=1e-9)
    if metric.many: assert np.allclose(metric.many(p, t, w, v), copies, rtol=1e-6)


def test_kid_estimate_is_centered_on_all_pairs_and_its_influences_are_those_of_the_u_statistic(behind):
    kid, full, (p, t) = named("kid", behind, subsets=400, size=30), named("kid-full", behind), clouds()
    estimate, whole = kid.estimate(p, t), full.estimate(p, t)
    assert estimate.value == kid.compare(p, t) and estimate.corrected == pytest.approx(full.compare(p, t), rel=1e-12)
    assert torch.equal(estimate.pred, whole.pred) and torch.equal(estimate.target, whole.target)
    assert abs(estimate.value - estimate.corrected) < 4*kid_subsets(p, t, subsets=400, size=30).std/400**0.5
    score = score_rows(kid, Rows(p, t, matched=False))
    assert score.ci.low < score.corrected < score.ci.high and score.value == estimate.value
    parts = dict(score.signature.items)
    assert [parts[k] for k in ("estimator", "subsets", "size", "seed")] == ["subsets", "400", "30", "2020"]


def test_a_set_against_itself(behind):
    x, _ = clouds()
    for name in ("fid", "fid-pytorch", "fid-clean"): assert named(name, behind).compare(x, x.clone()) == 0
    assert named("kid-full", behind).compare(x, x) < 0
    assert abs(named("kid", behind, subsets=20, size=60).compare(x, x.clone()) - named("kid-full", behind).compare(x, x)) < 2e-8


def test_kid_of_few_images_takes_them_all_and_says_so(behind):
    p, t = clouds()
    metric = named("kid", behind)
    assert metric.compare(p, t[:60]) == pytest.approx(named("kid-full", behind).compare(p, t[:60]), rel=1e-6)   # one subset: everything
    assert any("subsets of 60 instead of 1000" in note for note in score_rows(metric, Rows(p, t, matched=False)).notes)
    with pytest.raises(InputError, match="two items"): metric.compare(p[:1], t)
    with pytest.raises(InputError, match="whole numbers"): named("kid", behind, size=5).compare(p, t, torch.full((60,), 0.5))


def test_statistics_files_serve_the_frechet_names_alone(behind):
    "Moments determine fid and not kid."
    p, t = clouds(300, 400)
    metric = named("fid", behind)
    found = metric.from_stats(GaussianStats().update(p), GaussianStats().update(t))
    assert found.value == pytest.approx(metric.compare(p, t), rel=1e-9)
    assert named("kid", behind).from_stats is None and named("kid-full", behind).from_stats is None


def test_features_given_without_an_encoder_stand_in_for_it():
    "What `score` hands to a metric when both sides are files."
    from invariant_metrics.encoders.encoder import GivenFeatures
    for told in (None, stats_signature("fid")): assert get_metric("fid", encoder=GivenFeatures(told)).from_stats is not None
    with pytest.raises(InputError, match="fid is defined on inception.*not on input 299-squash-pilbicubic-clean"):
        get_metric("fid", encoder=GivenFeatures(stats_signature("fid-clean")))
