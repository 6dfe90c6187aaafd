"""`sottovoce node`: take part in a run beside one's own records, over MPI."""

import os
import re
import shutil
import socket
import subprocess
import sys
import traceback
from dataclasses import replace
from json import dumps
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, cast

import typer

from sottovoce._renamed import error_kind
from sottovoce.cli import screen
from sottovoce.cli.flags import Format
from sottovoce.consortium.agreement import FILE as AGREEMENT
from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.lock import KitLock
from sottovoce.consortium.progress import read_progress
from sottovoce.consortium.project import STARTUP
from sottovoce.data.policy import ReadPolicy
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.sql import is_database
from sottovoce.errors import NetworkError, PrivacyError, SottovoceError, SpecError, StoreError
from sottovoce.node.budget import Budget, budgets, overview
from sottovoce.node.identity import OwnKey
from sottovoce.node.keys import identity_seed
from sottovoce.node.node import DATASET, DurableNode, Outcome
from sottovoce.node.runfile import Run, read_run
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import Site, expanded, own_problem, read_site
from sottovoce.node.store import Store, in_use
from sottovoce.node.transport import MpiTransport, world
from sottovoce.run.plan import Public
from sottovoce.run.result import History, Result, environment

_PASSWORD = re.compile(r"://[^/@]*:(?!\$\{\w+\}@)[^@]+@")

app = typer.Typer(help="Take part in a run as one node, beside one's own records.")


@app.callback(invoke_without_command=True)
def node(
    context: typer.Context,
    spec: Annotated[Path | None, typer.Option("--spec", help="The public run file (TOML).")] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="This node's records: a file, or a database with --query; {node} is its name."),
    ] = None,
    folder: Annotated[
        str | None, typer.Option("--folder", help="The node's own folder; without {node} or --node: FOLDER/NAME.")
    ] = None,
    name: Annotated[str | None, typer.Option("--node", help="Which node this is; by default that of its rank.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="One SELECT, where --data is a database.")] = None,
    format: Format = None,
    dataset: Annotated[str, typer.Option("--dataset", help="Under which name these records are budgeted.")] = DATASET,
    budget: Annotated[
        float | None, typer.Option("--budget", help="ε of the owner's total budget, if none is set yet.")
    ] = None,
    budget_delta: Annotated[float, typer.Option("--budget-delta", help="δ of that budget.")] = 1e-5,
    everybody: Annotated[
        bool, typer.Option("--all", help="Start all nodes of the run file on this machine, with mpirun.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a node.")] = False,
) -> None:
    """Take part in a run over MPI, inside one trust domain: one rank a node, started by mpirun or, here, by --all."""
    if context.invoked_subcommand is not None:
        return
    if spec is None or data is None or folder is None:
        raise SpecError("a node needs --spec (the run file), --data (its records) and --folder (its own folder)")
    if everybody:
        if name is not None:
            raise SpecError("--all starts every node, and --node names one; leave one of them out")
        _start_all(read_run(spec))
        return
    began = perf_counter()
    comm = world()
    who = f"rank {comm.Get_rank()}"
    try:
        run = read_run(spec)
        if run.may_lose:
            raise SpecError(
                "over MPI a rank that dies takes all others with it, so that none can go on without it; leave may_lose "
                "out, or run a consortium"
            )
        who = _name(run, comm, name)
        where = Path(folder.replace("{node}", who)) if "{node}" in folder or name else Path(folder) / who
        site = _site(dataset, where, data.replace("{node}", who), query, format)
        with screen.owner_notes() as note:
            records = site.read(run.schema, ReadPolicy.of(guarantee=True, note=note))
        problem = own_problem(run, who, records)
        store = Store(site.state)
        if budget is not None and dataset not in budgets(store.rows()):
            store.set_budget(Budget(budget, budget_delta).detail(dataset))
        mine = DurableNode(run, who, problem, store, dataset)
        mine.transport = transport = MpiTransport(mine.links, mine.skips, comm)
        outcome = mine.take_part()
        transport.flush()
        made = _result(mine, outcome, perf_counter() - began)
        schema = {} if run.schema_file is None else {SCHEMA_FILE: Path(run.schema_file).read_bytes()}
        saved = made.save(where / f"result-{run.digest[:12]}", beside=schema)  # `predict` encodes new records by it
        store.close()
    except Exception as error:
        if comm.Get_size() > 1:  # the other ranks would wait for this one
            _report(who, error, json)
            comm.Abort(getattr(error, "exit_code", 1))
        raise
    _show(run, who, outcome, str(saved), json, mine.envelope.fingerprints())


def _start_all(run: Run) -> None:
    """As many ranks as the run has nodes, though they be more than cores, and though this be root's container."""
    beside = Path(sys.executable).with_name("mpirun")  # of the package openmpi
    program = str(beside) if beside.exists() else shutil.which("mpirun")
    if program is None:
        raise SpecError("there is no mpirun to start nodes with; install sottovoce[mpi], or an MPI library")
    again = [word for word in sys.argv[1:] if word != "--all"]
    line = [program, "-n", str(run.n), sys.executable, "-c", "from sottovoce.cli.main import main; main()", *again]
    done = subprocess.run(line, env={**ONE_THREAD, **os.environ}, check=False).returncode
    if done:
        raise NetworkError(f"mpirun ended with exit code {done}; the lines above say why")


ONE_THREAD = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
}
"""Variables that let Open MPI 4 and 5 start more ranks than there are cores; other MPI libraries do so anyway."""


