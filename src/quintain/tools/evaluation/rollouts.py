"""Acting and measuring: collect rollouts, evaluate an agent on held-out tasks or on a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from quintain.environments.registry import task_source
from quintain.environments.scripted_policy import expert_of
from quintain.errors import InvalidInput
from quintain.next_step import Hint
from quintain.records.agent import Sampling
from quintain.records.dataset import MEASURABLE_KINDS, Dataset, SplitName
from quintain.records.hyperparameters.online import MAX_ACTORS
from quintain.records.jobs.evolve import Temperature
from quintain.records.jobs.job import EvaluateDatasetSpec, EvaluateSpec, RolloutSpec
from quintain.records.labels.reward import RewardSpec
from quintain.records.tags import require_tags
from quintain.records.wording import list_names, nearest, shown
from quintain.tools.catalog import DEPRECATED
from quintain.tools.data.lineage import export_again, require_remembered
from quintain.tools.data.row_references import stored_dataset
from quintain.tools.evaluation.environment_references import (
    USUAL_TASKS,
    Environments,
    offered_tools,
    require_opponent,
    task_count,
    usable_reference,
)
from quintain.tools.evaluation.suites import benchmark_reference, require_plans, store_tasks, trained_on_tasks
from quintain.tools.invocation import MAX_FIELDS
from quintain.tools.jobs.jobs import start
from quintain.tools.labels.reward_parsing import RewardInput
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.results import JobStarted
from quintain.tools.run_selection import short_schema
from quintain.tools.services import Services
from quintain.tools.training.agents import (
    EXPERT,
    endpoint_of,
    require_loadable,
    require_policy,
    require_weights,
    resolve_agent,
    sampling_of,
)
from quintain.tools.training.planning.warnings import acting_warnings
from quintain.tools.training.requests import RequestKey, require_intact

MAX_TASKS = 100_000

SELF = "self"
"""The opponent that is the agent itself."""

AgentName = Annotated[
    str,
    Field(description="Agent, `starter`, `expert`, a model folder or endpoint:NAME."),
]
EnvironmentId = Annotated[
    Environments,
    Field(description="Id of list_library(kind='environments'); or {id: weight}."),
]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1, description="Of tasks and sampling.")]
MaxTurns = Annotated[int | None, Field(ge=1, le=1000, description="Turns; null: the environment's limit.")]
Actors = Annotated[int, Field(ge=1, le=MAX_ACTORS, description="Processes that play.")]
Opponent = Annotated[str | None, Field(description="In a game; or `self`.")]
WrittenTasks = Annotated[
    list[dict[str, Any]] | None,
    Field(
        min_length=1,
        max_length=200,
        description="Own tasks: prompt, checker or answer; for an MCP server also script, the calls that solve it.",
    ),
    short_schema("array", maxItems=200, items={"type": "object", "maxProperties": MAX_FIELDS}),
]


def collect_rollouts(
    services: Services,
    agent: AgentName,
    environment: EnvironmentId,
    n_tasks: Annotated[int | None, Field(ge=1, le=MAX_TASKS, description="Tasks; null: 100 at most.")] = None,
    attempts: Annotated[int, Field(ge=1, le=256, description="Episodes per task.")] = 1,
    split: Annotated[Literal["train", "held_out"], Field(description="held_out is for evaluation.")] = "train",
    temperature: Annotated[
        Temperature | Annotated[list[Temperature], Field(min_length=2, max_length=2)],
        Field(description="0: greedy; [low, high]: rising over attempts."),
    ] = 1.0,
    diversity: Annotated[
        float,
        Field(ge=0, le=4, description="Heats repeated attempts up to x (1 + this)."),
    ] = 0.0,
    scorer: Annotated[
        RewardInput | None, Field(description="Older name of `reward`.", json_schema_extra=DEPRECATED)
    ] = None,
    reward: Annotated[RewardInput | None, Field(description="As in start_training.")] = None,
    max_turns: MaxTurns = None,
    tags: Annotated[list[str] | None, Field(max_length=50, description="Labels.")] = None,
    opponent: Opponent = None,
    seed: Seed = 0,
    request_key: RequestKey = None,
    tasks: WrittenTasks = None,
    actors: Actors = 1,
) -> JobStarted:
    """Let an agent act in an environment, as a background job that stores every episode."""
    temperatures = _schedule(temperature, diversity, attempts)
    if tasks is not None:
        environment, n_tasks = store_tasks(services, environment, tasks, split), len(tasks)
    acting = playing_fields(services, agent, environment, opponent, actors)
    spec = RolloutSpec(
        written=tasks is not None,
        **acting,
        split=split,
        n_tasks=task_count(acting["environment"], split, n_tasks, seed),
        attempts=attempts,
        seed=seed,
        sampling=acting["agent"].sampling.model_copy(update={"temperature": temperatures[0]}),
        temperatures=temperatures if len(set(temperatures)) > 1 else None,
        diversity=diversity,
        reward=_reward(services, scorer, reward),
        max_turns=max_turns,
        tags=require_tags(tags or ()),
    )
    hottest = spec.sampling.model_copy(update={"temperature": temperatures[1]})
    return start(services, spec, request_key, warnings=acting_warnings(spec.agent, hottest, attempts))


def _reward(services: Services, scorer: object, reward: object) -> RewardSpec | None:
    if scorer is not None and reward is not None:
        raise InvalidInput("expected one of `reward` and `scorer`, its earlier name, got both; give reward alone")
    if scorer is not None:
        return reward_spec(services, scorer, "scorer", calibrate=False)
    return None if reward is None else reward_spec(services, reward, calibrate=False)


def _schedule(temperature: float | Sequence[float], diversity: float, attempts: int) -> tuple[float, float]:
    """The first and the last temperature of a task's attempts."""
    low, high = temperature if isinstance(temperature, Sequence) else (temperature, temperature)
    if low > high:
        raise InvalidInput(f"temperature is [{low:g}, {high:g}]; give the lower one first: [{high:g}, {low:g}]")
    if diversity and (attempts < 3 or high == 0):
        raise InvalidInput(
            f"diversity is {diversity:g} and {'temperature is 0' if high == 0 else f'attempts is {attempts}'}: it makes attempts hotter "
            "the more those before them repeat each other; give attempts >= 3 and a temperature above 0, or leave diversity out"
        )
    return low, high


