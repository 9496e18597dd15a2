"""Scorers and rubrics by name, and what runs are worth: by their outcomes, or by what is stored of a scorer. Unknown is not zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from quintain.datasets.selection import ValuedRun
from quintain.datasets.step_labels import score_labels
from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter
from quintain.records.labels.judging import JudgingMode, Rubric
from quintain.records.labels.profiles import DomainProfile
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.records.wording import clip, list_names, nearest, shown
from quintain.scoring.calibration.calibrated import CalibratedScorer
from quintain.scoring.judges.rubrics import RUBRICS, read_rubric_file, rubric, unknown_rubric
from quintain.scoring.raters import RatersApart
from quintain.scoring.recorded import (
    AGENT,
    INFLUENCE,
    OF_RATERS,
    RAW,
    TOURNAMENT,
    RecordedScorer,
    Source,
    is_recorded,
    source_of,
)
from quintain.scoring.registry import scorer as find_scorer
from quintain.tools.labels.tournaments import tournament_scores
from quintain.tools.roots import readable
from quintain.tools.services import Services
from quintain.tools.training.agents import require_reward_model, resolve_scorer

_BATCH = 50
"""Runs held in memory at once."""

READ_ONLY = frozenset({"judge", "people", "montecarlo", "replay", INFLUENCE, TOURNAMENT})
"""Scorers that are read from what is stored, and never run."""


class ScorerName(NamedTuple):
    """A scorer by the one name that its values have everywhere."""

    name: str
    warnings: tuple[str, ...] = ()


def full_scorer_name(
    services: Services,
    scorer: str,
    filter: TrajectoryFilter | None = None,
    ids: Sequence[str] | None = None,
    *,
    steps: bool = False,
) -> ScorerName:
    """The full name of a scorer: an agent with its version, judges and people with the rubric.

    With several rubrics among the verdicts on the runs the one that was judged by last counts; with `steps`, only
    verdicts on single steps. `raw:` before a name leaves its calibration out.

    Raises:
        NotFound: no such scorer, agent, or rubric among the verdicts.
        InvalidInput: the agent acts.
    """
    source = source_of(scorer)
    prefix = RAW if source.raw else ""
    if source.scorer.startswith(AGENT):
        agent = resolve_scorer(services, source.scorer)
        return ScorerName(f"{prefix}{require_reward_model(agent, 'score runs').id}")
    if source.scorer in OF_RATERS:
        judged = services.store.scores.rubrics(source.scorer, filter, ids, steps=steps, rater=source.rater)
        if source.rater is not None and not judged:
            raters = sorted({batch.rater for batch in services.store.judging.iterate()})
            raise NotFound(
                f"expected a rater who judged one of these runs, got {shown(source.rater)}{nearest(source.rater, raters)}; "
                f"raters: {', '.join(map(clip, raters[:10])) or 'none'}"
            )
        return _by_rubric(judged, source, prefix)
    require_known(services, source.scorer)
    return ScorerName(scorer)


def require_known(services: Services, scorer: str) -> None:
    """Refuse a name that is not a scorer's, and that neither the store nor a log has scores in 0..1 under.

    Mixes have stored scores under names of their own.
    """
    if scorer in READ_ONLY:
        return
    if not scorer.startswith("mix("):
        try:
            find_scorer(scorer)
        except NotFound as unknown:
            if scorer not in services.store.scores.scorers():  # a program may have registered it, and be gone
                _require_logged(services, scorer, unknown)
        return
    mixes = [name for name in services.store.scores.scorers() if name.startswith("mix(")]
    if scorer not in mixes:
        listed = ", ".join(clip(name, 200) for name in mixes[:10]) or "none"
        raise NotFound(f"nothing was scored by the mix {clip(scorer, 200)!r}{nearest(scorer, mixes)}; stored: {listed}")


def _require_logged(services: Services, scorer: str, unknown: NotFound) -> None:
    logged = services.store.trajectories.logged_scores(TrajectoryFilter())
    values = [scores[scorer] for scores in logged.values() if scorer in scores]
    if not values:
        names = sorted({name for scores in logged.values() for name in scores})
        listed = f"; imported logs have scores {', '.join(map(clip, names[:10]))}" if names else ""
        raise NotFound(f"{unknown.message}{listed}") from None
    if min(values) < 0 or max(values) > 1:
        raise InvalidInput(
            f"expected the scores {clip(scorer)!r} of imported logs in 0..1, got {min(values):g}..{max(values):g}; scale them before "
            "the import"
        )


def logged_scores(run_id: str, scorer: str, scores: Mapping[str, float]) -> list[Score]:
    """Return the score of this name in a run's log as a stored score; empty if there is none in 0..1."""
    value = scores.get(scorer)
    if value is None or not 0 <= value <= 1:
        return []
    return [Score(trajectory_id=run_id, scorer=scorer, status="scored", value=value)]


