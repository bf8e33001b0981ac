"Networks of others as invariants: each kind of answer against its formula, how answers may be wrapped, files, commands, wrong answers."
import numpy as np
import pytest
import torch
from commands import cli
from PIL import Image
from torch import nn

from invariant_metrics.core import InputError
from invariant_metrics.encoders.encoder import IMAGENET, Encoder, Preprocess, get_encoder
from invariant_metrics.invariants.dense_networks import network_invariant
from invariant_metrics.invariants.depth import silog
from invariant_metrics.invariants.invariant import get_invariant, overlap_distance
from invariant_metrics.invariants.segmentation import dice
from real_data import data_path


class Net(nn.Module):
    "A convolution, its answer wrapped as published networks do it."
    def __init__(self, n: int, wrap=lambda y: y):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, n, 3, padding=1)
        self.wrap = wrap

    def forward(self, x): return self.wrap(self.conv(x))


@pytest.fixture(scope="module")
def pair(): return torch.rand(2, 2, 3, 20, 24, generator=torch.Generator().manual_seed(1))


PREPARE = Preprocess(16, "squash", "bilinear", IMAGENET)
EXPECTED = {"edges": (1, lambda p, t: overlap_distance(p[:, 0], t[:, 0])),
            "edge-scores": (1, lambda p, t: overlap_distance(p[:, 0].sigmoid(), t[:, 0].sigmoid())),
            "class-scores": (4, lambda p, t: dice(p.softmax(1), t.softmax(1))),
            "depth": (1, lambda p, t: silog(p[:, 0].clamp(min=0), t[:, 0].clamp(min=0)))}


@pytest.mark.parametrize("gives", EXPECTED)
def test_each_answer_has_its_distance(gives, pair):
    n, expected = EXPECTED[gives]
    net = Net(n)
    invariant = network_invariant(net, gives, PREPARE)
    with torch.no_grad(): by_hand = expected(net.conv(PREPARE(pair[0])), net.conv(PREPARE(pair[1])))
    assert torch.allclose(invariant.violation(pair[0], pair[1]), by_hand, atol=1e-6) and (by_hand > 0).all()
    assert invariant.violation(pair[0], pair[0]).abs().max() == 0
    pred = pair[0].clone().requires_grad_()
    invariant.loss(pred, pair[1]).sum().backward()
    assert pred.grad.abs().sum() > 0 and net.conv.weight.grad is None and invariant.differentiable
    assert f"gives:{gives}" in str(invariant.signature) and "input:16-squash-bilinear-imagenet" in str(invariant.signature)


@pytest.mark.parametrize("wrap", [lambda y: {"aux": 0*y, "out": y}, lambda y: [0*y, y], lambda y: (y[:, 0],)])
def test_wrapped_answers_are_the_same(wrap, pair):
    plain, wrapped = (network_invariant(Net(1, w), "edge-scores", PREPARE) for w in (lambda y: y, wrap))
    assert torch.equal(plain.value(pair[0]), wrapped.value(pair[0])) and str(plain.signature) == str(wrapped.signature)


def test_other_weights_are_another_signature(pair):
    one, other = Net(1), Net(1)
    with torch.no_grad(): other.conv.bias += 1
    assert str(network_invariant(one, "depth").signature) != str(network_invariant(other, "depth").signature)
    assert "weights:v2" in str(network_invariant(one, "depth", revision="v2").signature)


def test_the_last_layer_of_an_encoder_is_read(pair):
    net = Net(3)
    encoder = Encoder.of(nn.Sequential(net.conv, nn.ReLU()), ["0"], prepare=PREPARE, name="mine")
    found, plain = network_invariant(encoder, "class-scores"), network_invariant(Net(3), "class-scores", PREPARE)
    assert torch.allclose(found.value(pair[0]), plain.value(pair[0]), atol=1e-6) and "layer:0" in str(found.signature)
    with pytest.raises(InputError, match="has its own preprocessing"): network_invariant(encoder, "depth", PREPARE)


def test_answers_of_another_kind_are_refused(pair):
    with pytest.raises(InputError, match="did you mean edges"): network_invariant(Net(1), "edge")
    with pytest.raises(InputError, match="not 4: class-scores"): network_invariant(Net(4), "edges").value(pair[0])
    with pytest.raises(InputError, match="not a single one: edges or depth"): network_invariant(Net(1), "class-scores").value(pair[0])


def test_a_file_of_a_segmenter_is_an_invariant():
    pytest.importorskip("ai_edge_litert")
    scores = get_encoder(str(data_path("networks/coral/deeplabv3_mnv2_pascal_quant.tflite")), layers="logits/semantic/BiasAdd")
    deeplab = network_invariant(scores, "class-scores")
    rgb = torch.from_numpy(np.array(Image.open(data_path("bsds500/images/100075.jpg")))).permute(2, 0, 1)[None].float()/255 # bears
    shares = deeplab.value(rgb)
    assert shares.shape == (1, 21, 33, 33) and torch.allclose(shares.sum(1), torch.ones(1, 33, 33), atol=1e-4)
    assert deeplab.violation(rgb, rgb).item() == 0 and not deeplab.differentiable


def test_score_takes_three_lines_in_a_file(tmp_path, pair):
    (tmp_path/"my_outlines_x1.py").write_text("import torch\nfrom invariant_metrics.invariants.dense_networks import network_invariant\n"
        "class Slopes(torch.nn.Module):\n    def forward(self, x): return x.mean(1, keepdim=True).diff(dim=3)\n"
        "outlines = network_invariant(Slopes(), 'edge-scores', name='slopes')\n")
    for side, rgb in zip("ab", pair):
        (tmp_path/side).mkdir()
        for k, one in enumerate(rgb): Image.fromarray((255*one).byte().permute(1, 2, 0).numpy()).save(tmp_path/side/f"{k}.png")
    done = cli("score", "--pred", "a", "--target", "b", "--metrics", "violation-my_outlines_x1:outlines", "--json", cwd=tmp_path)
    assert done.returncode == 0 and "gives:edge-scores" in done.stdout, done.stderr
    assert get_invariant(network_invariant(Net(1), "edges")).name == "net"
