"Pooled PSNR, MS-SSIM and CIEDE2000 against hand values, published values, and the public implementations."
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from real_data import data_path
from scipy.ndimage import correlate1d

from invariant_metrics.core import InputError
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.metrics.image_metrics import ciede2000, decibels, _half_size, gray_levels, luma, ms_ssim, psnr, _squared_errors
from invariant_metrics.metrics.image_metrics import ssim

FIVE = ("I03", "I04", "I06", "I08", "I19")
MS_SSIM = (0.6733, 0.9996, 0.9998, 0.9566, 0.8462)

# L, a, b of both colors and their difference: Sharma, Wu and Dalal (2005), table 1
SHARMA = np.array([float(x) for x in """
50 2.6772 -79.7751 50 0 -82.7485 2.0425   50 3.1571 -77.2803 50 0 -82.7485 2.8615   50 2.8361 -74.0200 50 0 -82.7485 3.4412
50 -1.3802 -84.2814 50 0 -82.7485 1.0000  50 -1.1848 -84.8006 50 0 -82.7485 1.0000  50 -0.9009 -85.5211 50 0 -82.7485 1.0000
50 0 0 50 -1 2 2.3669                     50 -1 2 50 0 0 2.3669                     50 2.4900 -0.0010 50 -2.4900 0.0009 7.1792
50 2.4900 -0.0010 50 -2.4900 0.0010 7.1792 50 2.4900 -0.0010 50 -2.4900 0.0011 7.2195 50 2.4900 -0.0010 50 -2.4900 0.0012 7.2195
50 -0.0010 2.4900 50 0.0009 -2.4900 4.8045 50 -0.0010 2.4900 50 0.0010 -2.4900 4.8045 50 -0.0010 2.4900 50 0.0011 -2.4900 4.7461
50 2.5 0 50 0 -2.5 4.3065                 50 2.5 0 73 25 -18 27.1492                50 2.5 0 61 -5 29 22.8977
50 2.5 0 56 -27 -3 31.9030                50 2.5 0 58 24 15 19.4535                 50 2.5 0 50 3.1736 0.5854 1.0000
50 2.5 0 50 3.2972 0 1.0000               50 2.5 0 50 1.8634 0.5757 1.0000          50 2.5 0 50 3.2592 0.3350 1.0000
60.2574 -34.0099 36.2677 60.4626 -34.1751 39.4387 1.2644   63.0109 -31.0961 -5.8663 62.8187 -29.7946 -4.0864 1.2630
61.2901 3.7196 -5.3901 61.4292 2.2480 -4.9620 1.8731       35.0831 -44.1164 3.7933 35.0232 -40.0716 1.5901 1.8645
22.7233 20.0904 -46.6940 23.0331 14.9730 -42.5619 2.0373   36.4612 47.8580 18.3852 36.2715 50.5065 21.2231 1.4146
90.8027 -2.0831 1.4410 91.1528 -1.6435 0.0447 1.4441       90.9257 -0.5406 -0.9208 88.6381 -0.8985 -0.7239 1.5381
6.7747 -0.2908 -2.4247 5.8714 -0.0985 -2.2286 0.6377       2.0776 0.0795 -1.1350 0.9033 -0.0636 -0.5514 0.9082
""".split()]).reshape(34, 7)


def pair(height, width, noise, seed=0, n=2):
    g = torch.Generator().manual_seed(height + width + seed)
    target = torch.nn.functional.interpolate(torch.rand(n, 3, 6, 6, generator=g), (height, width), mode="bilinear").double()
    return (target + noise*torch.randn(target.shape, generator=g, dtype=torch.float64)).clamp(0, 1), target


def photographs(name):
    read = lambda side: np.array(Image.open(data_path(f"tid2013_calibration/{side}/{name}.png")).convert("RGB"))
    return [torch.from_numpy(read(side)).movedim(-1, 0)[None]/255 for side in ("dist_dir", "ref_dir")]


@pytest.mark.parametrize("order", ["as printed", "swapped"])
def test_the_formula_we_call_reproduces_all_34_published_color_differences(order):
    import skimage.color
    first, second = (SHARMA[:, :3], SHARMA[:, 3:6]) if order == "as printed" else (SHARMA[:, 3:6], SHARMA[:, :3])
    assert np.abs(skimage.color.deltaE_ciede2000(first, second).round(4) - SHARMA[:, 6]).max() < 1e-9


def test_ciede2000_of_an_image_is_the_mean_over_pixels_in_either_direction():
    import skimage.color
    pred, target = pair(16, 20, 0.2)
    for p, t, value in zip(pred, target, ciede2000(pred, target)):
        lab = [skimage.color.rgb2lab(x.movedim(0, -1).numpy()) for x in (p, t)]
        each = [skimage.color.deltaE_ciede2000(a, b) for a, b in zip(*(x.reshape(-1, 3) for x in lab))]
        assert value.item() == pytest.approx(np.mean(each), abs=1e-9)
    assert torch.allclose(ciede2000(pred, target), ciede2000(target, pred), atol=1e-9) and (ciede2000(pred, pred) == 0).all()
    with pytest.raises(InputError, match="different sizes"): ciede2000(pred, target[..., 1:])


