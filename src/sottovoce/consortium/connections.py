"""Who may connect to a process of a consortium, and in whose name a message may come.

FLARE connects a site's process with those of its jobs over clear TCP on the loopback interface, where any local user
could impersonate a job or send commands. Here every such connection is FLARE's own mutual TLS, with the certificate of
the site and no other. On every connection, a message must carry the name of the party connected there; only the
connection to the server carries messages of others. Commands come from the server. A certificate that was revoked does
not connect.

All of it is settled in the process, so that no kit and no job can turn it off.
"""

import logging
from collections.abc import Container
from importlib import import_module
from typing import Any

from sottovoce.consortium.agreement import SERVER
from sottovoce.consortium.certificates import serial_in
from sottovoce.consortium.flare import flare
from sottovoce.errors import NetworkError

log = logging.getLogger(__name__)

INNER_SCHEME = "stcp"
INNER = {
    "internal": {"scheme": INNER_SCHEME, "resources": {"host": "localhost", "connection_security": "mtls"}},
    "allow_adhoc_conns": False,
}
"""FLARE's configuration of connections, in place of its file `comm_config.json`."""


def secure_connections(role: str, name: str, revoked: Container[int] = ()) -> None:
    """Let this process connect, and be connected to, as above.

    Parameters
    ----------
    role : of this process, as in `flare_hardening.ROLES`
    name : of the certificate that it has
    revoked : serial numbers of certificates that may not connect
    """
    use_inner_tls()
    admit_own_certificate(name)
    believe_who_is_connected(role)
    if role == "server":
        check_not_revoked(revoked)


def use_inner_tls() -> None:
    """Let FLARE's inner listener and connectors speak mutual TLS."""
    configurator = flare("fuel.f3.comm_config").CommConfigurator
    configurator._configuration, configurator._config_loaded = INNER, True


def admit_own_certificate(name: str) -> None:
    """Let only this site's own certificate connect to an inner listener."""
    manager = flare("fuel.f3.sfm.conn_manager")
    params, passive, error = (
        flare("fuel.f3.drivers.driver_params").DriverParams,
        manager.Mode.PASSIVE,
        manager.CommError,
    )
    update = manager.ConnManager.update_endpoint

    def update_known(self: Any, connection: Any, data: dict[str, Any]) -> None:
        connector = connection.conn.connector
        inner = connector.mode == passive and connector.params.get(params.SCHEME.value) == INNER_SCHEME
        peer = connection.conn.get_conn_properties().get(params.PEER_CN.value)
        if inner and peer != name:
            connection.conn.close()
            log.error("a process with the certificate of %r wanted to be one of this site's; refused", peer)
            raise error(error.BAD_DATA, "another certificate than this site's own; refused")
        update(self, connection, data)

    manager.ConnManager.update_endpoint = update_known


def believe_who_is_connected(role: str) -> None:
    """Drop a message in another's name than its connection's; the server's and a parent's connections carry all."""
    core = flare("fuel.f3.cellnet.core_cell")
    process = core.CoreCell.process_message
    above = {"server": frozenset[str](), "site": frozenset({SERVER})}.get(role)

    def process_believed(self: Any, endpoint: Any, connection: Any, app_id: Any, message: Any) -> Any:
        origin = str(message.get_header(core.MessageHeaderKey.ORIGIN, ""))
        if may_speak_for(endpoint.name, origin, above):
            return process(self, endpoint, connection, app_id, message)
        log.error("a message in the name of %r came from %r; dropped", origin, endpoint.name)
        return None

    core.CoreCell.process_message = process_believed


def may_speak_for(endpoint: str, origin: str, above: Container[str] | None) -> bool:
    """Whether a message of `origin` may come over the connection to `endpoint`; a job (`above` None) has parents only.

    Examples
    --------
    >>> may_speak_for("birch.job", "birch.job", frozenset()), may_speak_for("birch", "server", frozenset())
    (True, False)
    >>> may_speak_for("server", "birch", {"server"}), may_speak_for("ash.job", "server", {"server"})
    (True, False)
    """
    return above is None or endpoint in above or origin.partition(".")[0] == endpoint.partition(".")[0]


def check_not_revoked(revoked: Container[int]) -> None:
    """Let a server end every connection whose certificate was revoked."""
    grpc = import_module("grpc")  # comes with FLARE
    servicer = flare("fuel.f3.drivers.grpc_driver").Servicer
    stream = servicer.Stream

    def stream_valid(self: Any, requests: Any, context: Any) -> Any:
        for pem in context.auth_context().get("x509_pem_cert", ()):
            serial = serial_in(pem)
            if serial in revoked:
                log.error("the certificate %x was revoked, and wanted to connect; refused", serial)
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "this certificate was revoked")
        return stream(self, requests, context)

    servicer.Stream = stream_valid


def check_origin(origin: Any) -> None:
    """Refuse an order of anybody but the server."""
    if origin != SERVER:
        raise NetworkError(f"'{origin}' is not the server, and gives no orders")
