"The page of a study of styles: places, figure, strips and sentences against what the study holds; the command on what is here."
import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from invariant_metrics.commands.shell import main
from invariant_metrics.core import InputError, rng
from invariant_metrics.people.style_report import best_score, rank_figure, style_ranks, styles_report, write_styles
from invariant_metrics.people.styles import style_study

STYLES, N = ["clean", "<b>dim", "dark", "noisy"], 6


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Four styles of six pictures, real ones, and ten raters who believe the first style most."
    folder, g = tmp_path_factory.mktemp("styles"), rng(0, "pixels")
    for k, style in enumerate([*STYLES, "real"]):
        home = folder/("real" if style == "real" else f"made/{style}")
        home.mkdir(parents=True)
        for i in range(N): Image.fromarray((g.random((24, 24, 3))*(255 - 50*(k % 4))).astype(np.uint8)).save(home/f"i{i}.png")
    rows = [dict(evaluator=e, input=f"i{i}", style=s, label=int(g.random() < 0.9 - 0.25*k)) for e in range(10) for k, s in enumerate(STYLES) for i in range(N)]
    pd.DataFrame(rows).to_csv(folder/"answers.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def found(place): return style_study(place/"made", place/"real", place/"answers.csv", reps=40)


def test_places_are_those_of_both_sides(found):
    frame = style_ranks(found)
    metric, layer = best_score(found)
    assert "untrained" not in metric and found.r[metric, layer] == max(r for (m, _), r in found.r.items() if "untrained" not in m)
    assert list(frame["style"]) == [found.styles[k] for k in np.argsort(-found.hype, kind="stable")]
    for row in frame.itertuples():
        k = found.styles.index(row.style)
        assert row.people == 1 + (found.hype > found.hype[k]).sum() and row.distance == 1 + (found.scores[metric, layer] > found.scores[metric, layer][k]).sum()
        assert row.gap == row.distance - row.people
    with pytest.raises(InputError, match="unknown score 'FID pool3'"): style_ranks(found, ("FID", "pool3"))


def test_intervals_of_styles_are_around_their_values(found):
    frame = found.by_style
    assert len(frame) == len(STYLES)*(1 + 2*2*5) and (frame["low"] <= frame["value"]).all() and (frame["value"] <= frame["high"]).all()
    people = frame[frame["metric"] == "HYPE-Style"]
    assert people["value"].tolist() == pytest.approx(found.hype) and people["low"].min() >= 0 and people["high"].max() <= 1
    one = frame[(frame["metric"] == "FID") & (frame["layer"] == "stage1")]
    assert one["value"].tolist() == pytest.approx(-found.scores["FID", "stage1"])
    assert (one["high"] - one["value"]).tolist() == pytest.approx(1.959964*found.drawn["FID", "stage1"].std(0, ddof=1), rel=1e-5)


def test_the_figure_has_people_s_order_on_both_sides(found):
    left, right = rank_figure(found).axes
    assert [t.get_text() for t in left.get_yticklabels()] == list(style_ranks(found)["style"])
    assert left.lines[0].get_xdata() == pytest.approx(style_ranks(found)["HYPE-Style"])
    assert right.get_xlabel() == " ".join(best_score(found)) and left.yaxis_inverted()


def test_the_page_shows_styles_and_says_where_both_part(found, place, tmp_path):
    page = write_styles(found, tmp_path/"page", "invariant-metrics styles made").read_text()
    assert {p.name for p in (tmp_path/"page").iterdir()} == {"index.html", "run.json", "correlations.csv", "styles.csv", "ranks.csv", "ranks.svg"}
    ranks = style_ranks(found)
    strips = 3*len(STYLES) + 2*N + (N if (ranks["gap"] != 0).any() else 0)
    assert page.count("<img") == strips and "<b>dim" not in page and "&lt;b&gt;dim" in page
    assert not re.search(r'(src|href)="https?:', page) and "invariant-metrics styles made" in page and "HYPE-Style" in page.split('id="glossary"')[1]
    answers = dict(styles_report(found).answers)
    assert ranks["style"][0] in answers["People"] and any("untrained twin" in what for what in answers)
    assert pd.read_csv(tmp_path/"page"/"ranks.csv")["people"].tolist() == ranks["people"].tolist()
    again = write_styles(found, tmp_path/"page", "invariant-metrics styles made").read_text()
    assert again == page, "the same study gives the same page"
    (tmp_path/"other").mkdir()
    (tmp_path/"other"/"mine.txt").write_text("x")
    with pytest.raises(InputError, match="holds other files"): write_styles(found, tmp_path/"other")


def test_the_command_runs_on_what_is_here(place, tmp_path, capsys):
    "No encoder is asked for: the embedded one, with a note; its untrained twin beside it, unless it is left out."
    words = ["styles", place/"made", "--real", place/"real", "--labels", place/"answers.csv", "--reps", 20]
    assert main([*map(str, words), "--out", str(tmp_path/"page"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["result"]
    assert answer["page"] == str(tmp_path/"page"/"index.html") and "weights of Inception are not here" in answer["notes"][0]
    metrics = {row["metric"] for row in answer["table"]}
    assert metrics == {"FID", "KID", "FID untrained", "KID untrained"} and len(answer["table"]) == 20
    assert {row["style"] for row in answer["styles"]} == {*STYLES}
    assert "--reps 20" in (page := (tmp_path/"page"/"index.html").read_text()) and "--out" in page
    assert main([*map(str, words), "--encoder", "embedded", "--no-control", "--layer", "stage2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["result"]
    assert {row["metric"] for row in answer["table"]} == {"FID", "KID"} and not answer["notes"] and "page" not in answer


def edited(place, tmp_path, change):
    frame = pd.read_csv(place/"answers.csv")
    change(frame).to_csv(tmp_path/"answers.csv", index=False)
    return ["styles", place/"made", "--real", place/"real", "--labels", tmp_path/"answers.csv"]


@pytest.mark.parametrize("change, word", [
    (lambda f: f[f["evaluator"] == 3], "all labels are from 3"), (lambda f: pd.concat([f, f.head(1)]), "labeled clean/i0 twice"),
    (lambda f: pd.concat([f, f.head(1).assign(input="i9")]), "no pictures of 1 inputs: i9"),
    (lambda f: pd.concat([f, f.head(1).assign(style="blue")]), "1 styles have labels but no pictures: blue")])
def test_labels_that_do_not_fit_are_refused_in_one_line(place, tmp_path, capsys, change, word):
    assert main([*map(str, edited(place, tmp_path, change))]) == 2
    said = capsys.readouterr().err.strip()
    assert word in said and "\n" not in said


def test_pictures_that_do_not_fit_are_refused_in_one_line(place, tmp_path, capsys):
    "A style without an input, and a picture of another size; real pictures of another size are only noted."
    import shutil
    shutil.copytree(place, tmp_path/"all")
    words = ["styles", tmp_path/"all"/"made", "--real", tmp_path/"all"/"real", "--labels", tmp_path/"all"/"answers.csv", "--reps", 5]
    picture = tmp_path/"all"/"made"/"dark"/"i2.png"
    Image.open(picture).resize((32, 24)).save(picture)
    assert main([*map(str, words)]) == 2
    assert "style dark: i2 has 24×32 pixels, and 24×24 in style" in capsys.readouterr().err
    picture.unlink()
    assert main([*map(str, words)]) == 2
    assert "style dark lacks 1 of 6 inputs: i2" in capsys.readouterr().err
    for path in (place/"real").iterdir(): Image.open(path).resize((40, 40)).save(tmp_path/"all"/"real"/path.name)
    shutil.copy(place/"made"/"dark"/"i2.png", picture)
    found = style_study(*words[1:2], words[3], words[5], reps=5, control=False)
    assert any("real pictures have other sizes (40×40)" in note for note in found.notes)
