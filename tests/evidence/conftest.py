"""Makes the made-up estimates importable; pytest itself adds no folder to the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "estimate"))
