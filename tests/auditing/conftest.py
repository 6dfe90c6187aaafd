"""`net`, real nodes inside one process, is a module beside the tests of nodes; the defects are a benchmark's."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / "node")]
