"""From consortium.toml to a startup kit for every party, by FLARE's own provisioning tools.

FLARE makes the certificates and its configuration; its scripts are left out, for nothing in a kit names a command. What
we add lies in the `local` folder: which classes a job may name (ours alone), that nobody may bring code or inspect
the site, that no log leaves it, the agreement and the schema, a form for the site's own records, and beside it all a
page that says what to do.

The maker of a kit need not be trusted: except for certificates, keys and what the site writes itself,
every byte follows from the agreement (`expected_files`), and `sottovoce node check` compares.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from sottovoce.consortium.agreement import FILE, Agreement, PublicSite
from sottovoce.consortium.certificates import (
    authority_days,
    certificate_of,
    certify,
    forget,
    held,
    own_key_in,
    write_revoked,
)
from sottovoce.consortium.flare import flare
from sottovoce.consortium.job import ALLOWED, strict_json
from sottovoce.errors import SpecError
from sottovoce.node.budget import DATASET
from sottovoce.node.site import FILE as SITE_FILE
from sottovoce.node.site import Site, read_site

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

1. Install the release that all agreed on, by its hashes (docs/consortium.md, 1; Python 3.11 or newer).
2. Say where your records are, in `local/site.toml`. The columns must be those of `local/{schema}`; you
   agreed to bring {records} {whose} (more are fine: {records} of them are used).
3. Set what your records may cost over all runs, ever:
   `sottovoce ledger budget STATE --epsilon … --delta …` (STATE is the folder that site.toml names).
4. Check: `sottovoce node check .` reads your records and says whether you can join. No record leaves your site.
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

1. Install the release that all agreed on, by its hashes (docs/consortium.md, 1).
2. Sites must reach this machine as `{host}`, port {port}.
3. `sottovoce consortium start .`, and leave it running.
"""

ADMIN = """# Who starts runs of consortium {name}: {admin}

1. Install the release that all agreed on, by its hashes (docs/consortium.md, 1).
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
    """Return the instructions page for those who submit jobs."""
    return ADMIN.format(name=agreement.name, admin=agreement.admin)


def form(agreement: Agreement) -> str:
    """site.toml, to be filled in."""
    return f"# Site of consortium {agreement.name}.\n{FORM}"


ROLES = ("project_admin", "org_admin", "lead", "member")
FORBIDDEN = ("byoc", "shell_commands", "server-predeployed-flwr")  # own code would pass by the list of classes
BUILDERS = "nvflare.lighter.impl"
STATE = "state"
AUTHORITY_DAYS = 3650
"""How long the authority of a new consortium is valid; members' certificates are for 360 days, and renewed."""

RESOURCES = "local/resources.json"
"""FLARE's components in a kit. The server's names the kit's own place (`keep_inside`)."""
STARTUP = {"server": "fed_server.json", "site": "fed_client.json", "admin": "fed_admin.json"}
"""FLARE's own configuration in a kit, by whose it is."""
CERTIFICATES = {"server": "server", "site": "client", "admin": "client"}
"""What its certificate and key are called."""
ROOT = "rootCA.pem"


def kind_of(kit: Path) -> str:
    """Whose kit a folder is."""
    for kind, file in STARTUP.items():
        if (kit / "startup" / file).is_file():
            return kind
    raise SpecError(f"'{kit}' is no kit; give a folder that `sottovoce consortium init` made")


def project_yml(agreement: Agreement, authority_days: int = AUTHORITY_DAYS) -> dict[str, Any]:
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
            {"path": f"{BUILDERS}.cert.CertBuilder", "args": {"root_valid_days": authority_days}},
        ],
    }


