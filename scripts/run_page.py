"""Follow a page of the documentation literally: run its blocks in order in an empty folder, and print what each took.

Run as `python -m scripts.run_page docs/tutorials/own-logs.md`. `--bin FOLDER` puts a virtual environment's programs first, such as
those of a freshly installed wheel; `--output` also prints what the commands print.

A block's info string is its language, and its title says how it is treated:

- without a title: `sh` runs in bash, `python` runs in one namespace a page;
- the name of a file: the block is written to this file;
- `takes ...`: runs in `make soak` alone;
- `needs ...`: is not run, for the reason that the reader sees.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]*)\")?[^\n`]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("sh", "python")


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is written to, if its title names one."""
        return self.title if re.fullmatch(r"[\w./-]+\.\w+", self.title) else None

    @property
    def reason(self) -> str | None:
        """Why it is not run."""
        return self.title if self.title.startswith("needs ") else None

    @property
    def is_slow(self) -> bool:
        """Whether it runs in `make soak` alone."""
        return self.title.startswith("takes ")


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        indent, language, title, body = fence.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines(keepends=True)]
        found.append(Block(text.count("\n", 0, fence.start()) + 1, language, title or "", "".join(lines)))
    return found


def run_shell(script: str, folder: Path, env: dict[str, str]) -> str:
    """Run lines in bash, keep what they export, and return what they print.

    Raises:
        CalledProcessError: a line failed; its output is in `output`.
    """
    kept = folder / ".exported"
    command = ["bash", "-euo", "pipefail", "-c", f"{script}\nenv -0 > {kept}"]
    done = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    exported = dict(pair.split("=", 1) for pair in kept.read_text(encoding="utf-8").split("\0") if "=" in pair)
    env.update({name: value for name, value in exported.items() if name not in ("_", "SHLVL", "PWD", "OLDPWD")})
    return done.stdout


def environment(folder: Path, programs: Path) -> dict[str, str]:
    """Return the environment of a new user: a home directory of its own, and the programs of an installation."""
    kept: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("QUINTAIN_")}
    home = folder / "user"
    home.mkdir(exist_ok=True)
    own = {"HOME": str(home), "QUINTAIN_HOME": str(folder / "home"), "COLUMNS": "100"}
    return {**kept, **own, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    """Run a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent, help="programs of an installation")
    parser.add_argument("--output", action="store_true", help="print what the commands print")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(folder, options.bin.absolute())
        for block in blocks_of(options.page):
            if block.file:
                (folder / block.file).write_text(block.text, encoding="utf-8")
            if block.file or block.reason or block.language != "sh":
                continue
            before = time.monotonic()
            try:
                printed = run_shell(block.text, folder, env)
            except subprocess.CalledProcessError as error:
                raise SystemExit(
                    f"{options.page}:{block.line} failed with {error.returncode}:\n{error.output}"
                ) from None
            print(f"{time.monotonic() - before:6.1f} s  {' ; '.join(block.text.split(chr(10)))[:90]}", flush=True)
            if options.output:
                print(printed, flush=True)
    print(f"{time.monotonic() - started:6.1f} s  in all")


if __name__ == "__main__":
    main()
