"""Records in a live PostgreSQL server: a private one, started here in a folder of its own and stopped at the end.

The server listens on a socket in that folder and nowhere else, requests passwords, and knows a role that may only read.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from sottovoce.consortium.check import check_kit
from sottovoce.consortium.project import provision
from sottovoce.data.load import load
from sottovoce.data.policy import SIMULATION, ReadPolicy
from sottovoce.data.schema import schema_of
from sottovoce.data.sql import load_sql
from sottovoce.errors import DataError
from sottovoce.node.site import Site
from sottovoce.node.store import Store
from sottovoce.run.result import Result

pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
psycopg = pytest.importorskip("psycopg", reason="the extra 'sql' is not installed")

OWNER, READER = "owner's password", "p@ss:w/rd's %41"  # what would have a meaning in an address
TYPES = """
CREATE TYPE severity AS ENUM ('mild', 'grave');
CREATE TABLE patients (
    id UUID NOT NULL, age SMALLINT, bmi NUMERIC(5, 2), pressure DOUBLE PRECISION, dose REAL, visits BIGINT,
    ward CHAR(6), grade NUMERIC(3, 1), smoker BOOLEAN, state severity, seen TIMESTAMPTZ NOT NULL DEFAULT now(),
    sick VARCHAR NOT NULL
);
CREATE TABLE payroll (salary INTEGER);
CREATE ROLE reader LOGIN PASSWORD '{reader}';
GRANT SELECT ON patients TO reader;
"""
CSV = """id,age,bmi,pressure,dose,visits,ward,grade,smoker,state,sick
00000000-0000-0000-0000-000000000001,63,31.25,140.5,0.25,3,A,1,true,grave,yes
00000000-0000-0000-0000-000000000002,41,22.10,118.0,0.5,12,B,2,false,mild,no
00000000-0000-0000-0000-000000000002,42,23.90,121.0,0.75,13,B,2,false,mild,no
00000000-0000-0000-0000-000000000003,,19.99,99.125,1.5,0,,1,,mild,no
00000000-0000-0000-0000-000000000004,150,,180.0,2.0,7,C,2.5,true,,yes
"""
SCHEMA = {
    "unit": "id",
    "label": {"column": "sick", "classes": ["no", "yes"]},
    "columns": {
        "age": {"low": 0, "high": 120, "missing": 50},
        "bmi": {"low": 10, "high": 50, "missing": 25},
        "pressure": {"low": 80, "high": 200},
        "dose": {"low": 0, "high": 2},
        "visits": {"low": 0, "high": 20},
        "ward": {"type": "category", "categories": ["A", "B", "C"], "missing": "none"},
        "grade": {"type": "category", "categories": [1, 2, 2.5]},
        "smoker": {"type": "flag", "categories": ["false", "true"], "missing": "none"},
        "state": {"type": "category", "categories": ["mild", "grave"], "missing": "none"},
    },
}


def _program(name):
    """The latest version's, where Debian keeps several; else whatever is on the path."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4].split(".")[0]))
    return str(kept[-1]) if kept else shutil.which(name)


