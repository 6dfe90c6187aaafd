"""`sottovoce consortium`: kits for everybody, a server or site started, runs submitted, followed and fetched."""

import os
import sys
from contextlib import closing, suppress
from datetime import datetime
from math import inf
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from sottovoce.cli import screen
from sottovoce.consortium import certificates, logs, proposals
from sottovoce.consortium import check as checks
from sottovoce.consortium import project as projects
from sottovoce.consortium.agreement import FILE, read_agreement, serial_number
from sottovoce.consortium.certificates import write_revoked
from sottovoce.consortium.check import command, foreground, member, server_of
from sottovoce.consortium.evaluation import statement
from sottovoce.consortium.flare_hardening import sealed_environment
from sottovoce.consortium.lock import KitLock
from sottovoce.consortium.planning import Proposal, plan_agreement, read_sites
from sottovoce.consortium.project import provision
from sottovoce.consortium.submit import COMPLETED, SITE_TIMEOUT, Administrator, Status, administrator, wait_for
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.errors import Interrupted, NetworkError, SottovoceError, SpecError
from sottovoce.node.budget import Budget
from sottovoce.node.runfile import check_name
from sottovoce.node.store import Store
from sottovoce.planner.network import BANDWIDTH, HOUR, RELAYED, RTT, NetworkModel
from sottovoce.planner.uneven import hindrances

app = typer.Typer(help="Train with other organizations, over NVIDIA FLARE.", no_args_is_help=True)

Agreed = Annotated[Path, typer.Argument(help="consortium.toml; the schema is next to it.")]
Member = Annotated[str, typer.Argument(help="Whose: a site, the server's host or the administrator.")]
Kits = Annotated[Path, typer.Option("--out", help="Where the kits are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Kit = Annotated[Path, typer.Argument(help="A folder that `sottovoce consortium init` made.")]
AdminKit = Annotated[Path, typer.Argument(help="The administrator's kit.")]


@app.command()
def init(
    file: Agreed,
    out: Annotated[Path, typer.Option("--out", help="Where the kits go.")] = Path("kits"),
    json: Json = False,
    requests: Annotated[
        Path | None, typer.Option("--requests", help="Certificate requests, NAME.csr, of members with own keys.")
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option("--site", help="Plan an agreement and write it to FILE: NAME:RECORDS[:ORGANIZATION], each site."),
    ] = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="Beside FILE; by default schema.toml there.")] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="ε of a record, or of a person.")] = 1.0,
    delta: Annotated[float | None, typer.Option("--delta", help="δ (1e-5, or half a record's share if less).")] = None,
    trust: Annotated[str, typer.Option("--trust", help="nobody, majority, or how many sites may collude.")] = "nobody",
    loss: Annotated[str, typer.Option("--loss", help="auto, or a loss by name.")] = "auto",
    held_out: Annotated[float, typer.Option("--held-out", help="Share of the records that only test the model.")] = 0.0,
    run: Annotated[str, typer.Option("--run", help="The run's name.")] = "first",
    name: Annotated[str, typer.Option("--name", help="The consortium's name.")] = "consortium",
    server: Annotated[str, typer.Option("--server", help="HOST:PORT of the relaying server.")] = "localhost:8002",
    admin: Annotated[str, typer.Option("--admin", help="The administrator's address.")] = "lead@example.org",
    schedule_seed: Annotated[int, typer.Option("--schedule-seed", help="Public: who speaks when.")] = 1,
    rtt: Annotated[float, typer.Option("--rtt", help="Seconds of a round trip; see `consortium ping`.")] = RTT,
    bandwidth: Annotated[
        float, typer.Option("--bandwidth", help="Bytes a second of a site and the relay.")
    ] = BANDWIDTH,
    relay: Annotated[float, typer.Option("--relay", help="Exchanges a second that the server relays.")] = RELAYED,
    max_seconds: Annotated[float, typer.Option("--max-seconds", help="At most so many seconds for the run.")] = HOUR,
) -> None:
    """Plan an agreement (with --site), or make a kit for every member: certificates, start scripts, a page."""
    if site:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            raise SpecError(f"--server is HOST:PORT, as gossip.example.org:8002, not '{server}'")
        proposal = Proposal(
            name, run, schema or file.parent / SCHEMA_FILE, read_sites(site), epsilon,
            "auto" if delta is None else delta, trust, loss, held_out, host, int(port), admin,
            schedule_seed=schedule_seed, network=NetworkModel(rtt, bandwidth, relay), max_seconds=max_seconds,
        )  # fmt: skip
        _plan_agreement(proposal, file, json)
        return
    _make_kits(file, out, json, {} if requests is None else projects.requests_in(requests))


