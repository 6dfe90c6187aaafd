"""What a node's participation will cost, before there is a run: `account` for a noise, `calibrate` for an ε.

For who has public numbers only: how many records, how many rounds, how likely a node is to speak in one of them.
"""

from sottovoce import limits
from sottovoce.errors import PrivacyError
from sottovoce.privacy import calibration
from sottovoce.privacy.accounting import Account, compute_epsilon
from sottovoce.privacy.events import AccountedEvent
from sottovoce.privacy.release import ADVERSARIES, Adversary, Transcript
from sottovoce.privacy.sampling import SAMPLINGS, Sampling, always

TRANSCRIPT = Transcript()


def account(
    sampling: Sampling | str,
    records: int,
    rounds: int,
    sigma: float,
    *,
    clip: float = 1.0,
    delta: float = 1e-5,
    activity: float = 1.0,
    adversary: Adversary | str = TRANSCRIPT,
) -> Account:
    """The true ε of a node's whole participation at δ.

    Parameters
    ----------
    sampling : how the records of a round are picked, such as 'poisson(64)'
    records : q
    rounds : how many there are; with `activity` 1, in how many the node speaks
    sigma : σ of the noise on a released mean subgradient
    clip : L, the bound on a record's subgradient
    delta : δ
    activity : the probability that the node speaks in a round
    adversary : the adversary

    Examples
    --------
    >>> found = account("one", records=20000, rounds=60000, sigma=0.9)
    >>> round(found.epsilon, 2), round(found.epsilon_lower, 2), round(found.epsilon_rdp, 2)
    (2.22, 2.19, 3.62)
    """
    return compute_epsilon([_seen(sampling, records, rounds, sigma, clip, activity, adversary)], delta)


def calibrate(
    sampling: Sampling | str,
    records: int,
    rounds: int,
    epsilon: float,
    *,
    clip: float = 1.0,
    delta: float = 1e-5,
    activity: float = 1.0,
    adversary: Adversary | str = TRANSCRIPT,
) -> float:
    """The least σ, to a thousandth, with which a node's whole participation is (ε, δ)-DP; parameters as of `account`.

    Examples
    --------
    >>> round(calibrate("one", records=20000, rounds=60000, epsilon=1.0), 2)
    1.01
    """
    return calibration.sigma(_seen(sampling, records, rounds, 1.0, clip, activity, adversary), epsilon, delta)


def _seen(
    sampling: Sampling | str,
    records: int,
    rounds: int,
    sigma: float,
    clip: float,
    activity: float,
    adversary: Adversary | str,
) -> AccountedEvent:
    limits.check_count("the number of records", records, limits.RECORDS)
    limits.check_count("the number of rounds", rounds, limits.ROUNDS, 0)
    limits.check_length("the bound on a subgradient", clip)
    limits.check_length("σ (sigma)", sigma, PrivacyError)
    picked = SAMPLINGS.read(sampling) if isinstance(sampling, str) else sampling
    watching = ADVERSARIES.read(adversary) if isinstance(adversary, str) else adversary
    return watching.seen(picked.event(records, clip, sigma, rounds, always(rounds)), activity)