def _built(settings: dict[str, Any], out: Path) -> Path:
    """FLARE's kits, as it makes them: the folder of all."""
    tools, provisioner = flare("lighter.provision"), flare("lighter.provisioner")
    said = StringIO()
    try:
        with redirect_stdout(said):
            project = tools.prepare_project(settings)
            done = provisioner.Provisioner(str(out), tools.prepare_builders(settings)).provision(project)
    except (ValueError, RuntimeError) as error:
        raise SpecError(f"FLARE cannot provision this consortium ({error}); correct {FILE}") from None
    if done.get(flare("lighter.constants").CtxKey.BUILD_ERROR):
        raise SpecError(f"FLARE's provisioning failed: {said.getvalue().strip() or 'it does not say why'}")
    return Path(done[flare("lighter.constants").CtxKey.CURRENT_PROD_DIR])


def provision(
    agreement: Agreement, source: Path, out: Path, requests: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, Path]:
    """Make the kits under `out`; returns the folder of every participant by its name.

    Who sent a request for a certificate has a key of its own, and no key in its kit.

    Run again, it makes a new set of kits with the same authority, whose key FLARE keeps in `state`, and with the same
    certificates of all that have one there.
    """
    out.mkdir(parents=True, exist_ok=True)
    out.chmod(0o700)
    state = out / agreement.name / STATE
    settings = project_yml(agreement, authority_days(state))
    (out / "project.yml").write_text(flare("lighter.utils").yaml.safe_dump(settings, sort_keys=False))
    folder = _built(settings, out)
    state.chmod(0o700)  # the authority's private key
    for file in state.iterdir():
        file.chmod(0o600)
    kits = {name: folder / name for name in (agreement.host, *(s.name for s in agreement.sites), agreement.admin)}
    for name, request in requests.items():
        if name not in kits:
            raise SpecError(f"there is a certificate request of '{name}', who is no member of '{agreement.name}'")
        certify(state, name, request)
    for name, kit in kits.items():
        _settle(kit, agreement, source)
        certificate, key, _ = certificate_files(kind_of(kit))
        pem, own = certificate_of(state, name)
        if own:
            (kit / certificate).write_bytes(pem)
            (kit / key).unlink()
    (kits[agreement.host] / "README.md").write_text(server_page(agreement))
    for site in agreement.sites:
        (kits[site.name] / "README.md").write_text(site_page(agreement, site))
        (kits[site.name] / "local" / "site.toml").write_text(form(agreement))
    (kits[agreement.admin] / "README.md").write_text(admin_page(agreement))
    return kits


def renew(agreement: Agreement, source: Path, out: Path, name: str, request: bytes | None = None) -> Path:
    """A new key and certificate for one member, by the same authority; the folder that replaces its startup/.

    With a request, the certificate is of the member's own new key.
    """
    everybody = [agreement.host, agreement.admin, *(site.name for site in agreement.sites)]
    if name not in everybody:
        raise SpecError(f"there is no member '{name}'; the members are {', '.join(everybody)}")
    forget(out / agreement.name / STATE, name)
    requests = {} if request is None else {name: request}
    return provision(agreement, source, out, requests)[name] / "startup"


def requests_in(folder: Path) -> dict[str, bytes]:
    """The certificate requests in a folder: NAME.csr of every member that has a key of its own."""
    if not folder.is_dir():
        raise SpecError(f"'{folder}' is no folder of certificate requests (NAME.csr)")
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.csr"))}


def join(kit: Path, key: Path) -> str:
    """Put a member's own key into its kit; the member's name."""
    certificate, where, authority = certificate_files(kind_of(kit))
    own_key_in(kit, certificate, where, key)
    return held(kit / certificate, kit / where, kit / authority).name


def site_of(kit: Path) -> Site:
    """Where a site's records and its own folder are, by its kit."""
    if kind_of(kit) != "site":
        raise SpecError(f"'{kit}' is not the kit of a site; only sites have records and a budget")
    return read_site(kit / "local" / SITE_FILE)


def use_records(kit: Path, file: Path) -> None:
    """Write a file of records into a site's kit, which names none yet or this one."""
    if kind_of(kit) != "site":
        raise SpecError(f"'{kit}' is not the kit of a site; leave --file out")
    if not file.is_file():
        raise SpecError(f"there is no file of records '{file}'; check the path")
    text = f'dataset = "{DATASET}"\nstate = "../state"\nfile = {json.dumps(str(file.resolve()), ensure_ascii=False)}\n'
    (kit / "local" / SITE_FILE).write_text(text, encoding="utf-8")


