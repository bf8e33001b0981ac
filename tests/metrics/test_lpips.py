"LPIPS: equal to the authors' package and to torchmetrics on the same weights, and weights that are missing or wrong are refused."
import re

import pytest
import torch
from safetensors.torch import save_file

from invariant_metrics.core import InputError
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.encoders.weights import get_card
from invariant_metrics.metrics import lpips as lpips_public
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.lpips import _NETS, _lpips_module, _lpips_network

@pytest.fixture(scope="module", params=_NETS)
def net(request): return request.param


@pytest.fixture(scope="module")
def random(net): return _lpips_module(net, seed=3)


@pytest.fixture(scope="module")
def file(net, random, tmp_path_factory):
    "The state dict of torchvision's network with random weights, without the part that LPIPS does not use."
    path = tmp_path_factory.mktemp(net)/f"{net}.pth"
    torch.save({re.sub(r"^slice(s\.)?\d+\.", "features.", k): v for k, v in random.net.state_dict().items()}, path)
    return path


@pytest.fixture(scope="module")
def built(net, file): return get_metric(f"lpips-{net}", weights=file)


def images(size, n=3):
    g = torch.Generator().manual_seed(size)
    target = torch.nn.functional.interpolate(torch.rand(n, 3, 6, 6, generator=g), size, mode="bilinear")
    return (target + 0.1*torch.randn(target.shape, generator=g)).clamp(0, 1), target


def authors_module(net, file):
    import lpips
    with fixed_seed(0): theirs = lpips.LPIPS(net=net, pnet_rand=True, verbose=False).eval()
    held = torch.load(file, weights_only=True)
    names = {k: re.sub(r"^slice\d+\.", "features.", k) for k in theirs.net.state_dict()}
    theirs.net.load_state_dict({k: held[name] for k, name in names.items()})
    return theirs


def test_equal_to_the_authors_package_on_the_same_weights(net, file, built):
    theirs = authors_module(net, file)
    for size in (32, 65):
        pred, target = images(size)
        with torch.no_grad(): expected = theirs(pred, target, normalize=True).flatten()
        found = extract([built], pred, target)[built.name].pred
        assert torch.allclose(found, expected.double(), rtol=1e-5, atol=1e-5) and (expected > 0).all()


def test_identical_images_are_0_damage_grows_and_batches_do_not_matter(net, built, monkeypatch):
    pred, target = images(48, n=4)
    values = [built.statistic(extract([built], target + s*(pred - target), target)[built.name]) for s in (0, 0.5, 1)]
    assert 0 == values[0] < values[1] < values[2]
    whole = extract([built], pred, target)[built.name].pred
    monkeypatch.setattr(lpips_public, "RUN", 48*48)  # one image at a time
    assert torch.allclose(extract([built], pred, target, batch=3)[built.name].pred, whole, atol=1e-6)


def test_the_smallest_side_is_what_the_network_can_take(net, random, built):
    least = _NETS[net][1]
    assert torch.isfinite(built.compare(*(x[..., :least] for x in images(40)))).all()
    with pytest.raises(InputError, match=f"{least} pixels at least, not 40 × {least - 1}"): built.compare(*(x[..., :least - 1] for x in images(40)))
    with pytest.raises(RuntimeError): random(*(x[..., :least - 1] for x in images(40)))
    with pytest.raises(InputError, match="different sizes"): built.compare(images(40)[0], images(48)[0])


def test_a_folder_and_safetensors_are_taken_and_signed_by_their_content(net, file, built, tmp_path):
    save_file(torch.load(file, weights_only=True), tmp_path/"model.safetensors")
    other = get_metric(f"lpips-{net}", weights=tmp_path)
    pred, target = images(40)
    assert torch.equal(other.compare(pred, target), built.compare(pred, target))
    parts = dict(built.signature.items)
    assert parts["weights"].startswith("local-") and parts["network"] == _NETS[net][0] and dict(other.signature.items)["weights"] != parts["weights"]
    (tmp_path/"second.pth").write_bytes(b"x")
    with pytest.raises(InputError, match="holds 2 weights files"): get_metric(f"lpips-{net}", weights=tmp_path)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path/"checkpoints").mkdir()
    return tmp_path/"checkpoints"


def test_missing_weights_name_the_command(net, hub):
    with pytest.raises(InputError, match=f"not on this machine; run: invariant-metrics weights fetch {_NETS[net][0]}$"): get_metric(f"lpips-{net}")


def test_card_is_the_file_that_torchvision_uses(net):
    import torchvision
    card = get_card(_NETS[net][0])
    weights = dict(alex="AlexNet_Weights", vgg="VGG16_Weights", squeeze="SqueezeNet1_1_Weights")[net]
    assert card.where == getattr(torchvision.models, weights).IMAGENET1K_V1.url and card.where.endswith(card.files[-1])
    assert re.search(r"-([0-9a-f]{8})\.pth$", card.where)[1] == card.sha256[:8] == card.revision and len(card.sha256) == 64


def test_found_where_torchvision_keeps_it_and_equal_to_torchmetrics_that_reads_the_same_file(hub):
    import torchmetrics.functional.image as tm
    import torchvision
    with fixed_seed(1): torch.save(torchvision.models.squeezenet1_1(weights=None).state_dict(), hub/get_card("squeezenet1-1").files[-1])
    metric, (pred, target) = get_metric("lpips-squeeze"), images(64)
    theirs = tm.learned_perceptual_image_patch_similarity(pred, target, net_type="squeeze", normalize=True, reduction="none")
    assert torch.allclose(metric.compare(pred, target), theirs, atol=1e-7)
    assert dict(metric.signature.items)["weights"] == get_card("squeezenet1-1").sha256[:12]


class Runs:
    def __reduce__(self): return print, ("code was run",)


def test_wrong_files_are_refused_and_no_code_in_them_is_run(tmp_path, capsys):
    torch.save(_lpips_module("squeeze").net.state_dict(), tmp_path/"other.pth")
    with pytest.raises(InputError, match="other.pth does not fit SqueezeNet: .* tensors differ"): _lpips_network("squeeze", tmp_path/"other.pth")
    torch.save({"features.0.weight": Runs()}, tmp_path/"code.pth")
    with pytest.raises(InputError, match="code.pth is not a readable weights file"): _lpips_network("squeeze", tmp_path/"code.pth")
    assert "code was run" not in capsys.readouterr().out
    with pytest.raises(InputError, match="unknown network of LPIPS 'alexx'"): _lpips_network("alexx")


def test_the_untrained_control_is_signed_as_such_and_leaves_the_global_generator_alone():
    torch.manual_seed(5); expected = torch.rand(1); torch.manual_seed(5)
    metric, again, other = (get_metric("lpips-squeeze", untrained=True, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected) and "weights:untrained-0" in str(metric.signature)
    pred, target = images(40)
    assert torch.equal(metric.compare(pred, target), again.compare(pred, target))
    assert not torch.allclose(metric.compare(pred, target), other.compare(pred, target))
