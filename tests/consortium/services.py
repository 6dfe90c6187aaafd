"""Processes as a service manager or a container would run them: another user, a read-only root, no environment.

The command, the user's rights and the environment come from the files in `deploy/`. What Linux itself offers does the
rest (namespaces of mounts, processes and networks; `setpriv`; the unit's filter of system calls by libseccomp); neither
systemd nor a container engine is needed.
"""

import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
UNITS = ROOT / "deploy" / "systemd"
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
USER, STRANGER = 64123, 64124
"""Users without a name: of the services, and of someone else on the machine."""


def need(network=False):
    """Skip where this machine does not let us do what a service manager does."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "nsenter", "ip"))):
        pytest.skip("needs root, unshare, setpriv, nsenter and ip")
    tried = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        *(["--net"] if network else []),
        "mount",
        "-t",
        "tmpfs",
        "n",
        "/mnt",
    ]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not permit namespaces")


def unit(name):
    """The settings of a unit: lists of what follows every `Key=`."""
    found = {}
    for line in (UNITS / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


FILTER = """
import ctypes, os, sys
calls, families, line = sys.argv[1].split(","), [int(n) for n in sys.argv[2].split(",")], sys.argv[3:]
lib = ctypes.CDLL("libseccomp.so.2")
lib.seccomp_init.restype = ctypes.c_void_p

class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]

refuse, allow, equal = 0x00050000 | 1, 0x7FFF0000, 4
context = ctypes.c_void_p(lib.seccomp_init(refuse))
for name in calls:
    number = lib.seccomp_syscall_resolve_name(name.encode())
    if number >= 0 and name != "socket":
        assert lib.seccomp_rule_add_array(context, allow, number, 0, None) == 0, name
for family in families:
    only = (Compare * 1)(Compare(0, equal, family, 0))
    assert lib.seccomp_rule_add_array(context, allow, lib.seccomp_syscall_resolve_name(b"socket"), 1, only) == 0
assert lib.seccomp_load(context) == 0
os.execv(line[0], line)
"""
"""Allows these system calls, and sockets of these families, and nothing else; then it is the command."""


def members(group):
    """The system calls of systemd's groups."""
    found = set()
    for line in run("systemd-analyze", "syscall-filter", group).splitlines()[1:]:
        name = line.strip()
        if name and not name.startswith("#"):
            found |= members(name) if name.startswith("@") else {name}
    return found


def filtered(line, name="sottovoce@.service"):
    """The same command below the unit's filter of system calls and of families of addresses, where it can be made."""
    if not (shutil.which("systemd-analyze") and find_library("seccomp")):
        return line
    settings, calls = unit(name), set()
    for group in settings["SystemCallFilter"]:
        calls = calls - members(group[1:]) if group.startswith("~") else calls | members(group)
    families = [int(getattr(socket, each)) for each in settings["RestrictAddressFamilies"][0].split()]
    return [sys.executable, "-c", FILTER, ",".join(sorted(calls)), ",".join(map(str, families)), *line]


def instruction(name):
    """The last value of an instruction of the Containerfile; lists are JSON."""
    *_, last = re.findall(rf"^{name} (.*)$", CONTAINERFILE.read_text(), re.MULTILINE)
    return json.loads(last) if last.startswith("[") else last


def own(line):
    """The same command, of the environment that the tests run in."""
    program = Path(sys.executable).with_name("sottovoce")
    return [str(program), *line[1:]]


def systemd_line(kit, name="sottovoce@.service"):
    """What systemd runs for a kit, and in which environment."""
    settings = unit(name)
    line = shlex.split(settings["ExecStart"][0].replace("/var/lib/sottovoce/%i", str(kit)))
    assert line[0] == "/opt/sottovoce/bin/sottovoce"
    return filtered(own(line), name), dict(each.split("=", 1) for each in settings.get("Environment", []))


def container_line(kit):
    """What an engine runs for a kit, and in which environment."""
    line = [*instruction("ENTRYPOINT"), *instruction("CMD")]
    assert line[0] == "sottovoce"
    environment = dict(each.split("=", 1) for each in instruction("ENV").split() if not each.startswith("PATH="))
    return own([str(kit) if word == "/kit" else word for word in line]), environment


def needed():
    """What the interpreter reads, wherever it lies."""
    found = {Path(sys.base_prefix), Path(sys.prefix), ROOT / "src", *(Path(entry) for entry in sys.path if entry)}
    found = {path.resolve() for path in found if path.exists()} | {Path(sys.prefix).absolute()}
    return sorted(path for path in found if path != Path("/tmp") and not found & set(path.parents))


