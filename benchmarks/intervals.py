"""Intervals on flchain beside statsmodels and lifelines without privacy.

    python benchmarks/intervals.py        # writes results/intervals.md and two pictures of docs/images

Needs ``statsmodels`` and ``lifelines`` on the path (``pip install --target DIR``, ``PYTHONPATH=DIR``), matplotlib, and
flchain.csv.xz in the folder that SOTTOVOCE_DATA names. Bounds, groups and times are written here, not read off the
data.
Private numbers are of one seed, 0: those of another seed differ as their standard errors say.
"""

import csv
import lzma
import os
import warnings
from pathlib import Path

import numpy as np

from sottovoce import PrivateClassifier, PrivateKaplanMeier, PrivateSurvival

HERE = Path(__file__).parent
PAGE, IMAGES = HERE / "results" / "intervals.md", HERE.parent / "docs" / "images"
NAMES = ("age", "male", "free light chain group", "year of sample")
BOUNDS = [(50, 101), (0, 1), (1, 10), (1995, 2003)]
TIMES = np.arange(180, 5041, 180)
YEARS = [1000, 2000, 3000, 4000, 5040]
PEOPLE = {"woman of 60": (60, 0, 3, 1997), "man of 70": (70, 1, 5, 1997), "man of 80": (80, 1, 8, 1997)}
GROUPS = {"sex": ["women", "men"], "age": ["50 to 59", "60 to 69", "70 and more"]}


