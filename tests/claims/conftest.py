"""Makes claim_tools importable: pytest's importlib mode puts no test directory on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
