"""Which metric notices when an output breaks what must not break? `im.score`, `im.probe` and `im.study` answer it from Python."""
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

__version__ = "0.1.0"

_SURFACE = {"score": "scoring.score", "ranking": "scoring.score", "probe": "probes.run_probe:run_probe", "study": "studies.run_study",
            "rank": "rankings.run_ranking", "probe_encoder": "probes.encoders", "judge_faults": "probes.judge_faults", "agree": "people.human", "power": "scoring.pilots:plan_systems",
            "advise": "advice.run_advice", "styles": "people.styles:style_study",
            "edit_sheet": "people.edit_sheets", "edit_readings": "people.edit_sheets", "edit_cards": "people.edit_sheets",
            "TorchMetric": "scoring.torch_metric", "get_metric": "metrics.metric", "metric_cards": "metrics.metric",
            "paired_metric": "metrics.metric", "single_metric": "metrics.metric", "set_metric": "metrics.metric", "text_metric": "metrics.metric",
            "Score": "core", "Scores": "scoring.score", "Signature": "core", "Interval": "core", "InputError": "core",
            "ask_for": "metrics.exchange", "load_results": "files", "lclip": "", "imagine": ""} # the last two are rooms with a surface of their own
_OF_NETWORKS = ("study", "rank", "probe_encoder", "advise", "styles", "TorchMetric") # what rests on torch, an extra
__all__ = [*_SURFACE]


def _surface(package, places, there, of_networks):
    """`__getattr__` and `__dir__` of a package whose names are each loaded when first asked for, so that importing it stays quick; without
    torch, what rests on it says what to install, and `dir` and `help` leave it out."""
    told = set()

    def load(name):
        if name not in places: raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, its_name = places[name].partition(":")
        if not module: return _import_module(f"{package}.{name}")
        core = _import_module("invariant_metrics.core")
        use = f"{package}.{name}".replace("invariant_metrics", "im", 1)
        with core.needed_by(use, core.COMMAND_EXTRAS.get(use.split(".")[1], "images")):
            found = getattr(_import_module(f"{package}.{module}"), its_name or name)
        if id(found) not in told and hasattr(found, "__qualname__"): # what stands in comments beside its parameters is for `help` as well
            found.__doc__ = _import_module("invariant_metrics.signatures").described(found)
            told.add(id(found))
        return found

    def names():
        absent = of_networks if _find_spec("torch") is None else ()
        return sorted(name for name in {*there, *places} - {*absent} if not name.startswith("_") or name.endswith("__"))
    return load, names


__getattr__, __dir__ = _surface(__name__, _SURFACE, globals(), _OF_NETWORKS)
