"The study folders that the notebooks tell hold what today's command would train: size, grid, systems, controls, tricks, signatures."
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from invariant_metrics.studies.plan import item_ranges
from invariant_metrics.studies.tasks import make_plan
RESULTS = Path(__file__).parents[2]/"nbs"/"results"
STORED = ["captioning", "captioning-full", "colorization", "colorization-full", "translation", "translation-full", "multi30k"]


@pytest.mark.parametrize("folder", STORED)
def test_stored_study_is_what_its_settings_plan_today(folder):
    stored = json.loads((RESULTS/folder/"study.json").read_text())
    plan = make_plan(stored["settings"])
    controls = [f"+{name}" for names in plan.controls.values() for name in names]
    want = dict(size=asdict(plan.size), alphas=list(plan.alphas), seeds=plan.seeds, systems={k: list(v) for k, v in plan.systems.items()},
                tricks=list(plan.design.tricks), random_networks=plan.random_networks, select=plan.settings["select"])
    if not stored["settings"]["data"]: want["splits"] = {k: list(v) for k, v in item_ranges(plan.size).items()}
    assert {key: stored.get(key) for key in want} == want
    assert set(stored["chosen"]) == {*plan.systems, *controls} - {"baseline"}
