"""The attacks and the slow references stand beside the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sottovoce.secure.generator import Generator


@pytest.fixture
def generator():
    """A fixed key: a test of a law that passes once passes always."""
    return Generator(bytes(range(32)))
