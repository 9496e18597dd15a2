"""The choice of a method: a decision tree over purpose, data, environment and the contents of the library.

Each branch taken is returned with what would have led elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from quintain.environments.registry import environment_ids
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.dataset import PAIRED, Dataset
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import DATASET_KINDS, ONLINE_METHODS
from quintain.records.jobs.plan import Blocker, Branch
from quintain.records.wording import counted
from quintain.tools.evaluation.environment_references import players_in
from quintain.tools.services import Services
from quintain.tools.training.methods import EVOLVE, learning_from
from quintain.tools.training.planning.purposes import Wish
from quintain.tools.training.planning.unknown_outcomes import valuing
from quintain.tools.training.planning.warnings import (
    FEWEST_ROWS,
    count_outcomes,
    data_concerns,
    never_succeeds,
    newest_measurement,
)


class Choice(NamedTuple):
    """A method with its data, and the branches that led to it."""

    method: str | None
    dataset: Dataset | None
    environment: str | None
    branches: tuple[Branch, ...]
    blockers: tuple[Blocker, ...] = ()
    notes: tuple[Hint, ...] = ()
    reward: dict[str, float] | None = None


def choose(
    services: Services, wish: Wish, dataset: Dataset | None, environment: str | None, agent: Agent | None
) -> Choice:
    """Choose the method and its source."""
    if dataset is not None:
        return _on_dataset(services, wish, dataset)
    if not wish.methods:
        return _best_of_library(services, environment, agent)
    if wish.purposes and not wish.named and "grpo" in wish.methods:
        return _by_acting(services, wish, environment, agent)
    method = wish.methods[0]
    if DATASET_KINDS.get(method) is None or (method == "grpo" and (environment or not _newest(services, "grpo", None))):
        return _online(services, method, environment, agent, *wish.branches)
    has_pairs = method == "dpo" and (_newest(services, "dpo", environment) or _has_preferences(services))
    if wish.named and environment and method in ONLINE_METHODS and not has_pairs:
        return _online(services, method, environment, agent, *wish.branches)
    stored = ((one, kind) for one in wish.methods if (kind := DATASET_KINDS.get(one)) is not None)
    found = next((one for one, kind in stored if _newest(services, kind, environment)), method)
    return _from_library(services, found, environment, *wish.branches, named=wish.named)


def _on_dataset(services: Services, wish: Wish, dataset: Dataset) -> Choice:
    fitting = learning_from(dataset.kind)
    about = f"Dataset {dataset.id} is of kind {dataset.kind!r}"
    question = "What does the dataset hold?"
    if not fitting:
        other = "a dataset of another kind can be trained on"
        answer = f"{about}: tasks to measure on, which no method learns from."
        return Choice(None, dataset, None, (Branch(question=question, answer=answer, otherwise=other),))
    kinds = {kind: name for name in wish.methods if (kind := DATASET_KINDS.get(name)) not in (None, dataset.kind)}
    other = (
        f"methods of other kinds: {', '.join(f'{kind!r} for {name}' for kind, name in kinds.items())}" if kinds else ""
    )
    other = other or "another kind of dataset allows other methods"
    branch = Branch(question=question, answer=f"{about}, for {', '.join(fitting)}.", otherwise=other)
    wanted = [name for name in wish.methods if name in fitting]
    if wish.methods and not wanted:
        return _mismatch(services, wish, dataset, fitting, branch)
    return _judged(services, [*wanted, *fitting][0], dataset, *wish.branches, branch, named=wish.named)


def _mismatch(services: Services, wish: Wish, dataset: Dataset, fitting: list[str], branch: Branch) -> Choice:
    """Return the choice of a method that cannot learn from the dataset, with its blocker."""
    method = wish.methods[0]
    kind = DATASET_KINDS.get(method)
    if kind is None:
        remedy = Hint("leave the dataset out and name an `environment`")
        message = f"{method} learns by acting, not from dataset {dataset.id}"
    else:
        remedy = Hint(_making(services, kind, None), f"; or take a method for {dataset.kind!r}: {', '.join(fitting)}")
        message = f"dataset {dataset.id} is of kind {dataset.kind!r} and {method} learns from kind {kind!r}"
    wrong = Blocker(code="wrong_dataset_kind", message=message, remedy=remedy)
    return Choice(method, dataset, None, (*wish.branches, branch), (wrong,))


def _judged(services: Services, method: str, dataset: Dataset, *branches: Branch, named: bool = False) -> Choice:
    """Return the choice of a dataset, with the concerns about it; for `sft` that was not named, what its runs are worth decides."""
    outcomes = count_outcomes(services, TrajectoryFilter(dataset_id=dataset.id))
    if method == "sft" and not named and outcomes["success"]:
        question, n = "Are all runs good?", outcomes["failure"]
        answer, other = "No run of it failed.", "with failed runs among them: bc, which leaves out runs of low reward"
        if n:
            answer = f"{n} of its runs failed: bc leaves out runs of low reward, and sft would imitate them."
            method, other = "bc", "with good runs alone: sft"
        branches = (*branches, Branch(question=question, answer=answer, otherwise=other))
    concerns = data_concerns(services, method, dataset)
    return Choice(method, dataset, None, branches, concerns.blockers, concerns.notes)


def _by_acting(services: Services, wish: Wish, environment: str | None, agent: Agent | None) -> Choice:
    """Choose between grpo and evolve by whether the agent is known to succeed sometimes."""
    question = "Does the agent succeed sometimes?"
    is_measured = environment is None or players_in(environment) or newest_measurement(services, agent, environment)
    if is_measured or EVOLVE not in wish.methods:
        return _online(services, "grpo", environment, agent, *wish.branches)
    answer = f"It was not measured in {environment}: evolve measures first, explores and keeps its best runs."
    branch = Branch(question=question, answer=answer, otherwise="with a measured success rate above 0: grpo")
    return _online(services, EVOLVE, environment, agent, *wish.branches, branch)


def _online(services: Services, method: str, environment: str | None, agent: Agent | None, *branches: Branch) -> Choice:
    """Choose a method that acts in an environment."""
    if environment is None:
        listed = ", ".join(environment_ids()[:8])
        missing = Blocker(
            code="no_environment",
            message=f"{method} learns by acting, and no environment is named",
            remedy=Hint(
                f"give `environment`, such as one of: {listed}; ", call("list_library", kind="environments"), " has all"
            ),
        )
        return Choice(method, None, None, branches, (missing,))
    notes = list[Hint]()
    question, measured = "Does the agent succeed sometimes?", newest_measurement(services, agent, environment)
    blockers = never_succeeds(services, method, agent, environment)
    name: Any = agent.id_or_name if agent else ...
    opponent = "expert" if players_in(environment) else None
    if measured is None:
        measure = call("evaluate_agent", agent=name, environment=environment, opponent=opponent)
        notes.append(
            Hint(
                f"This agent was not measured in {environment}: first ",
                measure,
                "; an agent that never succeeds learns nothing by acting.",
            )
        )
    elif not blockers and opponent is None:  # in a game it meets itself
        answer = f"It solves {measured.rate:.0%} of {measured.of} there."
        other = "an agent that never succeeds needs good runs to imitate first"
        branches = (*branches, Branch(question=question, answer=answer, otherwise=other))
        if measured.temperature == 0:
            sample = call("collect_rollouts", agent=name, environment=environment, attempts=4, temperature=1)
            notes.append(
                Hint(
                    f"It was measured at temperature 0, and {method} samples (by default at 1), where it may solve far fewer tasks: ",
                    sample,
                    " shows how many.",
                )
            )
    return Choice(method, None, environment, branches, tuple(blockers), tuple(notes))


def _from_library(
    services: Services, method: str, environment: str | None, *branches: Branch, named: bool = False
) -> Choice:
    """Choose the newest dataset of the library that fits the method."""
    kind = DATASET_KINDS[method]
    assert kind is not None, "methods without a dataset act"
    question = f"Is there a dataset of kind {kind!r}?"
    if found := _newest(services, kind, environment):
        answer = f"{found.id} is the newest dataset of kind {kind!r}{_with_rows(found)}."
        branch = Branch(question=question, answer=answer, otherwise="`dataset_id` names another one")
        return _judged(services, method, found, *branches, branch, named=named)
    missing = Blocker(
        code="no_dataset",
        message=f"the library has no dataset of kind {kind!r}, which {method} learns from",
        remedy=_making(services, kind, environment),
    )
    return Choice(method, None, None, branches, (missing,))


def _best_of_library(services: Services, environment: str | None, agent: Agent | None) -> Choice:
    """Choose without a purpose: good runs first, else an environment to act in."""
    question, other = "Are there good runs to imitate?", "a `goal` or `method` chooses another way"
    if found := _newest(services, "sft", environment):
        answer = f"Good runs teach fastest, and {found.id} is the newest dataset of kind 'sft'{_with_rows(found)}."
        return _judged(services, "sft", found, Branch(question=question, answer=answer, otherwise=other))
    n = count_outcomes(services, TrajectoryFilter(environment=environment))["success"]
    where = f" in {environment}" if environment else ""
    if n >= FEWEST_ROWS:
        answer = f"{counted(n, 'successful run')} are stored{where}: imitate them."
        return _from_library(services, "sft", environment, Branch(question=question, answer=answer, otherwise=other))
    few = f"Only {counted(n, 'successful run')} stored{where}, too few to imitate"
    enough = f"with {FEWEST_ROWS} good runs: sft"
    if environment is not None:
        answer = f"{few}, so the agent makes its own: explore, keep the best, train."
        return _online(services, EVOLVE, environment, agent, Branch(question=question, answer=answer, otherwise=enough))
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
    return Choice("sft", None, None, (Branch(question=question, answer=f"{few}.", otherwise=enough),), (nothing,))


def _with_rows(found: Dataset) -> str:
    return f" with {FEWEST_ROWS} rows or more" if found.splits.get("train", 0) >= FEWEST_ROWS else ""


def _making(services: Services, kind: str, environment: str | None) -> Hint:
    """Return how to make a dataset of a kind from what is stored."""
    outcomes = count_outcomes(services, TrajectoryFilter(environment=environment))
    where = {"environment": environment} if environment else {}
    collect = call("collect_rollouts", agent="starter", environment=environment or "quintain/inventory", attempts=4)
    if kind == "text":
        return Hint("name files of text: ", call("export_dataset", kind="text", name="texts", path=...))
    decided = outcomes["success"] + (0 if kind == "sft" else outcomes["failure"])
    if outcomes["unknown"] and not decided and kind != "prm":
        return valuing(services, kind, environment, outcomes["unknown"])
    if kind == "sft":
        if not outcomes["success"]:
            place = f" in {environment}" if environment else ""
            return Hint(f"there is no successful run{place} yet: make some with ", collect, ", import or record runs")
        export = call("export_dataset", kind="sft", name="good-runs", filter={"outcome": "success", **where})
        return Hint(export, f" takes {counted(outcomes['success'], 'run')}")
    chosen: Any = where or ...
    if kind in PAIRED and _has_preferences(services):
        export = call("export_dataset", kind=kind, name="pairs", filter=chosen, pairs="recorded")
        return Hint(export, " takes the recorded preferences")
    export = call("export_dataset", kind=kind, name=f"my-{kind}", filter=chosen)
    if not (outcomes["success"] and outcomes["failure"]):
        stored = f"{outcomes['success']} successes and {outcomes['failure']} failures"
        return Hint(f"good and bad runs are needed, and {stored} are stored: ", collect, ", then ", export)
    return Hint(export, " makes one from recorded runs")


def _has_preferences(services: Services) -> bool:
    return bool(services.store.preferences.page(limit=1).items)


def _newest(services: Services, kind: str, environment: str | None) -> Dataset | None:
    """Return the newest trainable dataset of a kind, from this environment where one is named; one with enough rows first."""
    items = services.store.datasets.page(limit=200).items
    fitting = [one for one in items if one.kind == kind and (not environment or environment in one.environments)]
    blocked = services.store.lineage.datasets_with_forgotten([one.id for one in fitting]) if fitting else {}
    usable = [one for one in fitting if not blocked.get(one.id) and one.splits.get("train")]
    return next((one for one in usable if one.splits["train"] >= FEWEST_ROWS), next(iter(usable), None))
