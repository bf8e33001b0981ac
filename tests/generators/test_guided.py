"Pictures that a CLIP asks for: gradients, chance, penalties against SciPy, searches that go where they should."
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from invariant_metrics.core import InputError
from invariant_metrics.encoders.image_text import image_text
from invariant_metrics.encoders.weights import MissingWeights
from invariant_metrics.files import save_tensors
from invariant_metrics.generators.generator import get_generator
from invariant_metrics.generators.guided import (_BIGGAN_GUIDANCE, _DVAE_GUIDANCE, _VQGAN_GUIDANCE, BigGANSpace, DVAESpace, Guidance, GuidedGenerator,
                                                 VQGANSpace, _clamp_colors, _cut_out, _latent_penalty, _open_picture_decoder, search,
                                                 _spherical_distance, _cutout_vectors)
from invariant_metrics.models.picture_decoders import tiny_decoder

TEXT = "a red ball lies on the grass"


def vivid():
    "A narrow dVAE whose pictures are not all gray."
    network = tiny_decoder("dvae")
    for name, p in network.named_parameters(): p.mul_(not name.endswith("bias"))
    codes = torch.eye(64).view(1, 8, 8, 64).movedim(-1, 1)
    network.blocks["output"]["conv"].weight.mul_(2/network.maps(codes)[:, :3].std())
    return network


SPACES = {"vqgan": lambda: VQGANSpace(tiny_decoder("vqgan"), 32), "dvae": lambda: DVAESpace(vivid(), 32),
          "gumbel": lambda: DVAESpace(vivid(), 32, "gumbel"), "biggan": lambda: BigGANSpace(tiny_decoder("biggan"))}
SETTINGS = {"vqgan": _VQGAN_GUIDANCE, "dvae": replace(_DVAE_GUIDANCE, lr=1.), "gumbel": replace(_DVAE_GUIDANCE, lr=1.), "biggan": replace(_BIGGAN_GUIDANCE, ema=.8)}


@pytest.fixture(scope="module")
def guide(): return image_text("embedded-clip")


def chance(seed: int = 0): return torch.Generator().manual_seed(seed)


def test_defaults_are_those_of_the_programs():
    assert (_VQGAN_GUIDANCE.steps, _VQGAN_GUIDANCE.lr, _VQGAN_GUIDANCE.cutouts, _VQGAN_GUIDANCE.distance) == (500, .1, 32, "spherical")
    assert (_BIGGAN_GUIDANCE.steps, _BIGGAN_GUIDANCE.lr, _BIGGAN_GUIDANCE.cutouts, _BIGGAN_GUIDANCE.ema) == (21000, .07, 128, .99)
    assert (_BIGGAN_GUIDANCE.sizes, _BIGGAN_GUIDANCE.distance, _VQGAN_GUIDANCE.ema) == ("normal", "cosine", 0)
    space = BigGANSpace(tiny_decoder("biggan"))
    latents, classes = space.start(chance())
    assert latents.shape == (5, 8) and classes.shape == (5, 12) # one more than blocks
    assert abs(classes.mean() + 3.9) < .1 and abs(classes.std() - .3) < .1


def test_spherical_distance_is_half_the_squared_angle_with_its_gradient():
    u = torch.nn.functional.normalize(torch.randn(50, 6, generator=chance()), dim=1).double().requires_grad_()
    w = torch.eye(6)[0].double()
    angles = (u @ w).arccos()
    assert torch.allclose(_spherical_distance(u, w), angles**2/2)
    ours, = torch.autograd.grad(_spherical_distance(u, w).sum(), u)
    plain, = torch.autograd.grad((angles**2/2).sum(), u)
    assert torch.allclose(ours, plain)


