"Image metrics against the public implementations: a grid of sizes and damages, and published values on five photographs."
import numpy as np
import pytest
import torch
from PIL import Image
from real_data import data_path

from invariant_metrics.metrics.image_metrics import colorfulness, colorfulness_abs, map_distance, psnr, ssim
from invariant_metrics.metrics.image_metrics import unit_maps

FIVE = ("I03", "I04", "I06", "I08", "I19")
PSNR = (21.1136, 20.9872, 27.0139, 23.3003, 21.6187)
SSIM = (0.6993, 0.9978, 0.9989, 0.9669, 0.6519)  # on luma rounded to 8 bits, as MATLAB's rgb2gray gives it


def pair(height, width, noise, channels=3):
    g = torch.Generator().manual_seed(height + width)
    target = torch.nn.functional.interpolate(torch.rand(2, channels, 6, 6, generator=g), (height, width), mode="bilinear").double()
    return (target + noise*torch.randn(target.shape, generator=g, dtype=torch.float64)).clamp(0, 1), target


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("size", [(11, 11), (16, 40), (32, 32), (64, 65)])
def test_psnr_and_ssim_equal_scikit_image(size, noise):
    import skimage.metrics
    pred, target = pair(*size, noise)
    for p, t, ours_p, ours_s in zip(pred.numpy(), target.numpy(), psnr(pred, target), ssim(pred, target)):
        assert ours_p.item() == pytest.approx(skimage.metrics.peak_signal_noise_ratio(t, p, data_range=1), abs=1e-9)
        theirs = skimage.metrics.structural_similarity(t, p, data_range=1, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
        assert ours_s.item() == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("size", [(16, 40), (64, 65)])
def test_psnr_equals_torchmetrics_and_ssim_its_map_away_from_the_border(size):
    import torchmetrics.functional.image as tm
    pred, target = pair(*size, 0.1)
    theirs = tm.peak_signal_noise_ratio(pred, target, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert torch.allclose(psnr(pred, target), theirs, atol=1e-9)
    mean, local = tm.structural_similarity_index_measure(pred, target, data_range=1.0, reduction="none", return_full_image=True)
    assert torch.allclose(ssim(pred, target), local[..., 5:-5, 5:-5].mean((1, 2, 3)), atol=1e-12)
    assert not torch.allclose(ssim(pred, target), mean, atol=1e-3)  # mirrored borders are another number


@pytest.mark.parametrize("stages", [((8, 16),), ((4, 16), (8, 8), (16, 4))])
def test_map_distance_is_the_formula_of_lpips_with_unit_heads(stages):
    import lpips
    g = torch.Generator().manual_seed(0)
    a, b = ([torch.rand(3, c, s, s, generator=g) for c, s in stages] for _ in range(2))
    theirs = sum(lpips.spatial_average(((lpips.normalize_tensor(p) - lpips.normalize_tensor(t))**2).sum(1, keepdim=True)) for p, t in zip(a, b))
    assert torch.allclose(map_distance(unit_maps(a), unit_maps(b)), theirs.flatten(), atol=1e-6)


def test_both_forms_of_colorfulness_on_four_pixels():
    four = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [128, 128, 128]]).T.reshape(1, 3, 1, 4)/255
    assert colorfulness(four).item() == pytest.approx(238.5307, abs=1e-4)
    assert colorfulness_abs(four).item() == pytest.approx(210.2486, abs=1e-4)


def photograph(relative: str) -> np.ndarray:
    return np.asarray(Image.open(data_path(f"tid2013_calibration/{relative}.png")).convert("RGB"))


@pytest.mark.parametrize("name, expected", zip(FIVE, PSNR))
def test_published_psnr(name, expected):
    pred, target = (torch.from_numpy(photograph(f"{side}/{name}").copy()).movedim(-1, 0)[None].double()/255 for side in ("dist_dir", "ref_dir"))
    assert round(psnr(pred, target).item(), 4) == expected


@pytest.mark.parametrize("name, expected", zip(FIVE, SSIM))
def test_published_ssim(name, expected):
    luma = np.array([0.298936021293775, 0.587043074451121, 0.114020904255103])
    pred, target = (torch.from_numpy(np.round(photograph(f"{side}/{name}") @ luma))[None, None]/255 for side in ("dist_dir", "ref_dir"))
    assert round(ssim(pred, target).item(), 4) == expected
