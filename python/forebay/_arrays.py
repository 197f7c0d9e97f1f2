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

    Convert = Callable[[dict], dict]


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


def to_numpy() -> Convert:
    """Arrays over the fields' own memory; each keeps what it needs alive."""
    import numpy

    asarray = numpy.asarray
    kinds: dict[str, Any] = {}

    def convert_bfloat16(field: Any) -> Any:
        if "bfloat16" not in kinds:
            kinds["bfloat16"] = _bfloat16(numpy)
        return asarray(field).view(kinds["bfloat16"])

    def convert(fields: dict) -> dict:
        try:
            return {name: convert_bfloat16(field) if field.dtype == "bfloat16" else asarray(field)
                    for name, field in fields.items()}
        except BufferError as error:
            raise _forebay.BadUseError(
                "these batches lie in device memory, which NumPy cannot reach: use as_=\"torch\" "
                "or as_=\"dlpack\", or device.kind: host") from error

    return convert


def import_torch(why: str) -> Any:
    """torch, or an error that says what needs it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{why} needs PyTorch, which is not installed here: pip install torch"
                          ) from error
    return torch


def to_torch(pin: bool = False) -> Convert:
    """Tensors over the fields' own memory, or copies in torch's pinned memory."""
    torch = import_torch("pin=True" if pin else 'as_="torch"')
    # torch.from_dlpack asks about devices and streams first, in Python, which takes longer than the
    # tensor; a field's capsule needs none of that.
    from_dlpack = getattr(torch._C, "_from_dlpack", torch.from_dlpack)
    if not pin:
        return lambda fields: {name: from_dlpack(field.__dlpack__())
                               for name, field in fields.items()}
    if not torch.cuda.is_available():
        raise _forebay.NoDeviceError(
            "pin=True: torch finds no CUDA device here, so there is no pinned memory to hand out; "
            "leave pin away on this machine")
    return lambda fields: {name: from_dlpack(field.__dlpack__()).pin_memory()
                           for name, field in fields.items()}


def converter(as_: str, pin: bool) -> Convert:
    """What turns the extension's dict of Fields into the caller's dict of arrays."""
    if as_ not in ("numpy", "torch", "dlpack"):
        raise ValueError(f'as_ is "numpy", "torch" or "dlpack", not {as_!r}')
    if pin:
        if as_ == "dlpack":
            raise ValueError('pin=True gives torch tensors: use it with as_="torch"')
        return to_torch(pin=True)
    if as_ == "torch":
        return to_torch()
    if as_ == "dlpack":
        return lambda fields: fields
    return to_numpy()


def loaded(name: str) -> Any:
    """A module that the program has imported already, or None: nothing is imported for it."""
    return sys.modules.get(name)
