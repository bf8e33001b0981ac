"""The study folders that the notebooks tell hold what the same settings plan today: size, grid, parts, systems, controls, tricks.
Those in OLDER were run before every system had a random control and before a baseline could have g's data: what they hold is of
today's plan, and these controls are not in it. Today colorization-full would be 915 trainings (380 are stored) and translation-full
910 (405), about 3 and 3.5 hours on two cores by the stored seconds; one of each that was trained again on another machine is apart
from the stored one in every measure, by less than the five seeds span, and 24 of each that the default studies trained again on the
machine of that time are equal to seven digits and more."""
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from invariant_metrics.studies.plan import item_ranges
from invariant_metrics.studies.tasks import make_plan
RESULTS = Path(__file__).parents[2]/"nbs"/"results"
OLDER = {"colorization-full", "translation-full"}
STORED = ["captioning", "captioning-full", "captioning-taggers", "colorization", "colorization-controls", "colorization-full", "translation", "translation-full", "multi30k"]


@pytest.mark.parametrize("folder", STORED)
def test_stored_study_is_what_its_settings_plan_today(folder):
    stored = json.loads((RESULTS/folder/"study.json").read_text())
    plan = make_plan(stored["settings"])
    systems = {name: list(invariants) for name, invariants in plan.systems.items()}
    trained = {*systems, *(f"+{name}" for names in plan.controls.values() for name in names)} - {"baseline"}
    want = dict(size=asdict(plan.size), alphas=list(plan.alphas), seeds=plan.seeds, tricks=list(plan.design.tricks),
                random_networks=plan.random_networks, select=plan.settings["select"])
    if not stored["settings"]["data"]: want["splits"] = {part: list(items) for part, items in item_ranges(plan.size).items()}
    assert {key: stored.get(key) for key in want} == want
    if folder in OLDER:
        assert stored["systems"].items() <= systems.items() and set(stored["chosen"]) < trained
    else:
        assert stored["systems"] == systems and set(stored["chosen"]) == trained
