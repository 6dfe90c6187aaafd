"""A planned agreement: from a schema, the sites and their public sizes, a budget and a network to a consortium.toml.

The plan is made by `planner.fit.plan_fit`, which plans the fits of estimators, too, from the same public numbers: so a
simulation by `PrivateClassifier(…).fit(X, y, nodes=site)` and the agreement have one plan. Nothing is read but the
schema. The text is a function of what is given: planned again it has the same bytes. What stands in comments (reasons,
σ of each site, and what is foreseen) is not part of the agreement; everything else can be changed by hand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

from sottovoce.consortium.agreement import Agreement, PublicSite, made_agreement
from sottovoce.data.schema import Schema, read_schema
from sottovoce.errors import SpecError
from sottovoce.planner import Choice
from sottovoce.planner.features import columns_of
from sottovoce.planner.fit import FitRequest, plan_fit
from sottovoce.planner.network import HOUR, RELAYED, NetworkModel
from sottovoce.planner.shared_settings import INTERCEPT, SMALL_INTERCEPT
from sottovoce.planner.trust import read_trust
from sottovoce.privacy.calibration import Private
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.run.spec import AlgorithmSpec, NetworkSpec, PrivacySpec, ProblemSpec, Spec

WIDTH = 110
"""Letters of a comment's line."""
TEST_TOLERANCE = 0.1
"""Of a regression's right answers, in units of the targets' range."""
DEFAULTS = {
    "problem": ProblemSpec(),
    "network": NetworkSpec(),
    "algorithm": AlgorithmSpec(1),
    "privacy": PrivacySpec(),
}
"""Parts of a spec whose fields are left out where they say nothing new."""


@dataclass(frozen=True)
class Proposal:
    """What an agreement is planned from; all of it is public.

    Attributes
    ----------
    name, run : of the consortium and of the run
    schema : the file of the records' format, beside the agreement
    sites : in the order of their nodes' numbers
    epsilon, delta : the budget of a record, or of a person
    trust : 'nobody', 'majority', or how many may collude
    loss : 'auto', or a loss by name
    held_out : the share of every site's records that only test the model
    host, port, admin, admin_org : of the server and of the administrator
    schedule_seed : public
    network, max_seconds : what the network is like, and how long the run may take
    """

    name: str
    run: str
    schema: Path
    sites: tuple[PublicSite, ...]
    epsilon: float = 1.0
    delta: float | str = "auto"
    trust: str = "nobody"
    loss: str = "auto"
    held_out: float = 0.0
    host: str = "localhost"
    port: int = 8002
    admin: str = "lead@example.org"
    admin_org: str = ""
    schedule_seed: int = 1
    network: NetworkModel = NetworkModel(relay=RELAYED)  # noqa: RUF009 - immutable
    max_seconds: float = HOUR


@dataclass(frozen=True)
class Planned:
    """An agreement, its text, and the plan that it follows from."""

    text: str
    agreement: Agreement
    choice: Choice


def fit_request(proposal: Proposal, schema: Schema) -> FitRequest:
    """What the plan is made from: as an estimator has it that is given the encoded records with their bounds."""
    label, given = schema.label, proposal.loss
    real = label.classes is None
    loss = _loss(schema, given)
    sizes = tuple(site.records - site.held_out(proposal.held_out) for site in proposal.sites)
    return FitRequest(
        sizes=sizes,
        nodes=tuple(site.name for site in proposal.sites),
        features=schema.m,
        loss=loss,
        epsilon=proposal.epsilon,
        delta=proposal.delta,
        outputs=label.outputs,
        people=schema.unit is not None,
        adversary=read_trust(proposal.trust).adversary(len(sizes)),
        intercept=INTERCEPT if real else SMALL_INTERCEPT,
        fixed={"method": "auto"} if real else {},
        private_scaling=not real,
        free=("penalty",) if given != "auto" else () if real else ("loss", "penalty"),
        columns=columns_of(schema),
        wanted="auto",
        network=proposal.network,
        max_seconds=proposal.max_seconds,
    )


def _loss(schema: Schema, given: str) -> Loss:
    """As estimators choose it."""
    if given == "auto":
        names = "squared" if schema.label.classes is None else "hinge" if schema.label.outputs == 1 else "softmax"
        return LOSSES.make(names)
    loss = LOSSES.read(given)
    if (loss.targets == "real") != (schema.label.classes is None):
        kind = "numbers" if schema.label.classes is None else "classes"
        raise SpecError(f"loss '{given}' does not fit the schema's label, which has {kind}; take --loss auto")
    return loss


def plan_agreement(proposal: Proposal) -> Planned:
    """The agreement that is best by public numbers, and its text."""
    schema = read_schema(proposal.schema)
    if schema.plain or not math.isfinite(schema.row_norm):
        raise SpecError(f"'{proposal.schema}' bounds no rows; describe every column (sottovoce schema FILE)")
    choice = plan_fit(fit_request(proposal, schema))
    data = _entries(proposal, schema, choice.spec)
    agreement = made_agreement(data, proposal.schema.name, schema)
    return Planned(_text(proposal, data, choice, agreement), agreement, choice)


