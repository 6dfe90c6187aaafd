"""`net` and `loopback` are modules beside the tests, not packages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
