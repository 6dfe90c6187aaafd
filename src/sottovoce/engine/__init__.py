"""Engines run a job round by round: the same trajectory from the same draws, at different speeds and places."""