def test_moments_are_those_of_scipy():
    z = torch.randn(4, 30, generator=chance()).double()*1.7 + .3
    x = z.numpy()
    expected = abs(1 - x.std(1, ddof=1)).mean() + abs(x.mean(1)).mean() + 4*max(1, (x**2).mean())
    expected += abs(stats.skew(x, 1)).mean() + abs(stats.kurtosis(x, 1)).mean()
    assert math.isclose(_latent_penalty(z).item(), expected, rel_tol=1e-9)


def test_clamp_leads_back_and_never_further_out():
    x = torch.tensor([-.5, 1.5, .5]).requires_grad_()
    optimizer = torch.optim.SGD([x], 1.)
    (_clamp_colors(x) - torch.tensor([.5, .5, .5])).square().sum().backward()
    optimizer.step()
    assert x[0] > -.5 and x[1] < 1.5 and x[2] == .5
    y = torch.tensor([-.5, 1.5]).requires_grad_()
    (_clamp_colors(y)*torch.tensor([1., -1.])).sum().backward() # the loss wants them still further out
    assert y.grad.tolist() == [0, 0]


def test_cutouts_lie_inside_and_reach_every_part():
    place = torch.stack(torch.meshgrid(torch.arange(20.), torch.arange(30.), indexing="ij") + (torch.zeros(20, 30),))[None]
    settings = replace(_BIGGAN_GUIDANCE, cutouts=300)
    parts = _cut_out(place, settings, 40, chance())
    tops, lefts = parts[:, 0].amin((1, 2)), parts[:, 1].amin((1, 2))
    assert tops.min() == 0 and lefts.min() == 0 and parts[:, 0].max() == 19 and parts[:, 1].max() == 29
    sides = parts[:, 0].amax((1, 2)) - tops + 1
    assert sides.min() == 10 and sides.max() == 18 # .5 of 20; just below .95 of it


def test_noise_of_cutouts_has_a_deviation_of_its_own_each():
    gray = torch.full((1, 3, 32, 32), .5)
    noisy = _cut_out(gray, Guidance(cutouts=200, noise=.2), 32, chance()) - .5
    deviations = noisy.flatten(1).std(1)
    assert deviations.max() < .21 and abs(deviations.mean() - .1) < .02 and abs(noisy.mean()) < .01


def test_a_guide_sees_what_its_image_tower_sees(guide):
    picture = torch.rand(1, 3, 64, 64, generator=chance())
    assert torch.allclose(_cutout_vectors(guide, picture)[0].double(), guide.images(list(picture))[0], atol=1e-5)


@pytest.mark.parametrize("name", [name if name == "vqgan" else pytest.param(name, marks=pytest.mark.slow) for name in SPACES])
def test_a_search_lowers_its_loss_and_raises_what_the_whole_picture_says(name, guide):
    target = guide.texts([TEXT])[0][0]
    settings = replace(SETTINGS[name], steps=40, cutouts=3)
    before, log = search(SPACES[name](), guide, target, replace(settings, steps=0), seed=3)
    after, log = search(SPACES[name](), guide, target, settings, seed=3)
    assert after.shape == (3, 32, 32) and after.dtype == torch.uint8
    assert log["distance"][-10:].mean() < log["distance"][:10].mean()
    def similarity(picture): return (guide.images([picture.float()/255])[0] @ target).item()
    assert similarity(after) > similarity(before) + .03


@pytest.mark.parametrize("name", SPACES)
def test_a_picture_is_of_its_text_and_seed_alone(name, guide):
    generator = GuidedGenerator(SPACES[name](), guide, replace(SETTINGS[name], steps=3, cutouts=2, lr=1.)) # codes change
    state = torch.get_rng_state()
    texts, seeds = [TEXT, "a boat", TEXT], [7, 7, 8]
    together = generator(texts, seeds)
    assert torch.equal(torch.get_rng_state(), state) # nobody's chance is touched
    for i in (2, 1, 0): assert torch.equal(generator(texts[i:i + 1], seeds[i:i + 1])[0], together[i])
    assert len({picture.numpy().tobytes() for picture in together}) == 3
    assert all(isinstance(value, str) for value in generator.describe().values())


