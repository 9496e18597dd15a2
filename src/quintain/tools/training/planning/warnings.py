"""Concerns about data and settings: blockers of a plan, and warnings of a job that starts all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quintain.datasets.manifest import manifest_entries, notes_of
from quintain.datasets.step_labels import score_labels, unweighted_reason
from quintain.errors import QuintainError
from quintain.next_step import Hint, ToolCall, call
from quintain.records.agent import Agent, Sampling
from quintain.records.dataset import Dataset
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import DATASET_KINDS, ROLES, GRPOConfig, TrainingConfig
from quintain.records.jobs.job import EvolveSpec, JobStatus, RecipeSpec, RolloutSpec, TrainSpec
from quintain.records.jobs.plan import Blocker
from quintain.records.jobs.recipe import TrainingInputs, TrainStage
from quintain.records.labels.reward import RewardSpec
from quintain.records.trajectory import OutcomeStatus
from quintain.records.wording import counted
from quintain.scoring.rules.scorer import RulesScorer
from quintain.tools.data.lineage import export_again
from quintain.tools.evaluation.environment_references import players_in
from quintain.tools.services import Services
from quintain.tools.training.methods import EVOLVE
from quintain.tools.training.planning.dataset_size import DataFacts, look_at_data
from quintain.tools.training.planning.device import look_at_device
from quintain.tools.training.planning.estimate import (
    EstimateRequest,
    long_rows,
    measured_figures,
    shortages,
    size_estimate,
    slow_format,
)
from quintain.tools.training.planning.model_files import read_model
from quintain.tools.training.planning.settings import (
    early_end,
    fitting_batch,
    idle_settings,
    planned_steps,
    small_batch,
)
from quintain.tools.training.planning.unknown_outcomes import scoring_note

_EVOLVED = Hint("leave it out: the evolution has its own settings of what is played, and patience ends it")


def start_warnings(services: Services, spec: TrainSpec | EvolveSpec) -> tuple[Hint, ...]:
    """Return the notes of the export, and what `plan_training` would call a blocker of a training that can be started."""
    if isinstance(spec, TrainSpec):
        return (*_input_warnings(services, spec, spec.agent), *settings_warnings([spec.config], spec.agent))
    notes = (Hint(f"[few_held_out] {note}") for note in few_held_out(spec.config.model_dump()))
    device, model = look_at_device(), read_model(spec.agent.model)
    asked = EstimateRequest(EVOLVE, spec.training, spec.agent, spec.environment, None, None, model, device, None)
    blockers = [] if _pays_failures(spec.reward) else never_succeeds(services, EVOLVE, spec.agent, spec.environment)
    blockers += shortages(size_estimate(services, asked))
    idle = [*idle_settings(spec.training, acts=not spec.config.explores), *_unvalidated(spec.training, None)]
    blockers += [one.model_copy(update={"remedy": _EVOLVED}) for one in idle]
    return (*notes, *_hints(blockers), *settings_warnings([spec.training], spec.agent))


def _input_warnings(
    services: Services, inputs: TrainingInputs, agent: Agent, *, is_stored: bool = True
) -> tuple[Hint, ...]:
    """Return the notes of the export, and what speaks against data, environment and settings of a training.

    Where the agent is not stored yet, as in a later stage of a recipe, how often it succeeds is unknown.
    """
    dataset = None if inputs.dataset_id is None else services.store.datasets.get(inputs.dataset_id)
    notes, blockers, rows = tuple[Hint, ...](), list[Blocker](), 0
    if dataset is not None:
        notes = tuple(Hint(f"[export] {note}") for note in notes_of(Path(dataset.path)))
        blockers += data_concerns(services, inputs.method, dataset).blockers
        rows = dataset.splits["train"]
    asked = _asked(services, inputs, agent, dataset)
    if asked.data is not None and not blockers:
        blockers += _few_steps(inputs, agent, asked.data.rows)
    blockers += other_prompt(inputs.method, agent, asked.data)
    blockers += [*idle_settings(inputs.config, acts=dataset is None), *_unvalidated(inputs.config, dataset)]
    blockers += early_end(inputs.method, inputs.config, rows, inputs.environment)
    if is_stored and inputs.environment is not None and not _pays_failures(inputs.reward):
        blockers += never_succeeds(services, inputs.method, agent, inputs.environment)
    return (*notes, *_hints([*blockers, *shortages(size_estimate(services, asked))]))


_FEWEST_FLIPS = 6
"""Tasks that must change for the better until a paired gain is significant, however few there are."""
_FEWEST_HELD_OUT = 5 * _FEWEST_FLIPS
"""Held-out tasks below which only a gain of more than 20 points is significant."""


def few_held_out(settings: Mapping[str, Any]) -> tuple[Hint, ...]:
    """Return a note if an evolution measures on so few tasks that hardly any gain is significant."""
    counts = {name: settings.get(name) or _FEWEST_HELD_OUT for name in ("evaluation_tasks", "final_tasks")}
    few = [f"{name} is {n}" for name, n in counts.items() if n < _FEWEST_HELD_OUT]
    if not few:
        return ()
    why = f"a gain is significant from {_FEWEST_FLIPS} tasks solved more on, so chance may choose the best round"
    return (Hint(f"{' and '.join(few)}: {why}, and `patience` may end it early; give the file more held-out tasks."),)


def recipe_warnings(services: Services, spec: RecipeSpec) -> tuple[Hint, ...]:
    """Return what `start_warnings` has on the trainings of a recipe, each once."""
    stages = [stage for stage in spec.stages if isinstance(stage, TrainStage)]
    found = [
        note
        for place, stage in enumerate(stages)
        for note in _input_warnings(services, stage, spec.agent, is_stored=place == 0)
    ]
    return tuple(dict.fromkeys((*found, *settings_warnings([stage.config for stage in stages], spec.agent))))


def _unvalidated(config: TrainingConfig, dataset: Dataset | None) -> list[Blocker]:
    """Return a blocker of settings that have no effect without validation rows."""
    named = ("early_stopping_patience", "validate_every_steps")
    asked = [name for name in named if getattr(config, name) is not None]
    if not asked or (dataset is not None and dataset.splits.get("validation")):
        return []
    message = f"there are no validation rows, so {' and '.join(asked)} {'have' if len(asked) > 1 else 'has'} no effect"
    online = Hint("give evaluate_every_steps and target_success, or kl_stop")
    remedy = online if dataset is None else Hint(export_again(dataset, validation_share=0.1))
    return [Blocker(code="no_effect", message=message, remedy=remedy)]


def _pays_failures(reward: RewardSpec | None) -> bool:
    """Whether runs that fail can differ in the reward."""
    counted = {part.scorer for part in reward.parts if part.weight} if reward is not None else {"outcome"}
    return "outcome" not in counted if reward and reward.combine == "product" else counted != {"outcome"}


_NEWEST_JOBS = 100
"""Rollouts among which those of an agent are looked for."""
_FEWEST_EPISODES = 20
"""Episodes from which on a success rate of 0 counts as `never`."""


def never_succeeds(services: Services, method: str, agent: Agent | None, environment: str) -> list[Blocker]:
    """Return a blocker if the agent solved no task of an environment in which it would learn from its successes.

    In a game that is no reason: against itself it wins as often as it loses.
    """
    measured = newest_measurement(services, agent, environment)
    if measured is None or method == "distill" or measured.rate or measured.n < _FEWEST_EPISODES:
        return []
    if players_in(environment):
        return []
    greedy = measured.temperature == 0
    never = f"the agent solved none of {measured.of} in {environment}{' at temperature 0' if greedy else ''}"
    good = {"environment": environment.partition("?")[0], "outcome": "success"}
    export = call("export_dataset", kind="sft", name="good-runs", filter=good)
    shown: tuple[str | ToolCall, ...] = ()
    if not services.store.trajectories.count(TrajectoryFilter.model_validate(good), most=1):
        shown = (call("collect_rollouts", agent="expert", environment=environment), ", then ")
    remedy = Hint("train it on good runs first: ", *shown, export, ", then plan that training")
    if greedy:
        sample = call("collect_rollouts", agent=agent.id_or_name if agent else ..., environment=environment, attempts=4)
        remedy = Hint("see whether it succeeds while it samples: ", sample, "; else ", remedy)
    why = f"where all runs of a task earn the same, {method} has nothing to learn from"
    return [Blocker(code="no_successes", message=f"{never}: {why}", remedy=remedy)]


class Measurement(NamedTuple):
    """How often an agent succeeded in an environment."""

    rate: float
    n: int
    of: str
    """What it was measured on, such as `100 tasks`."""
    temperature: float


def newest_measurement(services: Services, agent: Agent | None, environment: str) -> Measurement | None:
    """Return what an agent's newest rollouts in an environment show, which sample as it learns, else its newest evaluation."""
    if agent is None or agent.id is None:
        return None
    for job in services.store.jobs.page(kind="rollout", status=JobStatus.SUCCEEDED, limit=_NEWEST_JOBS).items:
        spec, result = job.spec, job.result
        if not isinstance(spec, RolloutSpec) or (spec.agent.id, spec.environment) != (agent.id, environment):
            continue
        if result is not None and result.n and result.success_rate is not None:
            of = f"{counted(result.n, 'episode')} of rollouts"
            return Measurement(result.success_rate, result.n, of, spec.sampling.temperature)
    for one in services.store.evaluations.of_agent(agent.id):
        if one.environment == environment and one.rate.value is not None:
            of = counted(one.rate.n, "task" if one.repeats == 1 else "episode")
            return Measurement(one.rate.value, one.rate.n, of, one.sampling.temperature)
    return None