def _plan_agreement(proposal: Proposal, file: Path, json: bool) -> None:
    """Write a planned agreement to a file that is not there, or says the same."""
    planned = plan_agreement(proposal)
    if file.exists() and file.read_text(encoding="utf-8") != planned.text:
        raise SpecError(f"'{file}' is there and says something else; move it, or give another name")
    screen.writable_file(file, "FILE")
    file.write_text(planned.text, encoding="utf-8")
    promised, best = statement(planned.agreement), planned.choice.alternatives[0]
    if json:
        found = {"file": str(file), "digest": planned.agreement.run.digest, "privacy": promised.to_dict()}
        foreseen = {"loss": planned.choice.predicted, "seconds": best["seconds"], "bytes": best["bytes"]}
        screen.say_json(found | {"reasons": planned.choice.reasons, "foreseen": foreseen})
        return
    for reason in planned.choice.reasons:
        screen.out.print(f"· {reason}", soft_wrap=True, highlight=False)
    screen.out.print(promised.verdict(), soft_wrap=True)
    screen.out.print(f"written to {file}; read it, then: sottovoce consortium init {file}", soft_wrap=True)


@app.command()
def ping(
    address: Annotated[str, typer.Argument(help="HOST:PORT of the server.")],
    count: Annotated[int, typer.Option("--count", help="How often.")] = 10,
    json: Json = False,
) -> None:
    """Measure the round-trip time to the server by opening connections: for `init --rtt`."""
    seconds = checks.round_trips(address, count)
    middle = sorted(seconds)[len(seconds) // 2]
    if json:
        screen.say_json({"address": address, "seconds": seconds, "rtt": middle})
        return
    screen.out.print(f"{1000 * middle:.2f} ms, the middle of {count}: init --rtt {middle:.4g}", highlight=False)


def _make_kits(file: Path, out: Path, json: bool, requests: dict[str, bytes]) -> None:
    agreement = read_agreement(file)
    promised = statement(agreement)
    screen.writable(out)
    kits = provision(agreement, file, out, requests)
    if json:
        folders = {name: str(path) for name, path in kits.items()}
        screen.say_json({"kits": folders, "digest": agreement.run.digest, "privacy": promised.to_dict()})
        return
    for name, path in kits.items():
        screen.out.print(f"{name}: {path}", soft_wrap=True)
    screen.out.print(promised.verdict(), soft_wrap=True)
    screen.out.print(f"digest {agreement.run.digest}", soft_wrap=True)
    for found in hindrances(agreement.run.plan):
        screen.err.print(f"[yellow]Note:[/] {found.words(agreement.run.nodes, agreement.run.sizes)}", soft_wrap=True)
    screen.err.print(
        f"[yellow]Note:[/] {out / agreement.name / 'state'} holds the authority's private key: anyone who has it "
        "can impersonate any member. Keep it offline, or delete it once all kits are made.",
        soft_wrap=True,
    )


@app.command()
def propose(
    file: Agreed,
    kit: Kit = Path(),
    out: Annotated[Path, typer.Option("--out", help="The proposal, for everybody.")] = Path("run.proposal"),
) -> None:
    """Sign a new agreement with this kit's key, for a further run of the same members: no new kits, no restart."""
    screen.writable_file(out, "--out")
    out.write_bytes(proposals.propose(file, kit))
    screen.out.print(f"written to {out}; everybody: sottovoce consortium review {out} KIT", soft_wrap=True)


Proposal_ = Annotated[Path, typer.Argument(help="What `sottovoce consortium propose` wrote.")]


@app.command()
def review(proposal: Proposal_, kit: Kit = Path(), json: Json = False) -> None:
    """Show who proposes a run, what it promises, what it costs this site, and what is left of the budget."""
    proposed = proposals.read_proposal(proposal, kit)
    agreement, promised = proposed.agreement, statement(proposed.agreement)
    found = proposals.costs(proposed, kit)
    if json:
        each = [cost._asdict() for cost in found]
        frame = {"by": proposed.by, "run": agreement.run_name, "digest": agreement.run.digest}
        screen.say_json(frame | {"privacy": promised.to_dict(), "costs": each})
        return
    screen.out.print(f"'{proposed.by}' proposes run '{agreement.run_name}'; digest {agreement.run.digest}")
    screen.out.print(promised.verdict(), soft_wrap=True)
    for cost in found:
        screen.out.print(
            f"data set '{cost.dataset}': ε = {cost.before:.3g} so far, {cost.after:.3g} with this run, of "
            f"{cost.limit:g} at δ = {cost.delta:g}",
            soft_wrap=True,
        )
    for hindrance in hindrances(agreement.run.plan):
        screen.err.print(
            f"[yellow]Note:[/] {hindrance.words(agreement.run.nodes, agreement.run.sizes)}", soft_wrap=True
        )
    screen.out.print(f"to accept: sottovoce consortium accept {proposal} {kit}; to refuse, do nothing", soft_wrap=True)


OwnKits = Annotated[list[Path] | None, typer.Argument(help="Kits that one owner has; by default, this folder.")]


@app.command()
def accept(proposal: Proposal_, kits: OwnKits = None) -> None:
    """Put a proposed agreement into one's kits; their processes need not be started again."""
    for kit in kits or [Path()]:
        proposed = proposals.accept(proposal, kit)
        screen.out.print(
            f"'{kit}' takes part in run '{proposed.agreement.run_name}', digest {proposed.agreement.run.digest}",
            soft_wrap=True,
        )


@app.command("request")
def request_certificate(
    name: Member,
    out: Annotated[Path, typer.Option("--out", help="Where key and request go.")] = Path(),
) -> None:
    """Make this member's own key, which stays here, and a certificate request for the maker of the kits."""
    for part in name.split("@"):
        check_name("member", part)
    out.mkdir(parents=True, exist_ok=True)
    key = out / f"{name}.key"
    pem = certificates.new_request(name, key)
    (out / f"{name}.csr").write_bytes(pem)
    screen.out.print(f"send {out / f'{name}.csr'}; keep {key}: sottovoce consortium join KIT {key}", soft_wrap=True)


@app.command()
def join(
    kit: Kit,
    key: Annotated[Path, typer.Argument(help="The key that `consortium request` made.")],
    file: Annotated[Path | None, typer.Option("--file", help="A site's records; written to its site.toml.")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="What these records may cost in all.")] = None,
    delta: Annotated[float, typer.Option("--delta", help="δ of the same.")] = 1e-5,
) -> None:
    """Put this member's own key into its kit; a site's records and their budget, too."""
    name = projects.join(kit, key)
    if file is not None:
        projects.use_records(kit, file)
    if epsilon is not None:
        limit, site = Budget(epsilon, delta), projects.site_of(kit)
        with closing(Store(site.state)) as store:
            store.set_budget(limit.detail(site.dataset))
    screen.out.print(f"'{kit}' is ready for '{name}'", soft_wrap=True)


