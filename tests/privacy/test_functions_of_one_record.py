"""What is summed is a function of one record or person, the model and public numbers: each attack stays a test."""

import copy
import math
import pickle
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sottovoce import PrivateClassifier, PrivateRegressor, PrivateSearchCV, PublicScaler, RowNormalizer, Shards
from sottovoce.cli.records import from_public
from sottovoce.data.policy import GUARANTEE
from sottovoce.data.schema import Column, plain_schema, schema_of
from sottovoce.data.tables import Growing
from sottovoce.data.values import from_lists
from sottovoce.errors import DataError, OwnerWarning, SpecError
from sottovoce.evaluation import Held, Model, Tally, evaluate
from sottovoce.evaluation.tally import seeded
from sottovoce.matrices import row_norms
from sottovoce.privacy.one_shot import Moments
from sottovoce.problem.scores import row_scores
from sottovoce.problem.shards import even, in_turn, owner_of_rows, partition
from sottovoce.run import one_shot, private_scaling

SETTINGS = {"row_norm": 1.5, "classes": [0, 1], "rounds": 3}


@pytest.fixture(scope="module")
def visits():
    """100 people with 20 rows each, in no order, and as many to train on."""
    rng = np.random.default_rng(0)
    X, people = rng.normal(size=(4000, 3)) / 3, np.repeat(np.arange(200), 20)
    y = (X[:, 0] > 0).astype(int)
    order = rng.permutation(2000)
    return X[2000:], y[2000:], people[2000:], X[:2000][order], y[:2000][order], people[:2000][order]


def counted(monkeypatch):
    """The exact sums of all tallies from now on."""
    seen, answers = [], Tally.answers

    def noted(self, part, sums, *rest):
        seen.append(sums)
        return answers(self, part, sums, *rest)

    monkeypatch.setattr(Tally, "answers", noted)
    return seen


# -- partition of people --


def test_an_evaluation_partitions_people_and_not_their_rows(visits, monkeypatch):
    X, y, people, hX, hy, who = visits
    model = PrivateClassifier(5.0, n_nodes=20, random_state=0, **SETTINGS).fit(X, y, user_ids=people)
    seen = counted(monkeypatch)
    found = model.evaluate(hX, hy, user_ids=who, metrics="right")
    assert found.records == 100  # once each, and not at all 20 nodes
    assert sum(g.event.records * len(g.nodes) for g in found.statement.later) == 100
    rng = np.random.default_rng(1)
    for _ in range(20):  # one person has more rows, and other ones: no other person is counted otherwise
        extra = int(rng.integers(1, 40))
        more = np.concatenate([hX, rng.normal(size=(extra, 3))]), np.append(hy, np.zeros(extra, int))
        again = model.evaluate(*more, user_ids=np.append(who, np.full(extra, who[0])), metrics="right")
        assert again.records == 100 and np.array_equal(seen[-1], seen[0])
        turned = np.where(who == who[0], 1 - hy, hy)
        model.evaluate(hX, turned, user_ids=who, metrics="right")
        assert np.abs(seen[-1] - seen[0]).sum() == 1


def test_people_are_partitioned_over_simulated_nodes_in_simulations_only(visits):
    X, y, people, hX, hy, who = visits
    words = "people cannot be partitioned over 2 simulated nodes"
    model = PrivateClassifier(5.0, n_nodes=2, **SETTINGS).fit(X, y)
    with pytest.raises(SpecError, match=words):
        model.evaluate(hX, hy, user_ids=who)
    assert model.evaluate(hX, hy, nodes=who % 2, user_ids=who, metrics="right").records == 100
    with pytest.raises(SpecError, match=words):
        PrivateClassifier(5.0, n_nodes=2, **SETTINGS).fit(X, y, user_ids=people)
    search = PrivateSearchCV(
        PrivateClassifier(n_nodes=2, row_norm=1.5, classes=[0, 1]), {"rounds": [1, 2]}, epsilon=5.0
    )
    with pytest.raises(SpecError, match=words):
        search.fit(X, y, user_ids=people)
    with pytest.warns(UserWarning, match="foreseen to cost"):
        search.set_params(random_state=0).fit(X, y, user_ids=people)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 4), st.booleans())
