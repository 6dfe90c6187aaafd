"""What starting up loads: whatever is slow to import waits until it is used."""

import json
import subprocess
import sys

import pytest

SLOW = {
    "bokeh",
    "joblib",
    "matplotlib",
    "networkx",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "scipy.fft",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.signal",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
    "sklearn",
}
RUN = """
import numpy as np
from sottovoce import Shards, AlgorithmSpec, Spec
from sottovoce.run.build import prepare
from sottovoce.engine import ENGINES
shards = Shards.of(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 2, 4]))
job = prepare(Spec(AlgorithmSpec(rounds=3), seed=0).replace(privacy__noise="gaussian(1.0)"), shards).job
[ENGINES[name].refusal(job) for name in ENGINES]
ENGINES["reference"].run([job], [job.start()], 1, 3)
"""


def loaded(code: str) -> set[str]:
    """The modules that a fresh process has after running this."""
    details = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(details.stdout))


@pytest.mark.parametrize(
    "code", ["import sottovoce", "import sottovoce.cli.main", RUN], ids=["package", "command", "run"]
)
def test_what_is_slow_to_load_waits_until_it_is_used(code):
    assert not loaded(code) & SLOW


def test_the_estimators_load_no_more_of_scikit_learn_than_a_fit_needs():
    names = "PrivateClassifier, PrivateRegressor, PrivateSearchCV, PublicEncoder, PublicScaler, RowNormalizer"
    later = {"bokeh", "matplotlib", "networkx", "rich", "sklearn.linear_model", "sklearn.metrics"}
    assert not loaded(f"from sottovoce import {names}") & (later | {"sklearn.model_selection", "sklearn.preprocessing"})


def test_the_check_can_fail():
    assert {"scipy.sparse", "scipy.special"} & loaded("import scipy\nscipy.sparse") == {"scipy.sparse"}
