"""A consortium of real owners on NVIDIA FLARE: their agreement, kits, nodes in a job, private evaluation."""

from sottovoce.consortium.agreement import Agreement, read_agreement
from sottovoce.consortium.check import Trial, check_kit
from sottovoce.consortium.project import provision
from sottovoce.consortium.submit import COMPLETED, Administrator, administrator

__all__ = [
    "COMPLETED",
    "Administrator",
    "Agreement",
    "Trial",
    "administrator",
    "check_kit",
    "provision",
    "read_agreement",
]