def test_a_partition_keeps_people_whole(people, n, shuffled):
    n = min(n, len(set(people)))
    split = (lambda rows, n: even(len(rows), n, np.random.default_rng(0))) if shuffled else in_turn
    parts = partition(len(people), n, people, seeded=True, split=split)
    owner = owner_of_rows(parts)
    assert len(owner) == len(people) and set(owner.tolist()) == set(range(n))
    for one in set(people):
        assert len({int(owner[row]) for row, person in enumerate(people) if person == one}) == 1 or n == 1
    counts = [len({p for p, o in zip(people, owner, strict=True) if o == node}) for node in range(n)]
    assert n == 1 or max(counts) - min(counts) <= 1


def test_a_partition_of_rows_or_over_one_node_needs_no_seed():
    assert owner_of_rows(partition(4, 2, seeded=False)).tolist() == [0, 1, 0, 1]
    assert owner_of_rows(partition(3, 1, ["b", "a", "b"], seeded=False)).tolist() == [0, 0, 0]
    with pytest.raises(DataError, match="3 nodes cannot share 2 people"):
        partition(3, 3, ["b", "a", "b"], seeded=True)


# -- casts --


def test_a_score_that_is_no_number_moves_squares_by_no_more_than_is_accounted(monkeypatch):
    seen, keys = counted(monkeypatch), seeded(0)
    targets, scores = np.zeros(50), np.zeros(50)
    tally = Tally.of(np.array([50]), 1.0, 1e-5)
    evaluate(tally, Held(np.zeros(50, int), scores, targets), Model(0), keys)
    for odd in (np.nan, np.inf, -np.inf, 1e308, -1e308):
        for held in (Held(np.zeros(50, int), np.where(np.arange(50) == 7, odd, scores), targets),
                     Held(np.zeros(50, int), scores, np.where(np.arange(50) == 7, odd, targets))):  # fmt: skip
            with np.errstate(all="ignore"):
                evaluate(tally, held, Model(0), keys)
            assert np.linalg.norm((seen[-1] - seen[0]) * 2.0**-20) <= math.sqrt(2.0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("moments", [Moments(0.01), Moments(0.01, 0.03, 0.05)], ids=str)
def test_rows_that_overflow_in_units_of_their_bound_are_rows_of_the_bound(kind, moments):
    rng, grid = np.random.default_rng(0), one_shot.sums_grid(40)
    query = private_scaling.RowMoments(moments, 3, 2.0**-10)
    X = rng.uniform(-0.1, 0.1, (40, 3))

    def sums(row):
        mine = X.copy()
        mine[7] = row
        return query.exact_sums(Shards.of(kind(mine), np.ones(40), np.array([0, 40])), grid) * grid

    before = sums(X[7])
    for row in ([1e308, 0, 0], [1e308, -1e308, 1e308], [1e200, 1e308, 1e-300], [-1e308, 0, 1e308], [0, 0, 0]):
        assert np.linalg.norm(sums(row) - before) <= 2 * moments.clip


# -- scores --


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("classes", [None, 3])
def test_a_score_is_the_same_bits_in_every_table(kind, classes):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(5000, 37)) * (rng.random((5000, 37)) < 0.4)).astype(kind)
    w = rng.normal(size=37 if classes is None else (classes, 37))
    constant = 0.3 if classes is None else np.arange(3.0)
    scores = row_scores(X, w, constant, bound=2.0)
    shorter = X * np.minimum(1.0, 2.0 / np.maximum(np.linalg.norm(X, axis=1), 1e-9))[:, None]
    assert np.allclose(scores, shorter @ w.T + constant, atol=1e-5)
    for other in (np.asfortranarray(X), sparse.csr_array(X)):
        assert np.array_equal(row_scores(other, w, constant, bound=2.0), scores)
    order = rng.permutation(5000)
    for some in (order, order[:1], order[:777], np.append(order, order)):
        assert np.array_equal(row_scores(X[some], w, constant, bound=2.0), scores[some])
        assert np.array_equal(row_scores(sparse.csr_array(X)[some], w, constant, bound=2.0), scores[some])


