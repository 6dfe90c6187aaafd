"""From consortium.toml to a startup kit for every party, by FLARE's own provisioning tools.

FLARE makes the certificates, the start scripts and its configuration. What we add to a kit lies in its `local` folder,
which belongs to its site: which classes a job may name (ours alone), that nobody may bring code or look into the site,
that no log leaves it, the agreement and the schema, a form for the site's own records, and beside it all a page that
says what to do.
"""

import json
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from sottovoce.consortium.agreement import FILE, Agreement, PublicSite
from sottovoce.consortium.flare import flare
from sottovoce.consortium.job import ALLOWED
from sottovoce.errors import SpecError

FORM = """# Where this site's records are. Nothing in this file leaves the site.

dataset = "records"            # the name under which the budget is kept; the same records keep the same name
state = "../state"             # this node's own folder: its secret key, its ledger, where it stands in a run

# One of the two. A file: CSV, TSV, Parquet, svmlight (also .gz, .bz2, .xz).
file = "/path/to/records.csv"

# Or a query over SQLAlchemy; ${NAME} is taken from the environment, so that no password stands here.
# database = "postgresql+psycopg://reader:${PGPASSWORD}@db.internal/hospital"
# query = "SELECT ... FROM ..."
"""

SITE = """# {site} in consortium {name}

This folder makes you the node **{site}** of *{name}*. Your records stay where they are. What leaves this machine, and
only through the server `{host}:{port}`, end-to-end encrypted for the one peer that it is meant for:
{rounds} noisy messages in run `{run}`, and {count}.

Guarantee of the whole run: {verdict}

1. Install: `pip install 'sottovoce[flare]'` (Python 3.11 or newer).
2. Say where your records are, in `local/site.toml`. The columns must be those of `local/{schema}`; you
   agreed to bring {records} {whose} (more are fine: {records} of them are used).
3. Set what your records may cost over all runs, ever:
   `sottovoce ledger budget STATE --epsilon … --delta …` (STATE is the folder that site.toml names).
4. Check: `sottovoce node check .` reads your records and says whether you can join. Nothing is sent.
5. Join: `sottovoce consortium start .`, and leave it running. If it stops, start it again: a run goes on where it was.
6. After a run, your model and your statement lie in `STATE/results`.

Keep to yourselves: `startup/client.key` (who you are) and the state folder (your noise; never restore an old copy).
A job can start nothing here but the class that `local/resources.json` lists; it cannot bring code, read files or
fetch logs. A job for another agreement than `local/consortium.toml` is refused: compare the digest with the others,

    {digest}
"""

SERVER = """# The relay of consortium {name}

Messages between sites pass through this server. They are encrypted for their receiver: it forwards what it cannot
read. It learns who speaks to whom and when, which is public anyway, and the noisy counts of right answers.

1. Install: `pip install 'sottovoce[flare]'`.
2. Sites must reach this machine as `{host}`, port {port}.
3. `sottovoce consortium start .`, and leave it running.
"""

ADMIN = """# Who starts runs of consortium {name}: {admin}

1. Install: `pip install 'sottovoce[flare]'`.
2. When every site has started: `sottovoce consortium submit . --follow`.
3. `sottovoce consortium status .`, at any time; `sottovoce consortium results .`, at the end.

If a site crashed, submit again once it is back: all nodes go on where they were, and nothing is released twice.
The model itself does not come here: every site has it.
"""


def site_page(agreement: Agreement, site: PublicSite) -> str:
    """A site's page."""
    run = agreement.run
    held_out = site.held_out(agreement.held_out)
    people = agreement.schema.unit is not None
    tested = f"one record of each of {held_out} held-out people" if people else f"{held_out} held-out records"
    count = f"one noisy count of right answers on {tested}" if held_out else "nothing else"
    return SITE.format(
        site=site.name,
        name=agreement.name,
        host=agreement.host,
        port=agreement.port,
        rounds=run.event(run.number(site.name)).rounds,
        run=agreement.run_name,
        count=count,
        verdict=run.statement.verdict(),
        schema=agreement.schema_file,
        whose="people, with all of their records" if people else "records",
        records=site.records,
        digest=run.digest,
    )


def server_page(agreement: Agreement) -> str:
    """The relay's page."""
    return SERVER.format(name=agreement.name, host=agreement.host, port=agreement.port)


def admin_page(agreement: Agreement) -> str:
    """The page of whoever submits jobs."""
    return ADMIN.format(name=agreement.name, admin=agreement.admin)


def form(agreement: Agreement) -> str:
    """site.toml, to be filled in."""
    return f"# Site of consortium {agreement.name}.\n{FORM}"


ROLES = ("project_admin", "org_admin", "lead", "member")
FORBIDDEN = ("byoc", "shell_commands", "server-predeployed-flwr")  # own code would pass by the list of classes
BUILDERS = "nvflare.lighter.impl"


