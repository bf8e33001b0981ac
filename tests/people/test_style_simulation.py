"Simulated raters with known eyesight, the choices of distances by hand, and the whole study."
import json

import numpy as np
import pandas as pd
import pytest
import torch

from commands import cli
from invariant_metrics.core import InputError, Signature, rng
from invariant_metrics.people.labeling import collect
from invariant_metrics.people.labels import read_labels
from invariant_metrics.people.style_drawing import save_picture
from invariant_metrics.people.style_simulation import Eyesight, fitted_eyesight, simulate_answers, style_choices
from invariant_metrics.people.styles import StyleAgreement


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    "A page of five styles of twelve pictures and twelve real ones, and how wrong each picture is."
    home, g = tmp_path_factory.mktemp("page"), rng(0, "page")
    wrong = {}
    for s in range(5):
        (home/f"generated/s{s}").mkdir(parents=True)
        for i in range(12):
            save_picture(torch.from_numpy(g.random((3, 4, 4))), home/f"generated/s{s}/i{i:02d}.png")
            wrong[f"s{s}", f"i{i:02d}"] = float(g.uniform(0, 1))
    (home/"real").mkdir()
    for i in range(12): save_picture(torch.from_numpy(g.random((3, 4, 4))), home/f"real/r{i:02d}.png")
    return collect(home, "realism", home/"page.html", evaluators=150, per_evaluator=20), wrong


@pytest.mark.parametrize("sensitivity", [0.0, 4.0, 8.0])
def test_planted_sensitivity_is_found_in_the_answers(page, sensitivity, tmp_path):
    made, wrong = page
    folder = simulate_answers(made.path, wrong, tmp_path/"answers", Eyesight(sensitivity, 2.0), seed=1)
    labels = read_labels(folder, made.path, least_right=0.0)
    frame = labels.frame
    assert labels.raters["kept"].all() and frame["rater"].str.startswith("simulated ").all()
    v = [0.0 if row.real else wrong[row.system, row.item] for row in frame.itertuples()]
    found = fitted_eyesight(frame["score"], np.array(v))
    assert found.sensitivity == pytest.approx(sensitivity, abs=.8) and found.belief == pytest.approx(2.0, abs=.5)
    assert frame.loc[frame["real"].astype(bool), "score"].mean() > .8 # real pictures have nothing wrong


def test_answers_repeat_and_unknown_pictures_are_named(page, tmp_path):
    made, wrong = page
    read = [{p.name: p.read_text() for p in simulate_answers(made.path, wrong, tmp_path/name, seed=seed).iterdir()} for name, seed in (("a", 3), ("b", 3), ("c", 4))]
    assert read[0] == read[1] != read[2] and len(read[0]) == 150
    with pytest.raises(InputError, match="no violation is known of 1 pictures: s0/i00"):
        simulate_answers(made.path, {k: v for k, v in wrong.items() if k != ("s0", "i00")}, tmp_path/"d")


def test_choices_by_hand():
    hype, fid = np.array([.6, .5, .1]), np.array([-2., -1., -3.])
    drawn = {("FID", "x"): np.array([[-2., -1, -3], [-1, -2, -3], [-2, -1, -3], [-3, -2, -1]])}
    both = {("FID", "x"): 0.0}
    found = StyleAgreement(("a", "b", "c"), hype, {("FID", "x"): fid}, both, {}, {}, .95, Signature.of(metric="x"), hype_drawn=np.tile(hype, (4, 1)), drawn=drawn)
    frame = style_choices(found, [.1, .3, .6]).set_index("metric")
    assert frame.loc["HYPE-Style", ["style", "place", "regret", "mean_regret", "right"]].tolist() == ["a", 1, 0, 0, 1]
    assert frame.loc["FID", ["style", "place"]].tolist() == ["b", 2]
    assert frame.loc["FID", ["regret", "mean_regret", "right"]].tolist() == pytest.approx([.2, (.2 + 0 + .2 + .5)/4, 1/4])


def test_the_command_takes_every_step_and_says_that_raters_are_simulated(tmp_path):
    words = "styles simulate --styles 5 --count 8 --floods 24 --raters 10 --reps 40 --out runs/s --format json".split()
    done = cli(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result, home = json.loads(done.stdout)["result"], tmp_path/"runs"/"s"
    assert result["raters"] == "simulated" and "simulated" in result["notes"][0] and len(result["truth"]) == 5
    page = (home/"index.html").read_text()
    assert "simulated raters" in page and " people find" not in page.lower() and "No person answered" in page
    assert json.loads((home/"run.json").read_text())["settings"]["raters"] == "10, simulated"
    assert {p.name for p in (home/"simulated-answers").iterdir()} == {f"simulated-{k:03d}.csv" for k in range(1, 11)}
    assert set(pd.read_csv(home/"choices.csv")["metric"]) >= {"HYPE-Style", "exact violation", "FID", "KID", "FID untrained"}
    again = cli("styles", str(home/"generated"), "--real", str(home/"real"), "--labels", str(home/"simulated-answers"), "--page", str(home/"page.html"), "--reps", "40", "--format", "json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    rows = {(row["metric"], row["layer"]): row["r"] for row in json.loads(again.stdout)["result"]["table"]}
    assert {(row["metric"], row["layer"]): row["r"] for row in result["table"] if row["metric"] != "exact violation"} == pytest.approx(rows, abs=1e-9)
    other = cli("styles", "simulate", "--styles", "6", "--out", "runs/s", cwd=tmp_path)
    assert other.returncode == 2 and "holds another run" in other.stderr and len(other.stderr.splitlines()) == 1
