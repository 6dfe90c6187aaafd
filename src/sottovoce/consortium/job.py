"""A job: our two classes and the digest of the run, to the byte; and the words that go back, from a fixed list.

A submitted job has these files and no others, and every recipient compares: a code refuses an archive that holds
anything else, or a description that requests anything else. Beside our files there may be FLARE's signatures of them,
which FLARE requires and checks. A site does not unpack what it was sent: what FLARE reads there
(`own_archive`, `own_meta`) is made at the site, from the site's own agreement, once what came was found to be the same.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from sottovoce.consortium.agreement import Agreement
from sottovoce.errors import (
    ConflictingMessages,
    DataError,
    Disputed,
    LeftOut,
    NetworkError,
    PeerEnded,
    PeerTimeout,
    PrivacyError,
    SottovoceError,
    SpecError,
    StoreError,
    TooFew,
)

ALLOWED = {
    "server": ["sottovoce.consortium.controller.GossipController"],
    "site": ["sottovoce.consortium.executor.GossipExecutor"],
}
"""All that a job may instantiate; a name is matched whole, since ours end in a class."""

APP = "app"
PREPARE, TRAIN = "prepare", "train"
"""The tasks of a job: see whether everybody can, then do it."""
MAX_JOB_BYTES = 2**20
"""Bytes of an archive, of any of its files, and of any configuration."""
_SIGNATURES = frozenset(
    folder + name for folder in ("", "config/") for name in (".__nvfl_sig.json", ".__nvfl_submitter.crt")
)
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Code(StrEnum):
    """All that a site says when something is not as it should be. The sentence stays in its own log."""

    NOT_OBEYED = "this is not obeyed here"
    OTHER_JOB = "this is not the agreed job"
    FAILED = "it failed; the site's own log says why"
    AGREEMENT = "its agreement or its site.toml"
    RECORDS = "its records"
    NETWORK = "the network"
    BUDGET = "its budget"
    FOLDER = "its folder"
    SOFTWARE = "a fault in the software"
    UNREADABLE = "an answer that cannot be read"
    SILENT = "no answer"
    WAITED = "a site that it waited for"
    CONTRADICTED = "a site that signed other messages than it sent; this run cannot be finished"
    ENDED = "a site that ended the run; this run cannot be finished"
    DISPUTED = "a site that holds messages which were never made; restore the right folder"
    LEFT_OUT = "left out: the others went on without it"
    TOO_FEW = "more lost sites than were agreed; this run cannot be finished"


def code_of(error: Exception) -> Code:
    """Which part of the list an error falls under.

    Examples
    --------
    >>> code_of(DataError("row 7: diabetes of J. Smith is not 0 or 1"))
    <Code.RECORDS: 'its records'>
    """
    kinds: dict[type[SottovoceError], Code] = {
        PeerTimeout: Code.WAITED,
        ConflictingMessages: Code.CONTRADICTED,
        PeerEnded: Code.ENDED,
        Disputed: Code.DISPUTED,
        LeftOut: Code.LEFT_OUT,
        TooFew: Code.TOO_FEW,
        SpecError: Code.AGREEMENT,
        DataError: Code.RECORDS,
        NetworkError: Code.NETWORK,
        PrivacyError: Code.BUDGET,
        StoreError: Code.FOLDER,
        SottovoceError: Code.FAILED,
    }
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), Code.SOFTWARE)


def strict_json(data: bytes | str) -> dict[str, Any]:
    """One JSON object; refused are larger ones than any of ours, entries named twice, and numbers that are none.

    Examples
    --------
    >>> strict_json('{"digest": "ab", "digest": "cd"}')
    Traceback (most recent call last):
    sottovoce.errors.SpecError: this is no JSON object as it is written here: 'digest' stands twice
    """
    try:
        if len(data) > MAX_JOB_BYTES:
            raise ValueError(f"more than {MAX_JOB_BYTES} bytes")
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        if not isinstance(value, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise SpecError(f"this is no JSON object as it is written here: {error}") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' stands twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


# -- what a job is --


def job_name(agreement: Agreement) -> str:
    """By which jobs of one run are found again."""
    return f"{re.sub(r'[^A-Za-z0-9-]', '-', agreement.run_name)}-{agreement.run.digest[:16]}"


def job_meta(agreement: Agreement) -> dict[str, Any]:
    """Return the description of a job for FLARE: its name, and which sites must take part: all that may not be lost."""
    names = [site.name for site in agreement.sites]
    may_lose = agreement.run.may_lose
    return {
        "name": job_name(agreement),
        "resource_spec": {},
        "deploy_map": {APP: ["@ALL"]},
        "min_clients": len(names) - may_lose,
        "mandatory_clients": [] if may_lose else names,
    }


def app_files(digest: str) -> dict[str, bytes]:
    """The two files of a job's one app, by their paths in it."""
    arguments = {"digest": digest}
    server = {"id": "gossip", "path": ALLOWED["server"][0], "args": arguments}
    site = {"tasks": [PREPARE, TRAIN], "executor": {"path": ALLOWED["site"][0], "args": arguments}}
    return {
        "config/config_fed_server.json": _text({"format_version": 2, "workflows": [server], "components": []}),
        "config/config_fed_client.json": _text({"format_version": 2, "executors": [site], "components": []}),
    }


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode()


