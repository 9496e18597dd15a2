"""References to environments as tools take them: files within the allowed roots, by absolute path, before a job is created."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from quintain.environments.configuration import AGENT_OPTIONS, BM25
from quintain.environments.references import (
    Reference,
    parse_reference,
    parts_of,
    reads_tasks,
    write_mixture,
    write_reference,
)
from quintain.environments.registry import PATH_OPTIONS, SANDBOX_ID, option_names, task_source
from quintain.errors import InvalidInput, QuintainError, Refused
from quintain.evaluation.games import players_of
from quintain.next_step import Hint, call
from quintain.records.protocols import TaskSource, tool_function
from quintain.records.wording import clip, shown
from quintain.sandbox.sandbox import IMAGE
from quintain.tools.roots import readable
from quintain.tools.services import Services, find
from quintain.tools.training.agents import resolve_agent, retriever_folder


def _weighted(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return {part: float(value.count(part)) for part in value}
    return value


Environments = Annotated[
    str | dict[str, Annotated[float, Field(strict=True)]],
    BeforeValidator(_weighted),
]
"""One environment, or several with weights; a list has equal ones."""

_SEVERAL = re.compile(r"\?[^,]*,.*=[\d.]+\s*$", re.DOTALL)
"""Options with a comma, and a number at the end: as weights, a part of several environments would have to end in one each."""


def usable_reference(services: Services, reference: str | Mapping[str, float], *, games: bool = False) -> str:
    """The reference as text, checked: there are such environments, they take these options, and their files may be read.

    Files stand in it by absolute path: a job runs in its own folder.

    Args:
        services: Whose settings hold the roots.
        reference: `ID` or `ID?option=value&option=value`; the options `file` and `tasks` are paths, `retriever` is an agent. Of several
            environments their weights, as a mapping, as `ID=WEIGHT,ID=WEIGHT` or as `references.write_mixture` writes them.
        games: Whether the caller can name an opponent, so that games of two players are usable.

    Raises:
        NotFound: no such environment or file.
        InvalidInput: an option that the environment does not take, a file with bad rows, an agent that is not a retriever, a game of
            several players, or as `references.parts_of`.
        Refused: a file outside the allowed roots, or a sandbox that the operator has not set.
        Unavailable: the package that brings an environment cannot be imported.
    """
    parsed = _parsed(reference)
    if (parts := parts_of(parsed)) is not None:
        return write_mixture({_usable(services, part): weight for part, weight in parts.items()})
    assert isinstance(parsed, str)
    try:
        return _usable(services, parsed, games=games)
    except InvalidInput as error:
        if not _SEVERAL.search(parsed):
            raise
        raise InvalidInput(
            f"{error.message}. Are these several environments with weights? Then write a comma within options as %2C",
            code=error.code,
        ) from None


def players_in(reference: str) -> tuple[str, ...]:
    """Return the roles of a game; empty where an agent acts alone, and for a mixture."""
    return () if parts_of(reference) is not None else players_of(task_source(reference))


class Face(NamedTuple):
    """What an environment states before a task begins."""

    tools: list[str]
    """Names; empty also where they are known only once a task has begun."""
    max_turns: int | None


def face_of(source: TaskSource) -> Face:
    """Return what the environments of a source state; an error of `close`, which expects a task that began, is ignored."""
    environment = source.make()
    try:
        tools = [tool_function(tool)["name"] for tool in getattr(environment, "tools", ())]
        return Face(tools, getattr(environment, "max_turns", None))
    finally:
        with suppress(Exception):
            environment.close()


def offered_tools(reference: str) -> set[str]:
    """Return the names of the tools that an environment offers; empty where one states them only once a task has begun."""
    offered = set[str]()
    for part in parts_of(reference) or (reference,):
        names = face_of(task_source(part)).tools
        if not names:
            return set()
        offered.update(names)
    return offered


def require_opponent(reference: str, opponent: str | None, remedy: str) -> tuple[str, ...]:
    """Refuse a game without an opponent, and an opponent without a game; return the roles of the game, if it is one.

    `remedy` says how to name an opponent.

    Raises:
        InvalidInput: The one or the other, or a game that is not of two players.
    """
    players = players_in(reference)
    if opponent is not None and not players:
        raise InvalidInput(
            f"expected a game with `opponent={shown(opponent)}`, got {clip(reference)}, where an agent acts alone; leave it out",
            code="no_game",
        )
    if players and opponent is None:
        raise InvalidInput(
            f"expected an opponent in {clip(reference)}, a game of {' and '.join(players)}, got none; {remedy}",
            code="no_opponent",
        )
    if players and len(players) != 2:
        raise InvalidInput(
            f"expected a game of two players, got {clip(reference)} with {', '.join(players)}; use another",
            code="no_opponent",
        )
    return players


def plain_reference(services: Services, reference: str | Mapping[str, float]) -> str:
    """The reference as evaluations are kept by it: mixtures in their one form, files that are there by absolute path."""
    parsed = _parsed(reference)
    if (parts := parts_of(parsed)) is not None:
        return write_mixture({plain_reference(services, part): weight for part, weight in parts.items()})
    assert isinstance(parsed, str)
    with suppress(QuintainError):  # a file that is gone was measured by the path that it is named by
        name, options = parse_reference(parsed)
        if files := _files(services, options):
            return write_reference(Reference(name, {**options, **files}))
    return parsed


def _files(services: Services, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are paths, with absolute ones."""
    return {option: str(readable(services, options[option], "tasks")) for option in PATH_OPTIONS if option in options}