@given(st.lists(st.lists(st.floats(width=64), min_size=3, max_size=3), min_size=1, max_size=5), st.floats(0.01, 100))
def test_scores_are_finite_and_within_the_bound_whatever_rows_hold(rows, bound):
    X, w = np.array(rows), np.array([1.0, -2.0, 0.5])
    scores = row_scores(X, w, 0.0, bound)
    assert np.all(np.abs(scores) <= bound * np.linalg.norm(w) * (1 + 1e-12))
    assert np.array_equal(row_scores(sparse.csr_array(X), w, 0.0, bound), scores)


def test_one_more_row_of_one_person_moves_nobody_elses_score(visits, monkeypatch):
    """Scores on the threshold, where the last bit of a product decides."""
    X, y, _, hX, hy, who = visits
    model = PrivateClassifier(5.0, random_state=0, **SETTINGS).fit(X, y)
    seen = counted(monkeypatch)
    hX = hX - np.outer((model.decision_function(hX)) / (model.coef_[0] @ model.coef_[0]), model.coef_[0])
    assert np.abs(model.decision_function(hX)).max() < 1e-12
    model.evaluate(hX, hy, user_ids=who, metrics="right")
    for extra in range(1, 30):
        rows, ids = np.concatenate([hX[:extra], hX]), np.concatenate([np.full(extra, who[0]), who])
        model.evaluate(rows, np.append(hy[:extra], hy), user_ids=ids, metrics="right")
        assert np.abs(seen[-1] - seen[0]).max() <= 1


# -- people of many rows --


@pytest.mark.parametrize("width", [1, 3])
def test_the_mean_of_very_many_rows_is_a_function_of_these_rows(width):
    rng = np.random.default_rng(0)
    mine, others = rng.random((30_000, width)), rng.random((50_000, width))
    exact = [math.fsum(column) / len(mine) for column in mine.T]
    found = []
    for before in (0, 1, 3, 8191, 40_000):
        rows = np.concatenate([others[:before], mine, others[before:]])
        counts = np.array([count for count in (before, len(mine), len(others) - before) if count])
        found.append(private_scaling.person_means(rows, counts)[int(before > 0)])
    assert all(np.array_equal(each, found[0]) for each in found)
    assert np.allclose(found[0], exact, rtol=1e-14, atol=0)


# -- what one value does to a whole table --


