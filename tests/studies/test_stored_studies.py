"""The study folders that the notebooks tell hold what the same settings plan today: size, grid, parts, systems, controls, tricks.
Those in OLDER were run when a full grid had ten random networks in the place of one invariant, and none of the other controls: what they
hold is of today's plan with that number. What colorization-draws shares with colorization-full, which is of today's code, is equal to the last
digit (asserted in nbs/papers/00). translation-full would be 175 trainings today, about forty minutes on two cores by the stored seconds; the 24
that the default study trained again on the same machine are equal to seven digits and more."""
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from invariant_metrics.studies.plan import item_ranges
from invariant_metrics.studies.tasks import make_plan
RESULTS = Path(__file__).parents[2]/"nbs"/"results"
OLDER = {"colorization-draws", "translation-full"}
STORED = ["captioning", "captioning-full", "captioning-taggers", "colorization", "colorization-controls", "colorization-draws", "colorization-full",
          "translation", "translation-full", "multi30k"]


@pytest.mark.parametrize("folder", STORED)
def test_stored_study_is_what_its_settings_plan_today(folder):
    stored = json.loads((RESULTS/folder/"study.json").read_text())
    asked = {"random_networks": stored["random_networks"]} if folder in OLDER else {}
    plan = make_plan(stored["settings"] | asked)
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