def project_yml(agreement: Agreement) -> dict[str, Any]:
    """FLARE's project file."""
    sites = [{"name": site.name, "type": "client", "org": site.org} for site in agreement.sites]
    return {
        "api_version": 3,
        "name": agreement.name,
        "description": f"sottovoce consortium {agreement.name}",
        "participants": [
            {"name": agreement.host, "type": "server", "org": agreement.admin_org, "fed_learn_port": agreement.port},
            *sites,
            {"name": agreement.admin, "type": "admin", "org": agreement.admin_org, "role": "lead"},
        ],
        "builders": [
            {"path": f"{BUILDERS}.workspace.WorkspaceBuilder", "args": {"template_file": ["master_template.yml"]}},
            {
                "path": f"{BUILDERS}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            {"path": f"{BUILDERS}.cert.CertBuilder"},
            {"path": f"{BUILDERS}.signature.SignatureBuilder"},
        ],
    }


def provision(agreement: Agreement, source: Path, out: Path) -> dict[str, Path]:
    """Make the kits under `out`; returns the folder of every participant by its name.

    Run again, it makes a new set of kits with the same authority, whose key FLARE keeps in `state`.
    """
    settings = project_yml(agreement)
    tools, provisioner = flare("lighter.provision"), flare("lighter.provisioner")
    out.mkdir(parents=True, exist_ok=True)
    (out / "project.yml").write_text(flare("lighter.utils").yaml.safe_dump(settings, sort_keys=False))
    said = StringIO()
    try:
        with redirect_stdout(said):
            project = tools.prepare_project(settings)
            done = provisioner.Provisioner(str(out), tools.prepare_builders(settings)).provision(project)
    except (ValueError, RuntimeError) as error:
        raise SpecError(f"FLARE cannot provision this consortium ({error}); correct {FILE}") from None
    if done.get(flare("lighter.constants").CtxKey.BUILD_ERROR):
        raise SpecError(f"FLARE's provisioning failed: {said.getvalue().strip() or 'it does not say why'}")
    folder = Path(done[flare("lighter.constants").CtxKey.CURRENT_PROD_DIR])
    (folder.parent / "state").chmod(0o700)  # the authority's private key
    kits = {name: folder / name for name in (agreement.host, *(s.name for s in agreement.sites), agreement.admin)}
    _settle_server(kits[agreement.host])
    _copy_agreement(agreement, source, kits[agreement.host] / "local")
    (kits[agreement.host] / "README.md").write_text(server_page(agreement))
    for site in agreement.sites:
        _settle_site(kits[site.name], agreement, source)
        (kits[site.name] / "README.md").write_text(site_page(agreement, site))
    (kits[agreement.admin] / "README.md").write_text(admin_page(agreement))
    _copy_agreement(agreement, source, kits[agreement.admin] / "local")
    return kits


def _settle_server(kit: Path) -> None:
    resources = _defaults(kit, "resources.json")
    resources["class_allow_list"] = ALLOWED["server"]
    resources["components"] = [c for c in resources["components"] if c["id"] != "log_receiver"]
    _write(kit, "resources.json", resources)
    _write(kit, "authorization.json", _permissions(kit))
    keep_inside(kit)


def keep_inside(kit: Path) -> None:
    """Let a server store jobs in its own kit, wherever that was moved to; FLARE would share a folder of the machine."""
    resources = json.loads((kit / "local" / "resources.json").read_text())
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.resolve() / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.resolve() / "jobs")
    _write(kit, "resources.json", resources)


def _settle_site(kit: Path, agreement: Agreement, source: Path) -> None:
    resources = _defaults(kit, "resources.json")
    resources["class_allow_list"] = ALLOWED["site"]
    resources["allow_log_streaming"] = False
    resources["components"] = [c for c in resources["components"] if c["id"] != "site_log_streamer"]
    _write(kit, "resources.json", resources)
    _write(kit, "authorization.json", _permissions(kit))
    _copy_agreement(agreement, source, kit / "local")
    (kit / "local" / "site.toml").write_text(form(agreement))


def _permissions(kit: Path) -> dict[str, Any]:
    """FLARE's own, but nobody may bring code to a site or run its commands there."""
    policy = _defaults(kit, "authorization.json")
    for role in ROLES:
        rights = policy["permissions"].get(role)
        if rights == "any":  # of a project admin; the consortium has none
            policy["permissions"][role] = {"view": "any"}
        elif isinstance(rights, dict):
            rights.update({right: "none" for right in FORBIDDEN})
    return policy


def _copy_agreement(agreement: Agreement, source: Path, local: Path) -> None:
    """The agreement as it stands, under the names that the nodes look for."""
    local.mkdir(exist_ok=True)
    shutil.copyfile(source, local / FILE)
    shutil.copyfile(source.parent / agreement.schema_file, local / agreement.schema_file)


def _defaults(kit: Path, name: str) -> dict[str, Any]:
    return json.loads((kit / "local" / f"{name}.default").read_text())


def _write(kit: Path, name: str, value: dict[str, Any]) -> None:
    (kit / "local" / name).write_text(json.dumps(value, indent=2) + "\n")
