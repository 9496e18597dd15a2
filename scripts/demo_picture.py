"""Writes docs/images/demo-curves.png: the picture of `quintain demo`, which runs in full.

Run as `python -m scripts.demo_picture` (about 3 minutes on 2 cores).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo-curves.png"


def main() -> None:
    """Run the demo and copy its picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        subprocess.run([sys.executable, "-m", "quintain.cli.main", "demo", "--out", folder], check=True)
        (picture,) = Path(folder).glob("*/curves.png")
        PICTURE.write_bytes(picture.read_bytes())


if __name__ == "__main__":
    main()
