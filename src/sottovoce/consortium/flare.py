"""The one door to NVIDIA FLARE: which version, and what to say where it is not installed."""

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from sottovoce.errors import SpecError

VERSION = "2.9.0"  # routing changed since 2.8.3, and our messages use it directly
SIMULATED = "SOTTOVOCE_KITS"
"""The environment variable with the folder of all kits, for FLARE's simulator, which has none of its own."""


def installed() -> str | None:
    """The installed version of FLARE, or None."""
    try:
        return version("nvflare")
    except PackageNotFoundError:
        return None


def flare(module: str) -> ModuleType:
    """A module of FLARE, of the one version that this package was tested with."""
    found = installed()
    if found is None:
        raise SpecError(
            "a consortium runs on NVIDIA FLARE, which is not installed; run: pip install 'sottovoce[flare]'"
        )
    if found != VERSION:
        raise SpecError(f"this version of sottovoce runs on nvflare {VERSION}, not {found}; install that one")
    return import_module(f"nvflare.{module}")


def simulated(cell: Any) -> bool:
    """Whether this is FLARE's simulator: its owner says so, and its processes have no certificates."""
    return SIMULATED in os.environ and not cell.supports_secure_messages()


def kit_of(workspace: Any, name: str, cell: Any) -> Path:
    """The folder of this process's kit. A job has no say in it: FLARE has, or the owner of a simulation."""
    return Path(os.environ[SIMULATED]) / name if simulated(cell) else Path(workspace.get_root_dir())