def evaluate_agent(
    services: Services,
    agent: AgentName,
    environment: Annotated[Environments | None, Field(description="Id, or {id: weight}; or give `dataset_id`.")] = None,
    dataset_id: Annotated[
        str | None,
        Field(description="A benchmark is played; of others loss and next actions are measured."),
    ] = None,
    n_tasks: Annotated[int | None, Field(ge=1, le=MAX_TASKS, description="Tasks, or rows; null: 100 at most.")] = None,
    repeats: Annotated[int, Field(ge=1, le=256, description="Episodes per task.")] = 1,
    split: Annotated[
        Literal["held_out", "train", "all", "test", "validation"],
        Field(description="all: every task of a file; test, validation: a dataset's, else held_out."),
    ] = "held_out",
    sampling: Annotated[Sampling | None, Field(description="Left out: as registered.")] = None,
    max_turns: MaxTurns = None,
    forbidden: Annotated[
        list[str] | None, Field(max_length=100, description="Tools that it must not call; counted.")
    ] = None,
    opponent: Opponent = None,
    seed: Seed = 0,
    request_key: RequestKey = None,
    actors: Actors = 1,
) -> JobStarted:
    """Measure an agent on held-out tasks, a benchmark or a dataset, as a background job.

    Same `environment`, `split`, `n_tasks`, `repeats` and `seed`: the same tasks, which compare_agents pairs.
    """
    suite = measured_suite(services, environment, dataset_id, split, n_tasks)
    if suite.environment is None:
        if (
            repeats > 1
            or max_turns is not None
            or forbidden
            or opponent
            or actors > 1
            or (sampling is not None and sampling.temperature > 0)
        ):
            raise InvalidInput(
                "on a dataset nothing is played and actions are decoded greedily, once: leave `repeats`, `max_turns`, `forbidden`, "
                "`opponent`, `actors` and a temperature out, or name an environment"
            )
        assert suite.dataset is not None
        rows = _on_dataset(services, agent, suite.dataset, split, n_tasks or USUAL_TASKS, seed, sampling)
        return start(services, rows, request_key, warnings=_row_notes(services, suite, rows))
    acting = playing_fields(services, agent, suite.environment, opponent, actors)
    played = EvaluateSpec(
        **acting,
        dataset_id=None if suite.dataset is None else suite.dataset.id,
        split=suite.split,
        n_tasks=task_count(acting["environment"], suite.split, suite.n_tasks, seed),
        repeats=repeats,
        seed=seed,
        sampling=sampling_of(services, acting["agent"], sampling),
        max_turns=max_turns,
        forbidden=tuple(forbidden or ()),
    )
    return start(services, played, request_key, warnings=_play_notes(services, suite, played))


