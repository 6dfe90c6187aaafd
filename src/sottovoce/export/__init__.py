"""What may be published of a run, and nothing else: the mean model, its statement and a card, each verified first."""

from sottovoce.export.card import card
from sottovoce.export.model import model
from sottovoce.export.publish import publish

__all__ = ["card", "model", "publish"]
