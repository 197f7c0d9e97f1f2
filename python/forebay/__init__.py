"""forebay: a training data loader that never exceeds its memory budget. Linux only.

>>> loader = forebay.Loader("train.yaml", memory="12GiB")
>>> for batch in loader:
...     batch["points"]        # field -> array

Every error is a subclass of forebay.Error.
"""

from __future__ import annotations

from . import _forebay
from ._forebay import Error
from .loader import Budget, ForebayWarning, Loader
from .monitor import MemoryMonitor
from .program import plan, run

__version__ = _forebay.version

# Imported when they are asked for: they bring nothing that a plain Loader needs.
_LATER = {"Cached": "cached", "DataLoader": "dataloader", "DeviceLoader": "device", "DeviceDataset": "device",
          "retry_on_oom": "device"}

# The exceptions are made from the statuses of forebay.h, so the list is there.
_ERRORS = [name for name in dir(_forebay) if name.endswith("Error") and name != "Error"]
globals().update({name: getattr(_forebay, name) for name in _ERRORS})

__all__ = ["Budget", "Error", "ForebayWarning", "Loader", "MemoryMonitor", "plan", "run",
           *_ERRORS, *_LATER]


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module

        value = getattr(import_module("." + _LATER[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