def closed(path):
    """The first folder above that other users may not enter; None where there is none."""
    above = [each for each in reversed(path.parents) if not stat.S_IMODE(each.stat().st_mode) & 0o001]
    return above[0] if above else None


def confined(line, environment, kit=None, user=USER, records=(), hosts=None, network=None, processes=False, options=""):
    """A command that runs `line` as a service: see the module.

    `/tmp` is its own and empty. Of the kit, `startup` and `local` are read-only, and the rest is not; all else is
    read-only. `hosts` takes the place of /etc/hosts.
    """
    kits = [] if kit is None else [kit]
    reads = [path for path in needed() if closed(path) or path.is_relative_to("/tmp")]
    keep = [*reads, *kits, *records]
    covers = {Path("/tmp")} | {closed(path) for path in needed() if closed(path)}
    script = ["set -e", "mount -t tmpfs none /mnt"]
    for i, path in enumerate(keep):
        script += [f"mkdir /mnt/{i}" if path.is_dir() else f"touch /mnt/{i}", f"mount --rbind {path} /mnt/{i}"]
    script += [f"mount -t tmpfs -o mode={1777 if str(cover) == '/tmp' else 755} none {cover}" for cover in covers]
    for i, path in enumerate(keep):
        script += [f"mkdir -p {path if path.is_dir() else path.parent}", *([] if path.is_dir() else [f"touch {path}"])]
        script += [f"mount --rbind /mnt/{i} {path}"]
    if hosts is not None:
        script += [f"cat > /mnt/hosts <<'END'\n127.0.0.1 localhost\n{hosts}\nEND", "chmod 644 /mnt/hosts"]
        script += ["mount --bind /mnt/hosts /etc/hosts"]
    for each in kits:
        for folder in (each / "startup", each / "local"):
            script += [f"mount --bind {folder} {folder}", f"mount -o remount,ro,bind {folder}"]
    script += [f"mount -o remount,ro,bind {path}" for path in reads]
    script += ["umount -l /mnt", "mount -o remount,ro,bind /"]
    given = " ".join(shlex.quote(f"{key}={value}") for key, value in environment.items())
    rights = f"setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    script += [f"cd {kits[0] if kits else '/'}", f"exec {rights} {options} env -i {given} {shlex.join(map(str, line))}"]
    enter = [] if network is None else ["nsenter", f"--net=/run/netns/{network}"]
    own = ["--pid", "--fork", "--mount-proc", "--kill-child"] if processes else []
    return [*enter, "unshare", "--mount", "--propagation", "private", *own, "sh", "-c", "\n".join(script)]


def run(*command):
    """What a command prints; it must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Networks:
    """Network namespaces: a relay's, and one for each site with a link to the relay alone; use it in a `with` block."""

    def __init__(self, mark, sites):
        self.relay, self.sites = f"{mark}-relay", {name: f"{mark}-{i}" for i, name in enumerate(sites, 1)}

    def __enter__(self):
        for name in (self.relay, *self.sites.values()):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for i, name in enumerate(self.sites.values(), 1):
            here, there = f"to{i}", "uplink"
            run("ip", "-n", name, "link", "add", there, "type", "veth", "peer", "name", here, "netns", self.relay)
            run("ip", "-n", name, "address", "add", f"10.213.{i}.2/30", "dev", there)
            run("ip", "-n", self.relay, "address", "add", f"10.213.{i}.1/30", "dev", here)
            run("ip", "-n", name, "link", "set", there, "up")
            run("ip", "-n", self.relay, "link", "set", here, "up")
        return self

    def __exit__(self, *_):
        for name in (self.relay, *self.sites.values()):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def address(self, site):
        """Where a site reaches the relay."""
        return f"10.213.{list(self.sites).index(site) + 1}.1"


def listening(network):
    """Ports that processes of a network namespace accept connections at, from elsewhere."""
    found = set()
    for file in ("tcp", "tcp6"):
        for line in run("nsenter", f"--net=/run/netns/{network}", "cat", f"/proc/net/{file}").splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            host, _, port = address.partition(":")
            local = host in ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
            if state == "0A" and not local:
                found.add(int(port, 16))
    return found


def block_with(word):
    """The lines of the guide's block of commands that has this word."""
    page = (ROOT / "docs" / "operations.md").read_text()
    (found,) = [block for block in re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if word in block]
    return [shlex.split(line, comments=True) for line in found.splitlines() if line.strip()]