def test_entries_of_one_place_are_added_before_they_are_bounded(monkeypatch):
    """Two entries of one place, each within its bounds, made a row beyond them, or infinite: it was refused."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.4, 0.4, (300, 3)), np.arange(300) % 2
    for twice in ([1e308, 1e308], [0.4, 0.4], [-1e308, -1e308]):
        found = sparse.csr_array(X)
        data, indices = np.insert(found.data, 3, twice), np.insert(found.indices, 3, [0, 0])
        indptr = found.indptr + np.where(np.arange(301) > 1, 2, 0)
        rows = sparse.csr_array((data, indices, indptr), shape=(300, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OwnerWarning)
            PrivateClassifier(5.0, **SETTINGS).fit(rows, y)
        schema = schema_of({"label": {"column": "y", "classes": [0, 1]}, "features": 3, "low": -1, "high": 1})
        encoded = schema.encode_numbered(rows, y.astype(float), GUARANTEE)
        assert np.all(row_norms(encoded.X) <= schema.row_norm * (1 + 1e-12))


@pytest.mark.parametrize("unit", [None, "who"])
def test_a_table_in_single_precision_holds_every_finite_number(tmp_path, monkeypatch, unit):
    """1e308 became infinite where a table is large, and was refused; with people, one person's rows made it large."""
    monkeypatch.setattr(Growing.__init__, "__defaults__", (60,))
    monkeypatch.setattr("sottovoce.data.lines.BLOCK", 64)
    schema = plain_schema(["a", "b"], "y", [0, 1], unit)
    lines = [f"{0.1 + k / 7},-0.5,{k % 2},p{k}" for k in range(20)]
    found = []
    for more in ([], ["1e308,-1e308,1,p19"], ["0.25,0,1,p19"] * 30):
        (tmp_path / "r.csv").write_text("\n".join(["a,b,y,who", *lines, *more]) + "\n")
        found.append(schema.read(tmp_path / "r.csv", policy=GUARANTEE))
        records = from_public(schema, found[-1], "r.csv", 1.0, GUARANTEE)
        assert np.all(np.isfinite(records.X)) and np.all(row_norms(records.X) <= 1.0 + 1e-6)
    if unit is not None:  # nor do one person's rows change the last bits of everybody else's
        assert all(np.array_equal(each.X[:19], found[0].X[:19]) for each in found)


def test_a_value_without_a_text_is_a_missing_one():
    odd = [10**5000, Decimal("1E+5000"), Decimal("sNaN"), "A"]
    assert from_lists({"ward": odd}, "query", [], ["ward"]).texts["ward"].tolist() == [None, None, None, "A"]
    note = Column("note", "text", buckets=4)
    assert note.encode(from_lists({"note": ["\ud800 x", "x"]}, "query", [], ["note"])).shape == (2, 4)


# -- refusals --


def test_nobodys_weight_label_or_number_ends_a_fit_with_a_guarantee(visits):
    X, y, *_ = visits
    PrivateClassifier(5.0, max_weight=1.0, **SETTINGS).fit(X, y, sample_weight=np.zeros(len(y)))
    for weight in (np.nan, -1.0, np.inf):
        weights = np.where(np.arange(len(y)) == 3, weight, 1.0)
        with pytest.warns(OwnerWarning, match="1 weights are negative or not finite"):
            PrivateClassifier(5.0, max_weight=1.0, **SETTINGS).fit(X, y, sample_weight=weights)
        with pytest.raises(DataError):
            PrivateClassifier(5.0, max_weight=1.0, random_state=0, **SETTINGS).fit(X, y, sample_weight=weights)
    labels = y.astype(object)
    labels[3] = None
    with pytest.warns(OwnerWarning, match="1 records have no usable target"):
        PrivateClassifier(5.0, **SETTINGS).fit(X, labels)
    odd = X.copy()
    odd[3, 1] = np.nan
    with pytest.warns(OwnerWarning, match="1 numbers are not finite and count as 0"):
        model = PrivateRegressor(5.0, row_norm=1.5, target_bounds=(-1, 1), rounds=3).fit(odd, X[:, 0])
    targets = X[:, 0].copy()
    targets[5] = np.inf
    with pytest.warns(OwnerWarning, match="1 records have no usable target"):
        assert model.evaluate(odd[:1000], targets[:1000]).records == 1000
    with pytest.raises(DataError, match="NaN or infinite"):
        PrivateRegressor(5.0, row_norm=1.5, target_bounds=(-1, 1), random_state=0).fit(odd, X[:, 0])