def settings_warnings(configs: Iterable[TrainingConfig], agent: Agent) -> tuple[Hint, ...]:
    """Return the blockers of settings that this machine or the model does not fit, each once."""
    device, model = look_at_device(), read_model(agent.model)
    found = [
        [*slow_format(config.precision, device), *long_rows(config, model), *small_batch(config)] for config in configs
    ]
    return tuple(dict.fromkeys(_hints(blocker for blockers in found for blocker in blockers)))


def acting_warnings(agent: Agent, sampling: Sampling, episodes: int = 1) -> tuple[Hint, ...]:
    """Return what speaks against the sampling settings of an agent on this machine."""
    greedy = []
    if episodes > 1 and sampling.temperature == 0 and agent.model.source != "endpoint":
        message = (
            f"temperature is 0, so the {episodes} episodes of a task differ only where the environment draws by chance"
        )
        greedy = [
            Blocker(code="greedy_repeats", message=message, remedy="set a temperature above 0, or play each once")
        ]
    return _hints([*greedy, *_unfit(agent, sampling)])


def _unfit(agent: Agent, sampling: Sampling) -> list[Blocker]:
    """Return the sampling settings that this machine or the model does not fit."""
    if agent.model.source in ("endpoint", "expert"):
        return []
    blockers, model = slow_format(sampling.precision, look_at_device()), read_model(agent.model)
    context = None if isinstance(model, str) else model.context_tokens
    if context is not None and sampling.max_new_tokens > context:
        blockers.append(
            Blocker(
                code="beyond_context",
                message=f"max_new_tokens is {sampling.max_new_tokens} and the model's context has {context} tokens, where turns end",
                remedy="set max_new_tokens to what a turn needs",
            )
        )
    return blockers