def write_job(agreement: Agreement, folder: Path) -> Path:
    """FLARE's job folder."""
    files = {f"{APP}/{name}": data for name, data in app_files(agreement.run.digest).items()}
    for name, data in ({"meta.json": _text(job_meta(agreement))} | files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


# -- what came, compared with it --


def is_job_id(value: object) -> bool:
    """FLARE's own names of jobs; they become folders, and words of a command."""
    return isinstance(value, str) and _JOB.fullmatch(value) is not None


def own_archive(data: object, digest: str) -> bytes:
    """The archive that FLARE unpacks at a site: our files, and signatures of them; refused if what came is not that."""
    found = unpacked(data)
    _check_archive(found, app_files(digest), _SIGNATURES)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(found):
            archive.writestr(name, found[name])
    return buffer.getvalue()


def check_own_job(data: object, agreement: Agreement) -> None:
    """Refuse a whole job's archive, as it is submitted, that is not the agreed one."""
    found = unpacked(data)
    folders = {name.partition("/")[0] for name in found}
    if len(folders) != 1:
        raise SpecError("a job is one folder; refused")
    inside = {name.partition("/")[2]: content for name, content in found.items()}
    meta = inside.pop("meta.json", b"")
    if strict_json(meta) != job_meta(agreement):
        raise SpecError("the job's description is not the agreed one; refused")
    files = {f"{APP}/{name}": content for name, content in app_files(agreement.run.digest).items()}
    _check_archive(inside, files, _SIGNATURES | {f"{APP}/{name}" for name in _SIGNATURES})


def _check_archive(found: Mapping[str, bytes], files: Mapping[str, bytes], signatures: frozenset[str]) -> None:
    odd = sorted(set(found) - set(files) - signatures)
    if odd:
        raise SpecError(f"a job brings {', '.join(sorted(files))} and nothing else, not '{odd[0]}'; refused")
    wrong = [name for name, content in files.items() if found.get(name) != content]
    if wrong:
        raise SpecError(f"'{wrong[0]}' of the job is not, to the byte, what the agreed run needs; refused")


def unpacked(data: object) -> dict[str, bytes]:
    """The files of a small archive, in memory: nothing is written, and nothing larger than it says is read."""
    if not isinstance(data, bytes) or len(data) > MAX_JOB_BYTES:
        raise SpecError(f"a job is an archive of at most {MAX_JOB_BYTES} bytes; refused")
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                if entry.file_size > MAX_JOB_BYTES or entry.filename in found or len(found) > 16:
                    raise SpecError("a job's archive holds files that are too large, too many or named twice; refused")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise SpecError("a job's archive is packed in a way whose size is not known beforehand; refused")
                with archive.open(entry) as file:  # by a count: without one all of it is unpacked, whatever its size
                    found[entry.filename] = file.read(entry.file_size)
    except SpecError:
        raise
    except Exception:  # of a dozen kinds, by what is wrong with it
        raise SpecError("a job's archive cannot be read; refused") from None
    return found


def check_job_meta(meta: object, agreement: Agreement, job: str) -> None:
    """Refuse a description that requests more than the agreed job; what the server adds of its own is not used."""
    expected = job_meta(agreement) | {"job_id": job}
    if not isinstance(meta, dict) or any(meta.get(key) != value for key, value in expected.items()):
        raise SpecError("the job's description is not the agreed one; refused")
    odd = sorted(str(key) for key in set(meta) - set(expected) - _BY_THE_SERVER)
    if odd or meta.get("study", "default") != "default":
        raise SpecError(f"the job's description requests '{odd[0] if odd else 'study'}'; refused")


_BY_THE_SERVER = frozenset(
    (
        "submitter_name submitter_org submitter_role job_folder_name submit_time submit_time_iso start_time duration "
        "data_storage_format status schedule_history schedule_count last_schedule_time job_clients job_deploy_detail "
        "study cloned_from result_location content_location"
    ).split()
)
"""Entries that a server writes about a job's way through it."""


def own_meta(agreement: Agreement, job: str) -> dict[str, Any]:
    """The description that FLARE reads at a site."""
    who = {"submitter_name": agreement.admin, "submitter_org": agreement.admin_org, "submitter_role": "lead"}
    sites = [{"name": site.name} for site in agreement.sites]
    return job_meta(agreement) | {"job_id": job, "study": "default", "job_clients": sites} | who