@pytest.mark.parametrize("cell", ["soon", None, float("nan"), 10**400, 1j, [1], "1e999", "", b"x", pd.NA, pd.NaT])
def test_no_cell_of_a_table_ends_a_fit_an_evaluation_or_a_search(cell):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.4, 0.4, (300, 2)), np.arange(300) % 2
    frame = pd.DataFrame(X, columns=["a", "b"]).astype(object)
    frame.iat[3, 1] = cell
    for rows in (frame, frame.to_numpy(), frame.to_numpy().tolist()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PrivateClassifier(5.0, **SETTINGS).fit(rows, y)
            assert model.evaluate(rows, y, metrics="right").records == 300
            PrivateSearchCV(PrivateClassifier(row_norm=1.5, classes=[0, 1]), {"rounds": [1, 2]}, epsilon=5.0).fit(
                rows, y
            )
    if isinstance(cell, str | bytes | list | complex) and cell != "1e999":
        with pytest.raises((DataError, TypeError, ValueError, OverflowError)):
            PrivateClassifier(5.0, random_state=0, **SETTINGS).fit(frame, y)


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "objects": lambda values: np.array([*values, None], dtype=object)[:-1],
    "series": pd.Series,
}
ODD = [
    "soon", b"x", 1 + 1j, 1 + 0j, None, 10**400, 10**5000, Decimal("1.5"), pd.NA, pd.NaT, True, np.float32(1), 2**63,
    "0", [1], (1, 2), {}, np.datetime64("2020-01-01"), np.array([1]), np.array([1, 2]), "1e999",
]  # fmt: skip
"""Values of another type: one of them in a list once made texts, or complex numbers, of all the others."""


def others_change(table, odd):
    """Of how many other records a fit is given something else when record 7 has an odd value."""
    found = []
    for value in (None, odd):
        run = table(value)
        weights = np.ones(len(run.y)) if run.weights is None else run.weights
        found.append(np.column_stack([np.asarray(run.X, np.float64), run.y, weights]))
        assert run.X.dtype == np.float64
    return np.flatnonzero(np.any(found[0] != found[1], axis=1)).tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("what", ["classes", "names", "targets", "weights", "people"])
def test_one_value_of_another_type_changes_one_record(kind, what):
    """One label that is a text once left the other 59 without a class: known from one run, whatever ε."""
    rng = np.random.default_rng(0)
    X, of = rng.uniform(-0.4, 0.4, (60, 3)), {"row_norm": 1.0, "rounds": 2}
    plain = {
        "classes": (X[:, 0] > 0).astype(int).tolist(),
        "names": ["yes" if x > 0 else "no" for x in X[:, 0].tolist()],
        "targets": X[:, 0].tolist(),
        "weights": np.linspace(0, 1, 60).tolist(),
        "people": list(range(60)),
    }

    def shards(odd):
        values = list(plain[what])
        values[7] = values[7] if odd is None else odd
        values, codes = CONTAINERS[kind](values), plain["classes"]
        if what == "targets":
            return PrivateRegressor(1.0, target_bounds=(-1, 1), **of)._prepare(X, values, None, None).shards
        names = ["no", "yes"] if what == "names" else [0, 1]
        model = PrivateClassifier(1.0, classes=names, max_weight=1.0, **of)
        given = {"weights": (codes, None, None, values), "people": (codes, None, values)}.get(
            what, (values, None, None)
        )
        return model._prepare(X, *given).shards

    for odd in ODD:
        if what == "people" and (odd is None or odd is pd.NA or odd is pd.NaT or isinstance(odd, np.ndarray)):
            continue  # a record without an id is nobody's
        try:
            CONTAINERS[kind]([0.5, odd])
        except (ValueError, TypeError, OverflowError):
            continue
        assert set(others_change(shards, odd)) <= {7}, odd


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["list", "array", "frame", "numbered frame", "single precision"])
def test_one_cell_of_another_type_changes_one_record(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (60, 3))
    scaled = X.astype(np.float32) if kind == "single precision" else X

    def table(odd):
        rows = [list(row) for row in scaled.astype(object)]
        rows[7][1] = rows[7][1] if odd is None else odd
        if kind in ("list", "array"):
            return rows if kind == "list" else np.array(rows)
        frame = pd.DataFrame(scaled, columns=None if kind == "numbered frame" else list("abc"))
        if odd is not None:
            frame = frame.astype({frame.columns[1]: object})
            frame.iat[7, 1] = odd
        return frame

    def shards(odd):
        model = PrivateClassifier(1.0, row_norm=0.7, classes=[0, 1], rounds=2)
        return model._prepare(table(odd), (X[:, 0] > 0).astype(int), None, None).shards

    models = [
        PrivateClassifier(epsilon, row_norm=0.7, classes=[0, 1], rounds=2, random_state=None if epsilon else 0)
        for epsilon in (1.0, None)
    ]
    for model in models:
        model.fit(X, X[:, 0] > 0).set_params(random_state=None)
        model.spec_ = model.spec_.replace(seed=None)
    steps = PublicScaler(bounds=(-1, 1)).fit(table(None)), RowNormalizer(0.5).fit(table(None))
    for odd in ODD:
        try:
            table(odd)
        except (ValueError, TypeError, OverflowError):
            continue
        assert set(others_change(shards, odd)) <= {7}, odd
        for step in steps:
            there, then = (np.asarray(step.transform(table(value)), np.float64) for value in (None, odd))
            assert np.array_equal(np.delete(there, 7, axis=0), np.delete(then, 7, axis=0))
        for model in models:  # also one without noise, which is evaluated with noise
            assert model.evaluate(table(odd), X[:, 0] > 0, epsilon=1.0, metrics="right").records == 60


