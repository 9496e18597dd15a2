"""Wishes in people's words, carried out over stdio by a script that lists tools, calls them and follows their answers.

Run as `python -m benchmarks.wishes` (`--only NAME ...` for some of them). Prints one JSON line a wish: its calls beside the
fewest that fulfil it, refused calls, tokens (characters of arguments and answers / 4), and at last how many reached their
end. The exit status is 1 where one did not. Jobs are real and short, with the embedded model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import anyio

from benchmarks.wishes.run import ALL_WISHES, run


def main() -> int:
    """Carry the wishes out in a temporary home folder; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wishes", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], choices=[wish.__name__ for wish in ALL_WISHES])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a worker may still end
        return 1 if anyio.run(run, Path(folder) / "home", parser.parse_args().only) else 0


if __name__ == "__main__":
    sys.exit(main())