def _unprivileged_user():
    """Whom to run the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses to run as root, and there is neither a user 'postgres' nor 'nobody'")


class Server:
    """A cluster of databases under a folder, and the address of one of them."""

    def __init__(self, folder):
        self.folder = folder

    def url(self, user, password):
        """SQLAlchemy's address; the folder of the socket stands where a host would."""
        from sqlalchemy import URL

        url = URL.create("postgresql+psycopg", user, password, database="postgres", query={"host": str(self.folder)})
        return url.render_as_string(hide_password=False)

    def owner(self):
        """A connection that may do everything."""
        return psycopg.connect(host=str(self.folder), user="owner", password=OWNER, dbname="postgres", autocommit=True)

    def fill(self, table, header, rows):
        """Rows of texts into a table: the server itself reads them as the types of its columns; '' is NULL."""
        with self.owner() as db, db.cursor() as cursor:
            with cursor.copy(f"COPY {table} ({', '.join(header)}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row([value or None for value in row])


@pytest.fixture(scope="module")
def server():
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("there is no PostgreSQL server here (initdb, pg_ctl); apt-get install postgresql")
    who = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 bytes at the most
    started = False

    def call(*command):
        done = subprocess.run(
            command, **who, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr or done.stdout

    try:
        (folder / "password").write_text(OWNER)
        if who:
            for path in (folder, folder / "password"):
                os.chown(path, who["user"], who["group"])
        call(
            *(initdb, "--pgdata", str(folder / "data"), "--username", "owner", "--pwfile", str(folder / "password")),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
        )
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=1MB"
        log = str(folder / "log")
        call(pg_ctl, "start", "--pgdata", str(folder / "data"), "--log", log, "--options", options, "--wait")
        started = True
        made = Server(folder)
        with made.owner() as db:
            db.execute(TYPES.format(reader=READER.replace("'", "''")))
        header, *rows = [line.split(",") for line in CSV.splitlines()]
        made.fill("patients", header, rows)
        yield made
    finally:
        if started:
            call(pg_ctl, "stop", "--pgdata", str(folder / "data"), "--mode", "immediate", "--wait")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def reader(server):
    return server.url("reader", READER)


def test_a_query_gives_the_table_that_a_file_gives(server, reader, tmp_path):
    columns = ("age", "bmi", "pressure", "dose", "visits")
    wanted = "age, bmi, pressure, dose, visits, sick"
    mine = load_sql(reader, f"SELECT {wanted} FROM patients WHERE age < 100 ORDER BY age", label="sick")
    lines = [line.split(",") for line in CSV.splitlines()]
    rows = sorted((row for row in lines[1:] if row[1] and int(row[1]) < 100), key=lambda row: int(row[1]))
    file = tmp_path / "patients.csv"
    file.write_text("\n".join(",".join([*row[1:6], row[-1]]) for row in [lines[0], *rows]) + "\n")
    theirs = load(file, label="sick")
    assert mine.X.shape == (3, 5) and np.array_equal(mine.X, theirs.X) and mine.features == theirs.features == columns
    assert mine.y.tolist() == theirs.y.tolist() == ["no", "no", "yes"]


def test_the_schema_types_every_kind_of_column_as_in_a_file(server, reader, tmp_path):
    """SMALLINT, NUMERIC, DOUBLE, REAL, BIGINT, CHAR(n) with its blanks, BOOLEAN, ENUM, UUID, NULL in any of them."""
    (tmp_path / "patients.csv").write_text(CSV)
    schema = schema_of(SCHEMA)
    file = Site("people", tmp_path, file=tmp_path / "patients.csv").read(schema)
    database = Site("people", tmp_path, database=reader, query="SELECT * FROM patients ORDER BY id, age").read(schema)
    assert np.array_equal(file.X, database.X) and file.y.tolist() == database.y.tolist() == [1, -1, -1, -1, 1]
    assert file.user_ids.tolist() == database.user_ids.tolist() and len(set(database.user_ids)) == 4
    places = {name: j for j, name in enumerate(schema.features)}
    assert database.X[:, places["age"]].tolist()[3:] == pytest.approx([50 / 60 - 1, 1.0])  # missing; over its bound
    assert database.X[3, [places[f"ward={ward}"] for ward in "ABC"]].tolist() == [0, 0, 0]
    assert database.X[:, places["grade=2.5"]].tolist() == [0, 0, 0, 0, 1]
    assert database.X[:, places["smoker"]].tolist() == [1, -1, -1, 0, 1]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("age", "seen", "is a number in the schema"),  # a time
        ("pressure", "'infinity'::float8", "is a number in the schema"),
        ("pressure", "'NaN'::float8", "'pressure' has no value"),
        ("grade", "3.0", "'grade' has no value, or one that the schema does not list"),
        ("sick", "'perhaps'", "neither class"),
        ("id", "NULL", "'id' has no value"),
    ],
)
def test_an_unusable_value_is_refused_in_a_simulation_and_noted_with_a_guarantee(
    server, reader, tmp_path, column, value, reason
):
    names = [name for name in CSV.splitlines()[0].split(",") if name != column]
    query = f"SELECT {', '.join(names)}, {value} AS {column} FROM patients"
    site, notes = Site("people", tmp_path, database=reader, query=query), []
    with pytest.raises(DataError, match=reason):
        site.read(schema_of(SCHEMA), SIMULATION)
    policy = ReadPolicy.of(guarantee=True, note=lambda what, records: notes.append((what, records)))
    left = 0 if column == "id" else 5  # without the id of a person nobody's; else every record keeps its place
    assert len(site.read(schema_of(SCHEMA), policy).y) == left
    assert any(column in what and records == 5 for what, records in notes), notes