def revoke(agreement: Agreement, source: Path, out: Path, name: str) -> int:
    """Write into the agreement that a member's certificate counts no more; its serial number."""
    serial = forget(out / agreement.name / STATE, name)
    if serial is None:
        raise SpecError(f"no certificate of '{name}' is kept under '{out}'; give its --serial")
    write_revoked(source, tuple(sorted({*agreement.revoked, serial})))
    return serial


def _settle(kit: Path, agreement: Agreement, source: Path) -> None:
    """Keep of FLARE's kit what is needed, write what is ours, and let nobody else read it."""
    kind, files = kind_of(kit), _kit_files(kit, kit)
    certificates = {path: (kit / path).read_bytes() for path in certificate_files(kind)}
    shutil.rmtree(kit)
    for folder in (kit, kit / "startup", kit / "local"):
        folder.mkdir(mode=0o700)
    for name, content in (files | certificates).items():
        (kit / name).write_bytes(content)
        (kit / name).chmod(0o600)
    shutil.copyfile(source, kit / "local" / FILE)
    shutil.copyfile(source.parent / agreement.schema_file, kit / "local" / agreement.schema_file)


def certificate_files(kind: str) -> tuple[str, str, str]:
    """Certificate, key and authority, by their paths in a kit."""
    name = CERTIFICATES[kind]
    return f"startup/{name}.crt", f"startup/{name}.key", f"startup/{ROOT}"


def expected_files(agreement: Agreement, name: str, kit: Path) -> dict[str, bytes]:
    """What provisioning writes into startup/ and local/ of a participant, to the byte; no certificates and keys."""
    settings = project_yml(agreement)
    settings["builders"] = [builder for builder in settings["builders"] if "cert" not in builder["path"]]
    with TemporaryDirectory() as folder:
        return _kit_files(_built(settings, Path(folder)) / name, kit)


def _kit_files(made: Path, kit: Path) -> dict[str, bytes]:
    """The files of a kit that will lie at `kit`, from the folder that FLARE has just made."""
    kind = kind_of(made)
    startup = {f"startup/{STARTUP[kind]}": (made / "startup" / STARTUP[kind]).read_bytes()}
    resources = json.loads((made / "local" / "resources.json.default").read_text())
    if kind == "admin":
        return startup | {"local/resources.json": _json(resources)}
    resources["class_allow_list"] = ALLOWED[kind]
    if kind == "site":
        resources["allow_log_streaming"] = False
    resources["components"] = [
        c for c in resources["components"] if c["id"] not in ("site_log_streamer", "log_receiver")
    ]
    if kind == "server":
        keep_inside(resources, kit)
    policy = json.loads((made / "local" / "authorization.json.default").read_text())
    return startup | {
        "local/resources.json": _json(resources),
        "local/authorization.json": _json(_permissions(policy)),
        "local/log_config.json": (made / "local" / "log_config.json.default").read_bytes(),
    }


def as_if_here(content: bytes, kit: Path) -> bytes:
    """A server's resources as provisioning would have written them at `kit`; other content stays as it is."""
    try:
        resources = strict_json(content)
        keep_inside(resources, kit)
        return _json(resources)
    except (SpecError, ValueError, KeyError, TypeError):
        return content


def keep_inside(resources: dict[str, Any], kit: Path) -> None:
    """Let a server store jobs in its own kit, wherever that was moved to; FLARE would share a folder of the machine."""
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.resolve() / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.resolve() / "jobs")


def _permissions(policy: dict[str, Any]) -> dict[str, Any]:
    """FLARE's own, but nobody may bring code to a site or run its commands there."""
    for role in ROLES:
        rights = policy["permissions"].get(role)
        if rights == "any":  # of a project admin; the consortium has none
            policy["permissions"][role] = {"view": "any"}
        elif isinstance(rights, dict):
            rights.update({right: "none" for right in FORBIDDEN})
    return policy


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
