"""`net` is a module of helpers beside the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
