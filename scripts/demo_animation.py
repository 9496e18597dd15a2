"""Writes docs/images/demo.svg: what `quintain demo --fast` prints, line by line, as a moving picture.

Run as `python -m scripts.demo_animation` (some minutes). The lines are those of the run; their
times are the film's own. The picture moves by CSS alone, and is still for readers who ask for less motion.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from itertools import takewhile
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
COLUMNS = 100
HOLD_S = 7.0
"""Time at the end in which all lines are visible."""
LINE_S = 0.35
"""Time of a line."""
BAR_S = 1.1
"""Time of a line with a bar, which grows."""
LAST = "Curves:"
"""From this line on the demo prints paths of the machine; the film ends before."""
_STYLE = """text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}
.c{fill:#7fdbca;font-weight:bold}.g{fill:#c3e88d}
.l{animation-duration:%gs;animation-timing-function:linear;animation-iteration-count:infinite}
@media (prefers-reduced-motion:reduce){.l{animation:none}}"""


def record() -> list[str]:
    """Run the demo and return its lines, without the seconds of its jobs: those depend on the machine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "quintain.cli.main", "demo", "--fast", "--out", "demo-out"]
        env = {**os.environ, "COLUMNS": str(COLUMNS)}
        done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    lines = [re.sub(r" +\d+:\d\d:\d\d$", "", line.rstrip()) for line in done.stdout.splitlines()]
    return list(takewhile(lambda line: not line.startswith(LAST), filter(None, lines)))


def draw(lines: Sequence[str]) -> str:
    """Return the picture: a terminal whose lines appear one after the other."""
    height, width = 19 * len(lines) + 58, round(7.83 * COLUMNS) + 32
    times = [BAR_S if "━" in line else LINE_S for line in lines]
    length = sum(times) + HOLD_S
    frames, texts, begin = [], [], 0.0
    for number, (line, time) in enumerate(zip(lines, times, strict=True)):
        hidden, shown = 100 * begin / length, 100 * (begin + (time if "━" in line else 0.01)) / length
        begin += time
        clip = "clip-path:inset(0 {}% 0 0)"
        frames.append(
            f"@keyframes k{number}{{0%,{hidden:.2f}%{{{clip.format(100)}}}{shown:.2f}%,100%{{{clip.format(0)}}}}}"
        )
        kind = "c" if line.startswith(("$", "Did")) else "g" if line.endswith(": better") else ""
        text = f'<text x="16" y="{50 + 19 * number}" class="{kind}">{escape(line)}</text>'
        texts.append(f'<g class="l" style="animation-name:k{number}">{text}</g>')
    colours = enumerate(("ff5f57", "febc2e", "28c840"))
    dots = "".join(f'<circle cx="{20 + 18 * place}" cy="17" r="5" fill="#{colour}"/>' for place, colour in colours)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>quintain demo --fast</title><style>{_STYLE % length}{''.join(frames)}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0b2133"/>{dots}{"".join(texts)}</svg>\n'
    )


def main() -> None:
    """Record the demo and write its picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(["$ quintain demo --fast", *record()]), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
