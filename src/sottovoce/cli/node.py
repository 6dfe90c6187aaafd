"""`sottovoce node`: take part in a run as one node, beside one's own records; here over MPI."""

import traceback
from dataclasses import replace
from json import dumps
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, cast

import typer

from sottovoce.cli import screen
from sottovoce.data.load import load
from sottovoce.data.sql import is_database, load_sql
from sottovoce.data.tables import Table
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.node.budget import Budget, budgets
from sottovoce.node.loop import DATASET, Outcome, Participant
from sottovoce.node.mpi import MpiCarrier, world
from sottovoce.node.plan import Plan, read_plan
from sottovoce.node.site import own_problem
from sottovoce.node.store import Store
from sottovoce.result import History, Result, environment

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
    format: Annotated[str | None, typer.Option("--format", help="svmlight, csv or parquet, if the name lies.")] = None,
    dataset: Annotated[str, typer.Option("--dataset", help="Under which name these records are budgeted.")] = DATASET,
    budget: Annotated[
        float | None, typer.Option("--budget", help="ε of the owner's total budget, if none is set yet.")
    ] = None,
    budget_delta: Annotated[float, typer.Option("--budget-delta", help="δ of that budget.")] = 1e-5,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a node.")] = False,
) -> None:
    """Take part in a run over MPI, inside one trust domain: start it with mpirun, one rank a node."""
    if context.invoked_subcommand is not None:
        return
    if spec is None or data is None or folder is None:
        raise SpecError("a node needs --spec (the run file), --data (its records) and --folder (its own folder)")
    began = perf_counter()
    comm = world()
    who = f"rank {comm.Get_rank()}"
    try:
        plan = read_plan(spec)
        who = _name(plan, comm, name)
        where = Path(folder.replace("{node}", who)) if "{node}" in folder or name else Path(folder) / who
        table = _table(plan, data.replace("{node}", who), query, format)
        store = Store(where)
        if budget is not None and dataset not in budgets(store.rows()):
            store.set_budget(Budget(budget, budget_delta).detail(dataset))
        participant = Participant(plan, who, own_problem(plan, who, table), store, dataset)
        carrier = MpiCarrier(comm, participant.postbox)
        participant.connect(carrier)
        outcome = participant.run()
        carrier.flush()
        saved = _result(plan, who, outcome, perf_counter() - began).save(where / f"result-{plan.digest[:12]}")
        store.close()
    except Exception as error:
        if comm.Get_size() > 1:  # the other ranks would wait for this one
            _report(who, error, json)
            comm.Abort(getattr(error, "exit_code", 1))
        raise
    _show(plan, who, outcome, str(saved), json)


def _name(plan: Plan, comm: Any, name: str | None) -> str:
    size, rank = comm.Get_size(), comm.Get_rank()
    if size != plan.n:
        raise SpecError(f"run '{plan.name}' has {plan.n} nodes, but there are {size} processes; use mpirun -n {plan.n}")
    if name is not None and plan.number(name) != rank:
        raise SpecError(f"node '{name}' is number {plan.number(name)} of the run file, but this is rank {rank}")
    return plan.nodes[rank]


def _table(plan: Plan, source: str, query: str | None, format: str | None) -> Table:
    if is_database(source):
        if query is None:
            raise SpecError("--data is a database; say with --query which records to take")
        return load_sql(source, query, label=plan.label, group=plan.unit, columns=plan.features)
    if query is not None:
        raise SpecError("--query goes with a database, but --data is a file")
    if plan.features is None:
        return load(source, format=format, label=plan.label, n_features=plan.width)
    return load(source, format=format, label=plan.label, group=plan.unit, columns=plan.features)


def _result(plan: Plan, who: str, outcome: Outcome, seconds: float) -> Result:
    return Result(
        spec=replace(plan.spec, seed=None),
        models=outcome.model[None, :],
        history=History(),
        statement=plan.statement,
        public=plan.prepared.public | {"run": plan.digest, "schedule_seed": plan.spec.seed},
        classes=cast(Any, plan.classes),
        features=plan.features,
        nodes=(who,),
        environment=environment("mpi", seconds),
    )


def _report(who: str, error: Exception, json: bool) -> None:
    """Why a rank gives up, before it ends the job."""
    if not isinstance(error, SottovoceError):
        traceback.print_exception(error)
    if json:
        print(dumps({"node": who, "error": str(error), "kind": type(error).__name__}, ensure_ascii=False), flush=True)
    screen.fail(f"node '{who}': {error}")


def _show(plan: Plan, who: str, outcome: Outcome, saved: str, json: bool) -> None:
    event = plan.event(plan.number(who))
    if json:
        row = {"node": who, "run": plan.digest, "rounds": event.rounds, "sigma": event.sigma, "saved": saved}
        screen.say_json(row | {"unheard": list(outcome.unheard), "verdict": plan.statement.verdict()})
        return
    screen.out.print(f"node '{who}': spoke {event.rounds:,} times with σ = {event.sigma:.4g}; saved in {saved}")
    if outcome.unheard:
        screen.out.print(f"Not heard to be done: {', '.join(outcome.unheard)}; start this node again if they are.")
    if plan.number(who) == 0:
        screen.out.print(plan.statement.verdict(), soft_wrap=True)
