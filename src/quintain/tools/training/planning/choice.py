"""The choice of a method: from the goal in plain words, the dataset's kind, and what the library holds."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from quintain.environments.registry import environment_ids
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters import CONFIGS, DATASET_KINDS
from quintain.records.plan import Blocker
from quintain.records.record import counted
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.services import Services
from quintain.tools.training.methods import EVOLVE

FEWEST_ROWS = 10
"""Minimum of training rows; a run on fewer memorises them."""

_ASKED = 20
"""Episodes from which on a rate of 0 is taken as `never`."""

_WISHES = {
    "prm": r"process reward|(value|judge|score)s? (each |single |its )?steps?\b",
    "reward": r"reward model|(learn|model)s?( that)? (to )?(score|judge|grade)s?\b",
    EVOLVE: r"evolv|self-?improv|improves? itself|by itself|on its own|round after round",
    "grpo": r"\bonline\b|reinforce|\brl\b|while it (acts|plays|learns)|trial and error|own (tries|experience)",
    "kto": r"thumbs?\b|dislike|marked (as )?(good|bad)|good (and|or) bad",
    "dpo": r"prefer|\bpairs?\b|better of two",
    "ranking": r"\brank(ed|ing|s)?\b",
    "pretrain": r"pre-?train|\btexts?\b|documents?\b|corpus|knowledge",
    "bc": r"graded|by (their )?reward",
    "sft": r"imitat|cop(y|ies)\b|clon(e|ing)|demonstrat|(successful|good|best|expert'?s?) (runs|ones|tries|trajectories)",
}
"""Method -> wording of goals that ask for it; the first match counts."""

_NAMED = re.compile(rf"\b({'|'.join(sorted({*CONFIGS, EVOLVE} - {'reward', 'ranking'}))})\b", re.IGNORECASE)
"""A method by its name; `reward` and `ranking` are words of every day, too."""

_DEFAULT = {"text": "pretrain"}
"""Kind of dataset -> its usual method, where that is not the one of its own name."""


class Choice(NamedTuple):
    """A method with what it would learn from, and why."""

    method: str | None
    dataset: Dataset | None
    environment: str | None
    reasons: tuple[str, ...]
    blockers: tuple[Blocker, ...] = ()
    notes: tuple[Hint, ...] = ()


class Wish(NamedTuple):
    """What a goal asks for."""

    method: str | None
    wording: str
    """The words of the goal that ask for the method."""


def wish_of(goal: str) -> Wish:
    """Return the method that a goal asks for, by its name or its wording; None where the goal names no method."""
    if named := _NAMED.search(goal):
        return Wish(named[0].lower(), named[0])
    for method, words in _WISHES.items():
        if found := re.search(rf"\w*(?:{words})\w*", goal, re.IGNORECASE):
            return Wish(method, found[0])
    return Wish(None, "")


def environment_in(goal: str) -> str | None:
    """The environment that a goal names, by its id or by the last word of it."""
    words = set(re.findall(r"[\w.:/-]+", goal.lower().replace(",", " ")))
    named = {word.rstrip(".") for word in words}
    return next(
        (name for name in environment_ids() if named & {name, name.rpartition("/")[2]} and name not in _OPEN), None
    )


_OPEN = frozenset({"quintain/tasks"})
"""Environments that are nothing without a file of tasks."""


def choose(
    services: Services, wish: Wish, dataset: Dataset | None, environment: str | None, agent: Agent | None
) -> Choice:
    """What to train by, and on what.

    Args:
        services: Whose library.
        wish: What is asked for.
        dataset: What was named to learn from; None: what the library has.
        environment: Where it may act; None: nowhere.
        agent: What would be trained, where it is known.
    """
    if dataset is not None:
        return _on_dataset(services, wish, dataset)
    method = wish.method
    asked = f"The goal contains {wish.wording!r}, which asks for {method}." if method else ""
    if method is not None and wish.wording.lower() == method:
        asked = f"{method} is asked for by name."
    if method == EVOLVE or (method == "grpo" and (environment or not _newest(services, "grpo", None))):
        return _online(services, method, environment, agent, asked)
    if method == "dpo" and environment and not (_newest(services, "dpo", environment) or _has_preferences(services)):
        return _online(services, method, environment, agent, asked)
    if method is not None:
        return _from_library(services, method, environment, asked)
    return _best_of_library(services, environment, agent)


def _on_dataset(services: Services, wish: Wish, dataset: Dataset) -> Choice:
    fitting = [name for name, kind in DATASET_KINDS.items() if kind == dataset.kind]
    about = f"Dataset {dataset.id} is of kind {dataset.kind!r}"
    if wish.method in fitting:
        return _judged(services, wish.method, dataset, f"{about}; {wish.method} is asked for ({wish.wording!r}).")
    if wish.method in CONFIGS and wish.wording.lower() == wish.method:
        kind = DATASET_KINDS[wish.method]
        wrong = Blocker(
            code="wrong_dataset_kind",
            message=f"dataset {dataset.id} is of kind {dataset.kind!r} and {wish.method} learns from kind {kind!r}",
            remedy=Hint(
                _making(services, kind, None),
                f"; or take a method for {dataset.kind!r}: {', '.join(fitting) or 'none'}",
            ),
        )
        return Choice(wish.method, dataset, None, (f"{wish.method} is asked for by name.",), (wrong,))
    if not fitting:
        return Choice(None, dataset, None, (f"{about}: tasks to be measured on, which no method learns from.",))
    usual = _DEFAULT.get(dataset.kind, dataset.kind)
    outcomes = _outcomes(services, TrajectoryFilter(dataset_id=dataset.id))
    if usual == "sft" and outcomes["success"] and outcomes["failure"]:
        why = f"{about} and holds failed runs beside good ones, so bc, which leaves out what earned too little, and not sft."
        return _judged(services, "bc", dataset, why)
    others = [name for name in fitting if name != usual]
    more = f" (others for it: {', '.join(others)})" if others else ""
    return _judged(services, usual, dataset, f"{about}, which {usual} learns from{more}.")


def _judged(services: Services, method: str | None, dataset: Dataset, *reasons: str) -> Choice:
    """The choice of a dataset, with what is wrong with it."""
    blockers, notes = list[Blocker](), list[Hint]()
    rows = dataset.splits.get("train", 0)
    if rows < FEWEST_ROWS:
        more = Hint(
            "record or collect more runs (",
            call("collect_rollouts", agent="starter", environment="quintain/inventory"),
            "), then export them again",
        )
        blockers.append(
            Blocker(
                code="too_few_rows",
                message=f"dataset {dataset.id} has {counted(rows, 'training row')}; a training wants {FEWEST_ROWS} at least",
                remedy=Hint(more, ", with a smaller validation_share where that took them")
                if dataset.rows > rows
                else more,
            )
        )
    if DATASET_KINDS.get(method or "") == "sft":
        outcomes = _outcomes(services, TrajectoryFilter(dataset_id=dataset.id))
        if not outcomes["success"] and outcomes["failure"] and not outcomes["unknown"]:
            blockers.append(
                Blocker(
                    code="no_successes",
                    message=f"all {outcomes['failure']} runs in {dataset.id} failed, and {method} would teach to fail",
                    remedy=Hint(
                        call("export_dataset", kind="sft", name="good-runs", filter={"outcome": "success"}),
                        " takes successful runs; kind 'kto' learns from failures too",
                    ),
                )
            )
        elif not outcomes["success"] and outcomes["unknown"]:
            score = call("score_trajectories", scorer="rules", filter={"dataset_id": dataset.id})
            notes.append(
                Hint("The outcome of these runs is unknown: score them before you rely on them, with ", score, ".")
            )
    if not dataset.splits.get("validation"):
        notes.append(
            Hint("There is no validation split, so overfitting goes unnoticed: export with validation_share=0.1.")
        )
    return Choice(method, dataset, None, reasons, tuple(blockers), tuple(notes))


def _online(services: Services, method: str, environment: str | None, agent: Agent | None, *reasons: str) -> Choice:
    """Choose a method that acts in an environment."""
    given = tuple(reason for reason in reasons if reason)
    if environment is None:
        named = ", ".join(environment_ids()[:8])
        missing = Blocker(
            code="no_environment",
            message=f"{method} learns by acting, and no environment is named",
            remedy=Hint(
                f"give `environment`, such as one of: {named}; ", call("list_library", kind="environments"), " has all"
            ),
        )
        return Choice(method, None, None, given, (missing,))
    blockers, notes = list[Blocker](), list[Hint]()
    rate = _rate(services, agent, environment)
    if rate is None:
        name = (agent.id or agent.name) if agent else "starter"
        measure = call("evaluate_agent", agent=name, environment=environment)
        notes.append(
            Hint(
                f"This agent was not measured in {environment}: first ",
                measure,
                "; an agent that never succeeds learns nothing by acting.",
            )
        )
    elif rate.value == 0 and rate.n >= _ASKED:
        never = f"the agent solved none of {rate.n} tasks in {environment}, so all runs of a task earn the same"
        blockers.append(
            Blocker(
                code="no_successes",
                message=f"{never} and {method} has nothing to learn from",
                remedy=Hint(
                    "train it on good runs first: ",
                    call("export_dataset", kind="sft", name="good-runs", filter={"outcome": "success"}),
                    ", then plan that training",
                ),
            )
        )
    else:
        given = (*given, f"It solves {rate.value:.0%} of {rate.n} tasks there, so it succeeds sometimes.")
    return Choice(method, None, environment, given, tuple(blockers), tuple(notes))


def _from_library(services: Services, method: str, environment: str | None, *reasons: str) -> Choice:
    """Choose the newest dataset of the library that fits the method."""
    kind = DATASET_KINDS[method]
    given = tuple(reason for reason in reasons if reason)
    if found := _newest(services, kind, environment):
        return _judged(services, method, found, *given, f"{found.id} is the newest dataset of kind {kind!r}.")
    missing = Blocker(
        code="no_dataset",
        message=f"the library has no dataset of kind {kind!r}, which {method} learns from",
        remedy=_making(services, kind, environment),
    )
    return Choice(method, None, None, given, (missing,))


def _best_of_library(services: Services, environment: str | None, agent: Agent | None) -> Choice:
    """Choose without a stated goal: good runs first, else an environment to act in."""
    if found := _newest(services, "sft", environment):
        return _judged(
            services, "sft", found, f"Good runs teach fastest, and {found.id} is the newest dataset of kind 'sft'."
        )
    n = _outcomes(services, TrajectoryFilter(environment=environment))["success"]
    where = f" in {environment}" if environment else ""
    if n >= FEWEST_ROWS:
        return _from_library(
            services, "sft", environment, f"{counted(n, 'successful run')} are stored{where}: imitate them."
        )
    few = f"Only {counted(n, 'successful run')} stored{where}, too few to imitate"
    if environment is not None:
        return _online(
            services, EVOLVE, environment, agent, f"{few}, so the agent makes its own: explore, keep the best, train."
        )
    nothing = Blocker(
        code="no_data",
        message=f"{few[0].lower()}{few[1:]}, and no environment is named in which more could be made",
        remedy=Hint(
            "let an agent act with ",
            call("collect_rollouts", agent="starter", environment="quintain/inventory"),
            ", import runs with ",
            call("import_trajectories", path=...),
            ", or name an `environment`",
        ),
    )
    return Choice("sft", None, None, (f"{few}.",), (nothing,))


def _making(services: Services, kind: str, environment: str | None) -> Hint:
    """Return how to make a dataset of a kind from what is stored."""
    outcomes = _outcomes(services, TrajectoryFilter(environment=environment))
    where = {"environment": environment} if environment else {}
    collect = call("collect_rollouts", agent="starter", environment=environment or "quintain/inventory", attempts=4)
    if kind == "text":
        return Hint("name files of text: ", call("export_dataset", kind="text", name="texts", path=...))
    if kind == "sft":
        if not outcomes["success"]:
            return Hint("there is no successful run yet: make some with ", collect, ", import or record runs")
        export = call("export_dataset", kind="sft", name="good-runs", filter={"outcome": "success", **where})
        return Hint(export, f" takes {counted(outcomes['success'], 'run')}")
    chosen: Any = where or ...
    if kind in ("dpo", "reward") and _has_preferences(services):
        export = call("export_dataset", kind=kind, name="pairs", filter=chosen, pairs="recorded")
        return Hint(export, " takes the recorded preferences")
    export = call("export_dataset", kind=kind, name=f"my-{kind}", filter=chosen)
    if not (outcomes["success"] and outcomes["failure"]):
        stored = f"{outcomes['success']} successes and {outcomes['failure']} failures"
        return Hint(f"good and bad runs are needed, and {stored} are stored: ", collect, ", then ", export)
    return Hint(export, " makes one from recorded runs")


def _has_preferences(services: Services) -> bool:
    return bool(services.store.preferences.page(limit=1).items)


class _Rate(NamedTuple):
    value: float
    n: int


def _rate(services: Services, agent: Agent | None, environment: str) -> _Rate | None:
    """Return the success rate of an agent in its newest evaluation in an environment."""
    known = services.store.evaluations.of_agent(agent.id) if agent and agent.id else []
    found = next((one for one in known if one.environment == environment and one.rate.value is not None), None)
    return _Rate(found.rate.value or 0.0, found.rate.n) if found else None


def _newest(services: Services, kind: str, environment: str | None) -> Dataset | None:
    """Return the newest trainable dataset of a kind, from this environment where one is named."""
    items = services.store.datasets.page(limit=200).items
    fitting = [one for one in items if one.kind == kind and (not environment or environment in one.environments)]
    blocked = services.store.lineage.datasets_with_forgotten([one.id for one in fitting]) if fitting else {}
    return next((one for one in fitting if not blocked.get(one.id) and one.splits.get("train")), None)


def _outcomes(services: Services, filter: TrajectoryFilter) -> dict[str, int]:
    """Count matching runs by outcome."""
    return {
        status.value: services.store.trajectories.count(filter.model_copy(update={"outcome": status}))
        for status in OutcomeStatus
    }
