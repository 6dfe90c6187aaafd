"""`net` and `loopback` are modules beside the tests, not packages; so are the attacks on secure releases."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "secure")]
