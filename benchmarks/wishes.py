"""Wishes in people's words, carried out over stdio by a script that lists tools, calls them and follows their answers.

Run as `python -m benchmarks.wishes` (`--only NAME ...` for some of them). Prints one JSON line a wish: its calls, and beside
them its tokens (characters of arguments and answers / 4), and at last how many reached their end. The exit status is 1
where one did not. Jobs are real and short, with the embedded model.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import anyio

from benchmarks.figures import report, say
from benchmarks.wishes_assistant import CHARACTERS_PER_TOKEN, WishFailed, connected
from benchmarks.wishes_cases import WISHES

CALLS_GOAL = 30
"""Calls of a wish, those that wait for jobs included."""


async def run(home: Path, only: Collection[str] = ()) -> list[str]:
    """Carry out the wishes one after the other on one home folder; returns the names of those that failed."""
    (home / "inbox").mkdir(parents=True)
    failed = []
    chosen = [wish for wish in WISHES if not only or wish.__name__ in only]
    async with connected(home) as assistant:
        listed = json.dumps([tool.model_dump(exclude_none=True) for tool in assistant.tools.values()])
        report("wishes.tools_list", [len(listed) / CHARACTERS_PER_TOKEN], "tokens", None, "lower")
        for wish in chosen:
            assistant.calls = assistant.characters = 0
            assistant.kept.pop("left_out", None)
            began = time.monotonic()
            try:
                await wish(assistant)
            except WishFailed as error:
                failed.append(wish.__name__)
                say(f"{wish.__name__}: {wish.__doc__}\n  did not reach its end: {error}")
            more = {"left_out": assistant.kept["left_out"]} if "left_out" in assistant.kept else {}
            report(
                f"wishes.{wish.__name__}",
                [assistant.calls],
                "calls",
                CALLS_GOAL,
                "lower",
                tokens=assistant.characters // CHARACTERS_PER_TOKEN,
                seconds=round(time.monotonic() - began, 1),
                reached=wish.__name__ not in failed,
                **more,
            )
    report("wishes.reached", [len(chosen) - len(failed)], "wishes", len(chosen), "higher")
    return failed


def main() -> int:
    """Carry the wishes out in a temporary home folder; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], choices=[wish.__name__ for wish in WISHES])
    with tempfile.TemporaryDirectory() as folder:
        return 1 if anyio.run(run, Path(folder) / "home", parser.parse_args().only) else 0


if __name__ == "__main__":
    sys.exit(main())