def _hints(blockers: Iterable[Blocker]) -> tuple[Hint, ...]:
    return tuple(Hint(f"[{one.code}] {one.message}; ", one.remedy) for one in blockers)


def _few_steps(inputs: TrainingInputs, agent: Agent, rows: int) -> list[Blocker]:
    """Return a blocker if a plan would take smaller batches, so that the rows make more optimizer steps."""
    config, fields = inputs.config, type(inputs.config).model_fields
    usual = config.model_copy(update={"batch_size": fields["batch_size"].default})
    size = fitting_batch(inputs.method, usual, rows)  # what a plan with these epochs begins with
    is_few = fitting_batch(inputs.method, config, rows) < config.batch_size
    if config.max_steps is not None or not is_few or size >= config.batch_size:
        return []
    steps = planned_steps(inputs.method, config, rows)
    message = (
        f"{counted(rows, 'row')} with batch_size {config.batch_size} make at most {counted(steps, 'optimizer step')}"
    )
    epochs = {} if config.epochs == fields["epochs"].default else {"hyperparameters": {"epochs": config.epochs}}
    plan = call("plan_training", method=inputs.method, dataset_id=inputs.dataset_id, model=agent.id_or_name, **epochs)
    return [Blocker(code="few_steps", message=message, remedy=Hint(f"set batch_size to {size}, as ", plan, " does"))]


def _asked(services: Services, inputs: TrainingInputs, agent: Agent, dataset: Dataset | None) -> EstimateRequest:
    device, config = look_at_device(), inputs.config
    data = None if dataset is None else _data(services, inputs, agent, dataset)
    earlier = measured_figures(services, agent.model, config, device)
    model = read_model(agent.model)
    return EstimateRequest(
        inputs.method, config, agent, inputs.environment, inputs.dataset_id, data, model, device, earlier
    )


def _data(services: Services, inputs: TrainingInputs, agent: Agent, dataset: Dataset) -> DataFacts | None:
    """Return the facts of the dataset; None where its rows cannot be read, which the job reports."""
    config = inputs.config
    try:
        settings = config.model_dump(mode="json", exclude_defaults=True)
        return look_at_data(services, dataset, agent.id_or_name, inputs.method, settings, config.batch_size)
    except QuintainError:
        return None