def test_black_against_white_is_a_hundred_and_a_uint8_metric_agrees():
    dark, light = torch.zeros(2, 3, 5, 5, dtype=torch.uint8), torch.full((2, 3, 5, 5), 255, dtype=torch.uint8)
    metric = get_metric("ciede2000")
    assert metric.statistic(extract([metric], dark, light)["ciede2000"]) == pytest.approx(100, abs=1e-3)


def test_pooled_psnr_is_that_of_torchmetrics_and_never_above_the_mean_of_decibels():
    import torchmetrics.functional.image as tm
    pred, target = pair(24, 30, 0.1, n=6)
    pred[:3] = 0.3*pred[:3] + 0.7*target[:3]
    both = [get_metric("psnr"), get_metric("psnr-pooled")]
    rows = extract(both, pred, target, batch=4)
    mean, pooled = (m.statistic(rows[m.name]) for m in both)
    assert pooled == pytest.approx(tm.peak_signal_noise_ratio(pred, target, data_range=1.0).item(), abs=1e-5)
    assert pooled < mean
    assert torch.allclose(both[1].per_item(rows["psnr-pooled"].pred), psnr(pred, target), atol=1e-5)


@settings(max_examples=60)
@given(st.lists(st.floats(1e-8, 1), min_size=1, max_size=8), st.lists(st.floats(0.1, 5), min_size=8, max_size=8))
def test_pooled_psnr_of_weighted_sums_lies_between_the_best_and_worst_and_below_the_weighted_mean(errors, weights):
    rows = torch.tensor([[e, 1.0] for e in errors], dtype=torch.float64)
    w = torch.tensor(weights[:len(errors)], dtype=torch.float64)
    value, each = decibels((w @ rows)[None])[0], decibels(rows)
    assert each.min() - 1e-9 <= value <= each.max() + 1e-9
    assert value <= (w @ each)/w.sum() + 1e-9


def test_pooled_psnr_of_identical_images_is_the_cap_only_where_all_are_and_its_derivative_is_finite():
    pred, target = pair(12, 12, 0.1, n=3)
    metric = get_metric("psnr-pooled")
    assert metric.statistic(extract([metric], target, target)["psnr-pooled"]) == 100
    assert get_metric("psnr-pooled", cap=80.0).statistic(extract([metric], target, target)["psnr-pooled"]) == 80
    some = torch.cat([pred[:1], target[1:]])
    expected = psnr(pred[:1], target[:1]).item() + 10*np.log10(3)
    assert metric.statistic(extract([metric], some, target)["psnr-pooled"]) == pytest.approx(expected, abs=1e-5)
    for rows in (_squared_errors(target, target), _squared_errors(some, target)):
        sums = rows.sum(0)[None].requires_grad_()
        decibels(sums).sum().backward()
        assert torch.isfinite(sums.grad).all()
    assert sums.grad[0].tolist() == pytest.approx([-10/np.log(10)/sums[0, 0].item(), 10/np.log(10)/3], rel=1e-9)


def test_replicates_of_pooled_psnr_equal_repeating_the_images():
    pred, target = pair(12, 12, 0.1, n=4)
    metric = get_metric("psnr-pooled")
    rows, index = extract([metric], pred, target)["psnr-pooled"], torch.tensor([0, 0, 0, 2])
    again = metric.statistic(extract([metric], pred[index], target[index])["psnr-pooled"])
    assert metric.replicates(rows, np.array([[3, 0, 1, 0]]))[0] == pytest.approx(again, abs=1e-9)


def by_scipy(p, t, weights=(0.0448, 0.2856, 0.3001, 0.2363, 0.1333)):
    "MS-SSIM of two gray images in [0, 1] by another library's filters."
    line = np.exp(-np.arange(-5, 6)**2/4.5); line /= line.sum()
    def blur(x): return correlate1d(correlate1d(x, line, 0), line, 1)[5:-5, 5:-5]
    def half(x): return correlate1d(correlate1d(x, [0.5, 0.5], 0, origin=-1), [0.5, 0.5], 1, origin=-1)[::2, ::2]
    value = 1.0
    for scale, weight in enumerate(weights):
        mp, mt = blur(p), blur(t)
        local = (2*(blur(p*t) - mp*mt) + 9e-4)/(blur(p*p) - mp*mp + blur(t*t) - mt*mt + 9e-4)
        if scale == 4: local = local*(2*mp*mt + 1e-4)/(mp*mp + mt*mt + 1e-4)
        value *= max(local.mean(), 0)**weight
        p, t = half(p), half(t)
    return value


