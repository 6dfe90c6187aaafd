"""From consortium.toml to a startup kit for every member, by FLARE's own provisioning tools.

FLARE makes the certificates, the start scripts and its configuration. What we add to a kit lies in its `local` folder,
which belongs to its site: which classes a job may name (ours alone), that nobody may bring code or look into the site,
that no log leaves it, the agreement and the schema, a form for the site's own records, and a page that says what to do.
"""

import json
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from sottovoce.consortium import pages
from sottovoce.consortium.agreement import FILE, Agreement
from sottovoce.consortium.flare import flare
from sottovoce.errors import SpecError

ALLOWED = {
    "server": ["sottovoce.consortium.controller.GossipController"],
    "site": ["sottovoce.consortium.executor.GossipExecutor"],
}
"""All that a job may instantiate; a name is matched whole, since ours end in a class."""

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
    (kits[agreement.host] / "README.md").write_text(pages.server(agreement))
    for site in agreement.sites:
        _settle_site(kits[site.name], agreement, source)
        (kits[site.name] / "README.md").write_text(pages.site(agreement, site))
    (kits[agreement.admin] / "README.md").write_text(pages.admin(agreement))
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
    (kit / "local" / "site.toml").write_text(pages.form(agreement))


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
