"""Every change that is made to NVIDIA FLARE's own code, in one table.

FLARE has no options for what is changed here. The changes are written for one version of it (`flare.VERSION`), which
`flare` insists on; a test names that version and fails when the code that is replaced is another one.
"""

import sys
from collections.abc import Callable
from typing import Any

from sottovoce.consortium.flare import flare
from sottovoce.errors import SpecError

PATCHED: dict[str, str] = {
    "security.logging:said_of": "added: what others may learn of an error",
    "security.logging:secure_format_exception.__code__": "it writes exceptions into what is sent",
    "fuel.utils.config_factory:ConfigFactory.PyhoconLoader": "it reads files, addresses and the environment",
    "fuel.utils.config_factory:ConfigFactory.OmegaConfLoader": "the same",
    "fuel.utils.config_factory:ConfigFactory._fmt2Loader": "the loaders by format: a strict one of JSON is left",
    "fuel.utils.config:ConfigFormat.config_ext_formats": "which endings are configuration",
    "fuel.utils.config:ConfigFormat.extensions": "the same",
    "fuel.f3.cellnet.core_cell:CoreCell.register_request_cb": "it registers handlers of messages",
    "fuel.f3.streaming.byte_receiver:ByteReceiver.register_callback": "it registers handlers of streams",
    "private.fed.server.job_meta_validator:JobMetaValidator.validate": "it admits jobs at the server",
    "private.fed.client.admin:FedAdminAgent._dispatch_request": "it carries out a server's commands at a site",
    "fuel.utils.log_utils:configure_logging": "it writes four logs of a kit, as a file of the kit says",
    "fuel.utils.log_utils:apply_log_config": "a server's commands change logs by it",
    "app_common.job_launcher.process_launcher:ProcessJobLauncher.launch_job": "it starts the process of a job",
}
"""module:attribute, and what it is there for."""
FORBIDDEN = ("fuel_opt.utils.pyhocon_loader", "fuel_opt.utils.omegaconf_loader")
"""Modules of FLARE that cannot be imported any more."""


def patch(place: str, make: Callable[[Any], Any]) -> None:
    """Replace something of FLARE's by what `make` returns for it; `place` is one of `PATCHED`."""
    if place not in PATCHED:
        raise SpecError(f"'{place}' is no part of FLARE that may be replaced; add it to PATCHED, with the reason")
    owner, name = owner_of(place)
    setattr(owner, name, make(getattr(owner, name, None)))


def owner_of(place: str) -> tuple[Any, str]:
    """The module, class or function that has it, and by what name."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = flare(module)
    for part in owners:
        owner = getattr(owner, part)
    return owner, name


def forbid_modules() -> None:
    """Let every import of `FORBIDDEN` fail from now on."""
    for name in FORBIDDEN:
        sys.modules[f"nvflare.{name}"] = None  # type: ignore[assignment]
