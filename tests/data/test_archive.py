"""Tables in .npz files: bit for bit, whole or not at all, nothing strange read."""

import numpy as np
import pytest
from scipy import sparse

from sottovoce.data.tables import Table, load_table, save_table
from sottovoce.errors import DataError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_tables_come_back_bit_for_bit(tmp_path, kind, dtype):
    X = (RNG.random((20, 7)) * (RNG.random((20, 7)) < 0.5)).astype(dtype)
    X = sparse.csr_array(X) if kind == "csr" else X
    groups, features = np.array(["é", "b"] * 10), tuple(f"f{j}" for j in range(7))
    for table in (Table(X, RNG.random(20), groups, features, "a name"), Table(X, None, None, None, "")):
        again = load_table(save_table(table, tmp_path / "t.npz"))
        assert again.X.dtype == dtype and sparse.issparse(again.X) == (kind == "csr")
        assert (again.X != X).sum() == 0 and again.name == table.name and again.features == table.features
        for mine, given in ((again.y, table.y), (again.groups, table.groups)):
            assert (mine is None and given is None) or np.array_equal(mine, given)
        if kind == "csr":
            assert again.X.format == "csr" and again.X.has_canonical_format and again.X.indices.dtype == X.indices.dtype
    assert [path.name for path in tmp_path.iterdir()] == ["t.npz"]


def test_tables_that_cannot_be_written(tmp_path):
    table = Table(np.eye(2), None, None, None, "eye")
    with pytest.raises(DataError, match=r"tables are written as \.npz; give the file that ending"):
        save_table(table, tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"cannot be written here .* choose a folder that exists"):
        save_table(table, tmp_path / "none" / "t.npz")


def test_files_that_are_no_tables(tmp_path):
    path = tmp_path / "t.npz"
    with pytest.raises(DataError, match="no such file"):
        load_table(path)
    with pytest.raises(DataError, match="a folder"):
        load_table(tmp_path)
    path.write_bytes(b"not a zip")
    with pytest.raises(DataError, match="damaged or no table"):
        load_table(path)
    good = {"version": 1, "name": "x", "X": np.eye(2)}
    csr = {"data": np.ones(1), "indices": np.array([9]), "indptr": np.array([0, 1]), "shape": np.array([1, 3])}
    for change, message in (
        ({"version": 2}, "no table written by sottovoce of this version"),
        ({"X": np.eye(2, dtype=int)}, "float32 or float64 table, not int64"),
        ({"y": np.ones(3)}, "one label and one owner for each of 2 records"),
        ({"features": np.array(["a"])}, "2 features and 1 names"),
        ({"X": None} | csr, "damaged or no table"),
    ):
        np.savez(path, **{key: value for key, value in (good | change).items() if value is not None})
        with pytest.raises(DataError, match=message):
            load_table(path)
    save_table(Table(np.ones((50, 50)), None, None, None, "t"), path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match="damaged or no table"):
        load_table(path)
