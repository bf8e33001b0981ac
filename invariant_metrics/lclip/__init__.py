"""The functions distill, supervise, study and export, with the words of the commands of this name, and the modules of the room."""
from .. import _surface

_SURFACE = {"distill": "compress", "supervise": "supervision", "study": "run_lclip:lclip_study", "export": "exported:export_lclip"}
__all__ = [*_SURFACE]
__getattr__, __dir__ = _surface(__name__, _SURFACE, globals(), _SURFACE)
