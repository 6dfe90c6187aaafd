"""Real data sets: from the LIBSVM data page into a cache, or as they lie in a folder outside the project.

A file of the page is downloaded once, resumed where it stopped, and checked. The folder is the one that the environment
variable SOTTOVOCE_DATA names; what is there is not fetched again.
"""

import bz2
import errno
import hashlib
import http.client
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from sottovoce._version import __version__
from sottovoce.data.load import load, load_pictures
from sottovoce.data.tables import Table
from sottovoce.errors import DataError, SpecError

BASE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
"""Where the files lie."""

CACHE_VARIABLE = "SOTTOVOCE_CACHE"
"""The environment variable that names the folder for downloads."""

TIMEOUT = 60.0  # seconds without a byte
ATTEMPTS = 5  # connections in a row that bring nothing new
PAUSE = 1.0  # seconds before the next one, doubled every time
CHUNK = 1 << 18

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received so far, and with the total if the server states it."""


class DataSource(NamedTuple):
    """A file on the page; `sha256` is None where the page does not give one and none is known."""

    file: str
    records: int
    features: int
    sha256: str | None
    what: str


SOURCES = {
    "epsilon": DataSource("epsilon_normalized.bz2", 400_000, 2000, None, "training rows, the paper's; 12 GB as text"),
    "epsilon.t": DataSource("epsilon_normalized.t.bz2", 100_000, 2000, None, "test rows; 3 GB as text"),
    "rcv1": DataSource("rcv1_train.binary.bz2", 20_242, 47_236, None, "training rows, the small half"),
    "rcv1.t": DataSource("rcv1_test.binary.bz2", 677_399, 47_236, None, "test rows, the large half: the paper's"),
    "a9a": DataSource(
        "a9a", 32_561, 123, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906", "training rows"
    ),
    "a9a.t": DataSource(
        "a9a.t", 16_281, 123, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9", "test rows"
    ),
    "covtype": DataSource("covtype.libsvm.binary.bz2", 581_012, 54, None, "all rows, not scaled, labels 1 and 2"),
}
"""Every file by name; names and sizes are those of the page, which calls rcv1's small half the training rows."""


class _Cut(Exception):
    """The connection ended early; what came so far is kept."""


