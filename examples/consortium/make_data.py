"""Records for the three clinics of the example: a CSV file, a Parquet file and an SQLite database.

    python make_data.py FOLDER

The records are scikit-learn's breast-cancer data, partitioned over the sites. A few values are removed,
so that some are missing.
"""

import csv
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.datasets import load_breast_cancer

COLUMNS = {
    "radius": "mean radius",
    "texture": "mean texture",
    "area": "mean area",
    "smoothness": "mean smoothness",
    "compactness": "mean compactness",
    "concavity": "mean concavity",
    "concave_points": "mean concave points",
}
CLINICS = {"north": 200, "south": 180, "west": 189}


def tables() -> dict[str, dict[str, list]]:
    """The columns of every clinic."""
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data.target))
    places = [list(data.feature_names).index(name) for name in COLUMNS.values()]
    found, start = {}, 0
    for clinic, count in CLINICS.items():
        rows = order[start : start + count]
        start += count
        columns = {name: data.data[rows, place].tolist() for name, place in zip(COLUMNS, places, strict=True)}
        for row in rng.choice(count, 5, replace=False):
            columns["texture"][row] = None
        names = [f"{clinic}-{i:04d}" for i in range(count)]
        diagnosis = ["benign" if data.target[row] else "malignant" for row in rows]
        found[clinic] = {"patient": names, **columns, "diagnosis": diagnosis}
    return found


def write(folder: Path) -> None:
    """One file or database for each clinic."""
    folder.mkdir(parents=True, exist_ok=True)
    north, south, west = tables().values()
    with open(folder / "north.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(north)
        lines.writerows(zip(*north.values(), strict=True))
    pa.parquet.write_table(pa.table(south), folder / "south.parquet")
    (folder / "west.db").unlink(missing_ok=True)
    with sqlite3.connect(folder / "west.db") as database:
        database.execute(f"CREATE TABLE patients ({', '.join(west)})")
        places = ", ".join("?" * len(west))
        database.executemany(f"INSERT INTO patients VALUES ({places})", list(zip(*west.values(), strict=True)))
    database.close()


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "records"))
