"""Which metric notices when an output breaks what must not break? `im.score`, `im.probe` and `im.study` answer it from Python."""
import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

__version__ = "0.1.0"

_SURFACE = {"score": "scoring.score", "ranking": "scoring.score", "probe": "probe.images:color_probe", "study": "study.run", "rank": "ranking.run",
            "agree": "people.human", "power": "scoring.pilots:plan_systems", "styles": "people.styles:style_study",
            "TorchMetric": "scoring.torch_metric", "get_metric": "metrics.base", "metric_cards": "metrics.base",
            "paired_metric": "metrics.base", "single_metric": "metrics.base", "set_metric": "metrics.base",
            "Score": "core", "Scores": "scoring.score", "Signature": "core", "Interval": "core", "InputError": "core",
            "load_results": "files"}
__all__ = [*_SURFACE]


def __getattr__(name):
    "The names above, each loaded when it is first asked for, so that `import invariant_metrics` stays quick."
    if name not in _SURFACE: raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, its_name = _SURFACE[name].partition(":")
    return getattr(_import_module(f"{__name__}.{module}"), its_name or name)


def __dir__():
    "The names above, and the rooms that were imported; what begins with an underscore is ours, but for Python's own."
    return sorted(name for name in {*globals(), *_SURFACE} if not name.startswith("_") or name.endswith("__"))


class _Room(_ModuleType): # one with the name of a function above: `im.probe(...)` calls the function, `im.probe.images` is a module of the room
    @property
    def __wrapped__(self): # the function, also for `inspect.signature`
        return __getattr__(self.__name__.rpartition(".")[2])

    @property
    def __doc__(self): return self.__wrapped__.__doc__

    def __call__(self, *args, **options): return self.__wrapped__(*args, **options)


class _Package(_ModuleType):
    "Makes such a room callable when the import system puts it into the package under its name."
    def __setattr__(self, name, value):
        if name in _SURFACE and isinstance(value, _ModuleType): value.__class__ = _Room
        super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
