"""What every member of a consortium is told: a page for each kit, and the form for a site's own records."""

from sottovoce.consortium.agreement import Agreement, Site

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

Guarantee of the whole run for every record of yours: {verdict}

1. Install: `pip install 'sottovoce[flare]'` (Python 3.11 or newer).
2. Say where your records are, in `local/site.toml`. The columns must be those of `local/{schema}`; you
   agreed to bring {records} records (more are fine: {records} of them are used).
3. Set what your records may cost over all runs, ever:
   `sottovoce ledger budget STATE --epsilon … --delta …` (STATE is the folder that site.toml names).
4. Check: `sottovoce node check .` reads your records and says whether you can join. Nothing is sent.
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

1. Install: `pip install 'sottovoce[flare]'`.
2. Sites must reach this machine as `{host}`, port {port}.
3. `sottovoce consortium start .`, and leave it running.
"""

ADMIN = """# Who starts runs of consortium {name}: {admin}

1. Install: `pip install 'sottovoce[flare]'`.
2. When every site has started: `sottovoce consortium submit . --follow`.
3. `sottovoce consortium status .`, at any time; `sottovoce consortium results .`, at the end.

If a site crashed, submit again once it is back: all nodes go on where they were, and nothing is released twice.
The model itself does not come here: every site has it.
"""


def site(agreement: Agreement, member: Site) -> str:
    """A site's page."""
    plan = agreement.plan
    held_out = member.held_out(agreement.held_out)
    count = f"one noisy count of right answers on {held_out} held-out records" if held_out else "nothing else"
    return SITE.format(
        site=member.name,
        name=agreement.name,
        host=agreement.host,
        port=agreement.port,
        rounds=plan.event(plan.number(member.name)).rounds,
        run=agreement.run["run"],
        count=count,
        verdict=plan.statement.verdict(),
        schema=agreement.schema_file,
        records=member.records,
        digest=plan.digest,
    )


def server(agreement: Agreement) -> str:
    """The relay's page."""
    return SERVER.format(name=agreement.name, host=agreement.host, port=agreement.port)


def admin(agreement: Agreement) -> str:
    """The page of whoever submits jobs."""
    return ADMIN.format(name=agreement.name, admin=agreement.admin)


def form(agreement: Agreement) -> str:
    """site.toml, to be filled in."""
    return f"# Site of consortium {agreement.name}.\n{FORM}"