@app.command()
def renew(
    file: Agreed,
    name: Member,
    out: Kits = Path("kits"),
    request: Annotated[
        Path | None, typer.Option("--request", help="The member's certificate request: the key stays with it.")
    ] = None,
) -> None:
    """Make a member a new key and certificate, before the old one ends; the others notice nothing."""
    pem = None if request is None else request.read_bytes()
    folder = projects.renew(read_agreement(file), file, out, name, pem)
    if pem is not None:
        screen.out.print(f"{name}: {folder}: give its certificate to '{name}'; nothing in it is secret", soft_wrap=True)
        return
    screen.out.print(f"{name}: {folder}: give it to '{name}', whose startup folder it replaces", soft_wrap=True)


@app.command()
def revoke(
    file: Agreed,
    name: Member,
    out: Kits = Path("kits"),
    serial: Annotated[str | None, typer.Option("--serial", help="Of which certificate, in hexadecimal.")] = None,
) -> None:
    """Write into the agreement that a member's certificate counts no more, so that every node refuses it."""
    agreement = read_agreement(file)
    if serial is None:
        serial = f"{projects.revoke(agreement, file, out, name):x}"
    else:
        write_revoked(file, tuple(sorted({*agreement.revoked, serial_number(serial)})))
    screen.out.print(
        f"{serial} counts no more. Give the next run another name in {file}, and make kits for everybody: "
        f"sottovoce consortium init {file} --out {out}",
        soft_wrap=True,
    )


@app.command()
def start(
    kit: Kit = Path(),
    foreground: Annotated[
        bool,
        typer.Option("--foreground", help="Stay in the foreground, as service managers want it; it always does."),
    ] = True,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            envvar="SOTTOVOCE_METRICS",
            help="Serve metrics for Prometheus at this port of the loopback interface, or at this Unix socket.",
        ),
    ] = None,
    level: Annotated[
        logs.Level, typer.Option("--log-level", envvar=logs.LEVEL, help="Log messages of this level and above.")
    ] = logs.Level.INFO,
    form: Annotated[
        logs.Form, typer.Option("--log-format", envvar=logs.FORM, help="How lines on standard output are written.")
    ] = logs.Form.TEXT,
) -> None:
    """Run the server or the site that a kit is for until it is stopped; a site is checked, and waits for its server."""
    from sottovoce.consortium.metrics import served

    line, lock = command(kit), KitLock(kit)
    try:
        with served(kit, metrics or None) as where:
            if where is not None:
                screen.out.print(f"metrics at {where}", soft_wrap=True, highlight=False)
            _run_kit(kit, line, lock.file, {logs.LEVEL: level.value, logs.FORM: form.value})
    finally:
        lock.release()


