"PSNR and SSIM as papers on restoration print them: luma without the border, against published values and BasicSR's definition."
import numpy as np
import pytest
import torch
from PIL import Image
from real_data import data_path

from invariant_metrics.scoring.score import score
from invariant_metrics.core import InputError
from invariant_metrics.metrics.image_metrics import psnr, ssim
from invariant_metrics.metrics.metric import get_metric


def cubic(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    return np.where(x <= 1, 1.5*x**3 - 2.5*x**2 + 1, np.where(x <= 2, -0.5*x**3 + 2.5*x**2 - 4*x + 2, 0))


def resizing(n: int, m: int) -> np.ndarray:
    "The (m, n) matrix of MATLAB's imresize: bicubic, antialiased when it reduces, borders mirrored."
    scale = m/n
    stretch = min(scale, 1)
    u = (np.arange(m) + 0.5)/scale - 0.5
    taps = np.arange(int(np.ceil(4/stretch)) + 2)
    at = np.floor(u - 2/stretch)[:, None] + taps
    weights = cubic(stretch*(u[:, None] - at))
    weights /= weights.sum(1, keepdims=True)
    mirror = np.r_[np.arange(n), np.arange(n)[::-1]]
    out = np.zeros((m, n))
    np.add.at(out, (np.arange(m)[:, None], mirror[at.astype(int) % (2*n)]), weights)
    return out


def imresize(x: np.ndarray, height: int, width: int) -> np.ndarray: # (H, W) or (H, W, C)
    return np.einsum("hH,wW,HW...->hw...", resizing(x.shape[0], height), resizing(x.shape[1], width), x.astype(float), optimize=True)


def bytes_of(x: np.ndarray) -> np.ndarray: return np.clip(np.floor(x + 0.5), 0, 255).astype(np.uint8)


def truth(file, scale: int) -> np.ndarray: # (H, W, 3) uint8, sides that the scale divides
    x = np.asarray(Image.open(file).convert("RGB"))
    return x[:x.shape[0]//scale*scale, :x.shape[1]//scale*scale]


def ycbcr(rgb: np.ndarray) -> np.ndarray: # Y on the scale of bytes, as BasicSR's bgr2ycbcr(y_only=True)
    return rgb/255 @ np.array([65.481, 128.553, 24.966]) + 16


def restored_luma(file, scale: int) -> tuple[np.ndarray, np.ndarray]: # (1, H, W) uint8 both, as MATLAB scripts of papers make them
    sharp = truth(file, scale)
    y = sharp[..., 0] if Image.open(file).mode == "L" else bytes_of(ycbcr(sharp)) # a gray picture is its own luma there
    small = imresize(y, y.shape[0]//scale, y.shape[1]//scale)
    return bytes_of(imresize(small, *y.shape))[None], y[None]


def files(name: str) -> dict: return {f.stem: f for f in sorted(data_path(f"superres/{name}").glob("*.png"))}


def bicubic(name: str, scale: int) -> tuple[np.ndarray, np.ndarray]: # (N,) PSNR, (N,) SSIM of the luma, a border of the scale left out
    sides = [[torch.from_numpy(x.copy())[None]/255 for x in restored_luma(file, scale)] for file in files(name).values()]
    return tuple(np.array([of(*pair, crop_border=scale).item() for pair in sides]) for of in (psnr, ssim))


# the column of bicubic in the table of Tai et al. 2017, as the README of tyshiwo/DRRN_CVPR17 prints it
@pytest.mark.parametrize("scale, published", [(2, (33.66, 0.9299)), (3, (30.39, 0.8682)), (4, (28.42, 0.8104))])
def test_the_published_psnr_and_ssim_of_bicubic_on_set5(scale, published):
    values = bicubic("CSet5", scale)
    assert values[0].mean() == pytest.approx(published[0], abs=.005) and values[1].mean() == pytest.approx(published[1], abs=6e-5)


LENNA = 31.678 # x3, by `bicubic` on the picture that is not among the data, in the copy of jbhuang0604/SelfExSR (Set14, its ninth)


def test_the_published_psnr_of_bicubic_on_set14():
    "Tables print 27.54 or 27.55 for x3, and 27.53 with the border kept (SelfExSR), over all fourteen."
    values = bicubic("CSet14", 3)[0]
    assert len(values) == 13 and np.append(values, LENNA).mean() == pytest.approx(27.545, abs=.01)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory): # Set5 in color, reduced and enlarged three times
    folder = tmp_path_factory.mktemp("set5")
    for name, file in files("CSet5").items():
        sharp = truth(file, 3)
        small = bytes_of(imresize(sharp, sharp.shape[0]//3, sharp.shape[1]//3))
        for side, x in (("pred", bytes_of(imresize(small, *sharp.shape[:2]))), ("target", sharp)):
            (folder/side).mkdir(exist_ok=True)
            Image.fromarray(x).save(folder/side/f"{name}.png")
    return folder


def basicsr(p: np.ndarray, t: np.ndarray, border: int, luma: bool) -> tuple[float, float]: # calculate_psnr, calculate_ssim
    import skimage.metrics
    p, t = (x[border:x.shape[0] - border, border:x.shape[1] - border].astype(float) for x in (p, t))
    if luma: p, t = ycbcr(p), ycbcr(t)
    how = dict(data_range=255, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, channel_axis=None if luma else -1)
    return 10*np.log10(255**2/((p - t)**2).mean()), skimage.metrics.structural_similarity(p, t, **how)


@pytest.mark.parametrize("border", [0, 3])
@pytest.mark.parametrize("channels", ["rgb", "luma"])
def test_psnr_and_ssim_are_those_of_basicsr(pictures, channels, border):
    options = {"channels": channels, "crop_border": border}
    scores = score(pictures/"pred", pictures/"target", "psnr,psnr-pooled,ssim", ci=False, metric_options=options)
    pairs = [[np.asarray(Image.open(pictures/side/f"{name}.png")) for side in ("pred", "target")] for name in files("CSet5")]
    theirs = np.array([basicsr(*pair, border, channels == "luma") for pair in pairs])
    assert scores["psnr"].value == pytest.approx(theirs[:, 0].mean(), abs=1e-5)
    assert scores["ssim"].value == pytest.approx(theirs[:, 1].mean(), abs=1e-5)
    assert scores["psnr-pooled"].value == pytest.approx(-10*np.log10(np.mean(10**(-theirs[:, 0]/10))), abs=1e-5)
    if options == {"channels": "luma", "crop_border": 3}: # in color and back to bytes: two hundredths above the published value
        assert scores["psnr"].value == pytest.approx(30.39, abs=.03)
    for name, found in scores.items():
        said = dict(found.signature.items)
        assert said.get("crop_border") == ("3" if border else None)
        assert said.get("channels") == ("luma" if channels == "luma" else "rgb" if name == "ssim" else None)


@pytest.mark.parametrize("name", ["psnr", "psnr-pooled", "ssim"])
def test_channels_and_borders_that_cannot_be_are_refused(name):
    x = torch.rand(2, 3, 32, 32)
    for options, says in (({"channels": "lab"}, "unknown channels"), ({"crop_border": 16}, "leaves nothing"), ({"crop_border": -1}, "0 to 4,096"),
                          ({"crop_border": 1.5}, "takes int")):
        with pytest.raises(InputError, match=says): score(x, x*.9, name, ci=False, metric_options=options)


def test_ssim_after_the_border_is_cut_needs_eleven_pixels():
    x = torch.rand(1, 3, 18, 40)
    with pytest.raises(InputError, match="not 10 × 32 after crop_border=4"): ssim(x, x, crop_border=4)
    metric = get_metric("ssim", crop_border=4)
    with pytest.raises(InputError, match="not 10 × 32 after crop_border=4"): metric.phi(x)
