"""Real data sets, kept outside the project in the folder that the environment variable SOTTOVOCE_DATA names."""

import os
from pathlib import Path

from sottovoce.data.idx import load_pictures
from sottovoce.data.load import load
from sottovoce.data.tables import Table
from sottovoce.errors import DataError

VARIABLE = "SOTTOVOCE_DATA"
"""The environment variable that names the folder."""

REAL = {
    "a9a": ("a9a.svm", 123),
    "a9a.t": ("a9a.t.svm", 123),  # its largest index is 122: the width must be said
    "covtype": ("covtype.binary.svm", 54),
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
