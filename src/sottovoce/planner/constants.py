"""Constants of the predicted loss, written by benchmarks/fit_planner.py; not to be edited."""

FITTED = {
    "b": 0.1582,
    "tau0": 19.15,
    "p": 0.3607,
    "k": 2.018,
    "u": 0.9093,
    "v": 0.4499,
    "tau1": 0.2458,
    "e": 0.2154,
    "d": 84.72,
    "w": 2.172,
    "s": 0.06203,
}