def _entries(proposal: Proposal, schema: Schema, spec: Spec) -> dict[str, Any]:
    """The agreement as the tables of a TOML file."""
    first: dict[str, Any] = {
        "name": proposal.name,
        "schema": proposal.schema.name,
        "run": proposal.run,
        "schedule_seed": proposal.schedule_seed,
        "in_units_of_bounds": True,
    }
    if proposal.held_out:
        first |= {"held_out": proposal.held_out, "test_epsilon": proposal.epsilon}
        if schema.label.classes is None:
            first["tolerance"] = TEST_TOLERANCE * (schema.label.high - schema.label.low)
    noise = spec.privacy.noise
    assert isinstance(noise, Private)
    parts = {part: _changed(getattr(spec, part), plain) for part, plain in DEFAULTS.items()}
    parts["algorithm"] = {"rounds": spec.algorithm.rounds} | parts["algorithm"]
    parts["privacy"] = {"epsilon": noise.epsilon, "delta": spec.privacy.delta} | {
        name: value for name, value in parts["privacy"].items() if name not in ("noise", "delta")
    }
    admin_org = proposal.admin_org or proposal.sites[0].org
    return first | {
        "server": {"host": proposal.host, "port": proposal.port},
        "admin": {"email": proposal.admin, "org": admin_org},
        "sites": {site.name: {"org": site.org, "records": site.records} for site in proposal.sites},
        **parts,
    }


def _changed(part: Any, plain: Any) -> dict[str, Any]:
    """The fields of a spec's part that are not what they are by default; choices in their notation."""
    values = {f.name: getattr(part, f.name) for f in fields(part) if getattr(part, f.name) != getattr(plain, f.name)}
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in values.items()
    }


def _text(proposal: Proposal, data: dict[str, Any], choice: Choice, agreement: Agreement) -> str:
    """The file: reasons first, then what is agreed on."""
    best = choice.alternatives[0]
    said = [
        f"Planned for ε = {proposal.epsilon:g}, trust '{proposal.trust}' and a network of {proposal.network}.",
        *choice.reasons,
        f"Foreseen: {_points(choice)}, {best['seconds']:,.0f} s, {best['bytes'] / 1e6:,.1f} MB.",
    ]
    lines = ["# What all sites agree on. Everything can be changed by hand; all sites must have the same file."]
    lines += [line for reason in said for line in _wrapped(reason)]
    tables = {name: value for name, value in data.items() if isinstance(value, dict)}
    lines += ["", *(f"{name} = {_value(value)}" for name, value in data.items() if name not in tables)]
    for name, table in tables.items():
        if name == "sites":
            for i, (site, entries) in enumerate(table.items()):
                sigma = rounded_up(agreement.run.event(i).sigma)
                lines += ["", f"[sites.{site}]  # adds noise of σ = {sigma}", *_lines(entries)]
        else:
            lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _points(choice: Choice) -> str:
    if choice.spec.problem.loss.targets == "real":
        return f"{choice.predicted:.2f} of R² lost against least squares without noise"
    return f"{100 * choice.predicted:.1f} points of accuracy lost against the best model without noise"


def rounded_up(value: float, digits: int = 9) -> str:
    """A number with so many digits, never smaller: the same on every processor whose searches end within them.

    Examples
    --------
    >>> rounded_up(0.12345678901), rounded_up(2.0)
    ('0.123456790', '2.00000000')
    """
    number = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(f"{value:.12g}")))
    return f"{number:.{max(0, digits - 1 - number.adjusted())}f}"


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def _value(value: Any) -> str:
    """In TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _wrapped(text: str) -> list[str]:
    """A reason as lines of a comment."""
    lines, line = [], "# -"
    for word in text.split():
        if len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = "#  "
        line += f" {word}"
    return [*lines, line]


def read_sites(texts: Sequence[str]) -> tuple[PublicSite, ...]:
    """Sites as a command has them: NAME:RECORDS, or NAME:RECORDS:ORGANIZATION.

    Examples
    --------
    >>> read_sites(["north:1200", "south:800:southern"])[1]
    PublicSite(name='south', org='southern', records=800)
    """
    found = []
    for text in texts:
        name, *rest = text.split(":")
        if not 1 <= len(rest) <= 2 or not rest[0].isdecimal() or int(rest[0]) < 1:
            raise SpecError(f"'{text}' is no site; write NAME:RECORDS or NAME:RECORDS:ORGANIZATION, as north:1200")
        found.append(PublicSite(name, rest[1] if len(rest) == 2 else name, int(rest[0])))
    return tuple(found)