def table():
    """Columns, death, days, and groups."""
    with lzma.open(Path(os.environ["SOTTOVOCE_DATA"]) / "flchain.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    age = np.array([float(row["age"]) for row in rows])
    male = np.array([row["sex"] == "M" for row in rows])
    X = np.stack(
        [age, male, *(np.array([float(row[name]) for row in rows]) for name in ("flc.grp", "sample.yr"))], axis=1
    )
    groups = {
        "sex": np.where(male, "men", "women"),
        "age": np.array(GROUPS["age"])[np.digitize(age, [60, 70])],
    }
    days, dead = (np.array([float(row[name]) for row in rows]) for name in ("futime", "death"))
    return X, dead.astype(int), days, groups


def coefficients(X, dead) -> list[str]:
    """Odds ratios of death during the study, without privacy and at ε = 1 and 4."""
    import statsmodels.api as sm

    peer = sm.Logit(dead, sm.add_constant(X)).fit(disp=0)
    lines = ["| column | statsmodels | ε = 4 | length | ε = 1 | length |", "|---|---|---|---|---|---|"]
    tables = {}
    for epsilon in (4.0, 1.0):
        model = PrivateClassifier(epsilon, bounds=BOUNDS, classes=[0, 1], inference=True, random_state=0)
        tables[epsilon] = model.fit(X, dead).summary()
    ends = np.asarray(peer.conf_int())
    for j, name in enumerate(NAMES):
        low, high = np.exp(ends[j + 1])
        cells = [f"{np.exp(peer.params[j + 1]):.3f} [{low:.3f}, {high:.3f}]"]
        for epsilon in (4.0, 1.0):
            found = tables[epsilon]
            low, high = np.exp(found.intervals[j])
            cells += [
                f"{np.exp(found.estimates[j]):.3f} [{low:.3f}, {high:.3f}]",
                f"×{found.errors[j] / peer.bse[j + 1]:.2f}",
            ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def hazards(X, dead, days) -> list[str]:
    """Hazard ratios in five intervals, beside Cox's model."""
    peer = cox(X, dead, days)
    found = {
        epsilon: PrivateSurvival(epsilon, bounds=BOUNDS, times=YEARS, random_state=0).fit(X, days, dead).summary()
        for epsilon in (1e6, 4.0, 1.0)
    }
    lines = [
        "| column | lifelines | ε = 1,000,000 | length | ε = 4 | length | ε = 1 | length |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for j, name in enumerate(NAMES):
        error = float(peer.standard_errors_.iloc[j])
        low, high = np.exp(peer.confidence_intervals_.iloc[j])
        cells = [f"{np.exp(peer.params_.iloc[j]):.3f} [{low:.3f}, {high:.3f}]"]
        for table in found.values():
            low, high = np.exp(table.intervals[j])
            cells += [f"{np.exp(table.estimates[j]):.3f} [{low:.3f}, {high:.3f}]", f"×{table.errors[j] / error:.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def cox(X, dead, days):
    """Cox's model by lifelines; who left on the day of entry, half a day later."""
    import pandas as pd
    from lifelines import CoxPHFitter

    frame = pd.DataFrame(X, columns=[*NAMES]).assign(days=np.maximum(days, 0.5), dead=dead)
    return CoxPHFitter().fit(frame, "days", "dead")


def hazard_picture(X, dead, days) -> None:
    """Survival of three people with bands at ε = 1 and 4, and Cox's as thin lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    peer = cox(X, dead, days).predict_survival_function(pd.DataFrame(PEOPLE.values(), columns=[*NAMES]))
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, epsilon in zip(axes, (4.0, 1.0), strict=True):
        model = PrivateSurvival(epsilon, bounds=BOUNDS, times=YEARS, random_state=0).fit(X, days, dead)
        bands = model.survival(list(PEOPLE.values()))
        for k, (color, name) in enumerate(zip(("#1b6ca8", "#588b5a", "#c8553d"), PEOPLE, strict=True)):
            low, middle, high = ([1, *each[k]] for each in (bands.low, bands.survival, bands.high))
            axis.fill_between([0, *bands.times], low, high, color=color, alpha=0.25, linewidth=0)
            axis.plot([0, *bands.times], middle, color=color, marker="o", markersize=3, label=name)
            axis.plot(peer.index, peer.iloc[:, k], color="black", linewidth=0.6)
        axis.set(title=f"ε = {epsilon:g}", xlabel="days", ylim=(0, 1.02), xlim=(0, 5040))
        axis.legend(loc="lower left", frameon=False)
    axes[0].set_ylabel("share alive")
    figure.savefig(IMAGES / "flchain-hazard.png", dpi=130)
    plt.close(figure)


def curves(dead, days, groups) -> list[str]:
    """Survival at five and ten years, beside lifelines, and the log-rank test."""
    from lifelines import KaplanMeierFitter
    from lifelines.statistics import multivariate_logrank_test

    lines = ["| group | days | lifelines | ε = 4 | ε = 1 |", "|---|---|---|---|---|"]
    tests = ["| groups | lifelines | ε = 4 | ε = 1 |", "|---|---|---|---|"]
    for kind, names in GROUPS.items():
        found = {
            epsilon: PrivateKaplanMeier(epsilon, times=TIMES, groups=names, random_state=0).fit(
                days, dead, groups[kind]
            )
            for epsilon in (4.0, 1.0)
        }
        for name in names:
            own = groups[kind] == name
            peer = KaplanMeierFitter().fit(days[own], dead[own])
            bands = peer.confidence_interval_survival_function_
            for day in (1800, 3600):
                low, high = bands[bands.index <= day].iloc[-1]
                cells = [f"{float(peer.predict(day)):.3f} [{low:.3f}, {high:.3f}]"]
                for epsilon in (4.0, 1.0):
                    survival, low, high = found[epsilon].curve(name).at(day)
                    cells.append(f"{survival:.3f} [{low:.3f}, {high:.3f}]")
                lines.append(f"| {name} | {day:,} | " + " | ".join(cells) + " |")
        peer = multivariate_logrank_test(days, groups[kind], dead)
        ours = [
            f"{(test := found[epsilon].log_rank()).statistic:.1f} (p = {test.p_value:.2g})" for epsilon in (4.0, 1.0)
        ]
        tests.append(f"| {kind} | {peer.test_statistic:.1f} (p = {peer.p_value:.2g}) | " + " | ".join(ours) + " |")
    return [*lines, "", *tests]


def picture(dead, days, groups) -> None:
    """Bands at ε = 1, and the curves without privacy as thin lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from lifelines import KaplanMeierFitter

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, (kind, names) in zip(axes, GROUPS.items(), strict=True):
        model = PrivateKaplanMeier(1.0, times=TIMES, groups=names, random_state=0).fit(days, dead, groups[kind])
        for color, name in zip(("#1b6ca8", "#c8553d", "#588b5a"), names, strict=False):
            curve, own = model.curve(name), groups[kind] == name
            band = {"color": color, "alpha": 0.25, "linewidth": 0}
            axis.fill_between([0, *curve.times], [1, *curve.low], [1, *curve.high], **band)
            axis.plot([0, *curve.times], [1, *curve.survival], color=color, label=name)
            peer = KaplanMeierFitter().fit(days[own], dead[own]).survival_function_
            axis.plot(peer.index, peer.iloc[:, 0], color="black", linewidth=0.6)
        axis.set(title=f"by {kind}", xlabel="days", ylim=(0, 1.02), xlim=(0, 5040))
        axis.legend(loc="lower left", frameon=False)
    axes[0].set_ylabel("share alive")
    figure.savefig(IMAGES / "flchain-survival.png", dpi=130)
    plt.close(figure)


def main() -> None:
    """All of it."""
    warnings.simplefilter("ignore", UserWarning)
    X, dead, days, groups = table()
    lines = [
        "# Intervals on flchain", "",
        "Made by `SOTTOVOCE_DATA=DIR python benchmarks/intervals.py`; 7,874 people, 95 % intervals, one owner.", "",
        "Odds ratios of death during the study (logistic regression), and standard errors over those of statsmodels:",
        "", *coefficients(X, dead), "",
        "Hazard ratios of death in five intervals of about 1,000 days, standard errors over those of Cox's model. The",
        "first is nearly without noise: long rows count less, and people with a high hazard are not followed to the",
        "end.", "",
        *hazards(X, dead, days), "", "Share alive (Kaplan–Meier in 28 intervals of 180 days), and log-rank tests:",
        "", *curves(dead, days, groups),
    ]  # fmt: skip
    PAGE.write_text("\n".join(lines) + "\n")
    picture(dead, days, groups)
    hazard_picture(X, dead, days)


if __name__ == "__main__":
    main()
