"""From what the caller wrote to what forebay_open takes: a file or a text, and key=value settings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _forebay

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    _UNITS[_letter + "b"] = 1000**_power
    _UNITS[_letter + "ib"] = 1024**_power


def parse_size(size: int | float | str) -> int:
    """Bytes: a number, or text as in the configuration ("12GiB" of 1024, "50GB" of 1000)."""
    if isinstance(size, bool) or not isinstance(size, (int, float, str)):
        raise TypeError(f"a size is a number of bytes or text like '12GiB', not {size!r}")
    if isinstance(size, str):
        number = size.strip().rstrip("kmgtibKMGTIB")
        unit = _UNITS.get(size.strip()[len(number):].lower())
        number = number.rstrip()
        if unit is None or not (number.isascii() and number.replace(".", "", 1).isdigit()):
            raise ValueError(f"{size!r} is no size: write a number and B, KB, MB, GB, TB (powers of "
                             "1000) or KiB, MiB, GiB, TiB (powers of 1024)")
        return int(float(number) * unit) if "." in number else int(number) * unit
    if size < 0:
        raise ValueError(f"a size cannot be negative: {size!r}")
    return int(size)


def setting_text(value: Any) -> str:
    """A value as `--set key=value` takes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return _path_text(value)
    return json_text(value)


def json_text(value: Any) -> str:
    """As JSON, which is also YAML."""
    import json

    return json.dumps(plain(value))


def _path_text(path: os.PathLike) -> str:
    text = os.fspath(path)
    return os.fsdecode(text) if isinstance(text, bytes) else text


def plain(value: Any) -> Any:
    """The same value out of JSON's types: paths become text, tuples lists, NumPy's numbers plain."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return _path_text(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a configuration cannot hold {value!r}")


def key_of(name: str) -> str:
    """The configuration's key for a keyword; `cpu__share` is a way to write cpu.share."""
    return _forebay.key_of(name) or name.replace("__", ".")


def settings_of(settings: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """All overrides as `key=value`, the explicit settings first. None means: not given."""
    pairs = [(str(key), value) for key, value in (settings or {}).items()]
    for name, value in overrides.items():
        if value is None:
            continue
        pairs.append((key_of(name), value))
    return tuple(f"{key}={setting_text(value)}" for key, value in pairs)


def config_of(config: Any) -> tuple[str | None, str | None]:
    """(file, text) for forebay_open."""
    if config is None:
        return None, None
    if isinstance(config, Mapping):
        return None, json_text(config)
    if isinstance(config, (str, os.PathLike)):
        return _path_text(config) if isinstance(config, os.PathLike) else config, None
    raise TypeError(f"a configuration is the path of a YAML file or a dict, not {config!r}")
