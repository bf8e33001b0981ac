"""Contested pairs: a folder of questions for people and the labeling page of it, both as printed."""
import json
import shlex

import pandas as pd
import pytest

from commands import cli


@pytest.mark.slow
def test_pairs_and_their_page_are_made_as_printed(tmp_path):
    made = cli("probe", "contested", "--out", "pairs", "--pairs", 6, "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    found, table = json.loads(made.stdout)["result"], pd.read_csv(tmp_path/"pairs"/"pairs.csv")
    asked = table[table["answer"].isna()]
    assert len(asked) == 6 and {*asked["first_system"]} == {"recoloring", "allowed-recoloring"} and not {*asked["second_system"]} & {*asked["first_system"]}
    assert all((tmp_path/"pairs"/name).exists() for name in [*table["first_image"], *table["second_image"]])
    words = shlex.split(found["command"])
    assert words[:3] == ["invariant-metrics", "agree", "collect"]
    page = cli(*words[1:], "--evaluators", 2, "--per-evaluator", 5, cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    html = (tmp_path/"pairs"/"page.html").read_text()
    assert "In which of the two pictures" in html and "desaturation" not in html and "recoloring" not in html
    again = cli("probe", "contested", "--out", "pairs", cwd=tmp_path)
    assert again.returncode == 2 and "holds pairs already" in again.stderr


def test_captions_beside_the_same_with_a_color_unsaid(tmp_path):
    made = cli("probe", "contested", "--of", "captions", "--out", "texts", "--pairs", 5, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    table = pd.read_csv(tmp_path/"texts"/"pairs.csv")
    assert len(table) == 5 and (table["first"].str.split().str.len() == table["second"].str.split().str.len() + 1).all()
    command = next(line for line in made.stdout.splitlines() if "agree collect" in line)
    assert cli(*shlex.split(command)[1:], "--evaluators", 2, "--per-evaluator", 2, cwd=tmp_path).returncode == 0