def cache_folder() -> Path:
    """Where downloads are kept: SOTTOVOCE_CACHE, or a folder in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "sottovoce"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sottovoce"


def found(name: str, folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of a data set where it is already here, else None: in SOTTOVOCE_DATA or in the cache; not checked.

    Examples
    --------
    >>> found("a9b")
    Traceback (most recent call last):
        ...
    sottovoce.errors.SpecError: no data set to fetch is called 'a9b'; choose one of epsilon, epsilon.t, rcv1, ...
    """
    source = _source(name)
    kept, own = Path(folder or cache_folder()) / source.file, os.environ.get(VARIABLE)
    if folder is None and own:
        bare = source.file.removesuffix(".bz2")
        for ending in (".bz2", "", ".xz", ".gz", ".svm", ".svm.bz2", ".svm.xz", ".svm.gz"):
            if Path(own, bare + ending).is_file():
                return Path(own, bare + ending)
    return kept if kept.is_file() else None


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    base: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file of a real data set, downloaded unless it is already here.

    Parameters
    ----------
    name : one of `SOURCES`; a name with '.t' is the other half of the one without
    folder : where to keep it; by default a file in SOTTOVOCE_DATA is taken as it is, and downloads go to the cache
    base : the address of the folder to download from, for a mirror
    progress : called with (bytes here, bytes in all or None)

    Returns
    -------
    The file, as published: svmlight text, .bz2 but for a9a. A download that stops is kept as .part and goes on at the
    next call. A file whose sum is known is held to it; any other is decompressed to its end and its records counted,
    and its sum is then written beside it (.sha256), to be held to from then on.

    Examples
    --------
    >>> fetch("mnist")
    Traceback (most recent call last):
        ...
    sottovoce.errors.SpecError: no data set to fetch is called 'mnist'; choose one of epsilon, ...
    """
    source = _source(name)
    if base is not None and not re.match(r"https?://", base):
        raise SpecError(f"the base must be a web address that begins with http:// or https://, not '{base}'")
    here = found(name, folder)
    kept = Path(folder or cache_folder()) / source.file
    if here is not None and here != kept:
        return here
    try:
        if here is None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(kept.name + ".part")
            _download(f"{(base or BASE).rstrip('/')}/{source.file}", part, progress)
            _verify(source, part, None)
            part.replace(kept)
            _sidecar(kept).write_text(f"{_sha256(kept)}  {kept.name}\n")
        else:
            written = _sidecar(kept).read_text().split()[:1] if _sidecar(kept).is_file() else []
            _verify(source, kept, written[0] if written else None)
            if not written:
                _sidecar(kept).write_text(f"{_sha256(kept)}  {kept.name}\n")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{kept.parent}: the disk is full; make room or name another folder with --folder, and start again: "
                "the download goes on where it stopped"
            ) from None
        raise DataError(
            f"{kept.parent}: the download cannot be kept there ({error.strerror or error}); name another folder with "
            "--folder"
        ) from None
    return kept


def _source(name: str) -> DataSource:
    if name not in SOURCES:
        raise SpecError(f"no data set to fetch is called '{name}'; choose one of {', '.join(SOURCES)}")
    return SOURCES[name]


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


# ---- download


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """Bring the part to its full length, over as many connections as it takes while each brings something."""
    fruitless, most = 0, 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        most = max(most, before)
        try:
            return _connect(url, part, before, progress)
        except _Cut as cut:
            after = part.stat().st_size if part.exists() else 0
            fruitless = 0 if after > most else fruitless + 1
            if fruitless >= ATTEMPTS:
                raise DataError(
                    f"{url}: the connection was cut after {after:,} bytes ({cut}), {ATTEMPTS} times over; start again "
                    "later, and the download goes on from there"
                ) from None
            time.sleep(PAUSE * 2**fruitless if fruitless else 0)


def _connect(url: str, part: Path, start: int, progress: Progress | None) -> None:
    # without 'identity' a server may compress what it sends, and ranges would count other bytes than the file's
    headers = {"User-Agent": f"sottovoce/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as answer:
            total = _total(answer)
            resumed = answer.status == 206 and _first(answer) == start
            if answer.status == 206 and not resumed:
                raise _Cut("the server sent a different part of the file than requested")
            with part.open("ab" if resumed else "wb") as file:
                _copy(answer, file, start if resumed else 0, total, progress)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # nothing after what is here: it is whole, or it is not this file
                if error.headers.get("Content-Range", "") == f"bytes */{start}":
                    return
                part.unlink()
                raise _Cut("the file on the server is shorter than the part that is here") from None
            if error.code in (404, 410):
                raise DataError(f"{url}: there is no such file on the server; check --base") from None
            if error.code in (429, 500, 502, 503, 504):
                raise _Cut(f"the server answered {error.code}") from None
            raise DataError(
                f"{url}: the server answered {error.code} {error.reason}; try later or another --base"
            ) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError | ConnectionResetError):
            raise _Cut(str(error.reason)) from None
        raise DataError(
            f"{url}: the server cannot be reached ({error.reason}); check the network, or copy the file by hand to "
            f"{part.parent}"
        ) from None
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise _Cut(str(error) or type(error).__name__) from None


def _total(answer: Any) -> int | None:
    """Return the length of the whole file, if the server states it."""
    if answer.status == 206:
        match = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        return int(match[1]) if match else None
    length = answer.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _first(answer: Any) -> int | None:
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _copy(answer: Any, file: IO[bytes], done: int, total: int | None, progress: Progress | None) -> None:
    if total is not None and total - done > shutil.disk_usage(Path(file.name).parent).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    while chunk := answer.read(CHUNK):
        file.write(chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    if total is not None and done < total:
        raise _Cut(f"{total:,} were promised")


# ---- check


def _verify(source: DataSource, path: Path, written: str | None) -> None:
    """Hold the file to its sum, or where none is known to its contents; a bad file is deleted."""
    expected = source.sha256 or written
    try:
        if expected is not None:
            actual = _sha256(path)
            if actual != expected:
                raise DataError(
                    f"{path}: the sum (sha256) of the file is {actual[:12]}… and not {expected[:12]}… as it should be; "
                    "it was deleted: fetch it again"
                )
        else:
            _count(source, path)
    except DataError:
        path.unlink()
        _sidecar(path).unlink(missing_ok=True)
        raise


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count(source: DataSource, path: Path) -> None:
    """Read to the end: as many records as published, and no feature beyond the last."""
    records = widest = 0
    try:
        with bz2.open(path) if source.file.endswith(".bz2") else path.open("rb") as file:
            for line in file:
                records += 1
                widest = max(widest, int(line[line.rfind(b" ") + 1 :].partition(b":")[0]))
    except (EOFError, ValueError) as error:
        raise DataError(f"{path}: the file is truncated or damaged ({error}); it was deleted: fetch it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise DataError(f"{path}: the file is truncated or damaged ({error}); it was deleted: fetch it again") from None
    if records != source.records or widest > source.features:
        raise DataError(
            f"{path}: the file holds {records:,} records with features up to {widest:,}, and should hold "
            f"{source.records:,} with up to {source.features:,}; it was deleted: fetch it again, or check --base"
        )


VARIABLE = "SOTTOVOCE_DATA"
"""The environment variable that names the folder."""

REAL = {
    "a9a": ("a9a.svm", 123),
    "a9a.t": ("a9a.t.svm", 123),  # its largest index is 122: the width must be said
    "covtype": ("covtype.binary.svm", 54),
    "credit": ("credit_card.csv", 33),
    "epsilon100": ("epsilon_normalized.first100.svm", 2000),
    "epsilon100.t": ("epsilon_normalized.t.first100.svm", 2000),
    "epsilon5000": ("epsilon_normalized.first5000x100cols.svm", 2000),
    "mnist": ("mnist.train-images-idx3-ubyte", 784),
    "mnist.t": ("mnist.t10k-images-idx3-ubyte", 784),
    "mushrooms": ("mushrooms.svm", 112),
    "rcv1": ("rcv1_topics_subsets.binary.svm", 47236),
}
"""Every data set with its file, without the ending of the compression, and its number of features."""

PICTURES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
"""A file of pictures has its labels beside it."""


def real_path(name: str) -> Path | None:
    """The file of a real data set, or None where the variable is unset or the file is not in the folder.

    Examples
    --------
    >>> real_path("a9b")
    Traceback (most recent call last):
        ...
    sottovoce.errors.DataError: no real data set is called 'a9b'; choose one of a9a, a9a.t, covtype, ...
    """
    if name not in REAL:
        raise DataError(f"no real data set is called '{name}'; choose one of {', '.join(REAL)}")
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    paths = [Path(folder, REAL[name][0] + ending) for ending in (".xz", ".bz2", ".gz", "")]
    return next((path for path in paths if path.is_file()), None)


def load_real(name: str) -> Table:
    """A real data set as it lies in its file: labels as published (1 and 2 in 'mushrooms'), nothing scaled.

    Pixels alone are divided by 255, the largest that a byte can hold: 'mnist' lies in [0, 1].
    """
    path = real_path(name)
    if path is None:
        folder = os.environ.get(VARIABLE)
        if not folder:
            raise DataError(f"the data set '{name}' is not in the project; set {VARIABLE} to the folder that holds it")
        raise DataError(f"{folder}: there is no {REAL[name][0]}.xz for the data set '{name}'; put it in that folder")
    if PICTURES in path.name:
        return load_pictures(path, path.with_name(path.name.replace(PICTURES, LABELS)), name)
    table = load(path, n_features=REAL[name][1])
    return Table(table.X, table.y, None, None, name)
