"Styles drawn once for all inputs, as the folder that a study of styles reads."
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from commands import cli
from invariant_metrics.core import InputError
from invariant_metrics.models.munit import draw_styles, translate
from invariant_metrics.people.style_drawing import draw_style_pictures, save_picture
from invariant_metrics.people.styles import _read_styles
from invariant_metrics.training.flood_munit import open_munit, unseen_scenes


def pixels(path) -> np.ndarray: return np.asarray(Image.open(path)).astype(int)


def test_drawn_styles_are_what_the_network_makes_and_styles_reads(tmp_path):
    drawn = draw_style_pictures(tmp_path/"made", styles=3, count=5, seed=2)
    wanted = (255*translate(open_munit(), unseen_scenes(5).rgb, draw_styles(3, 2))).round().byte().movedim(2, -1).numpy().astype(int)
    for k, style in enumerate(drawn.styles):
        for i, name in enumerate(drawn.inputs): assert np.abs(pixels(drawn.folder/style/f"{name}.png") - wanted[k, i]).max() <= 1
    save_picture(torch.zeros(3, 32, 32), tmp_path/"black.png")
    (tmp_path/"real").mkdir()
    (tmp_path/"black.png").rename(tmp_path/"real"/"black.png")
    read = _read_styles(drawn.folder, tmp_path/"real")
    assert read.styles == drawn.styles and read.inputs == drawn.inputs
    codes = pd.read_csv(drawn.folder/"styles.csv", index_col="style")
    assert np.allclose(codes.to_numpy(), draw_styles(3, 2).numpy(), atol=1e-4) and list(codes.index) == list(drawn.styles)


def test_own_pictures_of_any_size_keep_their_names(tmp_path):
    (tmp_path/"dry").mkdir()
    for name, side in (("yard", 32), ("lane", 40)): save_picture(torch.rand(3, side, 32), tmp_path/"dry"/f"{name}.png")
    drawn = draw_style_pictures(tmp_path/"made", inputs=tmp_path/"dry", styles=2)
    assert drawn.inputs == ("lane", "yard") and pixels(drawn.folder/"style-2"/"lane.png").shape == (40, 32, 3)
    back = draw_style_pictures(tmp_path/"back", inputs=tmp_path/"dry", styles=2, to="a")
    assert (pixels(back.folder/"style-2"/"lane.png") != pixels(drawn.folder/"style-2"/"lane.png")).any()


def test_stretched_pictures_reach_both_ends(tmp_path):
    plain, wide = (draw_style_pictures(tmp_path/str(stretch), styles=2, count=3, stretch=stretch) for stretch in (False, True))
    for style in wide.styles:
        for name in wide.inputs:
            x, y = (pixels(one.folder/style/f"{name}.png") for one in (plain, wide))
            assert (y.min(), y.max()) == (0, 255) and np.corrcoef(x.ravel(), y.ravel())[0, 1] > .999
    assert any(pixels(plain.folder/"style-1"/f"{name}.png").max() < 250 for name in plain.inputs)


def test_what_cannot_be_drawn_leaves_nothing(tmp_path):
    (tmp_path/"odd").mkdir()
    save_picture(torch.zeros(3, 32, 32), tmp_path/"odd"/"a.png")
    save_picture(torch.zeros(3, 33, 32), tmp_path/"odd"/"b.png")
    (tmp_path/"full").mkdir()
    (tmp_path/"full"/"mine.txt").write_text("mine")
    for options, says in ((dict(out="new", inputs=tmp_path/"odd"), "b: MUNIT takes sides of .* not 33 × 32"), (dict(out="full"), "is not empty .mine.txt.; choose another"),
                          (dict(out="new", weights="depth", inputs=tmp_path/"odd"), "holds no MUNIT"), (dict(out="new", weights="gen_00500000.pt"), "other domains"),
                          (dict(out="new", styles=0), "one style or more"), (dict(out="new", to="c"), "unknown domain"), (dict(out="new", inputs="nowhere"), "nowhere")):
        with pytest.raises(InputError, match=says) as error: draw_style_pictures(**{**options, "out": tmp_path/options["out"]})
        assert "\n" not in str(error.value)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["full", "odd"] and [p.name for p in (tmp_path/"full").iterdir()] == ["mine.txt"]


def test_the_command_says_what_it_drew(tmp_path):
    done = cli("styles", "draw", "--weights", "munit-flood", "--inputs", "scenes", "--styles", "2", "--count", "2", "--out", "drawn", cwd=tmp_path)
    assert done.returncode == 0 and "2 inputs in 2 styles: drawn" in done.stdout, done.stderr
    for words, says in ((("--out", "drawn"), "is not empty"), (("--out", "x", "--weights", "depth", "--weights", "munit-flood"), "--weights is one MUNIT")):
        done = cli("styles", "draw", *words, cwd=tmp_path)
        assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
