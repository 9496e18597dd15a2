"""Do the shipped recipes pay? Each file of `examples/recipes/`, from its data to the success of its agent.

Run as `python -m benchmarks.recipes [--only NAME,...] [--seeds N]`. For each seed the commands at the head of a recipe
are carried out in a fresh home, with the recipe as shipped but for its seed; its first and last evaluation play the same
held-out tasks. One JSON line a recipe: the median gain in success over the seeds, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import yaml

from benchmarks.figures import report, rounded, say
from quintain.tools import RLTrainingTool

RECIPES = Path(__file__).parents[1] / "examples" / "recipes"


def commands(recipe: Path) -> list[list[str]]:
    """Return the commands in the comment at the head of a recipe, as words."""
    head = [line[1:].strip() for line in recipe.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return [shlex.split(line, comments=True) for line in head if line.startswith("quintain ")]


def measure(recipe: Path, seed: int, folder: Path) -> tuple[list[float], float]:
    """Follow a recipe in a fresh home; return the success of each evaluation, and the seconds of all."""
    seeded = folder / recipe.name
    document = yaml.safe_load(recipe.read_text(encoding="utf-8")) | {"seed": seed}
    seeded.write_text(yaml.safe_dump(document), encoding="utf-8")
    began = time.perf_counter()
    for words in commands(recipe):
        more = ["--seed", str(seed)] if words[1] == "collect" else []
        asked = [str(seeded) if word == recipe.name else word for word in words[1:]]
        run = [sys.executable, "-m", "quintain.cli.main", *asked, *more, "--home", str(folder / "home")]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(words)}: {done.stdout[-500:]} {done.stderr[-500:]}")
    seconds = time.perf_counter() - began
    with closing(RLTrainingTool(home=str(folder / "home"))) as tool:
        (job,) = json.loads(tool.run({"action": "jobs", "kind": "recipe"}))["items"]
        reports = json.loads(tool.run({"action": "status", "job_id": job["job_id"]}))["result"]["report"]["stages"]
    return [stage["success_rate"] for stage in reports if "success_rate" in stage], seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the recipes that are asked for."""
    names = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(names), help="recipes, separated by commas")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    asked = parser.parse_args(arguments)
    for name in asked.only.split(","):
        measured = []
        for seed in range(asked.seeds):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                measured.append(measure(RECIPES / f"{name}.yaml", seed, Path(folder)))
            say(f"{name}, seed {seed}: {measured[-1]}")
        rates, seconds = zip(*measured, strict=True)
        gains = [found[-1] - found[0] for found in rates]
        before, *between, after = (statistics.median(one) for one in zip(*rates, strict=True))
        more = {"before": before, "after": after} | ({"second_skill": between} if between else {})
        report(f"recipe_{name}_gain", gains, "1", None, **more, seconds=rounded(statistics.median(seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
