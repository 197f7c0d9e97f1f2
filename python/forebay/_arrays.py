"""From a Field of the extension to what the caller works with: NumPy, torch, DLPack.

NumPy and torch are imported when the first batch needs them, not before.
"""

from __future__ import annotations

import sys
import warnings

from . import _forebay

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _Face = tuple[Callable[..., Any], tuple | None, Callable[[Any], Any] | None]

_HOST = 1  # DLPack's code


def _bfloat16(numpy: Any) -> Any:
    """ml_dtypes' bfloat16 if that is loaded or installed; else uint16, said once."""
    try:
        import ml_dtypes
    except ImportError:
        warnings.warn(
            "NumPy has no bfloat16: these fields are given as uint16, the same bits. Install "
            "ml_dtypes, or use as_=\"torch\" or as_=\"dlpack\".",
            UserWarning, stacklevel=2)
        return numpy.dtype("uint16")
    return numpy.dtype(ml_dtypes.bfloat16)


def _to_numpy() -> _Face:
    """Arrays over the fields' own memory; each keeps what it needs alive."""
    import numpy

    kinds: list[Any] = []

    def other(field: Any) -> Any:
        if field.__dlpack_device__()[0] != _HOST:
            raise _forebay.BadUseError(
                "these batches lie in device memory, which NumPy cannot reach: use as_=\"torch\" "
                "or as_=\"dlpack\", or device.kind: host")
        if not kinds:
            kinds.append(_bfloat16(numpy))
        return numpy.ndarray(field.shape, kinds[0], field)

    dtypes = tuple(None if name == "bfloat16" else numpy.dtype(name) for name in _forebay.dtypes)
    return numpy.ndarray, dtypes, other


def import_torch(why: str) -> Any:
    """torch, or an error that says what needs it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{why} needs PyTorch, which is not installed here: pip install torch"
                          ) from error
    return torch


def _to_torch(pin: bool) -> _Face:
    """Tensors over the fields' own memory, or copies in torch's pinned memory."""
    torch = import_torch("pin=True" if pin else 'as_="torch"')
    # torch.from_dlpack asks about devices and streams first, in Python, which takes longer than the
    # tensor; a field's capsule needs none of that.
    from_dlpack = getattr(torch._C, "_from_dlpack", torch.from_dlpack)
    if not pin:
        return from_dlpack, None, None
    if not torch.cuda.is_available():
        raise _forebay.NoDeviceError(
            "pin=True: torch finds no CUDA device here, so there is no pinned memory to hand out; "
            "leave pin away on this machine")
    return lambda capsule: from_dlpack(capsule).pin_memory(), None, None


def face(as_: str, pin: bool) -> _Face | None:
    """What the extension's Loader.show() takes, so that it makes the caller's arrays of its Fields;
    None: the Fields are wanted."""
    if as_ not in ("numpy", "torch", "dlpack"):
        raise ValueError(f'as_ is "numpy", "torch" or "dlpack", not {as_!r}')
    if pin and as_ == "dlpack":
        raise ValueError('pin=True gives torch tensors: use it with as_="torch"')
    if pin or as_ == "torch":
        return _to_torch(pin)
    return _to_numpy() if as_ == "numpy" else None


def loaded(name: str) -> Any:
    """A module that the program has imported already, or None: nothing is imported for it."""
    return sys.modules.get(name)
