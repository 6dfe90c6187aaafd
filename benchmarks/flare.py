"""Exchanges a second over FLARE, mutual TLS and end-to-end encryption on loopback, beside a bare Executor's.

    python benchmarks/flare.py [FEATURES]

Two deployments run, sequentially and twice in turn: under FLARE's own programs a bare Executor that only
averages vectors along the same schedule, and ours, behind its gates, which also draws noise, steps, seals, and writes
every round to the disk before it is sent. Sites are handed a task up to a second apart, so the bare time is that of the
site which began last, and ours is counted between rounds. TMPDIR says on which disk.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file

from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.check import Trial
from sottovoce.consortium.job import write_job
from sottovoce.consortium.process import PROGRAMS
from sottovoce.consortium.project import STARTUP, provision
from sottovoce.consortium.submit import COMPLETED, administrator
from sottovoce.node.budget import Budget
from sottovoce.node.store import Store

SITES = ("ash", "birch", "cedar", "date")
RECORDS, ROUNDS = 20, 800
AGREEMENT = """
name = "bench"
run = "bench"
schedule_seed = 1
[server]
host = "localhost"
port = {port}
[admin]
email = "lead@example.org"
org = "bench"
{sites}
[network]
activation = "edges(1)"
[algorithm]
rounds = {rounds}
[privacy]
epsilon = 8.0
sampling = "full"
"""


def prepare(folder: Path, features: int, port: int):
    folder.mkdir()
    schema = f'features = {features}\nfirst_index = 1\nrow_norm = 1.0\n[label]\ncolumn = "y"\nclasses = [-1, 1]\n'
    (folder / "schema.toml").write_text(schema)
    sites = "".join(f'[sites.{name}]\norg = "bench"\nrecords = {RECORDS}\n' for name in SITES)
    (folder / "consortium.toml").write_text(AGREEMENT.format(sites=sites, rounds=ROUNDS, port=port))
    agreement = read_agreement(folder / "consortium.toml")
    kits = provision(agreement, folder / "consortium.toml", folder / "kits")
    rng = np.random.default_rng(0)
    for name in SITES:
        X = rng.normal(size=(RECORDS, features)) / np.sqrt(features)
        dump_svmlight_file(X, rng.choice([-1, 1], RECORDS), str(folder / f"{name}.svm"), zero_based=False)
    return agreement, kits


def start_bare(trial: Trial, name: str, kit: Path, paths: dict[str, str]) -> None:
    """FLARE's own program, without our filter, of a kit whose jobs may start the bare classes."""
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text())
    resources["class_allow_list"].append("bare_flare.")
    path.write_text(json.dumps(resources))
    role = "site" if name in SITES else "server"
    line = [sys.executable, "-u", "-m", PROGRAMS[role], "-m", str(kit), "-s", STARTUP[role], "--set"]
    line += ["secure_train=true", "org=bench", "config_folder=config", *([f"uid={name}"] if role == "site" else [])]
    trial.start(name, environment=paths, line=line)


def settle(kits, folder: Path, turn: int) -> None:
    """A fresh state folder for every turn: a finished run would not be run again."""
    for name in SITES:
        source = f'dataset = "records"\nstate = "../state{turn}"\nfile = "{folder}/{name}.svm"\n'
        (kits[name] / "local" / "site.toml").write_text(source)
        store = Store(kits[name] / f"state{turn}")
        store.set_budget(Budget(8.0, 1e-5).detail("records"))
        store.close()


def bare_job(agreement, folder: Path, mode: str) -> Path:
    job = write_job(agreement, folder)
    config = job / "app" / "config"
    server = {"id": "bare", "path": "bare_flare.BareController", "args": {}}
    site = {"tasks": ["*"], "executor": {"path": "bare_flare.BareExecutor", "args": {"mode": mode}}}
    (config / "config_fed_server.json").write_text(json.dumps({"format_version": 2, "workflows": [server]}))
    (config / "config_fed_client.json").write_text(json.dumps({"format_version": 2, "executors": [site]}))
    return job


def finish(admin, job: str) -> None:
    last = [status.state for status in admin.follow(job)][-1]
    if last != COMPLETED:
        sys.exit(f"the job ended as {last}")


def rounds_a_second(admin: Any, job: str) -> float:
    """Of the slowest site, by what it shows on the way: how long a run took is kept nowhere."""
    seen: list[tuple[float, int]] = []
    for status in admin.follow(job, every=0.5):
        if len(status.progress) == len(SITES):
            seen.append((time.monotonic(), min(row["round"] for row in status.progress.values())))
    assert status.state == COMPLETED, status
    (begun, first), *_, (ended, last) = [(at, done) for at, done in seen if 0 < done < ROUNDS]
    return (last - first) / (ended - begun)


def main() -> None:
    features = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    here = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        agreement, kits = prepare(folder / "ours", features, 8112)
        plain, bare_kits = prepare(folder / "bare", features, 8122)
        exchanges = int(agreement.run.plan.schedule.up_to()[-1]) / 2
        paths = {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
        rates: dict[str, list[float]] = {"bare, aux": [], "bare, cell": [], "sottovoce": []}
        with Trial(kits, folder / "logs") as trial, Trial(bare_kits, folder / "bare-logs") as bare_trial:
            settle(kits, folder / "ours", 0)
            trial.start(agreement.host, *SITES)
            for name in (plain.host, *SITES):
                start_bare(bare_trial, name, bare_kits[name], paths)
            with (
                administrator(kits[agreement.admin], patience=120) as admin,
                administrator(bare_kits[plain.admin], patience=120) as bare_admin,
            ):
                while admin.missing() or bare_admin.missing():
                    time.sleep(0.3)
                for turn in range(2):
                    for mode in ("aux", "cell"):
                        job = bare_job(plain, folder / f"{mode}{turn}", mode)
                        finish(bare_admin, bare_admin._call("submit_job", str(job)))
                        files = [bare_kits[name] / f"bare-{mode}.json" for name in SITES]
                        seconds = min(json.loads(file.read_text())["seconds"] for file in files)
                        rates[f"bare, {mode}"].append(exchanges / seconds)
                    settle(kits, folder / "ours", turn + 1)
                    rates["sottovoce"].append(exchanges * rounds_a_second(admin, admin.submit()) / ROUNDS)
    for name, found in rates.items():
        print(f"{name:12} {np.mean(found):7.1f} exchanges/s of {features * 8:,} bytes  {np.round(found, 1).tolist()}")
    for name in ("bare, aux", "bare, cell"):
        print(f"sottovoce / ({name}): {np.mean(rates['sottovoce']) / np.mean(rates[name]):.2f}")


if __name__ == "__main__":
    main()
