"""The help of every verb: an example first, then the options that users set first; `--help-all` shows all of them."""

from collections.abc import Sequence
from typing import Any

from sottovoce.errors import SpecError

FIRST = {
    "train": {
        "--label", "--group", "--schema", "--nodes", "--test", "--epsilon", "--delta", "--trust", "--loss", "--rounds",
        "--holdout", "--out", "--seed", "--json", "--help",
    },
}  # fmt: skip
"""The options that `--help` shows, for verbs that have many; the others are in `--help-all`."""
EXAMPLES = {
    "account": "sottovoce account --records 1000 --rounds 100 --sigma 0.5",
    "audit": "sottovoce audit run --runs 1000",
    "calibrate": "sottovoce calibrate --epsilon 1 --rounds 100 --records 1000",
    "compare": "sottovoce compare --data breast_cancer --nodes 5 --epsilon 1 --seeds 5",
    "demo": "sottovoce demo --epsilon 1",
    "evaluate": "sottovoce evaluate run held_out.csv --epsilon 0.5",
    "export": "sottovoce export run --out model",
    "node": "sottovoce node --spec run.toml --data hospital.csv --folder nodes/north --node north",
    "plan": "sottovoce plan --nodes 20 --records 1000 --features 50 --epsilon 1",
    "predict": "sottovoce predict run new.csv --out predictions.csv",
    "report": "sottovoce report run --out report.html",
    "reproduce": "sottovoce reproduce fig1 table2 --size tiny",
    "schema": "sottovoce schema patients.csv --label outcome --out schema.toml",
    "sweep": "sottovoce sweep patients.csv --label outcome --epsilon 1 --epsilon 3 --seeds 5",
    "train": "sottovoce train patients.csv --schema schema.toml --epsilon 1 --out run",
    "tune": "sottovoce tune patients.csv --schema schema.toml --param loss=hinge,logistic --epsilon 3",
    "data fetch": "sottovoce data fetch rcv1",
    "data list": "sottovoce data list",
    "data make": "sottovoce data make rcv1-like --records 5000 --out rcv1-like.npz",
    "node check": "sottovoce node check kits/north",
    "node health": "sottovoce node health kits/north",
    "node key": "sottovoce node key nodes/north",
    "ledger abandon": "sottovoce ledger abandon nodes/north run-3",
    "ledger budget": "sottovoce ledger budget nodes/north --epsilon 3",
    "ledger export": "sottovoce ledger export nodes/north --out ledger.json",
    "ledger show": "sottovoce ledger show nodes/north",
    "ledger verify": "sottovoce ledger verify nodes/north",
    "consortium accept": "sottovoce consortium accept run.proposal kits/north",
    "consortium init": "sottovoce consortium init consortium.toml --out kits",
    "consortium join": "sottovoce consortium join kits/north north.key",
    "consortium ping": "sottovoce consortium ping server.example:8002",
    "consortium propose": "sottovoce consortium propose consortium.toml kits/north --out run.proposal",
    "consortium renew": "sottovoce consortium renew consortium.toml north",
    "consortium request": "sottovoce consortium request north",
    "consortium results": "sottovoce consortium results kits/admin",
    "consortium review": "sottovoce consortium review run.proposal kits/north",
    "consortium revoke": "sottovoce consortium revoke consortium.toml north",
    "consortium start": "sottovoce consortium start kits/north",
    "consortium status": "sottovoce consortium status kits/admin",
    "consortium stop": "sottovoce consortium stop kits/admin",
    "consortium submit": "sottovoce consortium submit kits/admin --follow",
    "consortium watch": "sottovoce consortium watch kits/admin",
    "consortium who": "sottovoce consortium who kits/admin",
}
"""An example for each verb, and for each verb of a group."""


def arranged(command: Any, everything: bool = False, group: str = "") -> Any:
    """Begin every verb's help with its example, and hide options that few users set unless `everything` is wanted.

    The list of verbs keeps their descriptions.
    """
    for name, verb in getattr(command, "commands", {}).items():
        arranged(verb, everything, f"{name} ")
        example = EXAMPLES.get(group + name)
        if example is not None and not (verb.help or "").startswith("Example:"):
            verb.short_help = verb.short_help or (verb.help or "").split("\n\n")[0]
            verb.help = f"Example: {example}\n\n{verb.help or ''}"
        if name in FIRST and not everything:
            for option in verb.params:
                if option.param_type_name == "option":
                    option.hidden = not FIRST[name] & set(option.opts)
            verb.epilog = f"More options: sottovoce {name} --help-all; any of them also as --set name=value."
    return command


def expanded(arguments: Sequence[str], command: Any) -> list[str]:
    """Write `--set name=value` as the option of that name, and `--help-all` as `--help`."""
    verb = getattr(command, "commands", {}).get(next(iter(arguments), ""))
    flags = {o for p in getattr(verb, "params", ()) if getattr(p, "is_flag", False) for o in p.opts}
    found, left = list[str](), list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--help-all":
            found.append("--help")
            continue
        if argument != "--set" or not left:
            found.append(argument)
            continue
        name, sign, value = left.pop(0).partition("=")
        option = "--" + name.strip().replace("_", "-")
        if not sign:
            raise SpecError(f"--set takes name=value, as in --set rounds=100, not '{name}'")
        if option in flags:
            found += [option] if value.lower() in ("true", "yes", "1") else []
        else:
            found.append(f"{option}={value}")
    return found


def run(command: Any, arguments: Sequence[str]) -> None:
    """Run a command line."""
    arranged(command, "--help-all" in arguments)(args=expanded(arguments, command))
