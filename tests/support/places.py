"""Where the code is that tests start and read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch.py"
