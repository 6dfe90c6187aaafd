"""Four sites as processes under FLARE's simulator, which has no certificates: FLARE encrypts nothing there.

It is the positive control of the sniffer in `test_provisioned.py`, and shows that our own envelopes suffice: the server
sees every one of them, and not one number of a vector.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sottovoce.consortium.job import ALLOWED, write_job
from sottovoce.node.envelope import INTRODUCES, MARK
from sottovoce.node.message import MAGIC
from sottovoce.node.store import Store
from sottovoce.run.result import Result

pytestmark = pytest.mark.slow
NAMES = ("ash", "birch", "cedar", "date")


def test_without_flare_s_encryption_a_server_still_sees_envelopes_only(small, cells, tmp_path):
    made = small(names=NAMES, graph="ring", rounds=12)
    kits = made.kits()
    (tmp_path / "kits" / "server" / "local").mkdir(parents=True)
    for file in ("consortium.toml", "schema.toml"):
        (tmp_path / "kits" / "server" / "local" / file).write_text((tmp_path / file).read_text())
    job = write_job(made.agreement, tmp_path / "job")
    workspace = tmp_path / "simulator"
    (workspace / "local").mkdir(parents=True)
    allowed = str([*ALLOWED["server"], *ALLOWED["site"]]).replace("'", '"')
    (workspace / "local" / "resources.json").write_text(f'{{"format_version": 2, "class_allow_list": {allowed}}}')
    sniffed = tmp_path / "hostile" / "sniffed"
    path = os.pathsep.join([str(Path(__file__).parent / "hostile"), *sys.path])
    names = ",".join(NAMES)
    line = ["-m", "nvflare.cli", "simulator", str(job), "-w", str(workspace), "-c", names, "-t", str(len(NAMES))]
    settings = {
        **os.environ,
        "PYTHONPATH": path,
        "HOSTILE": str(sniffed.parent),
        "SOTTOVOCE_KITS": str(tmp_path / "kits"),
    }
    done = subprocess.run([sys.executable, *line], env=settings, capture_output=True, text=True, timeout=240)
    results = {name: kit / "state" / "results" / "first" for name, kit in kits.items()}
    assert all(path.exists() for path in results.values()), done.stdout[-3000:] + done.stderr[-3000:]
    models = [Result.load(path).models for path in results.values()]
    assert all(np.array_equal(models[0], other) for other in models)
    seen = sniffed.read_bytes()
    assert seen.count(MARK) > 12 * len(NAMES) and INTRODUCES in seen and MAGIC not in seen
    outbox = Store(kits["ash"] / "state").load(made.agreement.run.digest).outbox
    assert outbox and not any(payload in seen for payload in outbox.values())
    assert not any(number.tobytes() in seen for model in models[0] for number in model)