FEWEST_ROWS = 10
"""Minimum of training rows; a run on fewer memorises them."""


class Concerns(NamedTuple):
    """Return the reasons against training on a dataset."""

    blockers: tuple[Blocker, ...]
    notes: tuple[Hint, ...]


def data_concerns(services: Services, method: str, dataset: Dataset) -> Concerns:
    """Return what speaks against training by a method on a dataset: too few rows, failed runs only, unknown outcomes."""
    blockers, notes = list[Blocker](), list[Hint]()
    if (rows := dataset.splits.get("train", 0)) < FEWEST_ROWS:
        blockers.append(_too_few(dataset, rows))
    if DATASET_KINDS.get(method) == "sft":
        outcomes = count_outcomes(services, TrajectoryFilter(dataset_id=dataset.id))
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
            notes += scoring_note(services, dataset)
    if not dataset.splits.get("validation"):
        notes += _no_validation(dataset)
    return Concerns(tuple(blockers), tuple(notes))


def _no_validation(dataset: Dataset) -> list[Hint]:
    """Return how to get a validation split: by asking for one, or by what the export noted where one was asked for."""
    manifest = manifest_entries(Path(dataset.path))
    selection, uneven = manifest.get("selection"), manifest.get("uneven_split")
    shares = selection.get("shares") if isinstance(selection, dict) else None
    unnoticed = "so overfitting goes unnoticed: "
    if isinstance(shares, dict) and shares.get("validation"):
        why = uneven if isinstance(uneven, str) else "export with another seed or more tasks"
        return [Hint("The validation split that was asked for is empty, ", unnoticed, why, ".")]
    return [Hint("There is no validation split, ", unnoticed, export_again(dataset, validation_share=0.1), ".")]


def step_value_notes(config: TrainingConfig, data: DataFacts | None) -> tuple[Hint, ...]:
    """Return a note on runs whose steps would all weigh alike although the settings weigh steps."""
    weighs = getattr(config, "step_weighting", "none") == "reward" or (
        isinstance(config, GRPOConfig) and config.step_level and config.reward_model is None
    )
    if not weighs or data is None or not (n := sum(data.weightless.values())):
        return ()
    reasons = ", ".join(f"{reason} {k}" for reason, k in sorted(data.weightless.items()))
    alike = f"The steps of {n} of {counted(data.sampled, 'run')} that were looked at would all weigh alike ({reasons})"
    rules = RulesScorer()
    if any(unweighted_reason(score_labels(run, [rules.score(run)]).labels) is None for run in data.alike):
        score = call("score_trajectories", scorer="rules", filter=...)
        export = call("export_dataset", kind=..., name=..., scorer="rules", filter=...)
        return (Hint(f"{alike}: ", score, ", then ", export, " gives steps values."),)
    if n < data.sampled:
        return (Hint(f"{alike}; those of the others are weighed."),)
    setting = "step_level" if isinstance(config, GRPOConfig) and config.step_level else "step_weighting"
    return (Hint(f"{alike}: `rules` ranks no steps of them either, so leave `{setting}` out."),)


def other_prompt(method: str, agent: Agent, data: DataFacts | None) -> list[Blocker]:
    """Return a concern if the new agent will act under a system prompt that it has not learned with."""
    own = agent.system_prompt
    if own is None or method in ROLES or data is None or not data.prompts or any(own in one for one in data.prompts):
        return []
    collect = call("collect_rollouts", agent=agent.id_or_name, environment=...)
    message = f"the new agent acts under the system prompt of {agent.id_or_name}, which no run that was looked at has"
    remedy = Hint("learn from runs with it (", collect, "), or begin with a model without a system prompt of its own")
    return [Blocker(code="other_prompt", message=message, remedy=remedy)]


def _too_few(dataset: Dataset, rows: int) -> Blocker:
    collect = call("collect_rollouts", agent="starter", environment="quintain/inventory")
    is_text = dataset.kind == "text"
    more = Hint("add texts") if is_text else Hint("record or collect more runs (", collect, "), then export them again")
    split = Hint(more, ", with a smaller `validation_share` where that took them") if dataset.rows > rows else more
    message = f"dataset {dataset.id} has {counted(rows, 'training row')}; a training wants {FEWEST_ROWS} at least"
    return Blocker(code="too_few_rows", message=message, remedy=split)


def count_outcomes(services: Services, filter: TrajectoryFilter) -> dict[str, int]:
    """Count matching runs by outcome."""
    return {
        status.value: services.store.trajectories.count(filter.model_copy(update={"outcome": status}))
        for status in OutcomeStatus
    }