@pytest.mark.parametrize("size", [(161, 161), (163, 190), (192, 256)])
def test_ms_ssim_equals_the_formula_by_other_filters_at_odd_and_even_sizes(size):
    pred, target = pair(*size, 0.1, n=1)
    for channel in range(3):
        one = [x[:, channel:channel + 1] for x in (pred, target)]
        assert ms_ssim(*one).item() == pytest.approx(by_scipy(*(x[0, 0].numpy() for x in one)), abs=1e-9)


def test_ms_ssim_is_near_to_torchmetrics_where_that_takes_the_image_and_finds_identity():
    import torchmetrics.functional.image as tm
    pred, target = pair(192, 208, 0.05)
    theirs = [tm.multiscale_structural_similarity_index_measure(p[None], t[None], data_range=1.0).item() for p, t in zip(pred, target)]
    assert ms_ssim(pred, target).tolist() == pytest.approx(theirs, abs=0.01)
    assert torch.allclose(ms_ssim(target, target), torch.ones(2, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(ms_ssim(pred, target)[1:], ms_ssim(pred[1:], target[1:]), atol=1e-12)
    assert torch.allclose(_half_size(target), torch.nn.functional.avg_pool2d(target, 2))
    with pytest.raises(ValueError): tm.multiscale_structural_similarity_index_measure(pred[..., :170], target[..., :170], data_range=1.0)


@pytest.mark.parametrize("size, options, said", [((160, 200), {}, "161 pixels at least, not 160 × 200"),
                                                 ((200, 200), {"channels": "lab"}, "unknown channels"),
                                                 ((200, 200), {"combine": "mean"}, "unknown combine")])
def test_ms_ssim_refuses_in_one_line(size, options, said):
    pred, target = pair(*size, 0.1, n=1)
    with pytest.raises(InputError, match=said) as error: ms_ssim(pred, target, **options)
    assert "\n" not in str(error.value)


def test_gray_is_whole_levels_and_takes_rgb_only():
    g = torch.Generator().manual_seed(0)
    gray = torch.randint(0, 256, (1, 1, 4, 5), generator=g)/255
    assert torch.allclose(gray_levels(gray.expand(1, 3, 4, 5)), gray.double(), atol=1e-6)
    with pytest.raises(InputError, match="not of 1 channels"): gray_levels(gray)
    assert "channels:gray" in str(get_metric("ssim", channels="gray").signature) and "channels:rgb" in str(get_metric("ssim").signature)


@pytest.mark.parametrize("name, expected", zip(FIVE, MS_SSIM))
def test_published_ms_ssim_is_the_sum_of_scales_on_gray(name, expected):
    pred, target = photographs(name)
    assert round(ms_ssim(pred, target, channels="gray", combine="sum").item(), 4) == expected


def test_no_other_setting_reproduces_the_published_ms_ssim():
    sides = photographs("I19")
    for options in (dict(channels="gray"), dict(combine="sum"), {}): assert abs(ms_ssim(*sides, **options).item() - 0.8462) > 2e-3


@pytest.mark.parametrize("name, expected", zip(FIVE, (0.6993, 0.9978, 0.9989, 0.9669, 0.6519)))
def test_published_ssim_through_the_metric(name, expected):
    pred, target = photographs(name)
    assert round(ssim(pred, target, channels="gray").item(), 4) == expected
    metric = get_metric("ssim", channels="gray")
    assert round(metric.statistic(extract([metric], pred, target)["ssim"]), 4) == expected


def test_functions_called_directly_refuse_what_has_no_area_or_another_shape():
    from invariant_metrics.metrics.image_metrics import colorfulness, colorfulness_abs, psnr, _squared_errors
    two = {"psnr": psnr, "ciede2000": ciede2000, "squared_errors": _squared_errors, "ssim": ssim, "ms-ssim": ms_ssim}
    one = {"colorfulness": colorfulness, "colorfulness-abs": colorfulness_abs, "luma": luma, "gray": gray_levels}
    for shape, says in (((2, 3, 0, 8), "no area"), ((2, 3, 8, 0), "no area"), ((3, 8, 8), r"images are \(N"), ((8,), r"images are \(N"), ((1, 2, 3, 8, 8), r"images are \(N")):
        for f in two.values():
            with pytest.raises(InputError, match=says): f(torch.zeros(shape), torch.zeros(shape))
        for f in one.values():
            with pytest.raises(InputError, match=says): f(torch.zeros(shape))
    for f in (ciede2000,):
        with pytest.raises(InputError, match=r"\(N, 3, H, W\), not \(2, 1, 8, 8\)"): f(torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 8, 8))
    for f in (colorfulness, colorfulness_abs):
        with pytest.raises(InputError, match=r"\(N, 3, H, W\)"): f(torch.zeros(2, 4, 8, 8))
    with pytest.raises(InputError, match="different shapes"): psnr(torch.zeros(2, 3, 8, 8), torch.zeros(1, 3, 8, 8))
    with pytest.raises(InputError, match="tensor"): psnr(np.zeros((1, 3, 8, 8)), torch.zeros(1, 3, 8, 8))