def is_scorer(name: str) -> bool:
    """Whether a name belongs to a scorer; only scores under other names are read from logs."""
    if is_recorded(name) or name.startswith("mix("):
        return True
    try:
        find_scorer(name)
    except NotFound:
        return False
    return True


def stored_scores_of(services: Services, scorer: str, ids: Sequence[str]) -> dict[str, list[Score]]:
    """Run -> what is stored of a scorer, newest first; of one that computes its scores, the newest alone."""
    name = source_of(scorer).scorer
    if name == TOURNAMENT:
        return tournament_scores(services, ids)
    if is_recorded(scorer):
        return services.store.scores.by_scorers([name], ids)
    return {run: [score] for run, score in services.store.scores.latest(name, ids).items()}


def with_calibration(services: Services, inner: Scorer) -> Scorer:
    """The scorer through the newest calibration of its name; without one, of `raw:...` and of people as it is."""
    source = source_of(inner.name)
    if source.raw or source.scorer == "people":
        return inner
    found = services.store.calibrations.newest(inner.name)
    return inner if found is None else CalibratedScorer(inner, found)


def runs_with_values(
    services: Services,
    runs: Iterable[Trajectory],
    scorer: str | None,
    worth: Callable[[Trajectory], float | None],
    notes: list[str] | None = None,
    bound: float | None = None,
) -> Iterator[ValuedRun]:
    """Stream runs with what they are worth.

    Args:
        services: Where scores are looked up.
        runs: Read once.
        scorer: Whose stored scores count, by the name that `full_scorer_name` returns: the raters' newest verdicts, their mean, and
            the newest calibration of it; without one, the score of this name in the run's log. None: `worth` decides.
        worth: Value of a run by itself; None: not known.
        notes: Gets, at the end, what is to be known of the values.
        bound: From which on a run is good, for the notes.
    """
    stream = iter(runs)
    if scorer is None:
        # One at a time: runs that wait in a list make Python's collector of cycles walk over them again and again.
        yield from (ValuedRun(run, worth(run)) for run in stream)
        return
    found: dict[str, list[Score]] = {}
    reader, apart = with_calibration(services, RecordedScorer(scorer, found)), RatersApart({scorer: found}, bound)
    name = source_of(scorer).scorer
    logged = not is_scorer(name)
    while batch := list(islice(stream, _BATCH)):
        found.clear()
        found.update(stored_scores_of(services, scorer, [run.id for run in batch if run.id]))
        for run in batch:
            if logged and run.id and run.id not in found:
                found[run.id] = logged_scores(run.id, name, run.outcome.scores)
            score = reader.score(run)
            apart.add(run.id or "")
            yield ValuedRun(run, score.value, score_labels(run, [score]).labels if score.steps else ())
    if notes is not None:
        notes += apart.notes()


def verdict(run: Trajectory) -> float | None:
    """1 for success, 0 for failure and truncation; unknown and error are not verdicts."""
    return run.outcome.status.verdict


def label(run: Trajectory) -> float | None:
    """The verdict; of a run of unknown outcome the label that its log has, 1 for good and 0 for bad."""
    if run.outcome.status is OutcomeStatus.UNKNOWN and run.logged_label is not None:
        return float(run.logged_label)
    return verdict(run)


def reward(run: Trajectory) -> float | None:
    """Return the reward of the environment or the recorder; None: there is none."""
    return run.outcome.reward


def group_reward(run: Trajectory) -> float | None:
    """The environment's reward, else the label; a crash of the environment is not a verdict on the agent."""
    if run.outcome.status is OutcomeStatus.ERROR:
        return None
    return label(run) if run.outcome.reward is None else run.outcome.reward