def _usable(services: Services, reference: str, *, games: bool = False) -> str:
    name, options = parse_reference(reference)
    agents = {
        option: retriever_folder(resolve_agent(services, options[option]))
        for option in AGENT_OPTIONS.get(name, ())
        if options.get(option, BM25) != BM25
    }
    files = _files(services, options)
    for option, file in files.items():
        if not Path(file).exists() and find(services.store.datasets.get, options[option]) is not None:
            raise InvalidInput(
                Hint(
                    f"expected a file of tasks for {name}, got the dataset {clip(options[option])!r}; a benchmark is played by ",
                    call("evaluate_agent", agent=..., dataset_id=options[option]),
                ),
                code="no_task_file",
            )
    if fixed := files | agents | _sandbox_options(services, name, options):
        reference = write_reference(Reference(name, {**options, **fixed}))
    source = task_source(reference)
    if (players := players_of(source)) and not games:
        raise InvalidInput(
            f"expected an environment for one player, got {clip(reference)}, a game of {' and '.join(players)}; play it by "
            "evaluate_agent or collect_rollouts with an `opponent`, or train by grpo, ppo or dpo with "
            "`hyperparameters={'self_play': {}}`",
            code="players",
        )
    for part in getattr(source, "references", ()):
        if _usable(services, part) != part:
            raise InvalidInput(
                f"expected an environment with its own options in a benchmark, got {part}, which needs settings of the operator; "
                f"evaluate with `environment={part!r}` beside `dataset_id`",
                code="not_playable",
            )
    return reference


def _sandbox_options(services: Services, name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the sandbox settings of the operator as options of an environment."""
    settings = services.settings
    if name != SANDBOX_ID:
        return {}
    if settings.sandbox == "off":
        raise Refused(
            f"{name} runs commands of agents, and QUINTAIN_SANDBOX is off; the operator can set it to auto",
            code="no_sandbox",
        )
    fixed: dict[str, str] = {"backend": settings.sandbox} if settings.sandbox != "auto" else {}
    fixed |= {"image": settings.sandbox_image} if settings.sandbox_image != IMAGE or "image" in options else {}
    for option, value in fixed.items():
        if options.get(option, value) not in (value, "auto"):
            raise Refused(
                f"{option}={clip(options[option])} is not what the operator has set, {value!r} "
                f"({'QUINTAIN_SANDBOX' if option == 'backend' else 'QUINTAIN_SANDBOX_IMAGE'}); leave it out",
                code="no_sandbox",
            )
    return fixed


def _parsed(reference: str | Mapping[str, float]) -> str | Mapping[str, float]:
    """The reference, `ID=WEIGHT,ID=WEIGHT` as a mapping.

    Each of its parts ends in a number, and is a reference without that.
    """
    if not isinstance(reference, str | Mapping):
        raise InvalidInput(
            f"expected environment to be a reference such as 'quintain/inventory', or references with weights, got {shown(reference)}"
        )
    if not isinstance(reference, str) or reference.lstrip().startswith("mix("):
        return reference
    pairs = [part.strip().rpartition("=") for part in reference.split(",")]
    if len(pairs) == 1 and "?" in reference:
        return reference
    weights = dict[str, float]()
    for name, _, weight in pairs:
        try:
            parse_reference(name := name.strip())
            number = float(weight)
        except ValueError:
            return reference
        if name in weights:
            raise InvalidInput(f"the mixture {clip(reference, 200)!r} names {clip(name)!r} twice; add the weights up")
        weights[name] = number
    return weights


def environment_of_job(services: Services, job_id: str, environment: str) -> str:
    """Return the environment of a job's runs with the options of the job, without files and agents.

    Runs name the options themselves only if they were played in a mixture.
    """
    job = find(services.store.jobs.get, job_id)
    played = getattr(job.spec, "environment", None) if job is not None else None
    if played is None or parts_of(played) is not None:
        return environment
    name, options = parse_reference(played)
    left_out = {*PATH_OPTIONS, *AGENT_OPTIONS.get(name, ())}
    kept = {option: value for option, value in sorted(options.items()) if option not in left_out}
    return write_reference(Reference(name, kept)) if name == environment else environment


def tasks_there(reference: str, split: str, wanted: int) -> int:
    """How many of so many tasks a split has; a source refuses to draw more than it has."""
    source = task_source(reference)

    def lacks(n: int) -> bool:
        try:
            return not source.tasks(split, n, 0)
        except InvalidInput:
            return True

    return bisect_left(range(1, wanted + 1), True, key=lacks)


USUAL_TASKS = 100
"""Tasks that are played, and rows that are measured, where the caller does not say how many."""


def task_count(reference: str, split: str, n_tasks: int | None, seed: int, at_most: int = USUAL_TASKS) -> int:
    """Return how many tasks will be played: without `n_tasks`, and of all tasks of a file, no more than there are.

    Raises:
        InvalidInput: a file has fewer than `n_tasks`, or none in this split.
    """
    if reads_tasks(reference):
        return len(task_source(reference).tasks(split, n_tasks or tasks_there(reference, split, at_most) or 1, seed))
    if parts_of(reference) is None and "file" in option_names(parse_reference(reference).id):
        task_source(reference).tasks(split, 1, seed)  # refused where it has only tasks of a file
    return n_tasks or at_most
