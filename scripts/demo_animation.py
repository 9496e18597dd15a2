"""Writes docs/images/demo.svg: what `quintain demo --fast` prints, line by line, as a moving picture.

Run as `python -m scripts.demo_animation` (some minutes). The lines and the times between them are those of the run, played
faster. The picture moves by CSS alone, and stands still for readers who ask for less motion.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
COLUMNS = 100
LENGTH_S = 24.0
"""Length of the film, of which the last `HOLD_S` show all lines."""
HOLD_S = 7.0
SHORTEST_S = 0.18
"""Time between two lines at least, so that an eye can follow."""
_STYLE = """text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}
.c{fill:#7fdbca;font-weight:bold}.g{fill:#c3e88d}
.l{opacity:0;animation:%gs linear infinite}
@media (prefers-reduced-motion:reduce){.l{opacity:1;animation:none}}"""


class Line(NamedTuple):
    """A printed line, and when it came."""

    at: float
    text: str


def record() -> list[Line]:
    """Run the demo and return its lines with the seconds since its start."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "quintain.cli.main", "demo", "--fast", "--out", "demo-out"]
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": str(COLUMNS)}
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
        started = time.monotonic()
        assert process.stdout is not None
        lines = [Line(time.monotonic() - started, line.rstrip()) for line in process.stdout]
        if process.wait():
            raise SystemExit("the demo failed:\n" + "\n".join(line.text for line in lines))
    return lines


def schedule(lines: Sequence[Line]) -> list[float]:
    """Return when each line appears in the film: the run's times shortened to its length."""
    span = LENGTH_S - HOLD_S
    free = max(span - SHORTEST_S * len(lines), 0.0)
    last = max(lines[-1].at, 1e-9)
    return [SHORTEST_S * number + free * line.at / last for number, line in enumerate(lines)]


def draw(lines: Sequence[Line]) -> str:
    """Return the picture: a terminal whose lines appear one after the other."""
    height, width = 19 * len(lines) + 58, round(7.83 * COLUMNS) + 32
    frames, texts = [], []
    for number, (line, at) in enumerate(zip(lines, schedule(lines), strict=True)):
        share = 100 * at / LENGTH_S
        frames.append(f"@keyframes k{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.1:.2f}%,100%{{opacity:1}}}}")
        kind = "c" if line.text.startswith(("$", "→")) else "g" if "better" in line.text else ""
        text = f'<text x="16" y="{50 + 19 * number}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(line.text)}</text>'
        texts.append(f'<g class="l" style="animation-name:k{number}">{text}</g>' if line.text else "")
    dots = "".join(
        f'<circle cx="{20 + 18 * i}" cy="17" r="5" fill="#{c}"/>' for i, c in enumerate(("ff5f57", "febc2e", "28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>quintain demo --fast</title><style>{_STYLE % LENGTH_S}{''.join(frames)}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0b2133"/>{dots}{"".join(texts)}</svg>\n'
    )


def main() -> None:
    """Record the demo and write its picture."""
    lines = [Line(0.0, "$ quintain demo --fast"), *record()]
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(lines), encoding="utf-8")
    print(
        f"{PICTURE.name}: {PICTURE.stat().st_size / 1024:.0f} KB, {len(lines)} lines, {lines[-1].at:.0f} s played in {LENGTH_S:g} s"
    )


if __name__ == "__main__":
    main()
