"""The functions study, draw and table, with the words of the commands of this name, and the modules of the room."""
from .. import _surface

_SURFACE = {"study": "run_imagine:imagine_study", "draw": "drawing:imagine_draw", "table": "imagine_tables:imagine_table"}
__all__ = [*_SURFACE]
__getattr__, __dir__ = _surface(__name__, _SURFACE, globals(), _SURFACE)
