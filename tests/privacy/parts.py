"""So many rounds of one mechanism, shortly."""

from sottovoce.privacy.composition import Part
from sottovoce.privacy.profiles import FixedPair, PoissonPair, ResponsePair


def fixed(rate, z, rounds, activity=1.0):
    return Part(FixedPair(z, rate), rounds, activity)


def poisson(rate, z, rounds, activity=1.0):
    return Part(PoissonPair(z, rate), rounds, activity)


def full(z, rounds, activity=1.0):
    return Part(FixedPair(z), rounds, activity)


def laplace(z, rounds, activity=1.0):
    return Part(ResponsePair(z), rounds, activity)
