"""forebay.run and forebay.plan: the packaged program, and what it prints as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _forebay
from ._settings import config_of, settings_of

TYPE_CHECKING = False  # typing alone takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any


def program() -> str:
    """Where the `forebay` program of this installation is."""
    named = os.environ.get("FOREBAY_PROGRAM")
    if named:
        return named
    import shutil
    import sysconfig

    beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (sysconfig.get_path("scripts"), os.path.join(beside, "bin")):
        path = os.path.join(folder, "forebay")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("forebay")
    if not found:
        raise _forebay.MissingError("the program 'forebay' is not beside this package and not on "
                                    "PATH: install the package again with pip")
    return found


def _raise(error: Mapping[str, Any]) -> None:
    status = str(error.get("status", ""))
    name = "".join(part.capitalize() for part in status.split("_")) + "Error"
    raised = getattr(_forebay, name, _forebay.Error)(error.get("message", status))
    raised.place = error.get("place") or ""
    raise raised


def _result(command: list[str], done: Any) -> dict[str, Any]:
    import json

    try:
        result = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines()
        raise _forebay.Error(f"{' '.join(command)} exited with {done.returncode} and no JSON: "
                             f"{said[-1] if said else 'it said nothing'}") from None
    if done.returncode and isinstance(result, dict) and "error" in result:
        _raise(result["error"])
    return result


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """A dict of sections as dotted keys. As a file it would move what relative paths start from."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": item for name, item in value.items()})
        else:
            flat[str(key)] = value
    return flat


def _command(name: str, config: Any, settings: Mapping[str, Any] | None, options: list[str],
             overrides: Mapping[str, Any]) -> dict[str, Any]:
    import subprocess

    command = [program(), name, *options]
    if isinstance(config, Mapping):
        settings = {**_flat(config), **(settings or {})}
    elif config is not None:
        command.append(config_of(config)[0] or "")
    for setting in settings_of(settings, overrides):
        command += ["--set", setting]
    command.append("--json")
    return _result(command, subprocess.run(command, capture_output=True, text=True,
                                           errors="backslashreplace"))


def run(config: str | os.PathLike | Mapping[str, Any] | None = None, /, *,
        epochs: int | None = None, steps: int | None = None,
        settings: Mapping[str, Any] | None = None, **overrides: Any) -> dict[str, Any]:
    """What `forebay run CONFIG --json` prints, as a dict; keywords as for forebay.Loader."""
    options: list[str] = []
    if epochs is not None:
        options += ["--epochs", str(epochs)]
    if steps is not None:
        options += ["--steps", str(steps)]
    return _command("run", config, settings, options, overrides)


def plan(config: str | os.PathLike | Mapping[str, Any] | None = None, /, *,
         settings: Mapping[str, Any] | None = None, **overrides: Any) -> dict[str, Any]:
    """What `forebay plan CONFIG --json` prints, as a dict; keywords as for forebay.Loader."""
    return _command("plan", config, settings, [], overrides)
