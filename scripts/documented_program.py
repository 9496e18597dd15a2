"""Write `build/documented_program.py` for mypy: the program of docs/how-to/use-from-python.md with types, and mistakes in it.

Each mistake has a comment that mypy needs: where mypy does not find the mistake, it reports that comment as unused.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "how-to" / "use-from-python.md"
PROGRAM = ROOT / "build" / "documented_program.py"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
TYPES = {
    "def show(event)": "def show(event: Any) -> None",
    "async def measure():": "async def measure() -> str:",
    "import pandas\n": "pandas: Any = None\n",
}
MISTAKES = (
    "home.train('sfft', 'starter')  # type: ignore[arg-type]",
    "home.evaluate('a', n_task=3)  # type: ignore[call-arg]",
    "home.runs(outcom='success')  # type: ignore[call-arg]",
    "job.agent.id + 1  # type: ignore[operator]",
)


def write() -> None:
    """Write the program."""
    text = "\n".join(BLOCKS)
    for plain, typed in TYPES.items():
        assert text.count(plain) == 1, plain
        text = text.replace(plain, typed)
    PROGRAM.parent.mkdir(exist_ok=True)
    PROGRAM.write_text("\n".join(["from typing import Any", text, *MISTAKES, ""]), encoding="utf-8")


if __name__ == "__main__":
    write()
