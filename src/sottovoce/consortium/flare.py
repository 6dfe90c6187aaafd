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
"""The environment variable that names the folder of all kits, for FLARE's simulator: it has no kits of its own."""


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


def kit_of(workspace: Any, name: str, simulated: bool) -> Path:
    """The folder of this process's kit. A job has no say in it: FLARE has, or the owner of a simulation."""
    if not simulated:
        return Path(workspace.get_root_dir())
    if SIMULATED not in os.environ:
        raise SpecError(f"under FLARE's simulator, {SIMULATED} must name the folder that holds the kits; set it")
    return Path(os.environ[SIMULATED]) / name
