"""Carry out wishes one after the other, and report what each cost."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from pathlib import Path

from benchmarks.figures import report, say
from benchmarks.wishes.assistant import CHARACTERS_PER_TOKEN, WishFailed, connected
from benchmarks.wishes.daily_work import MORE_WISHES
from benchmarks.wishes.first_twenty import WISHES
from benchmarks.wishes.habits import HABIT_WISHES
from benchmarks.wishes.outside import OUTSIDE_WISHES
from benchmarks.wishes.second_look import SECOND_LOOK_WISHES
from benchmarks.wishes.tables import TABLE_WISHES
from benchmarks.wishes.teams import TEAM_WISHES

ALL_WISHES = {
    **WISHES,
    **MORE_WISHES,
    **TEAM_WISHES,
    **OUTSIDE_WISHES,
    **TABLE_WISHES,
    **SECOND_LOOK_WISHES,
    **HABIT_WISHES,
}


DETOUR_GOAL = 1.3
"""Calls over the fewest that fulfil the wish."""


async def run(home: Path, only: Collection[str] = ()) -> list[str]:
    """Carry out the wishes one after the other on one home folder; returns the names of those that failed."""
    (home / "inbox").mkdir(parents=True)
    failed = list[str]()
    detours, errors, tokens = list[float](), 0, 0
    chosen = [wish for wish in ALL_WISHES if not only or wish.__name__ in only]
    async with connected(home) as assistant:
        listed = json.dumps([tool.model_dump(exclude_none=True) for tool in assistant.tools.values()])
        report("wishes.tools_list", [len(listed) / CHARACTERS_PER_TOKEN], "tokens", None, "lower")
        for wish in chosen:
            assistant.calls = assistant.waits = assistant.errors = assistant.characters = 0
            assistant.kept.pop("left_out", None)
            began = time.monotonic()
            try:
                await wish(assistant)
            except WishFailed as error:
                failed.append(wish.__name__)
                say(f"{wish.__name__}: {wish.__doc__}\n  did not reach its end: {error}")
            more = {"left_out": assistant.kept["left_out"]} if "left_out" in assistant.kept else {}
            made = assistant.calls - assistant.waits
            detours.append(made / ALL_WISHES[wish])
            errors += assistant.errors
            tokens += assistant.characters // CHARACTERS_PER_TOKEN
            report(
                f"wishes.{wish.__name__}",
                [made],
                "calls",
                round(DETOUR_GOAL * ALL_WISHES[wish], 1),
                "lower",
                shortest=ALL_WISHES[wish],
                waits=assistant.waits,
                errors=assistant.errors,
                tokens=assistant.characters // CHARACTERS_PER_TOKEN,
                seconds=round(time.monotonic() - began, 1),
                reached=wish.__name__ not in failed,
                **more,
            )
    within = sum(detour <= DETOUR_GOAL for detour in detours)
    report("wishes.detour", detours, "times the shortest way", DETOUR_GOAL, "lower", within=within)
    report("wishes.errors", [errors], "refused calls", None, "lower")
    report("wishes.tokens", [tokens / len(chosen)], "tokens a wish", None, "lower")
    report("wishes.reached", [len(chosen) - len(failed)], "wishes", len(chosen), "higher")
    return failed