def test_what_the_server_refuses_is_a_sentence_without_the_password(server, reader):
    wrong = server.url("reader", "hunter2")
    for url, query, reason in (
        (reader, "SELECT * FROM payroll", "permission denied"),
        (reader, "DELETE FROM patients", "permission denied"),
        (reader, "SELECT height FROM patients", "does not exist"),
        (wrong, "SELECT * FROM patients", "authentication failed"),
    ):
        with pytest.raises(DataError, match=reason) as caught:
            load_sql(url, query, label="sick")
        assert "hunter2" not in str(caught.value) and "p@ss" not in str(caught.value)
        assert "\n" not in str(caught.value)


def share(server, made, name):
    """Put a site's CSV file into a table, for the reader."""
    header, *rows = [line.split(",") for line in (made.root / f"{name}.csv").read_text().splitlines()]
    with server.owner() as db:
        db.execute(f"DROP TABLE IF EXISTS {name}")
        db.execute(f"CREATE TABLE {name} (a DOUBLE PRECISION, b DOUBLE PRECISION, kind TEXT, outcome TEXT)")
        db.execute(f"GRANT SELECT ON {name} TO reader")
    server.fill(name, header, rows)


def point(server, kit, name, state):
    """A site.toml that names the database; the password comes from the environment."""
    where = server.url("reader", "PASSWORD").replace("PASSWORD", "${CLINIC_PASSWORD}")
    (kit / "local" / "site.toml").write_text(
        f'dataset = "people"\nstate = "../{state}"\ndatabase = "{where}"\nquery = "SELECT * FROM {name}"\n'
    )


def test_a_site_with_a_database_trains_the_model_that_it_trains_from_its_file(server, small, cells, monkeypatch):
    made = small()
    files = made.kits("files")
    cells.run(cells.join(made, files))
    databases = made.kits("databases")
    share(server, made, "birch")
    point(server, databases["birch"], "birch", "databases")
    monkeypatch.setenv("CLINIC_PASSWORD", READER)
    details = cells.run(cells.join(made, databases))
    assert all(answer["finished"] for answer in details.values()), details
    for name in made.names:
        one, other = (Result.load(files[name] / state / "results" / "first") for state in ("files", "databases"))
        assert np.array_equal(one.models, other.models) and one.statement == other.statement
        prints = [
            {row.detail["fingerprint"] for row in Store(files[name] / state, reading=True).rows() if row.kind == "open"}
            for state in ("files", "databases")
        ]
        assert prints[0] == prints[1]  # a budget is kept for records, wherever they are read from


def test_node_check_reads_the_database(server, small, monkeypatch):
    pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
    made = small(rounds=4)
    kit = provision(made.agreement, made.root / "consortium.toml", made.root / "made")["ash"]
    made.settle(kit, "ash")
    share(server, made, "ash")
    point(server, kit, "ash", "state")
    monkeypatch.setenv("CLINIC_PASSWORD", READER)
    findings = check_kit(kit)
    assert all(finding.good for finding in findings), findings
    with server.owner() as db:
        db.execute("REVOKE SELECT ON ash FROM reader")
    bad = [finding for finding in check_kit(kit) if not finding.good]
    assert [finding.what for finding in bad] == ["records and budget"] and "permission denied" in bad[0].detail
