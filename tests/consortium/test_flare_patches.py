"""What is changed in FLARE is what it was when the changes were written: of one version, to the letter."""

import hashlib
import inspect

import pytest

from sottovoce.consortium import flare
from sottovoce.consortium.flare_patches import FORBIDDEN, PATCHED, owner_of, patch
from sottovoce.errors import SpecError

pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
WRITTEN_FOR = "2.9.0"
DIGESTS = {
    "security.logging:secure_format_exception.__code__": "c94bee3dde0b13e5",
    "fuel.utils.config_factory:ConfigFactory.PyhoconLoader": "41c89c144e9dcf50",
    "fuel.utils.config_factory:ConfigFactory.OmegaConfLoader": "41c89c144e9dcf50",
    "fuel.utils.config_factory:ConfigFactory._fmt2Loader": "41c89c144e9dcf50",
    "fuel.utils.config:ConfigFormat.config_ext_formats": "a0503bbec0364fa9",
    "fuel.utils.config:ConfigFormat.extensions": "dd6d30355f794109",
    "fuel.f3.cellnet.core_cell:CoreCell.register_request_cb": "98c19440abcb92a8",
    "fuel.f3.streaming.byte_receiver:ByteReceiver.register_callback": "7f7bd6599ae6f553",
    "private.fed.server.job_meta_validator:JobMetaValidator.validate": "4f89fc2e8266348b",
    "private.fed.client.admin:FedAdminAgent._dispatch_request": "529e1bddf08c3425",
    "fuel.utils.log_utils:configure_logging": "d7892c5105b70a44",
    "fuel.utils.log_utils:apply_log_config": "d36ed8133f40196f",
    "app_common.job_launcher.process_launcher:ProcessJobLauncher.launch_job": "6c9822f8937ffab0",
}
"""Of the source of what is replaced, or of the class that has it where it is no function, in nvflare 2.9.0."""


def digest(place):
    owner, name = owner_of(place)
    found = getattr(owner, name, None)
    source = inspect.getsource(found if inspect.isroutine(found) else owner)
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def test_the_changes_are_for_the_version_that_is_insisted_on():
    assert flare.VERSION == WRITTEN_FOR and flare.installed() == WRITTEN_FOR


@pytest.mark.parametrize("place", [place for place in PATCHED if not place.endswith(":said_of")])
def test_what_is_replaced_is_what_it_was(place):
    """Another digest: read what changed in FLARE, fix `flare_hardening.py`, and only then write it here."""
    assert digest(place) == DIGESTS[place]


def test_nothing_else_can_be_replaced():
    assert not hasattr(flare.flare("security.logging"), "said_of")  # it is added, and replaces nothing
    assert all(flare.flare(name.rpartition(".")[0]) for name in FORBIDDEN)
    with pytest.raises(SpecError, match="is no part of FLARE that may be replaced"):
        patch("security.logging:secure_log_traceback", lambda _: None)
