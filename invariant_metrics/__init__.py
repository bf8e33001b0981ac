"""Which metric notices when an output breaks what must not break? `im.score`, `im.probe` and `im.study` answer it from Python."""
import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

__version__ = "0.1.0"

_SURFACE = {"score": "scoring.score", "ranking": "scoring.score", "probe": "probe.run:run_probe", "study": "study.run", "rank": "ranking.run",
            "probe_encoder": "probe.encoders", "agree": "people.human", "power": "scoring.pilots:plan_systems", "advise": "advice.run", "styles": "people.styles:style_study",
            "edit_sheet": "people.edit_sheets", "edit_readings": "people.edit_sheets", "edit_cards": "people.edit_sheets",
            "TorchMetric": "scoring.torch_metric", "get_metric": "metrics.base", "metric_cards": "metrics.base",
            "paired_metric": "metrics.base", "single_metric": "metrics.base", "set_metric": "metrics.base",
            "Score": "core", "Scores": "scoring.score", "Signature": "core", "Interval": "core", "InputError": "core",
            "load_results": "files"}
_ROOMS = {"lclip": {"distill": "distill", "study": "run:lclip_study", "supervise": "supervise", "export": "export:export_lclip"},
          "imagine": {"study": "run:imagine_study", "draw": "draw:imagine_draw", "table": "tables:imagine_table"}} # with a surface of their own
__all__ = [*_SURFACE, *_ROOMS]


def _load(package, where, name):
    module, _, its_name = where.partition(":")
    return getattr(_import_module(f"{package}.{module}"), its_name or name)


def __getattr__(name):
    "The names above, each loaded when it is first asked for, so that `import invariant_metrics` stays quick."
    if name in _ROOMS: return _import_module(f"{__name__}.{name}")
    if name not in _SURFACE: raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(__name__, _SURFACE[name], name)


def __dir__():
    "The names above, and the rooms that were imported; what begins with an underscore is ours, but for Python's own."
    return sorted(name for name in {*globals(), *_SURFACE, *_ROOMS} if not name.startswith("_") or name.endswith("__"))


class _Room(_ModuleType): # one with the name of a function above: `im.probe(...)` calls the function, `im.probe.images` is a module of the room
    @property
    def __wrapped__(self): # the function, also for `inspect.signature`
        package, _, name = self.__name__.rpartition(".")
        return _sys.modules[package].__getattr__(name)

    @property
    def __doc__(self): return self.__wrapped__.__doc__

    def __call__(self, *args, **options): return self.__wrapped__(*args, **options)


class _Front(_ModuleType): # a room with a surface of its own: `im.lclip.distill(...)` calls the function, whether its module is open or not
    @property
    def __all__(self): return [*_ROOMS[self.__name__.rpartition(".")[2]]]

    @property
    def __doc__(self): return f"The functions {', '.join(self.__all__)}, with the words of the commands of this name, and the modules of the room."

    def __getattr__(self, name):
        surface = _ROOMS[self.__name__.rpartition(".")[2]]
        if name not in surface: raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _load(self.__name__, surface[name], name)

    def __setattr__(self, name, value):
        if name in self.__all__ and isinstance(value, _ModuleType): value.__class__ = _Room
        super().__setattr__(name, value)

    def __dir__(self): return sorted(name for name in {*self.__dict__, *self.__all__} if not name.startswith("_") or name.endswith("__"))


class _Package(_ModuleType):
    "Makes such rooms callable, or gives them their surface, when the import system puts them into the package under their names."
    def __setattr__(self, name, value):
        if name in _SURFACE and isinstance(value, _ModuleType): value.__class__ = _Room
        if name in _ROOMS and isinstance(value, _ModuleType): value.__class__ = _Front
        super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