def _by_rubric(judged: Sequence[str | None], source: Source, prefix: str) -> ScorerName:
    """The name with a rubric: the one that is asked for, else the one that was judged by last."""
    known = [rubric for rubric in judged if rubric is not None]
    rater = "" if source.rater is None else f"@{source.rater}"
    if source.rubric is not None:
        if judged and source.rubric not in known:
            raise NotFound(
                f"none of these runs was judged by the rubric {shown(source.rubric)}{nearest(source.rubric, known)} (scorer "
                f"{source.scorer!r}); they were judged by {_listed(judged)}"
            )
        return ScorerName(f"{prefix}{source.scorer}:{source.rubric}{rater}")
    if not judged:
        return ScorerName(f"{prefix}{source.scorer}")
    name = f"{source.scorer}{'' if judged[0] is None else f':{judged[0]}'}{rater}"
    if len(judged) == 1:
        return ScorerName(prefix + name)
    return ScorerName(
        prefix + name,
        (
            f"These runs were judged by {len(judged)} rubrics, {_listed(judged)}, which are never averaged: {name!r} counts, by which "
            f"was judged last; choose another one with `scorer='{source.scorer}:RUBRIC'`.",
        ),
    )


def _listed(rubrics: Sequence[str | None]) -> str:
    names = ["no rubric" if rubric is None else clip(rubric) for rubric in rubrics]
    return list_names(names, 5)


def parts_of_runs(services: Services, scorer: str, ids: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return run id -> component -> value by a scorer's stored scores, of raters the mean; of the runs that have some.

    Raises:
        NotFound: There is no such scorer.
        InvalidInput: None of the runs has a stored component.
    """
    name, runs = full_scorer_name(services, scorer).name, list(dict.fromkeys(ids))
    reader = RecordedScorer(name, stored_scores_of(services, name, runs))
    found = {
        run: {part.name: part.value for part in reader.read(run).components if part.value is not None} for run in runs
    }
    parts = {run: of_run for run, of_run in found.items() if of_run}
    if runs and not parts:
        score = call("score_trajectories", scorer=clip(scorer), filter=...)
        raise InvalidInput(
            Hint(
                f"expected runs with stored components of {clip(scorer)!r} for `curation.parts_of`, got none; ",
                score,
                " stores them",
            ),
            code="no_parts",
        )
    return parts


_LOOKED_AT = 200
"""Newest batches, and newest jobs of each kind, in which a name is looked up."""


def find_rubric(
    services: Services,
    spec: str | Mapping[str, Any] | Rubric | None,
    mode: JudgingMode = "score",
    profile: DomainProfile | None = None,
) -> Rubric:
    """Return the rubric that is meant, by name, as an object, or in a JSON or YAML file that may be read.

    A name is that of a built-in rubric, or of the newest one used under it; without one, single steps have `steps`.

    Raises:
        NotFound: No rubric of this name is built in or was used.
        InvalidInput: A mapping that is not a rubric.
    """
    if spec is None and mode == "steps":
        spec = mode
    if isinstance(spec, str) and spec.lower().endswith((".json", ".yaml", ".yml")):
        return read_rubric_file(readable(services, spec, "rubric"))
    if not isinstance(spec, str) or spec in RUBRICS:
        return rubric(spec, profile)
    own: dict[str, Rubric] = {}
    for used in used_rubrics(services):
        own.setdefault(used.name, used)
    if spec in own:
        return own[spec]
    raise unknown_rubric(spec, [*RUBRICS, *(name for name in own if name not in RUBRICS)])


def name_shared(services: Services, chosen: Rubric) -> str:
    """Return a sentence where the newest rubric used under this name had other criteria; else an empty text."""
    earlier = next((used for used in used_rubrics(services) if used.name == chosen.name), chosen)
    if earlier.criteria == chosen.criteria:
        return ""
    return (
        f"The rubric {chosen.name} was used with other criteria ({', '.join(one.name for one in earlier.criteria)}), and both kinds "
        "of answers count as values of this name; give it another name to keep them apart."
    )


def used_rubrics(services: Services) -> Iterator[Rubric]:
    """Yield the rubrics of batches, then those of jobs, the newest first."""
    yield from (batch.rubric for batch in services.store.judging.newest(_LOOKED_AT))
    pages = (services.store.jobs.page(kind=kind, limit=_LOOKED_AT) for kind in ("judge", "score"))
    for job in chain.from_iterable(page.items for page in pages):
        if (used := getattr(job.spec, "rubric", None)) is not None:
            yield used