def test_networks_and_guide_stay_as_they_are(guide):
    space = SPACES["vqgan"]()
    before = {name: value.clone() for name, value in space.network.state_dict().items()}
    search(space, guide, guide.texts([TEXT])[0][0], replace(_VQGAN_GUIDANCE, steps=2, cutouts=2))
    assert all(torch.equal(value, before[name]) for name, value in space.network.state_dict().items())
    assert all(p.grad is None for p in space.network.parameters())


def test_codes_of_the_vqgan_stay_in_the_box_of_the_codebook(guide):
    space = SPACES["vqgan"]()
    wild = [10*torch.randn(1, 8, 8, 8, generator=chance())]
    space.bound(wild)
    codes = space.network.codebook.weight
    assert (wild[0].amax((0, 2, 3)) <= codes.amax(0)).all() and (wild[0].amin((0, 2, 3)) >= codes.amin(0)).all()


def test_a_loss_that_is_no_number_ends_the_search():
    space = SPACES["dvae"]()
    blind = SimpleNamespace(prepare=SimpleNamespace(size=8, stats=((0.,)*3, (1.,)*3)), device="cpu", image=lambda x: x.flatten(1)*math.nan)
    with pytest.raises(InputError, match="dvae: the loss is nan at step 0"): search(space, blind, torch.ones(192), _DVAE_GUIDANCE)


def test_settings_stand_in_the_description(guide):
    one = GuidedGenerator(SPACES["dvae"](), guide, _DVAE_GUIDANCE)
    for change in (dict(steps=3), dict(lr=.2), dict(cutouts=3), dict(noise=.1), dict(ema=.5), dict(distance="cosine"), dict(sizes="normal")):
        assert replace(one, settings=replace(_DVAE_GUIDANCE, **change)).describe() != one.describe()
    assert replace(one, space=SPACES["gumbel"]()).describe() != one.describe()
    assert replace(one, revision="another").describe() != one.describe()


def test_files_that_do_not_fit_are_refused_in_one_line(tmp_path):
    with pytest.raises(MissingWeights, match="comes without weights; give weights=PLACE"): get_generator("biggan")
    np.save(tmp_path/"x.npy", np.zeros(3))
    torch.save([1, 2], tmp_path/"list.pt")
    save_tensors(tmp_path/"a.safetensors", {"x": torch.zeros(2)})
    cases = {"list.pt": "holds list, not named tensors", "a.safetensors": "no dVAE decoder: blocks.input.weight", "x.npy": "state dict as .safetensors"}
    for file, said in cases.items():
        with pytest.raises(InputError, match=said) as error: _open_picture_decoder("dvae", tmp_path/file)
        assert "\n" not in str(error.value)
    save_tensors(tmp_path/"b.safetensors", {"x": torch.zeros(2)})
    with pytest.raises(InputError, match="holds 2 .safetensors files; name one"): _open_picture_decoder("dvae", tmp_path)
    with pytest.raises(InputError, match="multiple of 4"): VQGANSpace(tiny_decoder("vqgan"), 30)
    with pytest.raises(InputError, match="unknown relaxation"): DVAESpace(tiny_decoder("dvae"), 32, "hard")


def test_options_are_checked(tmp_path):
    save_tensors(tmp_path/"d.safetensors", tiny_decoder("dvae").state_dict())
    options = dict(weights=tmp_path/"d.safetensors", guide="embedded-clip", size=32)
    generator = get_generator("dvae", **options, relax="gumbel", temperature=.5, steps=1, cutouts=1)
    assert generator.describe()["temperature"] == "0.5" and generator(["a boat"], [0]).shape == (1, 3, 32, 32)
    with pytest.raises(InputError, match="cutouts is 1 to 4,096"): get_generator("dvae", **options, cutouts=0)
    with pytest.raises(InputError, match="option steps takes int"): get_generator("dvae", **options, steps="many")
