"""Three clinics on one machine: provisioned sites with mutual TLS, one of them killed midway and resumed.

    python examples/consortium/demo.py [--pairs] [FOLDER]

1. Kits are made for a server, three sites (a CSV file, a Parquet file, an SQLite query) and an administrator.
2. An undisturbed run trains to the planned ε and tests its model privately.
3. The same run again from copies of the state folders as they were before (so with the same draws): one site is killed
   with SIGKILL midway, started again, and the job submitted again. Nobody does that outside a demonstration: a run
   belongs to one folder.
4. Both models must be the same to the last bit, both statements equal, and no round released twice.

With `--pairs` the sites share secrets in pairs (docs/privacy.md), against one curious site and all who read the wire.
The keys of the run are made when a site is checked, before its folder is copied: both runs share the same noise.
"""

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from sottovoce import Result
from sottovoce.consortium import (
    COMPLETED,
    Administrator,
    Agreement,
    Trial,
    administrator,
    check_kit,
    provision,
    read_agreement,
)
from sottovoce.node import Budget, Store, budgets

EXAMPLE = Path(__file__).parent
SOURCES = {
    "north": 'file = "{records}/north.csv"',
    "south": 'file = "{records}/south.parquet"',
    "west": 'database = "sqlite:///{records}/west.db"\nquery = "SELECT * FROM patients"',
}
VICTIM = "west"
BUDGET = Budget(2.0, 1e-5)
PAIRS = 'adversary = "secret_pairs(1)"\nlaw = "pairs(10)"\n'
BEGAN = time.monotonic()
SCREEN = Console(highlight=False)


def say(text: str) -> None:
    """One line, with the time."""
    SCREEN.print(f"[dim]{time.monotonic() - BEGAN:6.1f} s[/]  {text}", soft_wrap=True)


def prepare(folder: Path, pairs: bool) -> tuple[Agreement, dict[str, Path]]:
    """Records, kits, and every site's answer to where its records are."""
    sys.path.insert(0, str(EXAMPLE))
    import make_data

    make_data.write(folder / "records")
    agreed = folder / "agreed"
    agreed.mkdir()
    for name in ("consortium.toml", "schema.toml"):
        shutil.copy(EXAMPLE / name, agreed)
    if pairs:
        with (agreed / "consortium.toml").open("a") as file:
            file.write(PAIRS)  # its last table is [privacy]
    agreement = read_agreement(agreed / "consortium.toml")
    kits = provision(agreement, agreed / "consortium.toml", folder / "kits")
    say(f"kits made; digest {agreement.run.digest[:16]}; {agreement.run.statement.verdict()}")
    return agreement, kits


def settle(kits: dict[str, Path], records: Path, state: str) -> None:
    """Point every site to its records and to a state folder."""
    for site, source in SOURCES.items():
        text = f'dataset = "patients"\nstate = "../{state}"\n{source.format(records=records)}\n'
        (kits[site] / "local" / "site.toml").write_text(text)
        store = Store(kits[site] / state)
        if not budgets(store.rows()):
            store.set_budget(BUDGET.detail("patients"))
        store.close()
        wrong = [finding for finding in check_kit(kits[site]) if not finding.good]
        if wrong:
            sys.exit(f"{site} is not ready: {wrong[0]}")
    say(f"all sites are ready, in {state}")


def wait_for_all(admin: Administrator, since: float = 0.0) -> None:
    """Until the server has heard of every site."""
    while admin.missing(since):
        time.sleep(0.3)


def run(admin: Administrator, trial: Trial, kill_at: int | None = None) -> None:
    """Submit and follow; kill the victim once it is past a round, start it again, and submit again."""
    job = admin.submit()
    for status in admin.follow(job, 0.5):
        done = {name: row["round"] for name, row in status.progress.items()}
        if kill_at is not None and done.get(VICTIM, 0) >= kill_at:
            trial.kill(VICTIM)
            say(f"[bold red]SIGKILL[/] for {VICTIM} when the sites were at rounds {done}")
            began = time.time()
            trial.start(VICTIM)
            wait_for_all(admin, began)
            say(f"{VICTIM} is back; submitted again")
            run(admin, trial)
            return
    if status.state != COMPLETED:
        sys.exit(f"the job ended as {status.state}")
    report = admin.results(job)
    found = report["evaluation"]
    say(
        f"done: {report['privacy']['verdict']} Right on {100 * found['accuracy']:.1f} % ± "
        f"{100 * found['standard_error']:.1f} of the held-out records."
    )


def compare(kits: dict[str, Path], agreement: Agreement) -> None:
    """The claim of the demo, checked at every site."""
    for site in SOURCES:
        calm, rough = (Result.load(kits[site] / state / "results" / "first") for state in ("calm", "rough"))
        assert np.array_equal(calm.models, rough.models), f"{site}: the models differ"
        assert calm.statement == rough.statement, f"{site}: the statements differ"
        calm.statement.verify()
        planned = agreement.run.event(agreement.run.number(site)).rounds
        for state in ("calm", "rough"):
            rows = [row for row in Store(kits[site] / state, reading=True).rows() if row.kind == "release"]
            assert len([row for row in rows if row.run == agreement.run.digest]) == planned, f"{site}: {state}"
    say("models identical to the last bit at all sites; statements equal and verified; every round released once")


def main() -> None:
    """Everything, in order."""
    pairs, given = "--pairs" in sys.argv, [word for word in sys.argv[1:] if word != "--pairs"]
    folder = Path(given[0] if given else "build/consortium-demo").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    agreement, kits = prepare(folder, pairs)
    settle(kits, folder / "records", "calm")
    for site in SOURCES:
        shutil.copytree(kits[site] / "calm", kits[site] / "rough")
    with Trial(kits, folder / "logs") as trial:
        trial.start(agreement.host, *SOURCES)
        with administrator(kits[agreement.admin], patience=120) as admin:
            wait_for_all(admin)
            say("server and sites are up, mutual TLS on loopback")
            run(admin, trial)
            settle(kits, folder / "records", "rough")
            run(admin, trial, kill_at=agreement.run.T // 3)
    compare(kits, agreement)


if __name__ == "__main__":
    main()
