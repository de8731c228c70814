"""Makes the helpers beside these tests importable; pytest itself adds no folder to the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