def test_a_row_over_the_bound_or_without_a_person_ends_no_fit_with_a_guarantee(visits):
    X, y, people, hX, hy, who = visits
    ids = people.astype(object)
    ids[[3, 50]] = None, float("nan")
    with pytest.warns(OwnerWarning, match="2 records have no id of a person"):
        model = PrivateClassifier(5.0, **SETTINGS).fit(X, y, user_ids=ids)
    assert model._result.public["records"] == [len(set(people))]  # nobody is no person
    ids = who.astype(object)
    ids[7] = None
    with pytest.warns(OwnerWarning, match="1 records have no id of a person"):
        model.evaluate(hX, hy, user_ids=ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PrivateSearchCV(PrivateClassifier(row_norm=1.5, classes=[0, 1]), {"rounds": [1, 2]}, epsilon=5.0).fit(
            hX, hy, user_ids=ids
        )
    with pytest.raises(DataError, match="user_ids has no label for record 7"):
        PrivateClassifier(5.0, random_state=0, **SETTINGS).fit(hX, hy, user_ids=ids)
    strict = SETTINGS | {"row_norm": 1.0, "on_violation": "raise"}
    with pytest.warns(OwnerWarning, match="rows are longer than row_norm and are scaled down"):
        PrivateClassifier(5.0, **strict).fit(X, y)
    with pytest.raises(DataError, match="are over the public bound"):
        PrivateClassifier(5.0, random_state=0, **strict).fit(X, y)


def test_a_saved_model_does_not_say_which_other_fits_were_recognized(visits, tmp_path):
    """That two fits were on the same records reveals every record of the one to anyone who knows those of the other."""
    X, y, *_ = visits
    for place, other in enumerate((X, np.vstack([X[:-1], X[:1]]))):
        PrivateClassifier(5.0, random_state=0, **SETTINGS).fit(other, y)
        model = PrivateClassifier(5.0, random_state=0, **SETTINGS).fit(X, y)
        kept = "".join(path.read_text(errors="replace") for path in model.save(tmp_path / str(place)).iterdir())
        assert "spent" not in kept.replace("ε spent", "")
        model.evaluate(X, y, metrics="right")
        search = PrivateSearchCV(PrivateClassifier(**SETTINGS), {"loss": ["hinge"]}, epsilon=5.0, random_state=0)
        search.fit(X, y)
        for each, again in ((model, pickle.loads(pickle.dumps(model))), (search, copy.deepcopy(search))):
            assert not hasattr(again, "spent_") and np.array_equal(again.predict(X[:50]), each.predict(X[:50]))
        assert pickle.loads(pickle.dumps(model))._evaluations[0].spent is None and model.spent_.fits > 1