def _play_notes(services: Services, suite: MeasuredSuite, spec: EvaluateSpec) -> tuple[Hint, ...]:
    """Return whether the agent knows tasks, which forbidden tools do not exist, and what speaks against the sampling."""
    known = suite.dataset and trained_on_tasks(services, spec.agent.id, suite.dataset.id, suite.dataset.name)
    notes = [Hint(note) for note in (known, _never_called(spec)) if note]
    return (*notes, *acting_warnings(spec.agent, spec.sampling, spec.repeats))


def _never_called(spec: EvaluateSpec) -> str:
    """Return a note on forbidden tools that the environment does not offer; empty if there are none."""
    offered = offered_tools(spec.environment) if spec.forbidden else set()
    absent = [name for name in spec.forbidden if offered and name not in offered]
    if not absent:
        return ""
    listed = ", ".join(f"{shown(name)}{nearest(name, offered)}" for name in absent)
    return (
        f"[unknown_tool] {spec.environment} offers no tool {listed}, so that no call of it proves nothing; it offers "
        + list_names(sorted(offered))
    )


class MeasuredSuite(NamedTuple):
    """Tasks that an agent is measured on."""

    environment: str | Mapping[str, float] | None
    """Plays the tasks; None: the rows of the dataset are compared."""
    dataset: Dataset | None
    split: Literal["train", "held_out", "all"]
    n_tasks: int | None
    warnings: tuple[Hint, ...] = ()


def measured_suite(
    services: Services,
    environment: str | Mapping[str, float] | None,
    dataset_id: str | None,
    split: str,
    n_tasks: int | None,
) -> MeasuredSuite:
    """Return what to measure on. The tasks of a benchmark are played if their environments are here."""
    asked: Literal["train", "held_out", "all"] = (
        "train" if split == "train" else "all" if split == "all" else "held_out"
    )
    if dataset_id is None:
        if environment is None:
            raise InvalidInput(
                "expected `environment` or `dataset_id`, got neither; give `environment`, where the agent acts, or "
                "`dataset_id`, a benchmark to play or a dataset with turns to compare it with"
            )
        return MeasuredSuite(environment, None, asked, n_tasks)
    dataset = _measurable(services, dataset_id)
    if dataset.kind == "benchmark":
        part = _split_of(dataset, split)
        reference = benchmark_reference(services, dataset, part, environment)
        if isinstance(reference, str):
            return MeasuredSuite(reference, dataset, "all", min(n_tasks or USUAL_TASKS, dataset.splits[part]))
        fault = reference.message.partition("; ")[0]  # of the first row: a benchmark may have thousands
        require_plans(dataset, part, fault)
        note = Hint(f"Its tasks cannot be played, so only the first call is compared: {fault}")
        return MeasuredSuite(None, dataset, asked, n_tasks, (note,))
    if environment is not None:
        raise InvalidInput(
            f"expected a benchmark to play in {environment}, got {dataset.id} of kind {dataset.kind!r}; leave `environment` "
            "out to compare the agent with its turns, or export the same runs as `kind='benchmark'`"
        )
    return MeasuredSuite(None, dataset, asked, n_tasks)


