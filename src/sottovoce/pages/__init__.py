"""Pages that are served on this machine alone: a planner to play with, and a consortium to watch."""

from sottovoce.pages.planner import Question, answer
from sottovoce.pages.server import Page, serve

__all__ = ["Page", "Question", "answer", "serve"]