def _run_kit(kit: Path, line: list[str], lock: int, settings: dict[str, str]) -> None:
    """Wait for the server, if it is a site's kit; then run it, with these settings in its environment."""
    server = server_of(kit)
    if server is not None:
        _check_ready(checks.check_kit(kit))
    notice = member(kit, read_agreement(kit / "local" / FILE)).announced(certificates.clock())
    if notice:
        screen.err.print(f"[yellow]Note:[/] {screen.plain(notice)}", soft_wrap=True)
    if server is not None:  # FLARE itself would give up after some seconds
        try:
            wait_for(*server, monotonic())
        except NetworkError:
            screen.out.print(f"waiting for the server at {server[0]}:{server[1]}", soft_wrap=True)
            try:
                wait_for(*server, inf)
            except KeyboardInterrupt:
                raise Interrupted("stopped waiting for the server; nothing was started") from None
    environment, pipe = sealed_environment(kit, {**os.environ, **settings})
    sys.stdout.flush()
    code = foreground(line, environment, pipe, lock)
    if code:
        raise NetworkError(f"it ended by itself, with exit code {code}; the lines above say why")


@app.command()
def submit(
    kit: AdminKit = Path(),
    follow: Annotated[bool, typer.Option("--follow", help="Stay and watch until it is over.")] = False,
    json: Json = False,
) -> None:
    """Start the run, or resume a paused one."""
    with administrator(kit, SITE_TIMEOUT) as admin:
        job = admin.submit()
        if follow:
            _watch(admin, job, json)
            _show_results(admin.results(job), json)
            return
    if json:
        screen.say_json({"job": job})
    else:
        screen.out.print(f"submitted as {job}")


@app.command()
def status(
    kit: AdminKit = Path(),
    follow: Annotated[bool, typer.Option("--follow", help="Stay and watch until it is over.")] = False,
    json: Json = False,
) -> None:
    """Show how far the latest run is at every site."""
    with administrator(kit, SITE_TIMEOUT) as admin:
        job = admin.latest()
        if follow:
            _watch(admin, job, json)
        found = admin.status(job)
    if json:
        screen.say_json(found._asdict())
        return
    screen.out.print(f"{found.job}: {found.state}")
    if found.why:
        screen.out.print(f"  {screen.plain(found.why)}", soft_wrap=True)
    for name, row in found.progress.items():
        screen.out.print(f"  {name}: {row['state'] or 'running'}, round {row['round']} of {row['rounds']}{_waits(row)}")
    silent = [site.name for site in admin.agreement.sites if site.name not in found.progress]
    if found.state == "RUNNING" and silent:
        screen.out.print(f"  {', '.join(silent)}: no answer yet; its job starts, or reads its records", soft_wrap=True)


@app.command()
def watch(
    kit: Kit = Path(),
    show: Annotated[bool, typer.Option("--open", help="Open a browser at the page.")] = False,
    port: Annotated[int, typer.Option("--port", help="Where the page is served; 0: any that is free.")] = 0,
) -> None:
    """Serve a page, on this machine alone, of sites, rounds, who waits for whom, budgets and the statement."""
    from sottovoce.consortium.project import kind_of
    from sottovoce.pages.server import serve
    from sottovoce.pages.watch import page, watched_run

    def ready(address: str) -> None:
        screen.out.print(f"watching at {address} until Ctrl-C", soft_wrap=True, highlight=False)

    if kind_of(kit) == "admin":
        with administrator(kit, SITE_TIMEOUT) as admin:
            agreement, read_status = watched_run(kit, admin)
            serve(page(read_status, agreement), port, show, ready)
    else:
        agreement, read_status = watched_run(kit, None)
        serve(page(read_status, agreement), port, show, ready)


@app.command()
def stop(kit: AdminKit = Path(), json: Json = False) -> None:
    """End the run's job, so that all sites rest; nothing is lost, and `submit` resumes it."""
    with administrator(kit, SITE_TIMEOUT) as admin:
        ended = admin.stop()
    if json:
        screen.say_json({"stopped": ended})
    elif ended:
        screen.out.print(f"ended {', '.join(ended)}; every site keeps what it has: `submit` lets the run go on")
    else:
        screen.out.print("no job of this run is running; there is nothing to stop")