def playing_fields(
    services: Services, agent: str, environment: str | Mapping[str, float], opponent: str | None, actors: int = 1
) -> dict[str, Any]:
    """Return the fields of a spec that name who acts, where, in a game against whom, and on how many processes."""
    acting = acting_fields(services, agent, environment, games=True)
    require_opponent(acting["environment"], opponent, "pass `opponent='self'`, 'expert' or another agent")
    if opponent is not None:
        other = acting if opponent == SELF else acting_fields(services, opponent, environment, games=True)
        acting |= {"opponent": other["agent"], "opponent_endpoint": other["endpoint"]}
    if actors > 1 and (acting["endpoint"] or acting.get("opponent_endpoint")):
        raise InvalidInput(
            f"expected local weights for {actors} actors, got a model behind an endpoint, whose requests run side by side already; "
            "leave actors out, and raise `concurrency` in the endpoint's profile"
        )
    return acting | {"actors": actors}


def acting_fields(
    services: Services, agent: str, environment: str | Mapping[str, float], *, games: bool = False
) -> dict[str, Any]:
    """Return the fields of a spec that name who acts, and where."""
    reference = usable_reference(services, environment, games=games)
    actor = require_loadable(require_policy(resolve_agent(services, agent), "act"))
    if actor.model.source == EXPERT:
        expert_of(task_source(reference), ())
    return {"agent": actor, "endpoint": endpoint_of(services, actor), "environment": reference}


def _measurable(services: Services, dataset_id: str) -> Dataset:
    """Return a dataset that an agent can be measured on."""
    dataset = stored_dataset(services, dataset_id)
    if dataset.kind not in MEASURABLE_KINDS:
        raise InvalidInput(
            f"dataset {dataset.id} is of kind {dataset.kind!r}, whose rows are not turns to repeat; measure on one of kind "
            f"{', '.join(MEASURABLE_KINDS)}",
            code="wrong_dataset_kind",
        )
    require_remembered(services, dataset.id)
    require_intact(dataset)
    return dataset


def _on_dataset(
    services: Services, agent: str, dataset: Dataset, split: str, n_rows: int, seed: int, sampling: Sampling | None
) -> EvaluateDatasetSpec:
    """Return the spec of a job that compares an agent with the turns of a dataset."""
    actor = require_loadable(require_policy(resolve_agent(services, agent), "act"))
    measured = require_weights(actor, "be measured on a dataset")
    return EvaluateDatasetSpec(
        agent=measured,
        dataset_id=dataset.id,
        dataset_path=dataset.path,
        dataset_files=dataset.files,
        dataset_kind=dataset.kind,
        split=_split_of(dataset, split),
        n_rows=n_rows,
        max_new_tokens=sampling_of(services, measured, sampling).max_new_tokens,
        seed=seed,
    )


def _row_notes(services: Services, suite: MeasuredSuite, spec: EvaluateDatasetSpec) -> tuple[Hint, ...]:
    """Return the suite's warnings, whether the agent knows rows, and how many of the split are measured if not all."""
    assert suite.dataset is not None
    known = trained_on_tasks(services, spec.agent.id, spec.dataset_id, suite.dataset.name, spec.split)
    notes = (*suite.warnings, *([Hint(known)] if known else []))
    if spec.n_rows >= (total := suite.dataset.splits.get(spec.split, 0)):
        return notes
    return (*notes, Hint(f"[rows_sampled] It measures {spec.n_rows:,} of {total:,} rows; `n_tasks={total}` takes all."))


def _split_of(dataset: Dataset, asked: str) -> SplitName:
    """The rows that nothing was trained on: the validation split, else the test split; a benchmark is never trained on."""
    is_benchmark = dataset.kind == "benchmark"
    held_out: tuple[SplitName, ...] = ("test", "validation", "train") if is_benchmark else ("validation", "test")
    one: tuple[SplitName, ...] = tuple(name for name in _SPLIT_NAMES if name == asked)
    is_whole = asked == "held_out" or (is_benchmark and asked == "all")
    for name in held_out if is_whole else one:
        if dataset.splits.get(name):
            return name
    if not is_whole:
        raise InvalidInput(
            f"expected a split of dataset {dataset.id}, got {asked!r}; its splits: {dataset.splits}",
            code="no_such_split",
        )
    raise InvalidInput(
        Hint(
            f"dataset {dataset.id} has nothing held out (its splits: {dataset.splits}); export it with a validation split, ",
            export_again(dataset, validation_share=0.1),
            ", or measure its training rows with `split='train'`",
        ),
        code="nothing_held_out",
    )


_SPLIT_NAMES: tuple[SplitName, ...] = ("train", "validation", "test")
