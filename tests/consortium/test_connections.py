"""FLARE's real cells, in processes of their own: a local user, another member and a revoked one get nowhere."""

import json
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from cryptography import x509

pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")

from sottovoce.consortium.connections import may_speak_for
from sottovoce.consortium.project import provision

CELL = """
import json, sys, time
from pathlib import Path
from nvflare.fuel.f3.cellnet.core_cell import CoreCell, FqcnInfo, Message, make_reply
from nvflare.fuel.f3.comm_config import CommConfigurator
CommConfigurator._configuration, CommConfigurator._config_loaded = None, True
folder, port = Path(sys.argv[1]), int(sys.argv[2])

def credentials(name, side="client"):
    return {"ca_cert": str(folder / "root.crt"), f"{side}_cert": str(folder / f"{name}.crt"),
            f"{side}_key": str(folder / f"{name}.key")}

def cell(fqcn, name, parent=None, side="client", clear=False, **more):
    made = CoreCell(fqcn=fqcn, root_url=None if parent else f"grpc://localhost:{port}", secure=not clear,
                    credentials={} if clear else credentials(name, side), parent_url=parent,
                    parent_resources={"connection_security": "clear" if clear else "mtls"} if parent else None,
                    auth_identity_map={"server": "localhost", "ash": "ash", "birch": "birch"},
                    **{"create_internal_listener": False, **more})
    made.start()
    return made

def orders(cell):
    cell.register_request_cb("admin", "*", lambda message: make_reply("ok", body="obeyed"))
"""
SERVER = """
from sottovoce.consortium.connections import secure_connections
secure_connections("server", "localhost", {int(sys.argv[3])})
made = cell("server", "localhost", side="server")
orders(made)
print("ready", flush=True)
time.sleep(600)
"""
SITE = """
from sottovoce.consortium.connections import secure_connections
secure_connections("site", "ash")
made = cell("ash", "ash", create_internal_listener=True)
orders(made)
print(made.get_internal_listener_url(), flush=True)
time.sleep(600)
"""
PROBE = """
url = sys.argv[3]
found = {}

def ask(name, cell, target="ash", origin=None, patience=4.0):
    until = time.monotonic() + patience
    if origin is not None:
        time.sleep(2.0)
        cell.my_info = FqcnInfo(origin)
    while time.monotonic() < until:
        reply = cell.send_request("admin", "train.abort", target, Message({}, None), 2.0, optional=True)
        if reply.payload == "obeyed":
            break
        time.sleep(0.2)
    found[name] = reply.payload == "obeyed"

plain = url.replace("stcp://", "tcp://")
ask("a local user without a certificate", cell("ash.a", None, plain, clear=True))
ask("another member as a job of this site", cell("ash.b", "birch", url))
ask("another member as its own job", cell("birch.c", "birch", url))
ask("this site's job", cell("ash.d", "ash", url), patience=30.0)
birch = cell("birch", "birch")
ask("a member at the server", birch, target="server", patience=30.0)
ask("a member in the server's name", birch, origin="server")
ask("a revoked member", cell("cedar", "cedar"), target="server")
print(json.dumps(found), flush=True)
import os
os._exit(0)
"""


@pytest.fixture(scope="module")
def certificates(small_at, tmp_path_factory):
    """Provisioned ones, by name, in one folder; and the serial number of the last."""
    folder = tmp_path_factory.mktemp("connections")
    made = small_at(folder, rounds=2)
    kits = provision(made.agreement, folder / "consortium.toml", folder / "kits")
    for name in (made.agreement.host, *made.names):
        for ending in ("crt", "key"):
            path = next((kits[name] / "startup").glob(f"*.{ending}"))
            shutil.copyfile(path, folder / f"{name}.{ending}")
    shutil.copyfile(kits["ash"] / "startup" / "rootCA.pem", folder / "root.crt")
    return folder, x509.load_pem_x509_certificate((folder / "cedar.crt").read_bytes()).serial_number


@contextmanager
def running(program, *arguments):
    """A process, and the last line that it says before it waits."""
    line = [sys.executable, "-c", CELL + program, *map(str, arguments)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline().strip()
            if not said:
                pytest.fail(process.stderr.read()[-3000:])
            yield said
        finally:
            process.kill()


def test_nobody_but_the_server_and_the_site_s_own_job_is_heard(certificates):
    folder, revoked = certificates
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    with running(SERVER, folder, port, revoked), running(SITE, folder, port) as url:
        assert url.startswith("stcp://localhost:")
        with running(PROBE, folder, port, url) as said:
            assert json.loads(said) == {
                "a local user without a certificate": False,
                "another member as a job of this site": False,
                "another member as its own job": False,
                "this site's job": True,
                "a member at the server": True,
                "a member in the server's name": False,
                "a revoked member": False,
            }


@pytest.mark.parametrize("origin", ["server", "birch", "ash.job", "birch.job"])
def test_over_a_member_s_connection_come_its_own_messages_alone(origin):
    assert may_speak_for("birch", origin, frozenset()) == may_speak_for("birch.x", origin, {"server"})
    assert may_speak_for("birch", origin, frozenset()) == origin.startswith("birch")
    assert may_speak_for("server", origin, {"server"}) and may_speak_for("ash", origin, None)