@app.command()
def who(kit: AdminKit = Path(), json: Json = False) -> None:
    """Show which sites are connected, which are missing, and when the server last heard of each."""
    with administrator(kit, SITE_TIMEOUT) as admin:
        found = admin.who(SITE_TIMEOUT)
    if json:
        screen.say_json({"sites": [each._asdict() for each in found]})
        return
    for each in found:
        last = "never, since it started" if each.heard is None else f"{datetime.fromtimestamp(each.heard):%Y-%m-%d %X}"
        mark = "[green]connected[/]" if each.connected else "[red]missing[/]"
        screen.out.print(f"{screen.plain(each.site)}: {mark}; the server last heard of it: {last}", soft_wrap=True)


@app.command()
def results(kit: AdminKit = Path(), json: Json = False) -> None:
    """Fetch what everybody may know of the latest run: its statement, and how often the model was right."""
    with administrator(kit, SITE_TIMEOUT) as admin:
        _show_results(admin.results(admin.latest()), json)


def check(
    kit: Annotated[Path, typer.Argument(help="The site's kit.")] = Path(),
    json: Json = False,
) -> None:
    """Check everything that this site needs to join, and contact the server. No record leaves the site."""
    with screen.owner_notes() as note:
        findings = checks.check_kit(kit, note)
    bad = [finding for finding in findings if not finding.good]
    if json:
        met = any(finding.what == checks.CONNECTION and finding.good and not finding.notice for finding in findings)
        rows = [finding._asdict() for finding in findings]
        screen.say_json({"ready": not bad, "connected": met, "findings": rows})
    else:
        table = Table(box=None, padding=(0, 2), show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            said = f"{finding.detail}; {finding.notice}" if finding.notice else finding.detail
            mark = "[red]no[/]" if not finding.good else "[yellow]soon[/]" if finding.notice else "[green]ok[/]"
            table.add_row(mark, finding.what, screen.plain(said))
        screen.out.print(table)
    _check_ready(findings)


def _check_ready(findings: list[checks.Finding]) -> None:
    bad = [finding for finding in findings if not finding.good]
    if bad:
        raise SpecError(f"this site is not ready: {bad[0].what}: {bad[0].detail}")


def _watch(admin: Administrator, job: str, quiet: bool) -> None:
    """A bar for every site, until the job is over."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    last = Status(job, "", {})
    try:
        with Progress(*columns, console=screen.err, disable=quiet) as progress:
            bars = {s.name: progress.add_task(s.name, total=None, note="") for s in admin.agreement.sites}
            for last in admin.follow(job):
                for name, row in last.progress.items():
                    progress.update(bars[name], total=row["rounds"], completed=row["round"], note=_waits(row))
    except KeyboardInterrupt:
        raise Interrupted("stopped watching; the run goes on: see `sottovoce consortium status`") from None
    if last.state != COMPLETED:
        reason = f" ({last.why})" if last.why else ""
        with suppress(SottovoceError):
            failed = admin.results(job).get("failed") or {}
            reason = f" ({'; '.join(f'{name}: {code}' for name, code in failed.items())})"
        raise NetworkError(
            f"the job ended as {last.state}{reason}; when all sites are back, submit again: the run goes on"
        )


def _waits(row: dict[str, Any]) -> str:
    waits = row.get("waits")
    late = f", waits for {waits['for']} since {waits['seconds']:.0f} s" if waits and waits["seconds"] >= 2 else ""
    return late + (f", without {', '.join(row['removed'])}" if row.get("removed") else "")


def _show_results(report: dict[str, Any], json: bool) -> None:
    if json:
        screen.say_json(report)
        return
    if "privacy" in report:
        screen.out.print(report["privacy"]["verdict"], soft_wrap=True)
    if report.get("evaluation"):
        found = report["evaluation"]
        total = sum(site["records"] for site in found["sites"].values())
        screen.out.print(
            f"right on {100 * found['accuracy']:.1f} % of {total:,} held-out records, give or take "
            f"{100 * found['standard_error']:.1f} (one standard error, the noise included)"
        )
    if report.get("failed"):
        why = "; ".join(f"{name}: {reason}" for name, reason in report["failed"].items())
        screen.out.print(f"[red]not finished:[/] {screen.plain(why)}", soft_wrap=True)
    elif report.get("removed"):
        gone = ", ".join(report["removed"])
        screen.out.print(f"the others went on without {gone}, and have the model and its statement under results")
    else:
        screen.out.print("every site has the model and its statement in its own state folder, under results")
