"""Temporary."""

# ruff: noqa
# mypy: ignore-errors
from sottovoce.errors import SpecError


class EngineRecord:
    def __init__(self, name):
        self.name = name

    def run(self, jobs, states, start, stop):
        from sottovoce.engine import compiled, nodes, reference

        if self.name == "compiled":
            return compiled.run_many(jobs, states, start, stop)
        return [
            {"reference": reference, "nodes": nodes}[self.name].run(j, s, start, stop) for j, s in zip(jobs, states)
        ]


def choose_engine(name, job):
    from sottovoce.engine.job import compilable

    if name not in ("auto", "reference", "nodes", "compiled"):
        raise SpecError(f"there is no engine '{name}'; choose one of auto, reference, nodes, compiled")
    if name != "auto":
        return EngineRecord(name)
    long = len(job.schedule.active) * (job.problem.m + 5000) > 2e8
    return EngineRecord("compiled" if long and compilable(job) else "reference")


ENGINES = ("reference", "nodes", "compiled")
