"Picture decoders: layers against plain formulas and torch's own, checkpoints read and refused."
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invariant_metrics.core import InputError
from invariant_metrics.models.picture_decoders import (_BIGGAN_DEEP, DVAE, VQGAN, BigGAN, BigGANConfig, DVAEConfig, _PooledAttention,
                                                       VQGANConfig, _fold_spectral_norm, _nearest_codes, read_biggan, read_dvae, read_vqgan,
                                                       tiny_decoder)


def drawn(*shape, seed: int = 0): return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters(make) -> int:
    with torch.device("meta"): return sum(p.numel() for p in make().parameters())


def test_published_sizes():
    "Decoder of taming-transformers' configuration; OpenAI's decoder; the millions that the port of BigGAN prints."
    assert parameters(VQGAN) == 42_449_795 + 16384*256 + 256*256 + 256
    assert parameters(DVAE) == 43_829_766
    millions = {size: parameters(lambda: BigGAN(BigGANConfig(size, layers=layers)))/1e6 for size, layers in _BIGGAN_DEEP.items()}
    assert {size: round(n, 1) for size, n in millions.items()} == {128: 50.4, 256: 55.9, 512: 56.2}


def test_sides_of_published_sizes():
    assert (VQGANConfig().factor, DVAEConfig().factor) == (16, 8)
    for size, layers in _BIGGAN_DEEP.items(): assert 4*2**sum(doubles for doubles, _, _ in layers) == size


def test_nearest_codes_are_those_of_the_plain_distance():
    z, codebook = drawn(2, 5, 3, 4), drawn(40, 5, seed=1)
    plain = torch.cdist(z.movedim(1, -1).reshape(-1, 5), codebook).argmin(1).view(2, 3, 4)
    assert torch.equal(_nearest_codes(z, codebook), plain)


def test_a_code_is_quantized_to_itself_and_passes_gradients():
    network = tiny_decoder("vqgan")
    codes = network.codebook.weight[torch.arange(6).view(1, 2, 3)].movedim(-1, 1)
    z = (codes + 1e-4*drawn(*codes.shape)).requires_grad_()
    out = network.quantize(z)
    assert torch.equal(out.detach(), codes)
    network(out).sum().backward()
    assert z.grad.abs().max() > 0 and all(p.grad is None for p in network.parameters())


def test_attention_against_the_plain_formula():
    layer = _PooledAttention(16).double()
    nn.init.constant_(layer.gamma, .7)
    x = drawn(2, 16, 4, 6).double()
    query, key, value = layer.theta(x), F.max_pool2d(layer.phi(x), 2), F.max_pool2d(layer.g(x), 2)
    shares = torch.einsum("nchw,ncij->nhwij", query, key).flatten(3).softmax(-1)
    mixed = torch.einsum("nhwk,nck->nchw", shares, value.flatten(2))
    assert torch.allclose(layer(x), x + .7*layer.o_conv(mixed), atol=1e-12)


@pytest.mark.parametrize("make, x", [(lambda: nn.Conv2d(6, 8, 3), drawn(2, 6, 5, 5)), (lambda: nn.Linear(6, 9), drawn(4, 6))])
def test_spectral_norm_is_that_of_torch(make, x):
    torch.manual_seed(0)
    layer, plain = nn.utils.spectral_norm(make()), make()
    for _ in range(3): layer(x) # power iterations
    layer.eval()
    for without_v in (False, True):
        state = {f"a.{name}": value.detach() for name, value in layer.state_dict().items()}
        if without_v:
            for _ in range(200): layer.train()(x) # converged: v is the direction of Wᵀu
            layer.eval()
            state = {f"a.{name}": value.detach() for name, value in layer.state_dict().items() if name != "weight_v"}
        plain.load_state_dict({name.removeprefix("a."): value for name, value in _fold_spectral_norm(state).items()})
        assert torch.allclose(plain(x), layer(x), atol=1e-5)


def test_shortcut_of_biggan_keeps_the_first_channels():
    network = tiny_decoder("biggan")
    block = network.layers[1] # doubles, from 32 to 16 channels
    with torch.no_grad():
        for p in block.conv_3.parameters(): p.zero_()
    x, condition = drawn(1, 32, 4, 4), drawn(1, 16)
    assert torch.equal(block(x, 50, condition), F.interpolate(x[:, :16], scale_factor=2.))


def test_pictures_of_biggan_do_not_depend_on_the_batch():
    network = tiny_decoder("biggan")
    z, classes = drawn(3, network.conditions, 8), drawn(3, network.conditions, 12, seed=1).softmax(-1)
    together = network(z, classes)
    assert together.shape == (3, 3, 32, 32) and together.min() >= 0 and together.max() <= 1
    for i in range(3): assert torch.allclose(network(z[i:i + 1], classes[i:i + 1])[0], together[i], atol=1e-6)


def test_pixels_of_the_dvae_are_the_way_back_from_its_sigmoid():
    network = tiny_decoder("dvae")
    codes = F.one_hot(torch.arange(16).view(1, 4, 4), 64).movedim(-1, 1).float()
    means = network.maps(codes)[:, :3]
    assert torch.allclose(.8*network(codes) + .1, 1/(1 + (-means).exp()), atol=1e-6)


def test_what_is_no_checkpoint_says_so():
    for read in (read_vqgan, read_dvae):
        with pytest.raises(InputError, match="missing"): read({"weight": torch.zeros(2)})
    state = tiny_decoder("biggan").state_dict()
    config = tiny_decoder("biggan").config
    assert read_biggan(state, config).config == config
    with pytest.raises(InputError, match=r"3 tensors have no place in it"):
        read_biggan(state | {f"generator.more{i}": torch.zeros(1) for i in range(3)}, config)
    with pytest.raises(InputError, match=r"gen_z.bias is \(5,\), not"): read_biggan(state | {"gen_z.bias": torch.zeros(5)}, config)
    with pytest.raises(InputError, match="no configuration"): BigGANConfig.from_json({})


def test_half_precision_files_compute_in_single_precision():
    network = tiny_decoder("dvae")
    again = read_dvae({name: value.half() for name, value in network.state_dict().items()})
    assert {p.dtype for p in again.parameters()} == {torch.float32} and not any(p.requires_grad for p in again.parameters())
    codes = F.one_hot(torch.arange(4).view(1, 2, 2), 64).movedim(-1, 1).float()
    assert math.isclose((again(codes) - network(codes)).abs().max().item(), 0, abs_tol=1e-2)