@app.command()
def key(
    folder: Annotated[Path, typer.Argument(help="The node's folder; it is made where it is not there.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the public identity key of a node's folder, for the table of keys in a run file."""
    store = Store(folder)
    public = OwnKey(identity_seed(store.secret)).public
    store.close()
    if json:
        screen.say_json({"key": public})
    else:
        screen.out.print(public, soft_wrap=True)


@app.command()
def health(
    place: Annotated[Path, typer.Argument(help="The kit of a site or a server, or a node's folder.")] = Path(),
) -> None:
    """Print one JSON line on this node; exit code 0: it runs and its ledger holds; 4: stopped or hung; 6: damaged."""
    found = server_health(place) if (place / SERVER_FILE).exists() else health_of(place)
    screen.say_json(found)
    if not found["healthy"]:
        raise (NetworkError if found["ledger"] else StoreError)(found["why"])


CONNECT_TIMEOUT = 5.0
"""Seconds that a server may take to accept a connection."""
SERVER_FILE = Path("startup") / STARTUP["server"]


def server_health(kit: Path) -> dict[str, Any]:
    """Return whether a server's process runs and accepts connections; a server has no ledger."""
    holder, port = KitLock.holder(kit), read_agreement(kit / "local" / AGREEMENT).port
    found: dict[str, Any] = {"running": holder is not None, "process": holder, "ledger": True, "port": port}
    why = "" if holder is not None else "no process of it runs"
    if not why:
        try:
            socket.create_connection(("localhost", port), timeout=CONNECT_TIMEOUT).close()
        except OSError as error:
            why = f"nothing accepts connections at port {port} ({error.strerror or error})"
    return {"healthy": not why, **found, "why": why}


def health_of(place: Path) -> dict[str, Any]:
    """Return whether a site's process runs and reports, whether its ledger holds, and where its latest run stands."""
    kit = (place / "local" / SITE_FILE).exists()
    folder = read_site(place / "local" / SITE_FILE).state if kit else place
    busy = in_use(folder)
    holder = KitLock.holder(place) if kit else None
    running = holder is not None or (busy and not kit)
    found: dict[str, Any] = {"healthy": False, "running": running, "process": holder, "in_run": busy, "ledger": False}
    try:
        store = Store(folder, reading=True)
        try:
            wrong, state = store.ledger_faults(), overview(store)
        finally:
            store.close()
    except (StoreError, PrivacyError) as error:
        return found | {"why": str(error)}
    latest = state["runs"][-1] if state["runs"] else None
    run = None if latest is None else {key: latest[key] for key in ("name", "state", "released", "rounds")}
    spent = [
        {key: row[key] for key in ("dataset", "epsilon", "epsilon_budget", "delta", "adversary", "adjacency")}
        for row in state["datasets"]
    ]
    report = read_progress(folder) if busy else None
    why = wrong[0] if wrong else "" if running else "no process of it runs"
    if report is not None and report.hangs:
        why = (
            why or f"process {report.process} has not reported for {report.reported:.0f} s; end it, and start the site"
        )
    keys = ("state", "round", "rounds", "age", "waits", "starts", "reported")
    at = None if report is None else {key: getattr(report, key) for key in keys}
    return found | {"healthy": not why, "ledger": not wrong, "run": run, "at": at, "spent": spent, "why": why}


def _name(run: Run, comm: Any, name: str | None) -> str:
    size, rank = comm.Get_size(), comm.Get_rank()
    if size != run.n:
        raise SpecError(f"run '{run.name}' has {run.n} nodes, but there are {size} processes; use mpirun -n {run.n}")
    if name is not None and run.number(name) != rank:
        raise SpecError(f"node '{name}' is number {run.number(name)} of the run file, but this is rank {rank}")
    return run.nodes[rank]


def _site(dataset: str, state: Path, source: str, query: str | None, format: str | None) -> Site:
    if is_database(source):
        if query is None:
            raise SpecError("--data is a database; say with --query which records to take")
        if _PASSWORD.search(source):
            raise SpecError(
                "a password on a command line is seen by everybody on this machine; write '${NAME}' in its place, in "
                "single quotes, and set NAME in the environment"
            )
        return Site(dataset, state, database=expanded(source), query=query)
    if query is not None:
        raise SpecError("--query goes with a database, but --data is a file")
    return Site(dataset, state, file=Path(source), format=format)


def _result(mine: DurableNode, outcome: Outcome, seconds: float) -> Result:
    run = mine.run
    return Result(
        spec=replace(run.spec, seed=None),
        models=outcome.model[None, :],
        history=History(),
        statement=mine.statement,
        public=mine.public | Public(skips=outcome.skips),
        statistics=mine.statistics,
        classes=cast(Any, run.schema.label.classes),
        features=run.schema.features,
        nodes=(mine.name,),
        environment=environment("mpi", seconds),
        scale=run.scale,
    )


def _report(who: str, error: Exception, json: bool) -> None:
    """Why a rank gives up, before it ends the job."""
    if not isinstance(error, SottovoceError):
        traceback.print_exception(error)
    if json:
        print(dumps({"node": who, "error": str(error), "kind": error_kind(error)}, ensure_ascii=False), flush=True)
    screen.fail(f"node '{who}': {error}")


def _show(run: Run, who: str, outcome: Outcome, saved: str, json: bool, fingerprints: dict[str, str]) -> None:
    event = run.event(run.number(who))
    if json:
        row = {"node": who, "run": run.digest, "rounds": event.rounds, "sigma": event.sigma, "saved": saved}
        row |= {"unheard": list(outcome.unheard), "skips": outcome.skips, "fingerprints": fingerprints}
        screen.say_json(row | {"verdict": run.statement.verdict()})
        return
    spoke, place = f"spoke {event.rounds:,} times with σ = {event.sigma:.4g}", screen.plain(str(saved))
    screen.out.print(f"node '{screen.plain(who)}': {spoke}; saved in {place}")
    if outcome.skips:
        screen.out.print(f"{outcome.skips:,} edges of it were left out of a round, by agreement of both ends.")
    if outcome.unheard:
        names = screen.plain(", ".join(outcome.unheard))
        screen.out.print(f"Not heard to be done: {names}; start this node again if they are.")
    if run.number(who) == 0:
        screen.out.print(run.statement.verdict(), soft_wrap=True)
