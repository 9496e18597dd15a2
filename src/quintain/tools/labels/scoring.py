"""Scoring: run a scorer over chosen trajectories and store its scores; judges and reward models score in jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter
from quintain.records.labels.judging import JudgingMode
from quintain.records.labels.profiles import DomainProfile
from quintain.records.labels.reward import Combine
from quintain.records.protocols import Scorer
from quintain.records.record import require_number
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip, shown
from quintain.sandbox.sandbox import open_sandbox
from quintain.scoring.calibration.calibrated import CalibratedScorer, without_calibration
from quintain.scoring.declared import DeclaredScorer
from quintain.scoring.mix import cap_score, capped_name
from quintain.scoring.profiles import PROFILES
from quintain.scoring.profiles import profile as find_profile
from quintain.scoring.raters import RatersApart
from quintain.scoring.recorded import AGENT, INFLUENCE, MONTECARLO, RAW, REPLAY, TOURNAMENT, is_recorded, source_of
from quintain.scoring.registry import PROFILED, recorded_names
from quintain.scoring.registry import scorer as find_scorer
from quintain.tools.labels.reward_parsing import ParsedReward, RewardInput, parse_reward
from quintain.tools.labels.score_tally import FEWEST_ALIKE, Tally
from quintain.tools.labels.scorer_resolution import ScorerName, full_scorer_name, stored_scores_of, with_calibration
from quintain.tools.results import ScoreResult
from quintain.tools.roots import readable
from quintain.tools.run_selection import RunFilter, RunIds, select
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent

MAX_S = 20.0
"""Seconds after which a call ends with a cursor; hosts give up on calls after 60 s."""

_CHUNK = 200
_FEW = 5
"""Most ids that a proposed call lists."""
FORGOTTEN = "forgotten: the run was taken out of the store at somebody's wish (get_lineage shows what it had touched)"
"""Reason why a forgotten run that was requested by id has no score."""


def score_trajectories(
    services: Services,
    scorer: Annotated[
        RewardInput,
        Field(
            description="Name, see list_library(kind='scorers'), or a mix such as {'outcome': 0.6, 'rules': 0.4}. 'judge', "
            "'people': stored verdicts; 'judge:RUBRIC', 'people@NAME': by one."
        ),
    ],
    filter: RunFilter = None,
    trajectory_ids: RunIds = None,
    profile: Annotated[str | None, Field(description="Domain profile: name or JSON file. Default: by run.")] = None,
    judge: Annotated[
        str | None,
        Field(description="Starts a job. 'judge': `endpoint:NAME` or an agent; 'montecarlo', 'influence': an agent."),
    ] = None,
    rubric: Annotated[
        str | dict[str, Any] | None, Field(description="For `judge`: name, or {name, criteria[]}.")
    ] = None,
    mode: Annotated[JudgingMode, Field(description="For `judge`.")] = "score",
    target: Annotated[str | None, Field(description="For 'influence': dataset to do well on.")] = None,
    calibrate: Annotated[bool, Field(description="Apply its newest calibration.")] = True,
    audit: Annotated[bool, Field(description="Look for reward hacking.")] = False,
    combine: Annotated[Combine, Field(description="Of a mix; lower_bound: mean less spread.")] = "mean",
    cap: Annotated[
        float | None, Field(gt=0, le=1, description="Most that counts."), BeforeValidator(require_number)
    ] = None,
    cursor: Annotated[str | None, Field(description="`next_cursor` of a call that ran out of time.")] = None,
) -> ScoreResult:
    """Score runs from 0 to 1 (higher is better) and store components and feedback. Unknown stays unscored, never 0.

    `judge=...`, and a trained `agent:NAME` by itself, start a job. Then export_dataset(scorer=..., min_score=...).
    """
    domain = _profile(services, profile)
    is_agent = isinstance(scorer, str) and source_of(scorer).scorer.startswith(AGENT)
    if judge is not None or scorer == REPLAY or is_agent:
        if audit or cap is not None or combine != "mean" or cursor is not None:
            raise InvalidInput(
                "expected no audit, cap, combine or cursor for a scorer that runs as a job; ask for them with the stored "
                "verdicts when the job is done: "
                "`scorer='judge'` without `judge`, or a mix such as {'agent:NAME': 1}"
            )
        runs = select(services, filter, trajectory_ids)
        forgotten = _forgotten(services, trajectory_ids)
        return _in_a_job(
            services, runs, scorer, forgotten, judge=judge, rubric=rubric, mode=mode, profile=domain, target=target
        )
    _require_judge(rubric, mode, target)
    gone = _forgotten(services, trajectory_ids) if cursor is None else ()
    asked = _Asked(filter, None if trajectory_ids is None else tuple(trajectory_ids), gone)
    parsed = parse_reward(scorer, "scorer", combine=combine, cap=cap)
    rule = _Rule.of(services, parsed, asked, domain, calibrate=calibrate)
    runs = select(services, filter, trajectory_ids)
    return _score(services, _after(runs, cursor), rule, asked, audit=audit)


def name_of_mix(
    services: Services, mix: dict[str, Any], filter: TrajectoryFilter | None, ids: Sequence[str] | None
) -> str:
    """Return the name under which the values of a mix are stored.

    Raises:
        NotFound: nothing was scored by it, or by one of its parts; names the call that does.
        InvalidInput: as of `score_trajectories`.
    """
    asked = _Asked(filter, None if ids is None else tuple(ids), ())
    parsed = parse_reward(mix, "scorer")
    rule = _Rule.of(services, parsed, asked, None, calibrate=True)
    name = rule.scorer.name if parsed.cap is None else capped_name(rule.scorer.name, parsed.cap)
    if name not in services.store.scores.scorers():
        runs = asked.arguments() if filter is not None or ids else {"filter": ...}
        score = call("score_trajectories", scorer=mix, **runs)
        raise NotFound(Hint(f"nothing was scored by {clip(name, 200)!r}; first ", score))
    return name


def _require_judge(rubric: str | dict[str, Any] | None, mode: JudgingMode, target: str | None) -> None:
    """Refuse settings of a judge, or of influence, in a call that names none."""
    if target is not None:
        raise InvalidInput(
            f"`target` is for `scorer='{INFLUENCE}'` and an agent whose gradients are compared, got no `judge`; give `judge='starter'`, or "
            "the agent that is to be trained"
        )
    if rubric is not None or mode != "score":
        raise InvalidInput(
            Hint(
                "`rubric` and `mode` are for a judge, got none; give `judge='endpoint:NAME'` or an agent, or judge yourself with ",
                call("get_judging_batch", limit=5),
            )
        )


class _Asked(NamedTuple):
    """The runs of a call."""

    filter: TrajectoryFilter | None
    ids: tuple[str, ...] | None
    forgotten: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that select the same runs in the next call."""
        if self.filter is not None:
            return {"filter": self.filter.model_dump(mode="json", exclude_defaults=True)}
        ids = self.ids or ()
        return {"trajectory_ids": list(ids) if len(ids) <= _FEW else ...}


@dataclass
class _Rule:
    """A scorer with the stored scores and calibrations that it reads."""

    spec: str | dict[str, float]
    scorer: Scorer
    cap: float | None
    recorded: dict[str, dict[str, list[Score]]]
    calibrations: dict[str, str]
    warnings: tuple[str, ...]

    @staticmethod
    def of(
        services: Services, parsed: ParsedReward, asked: _Asked, profile: DomainProfile | None, *, calibrate: bool
    ) -> _Rule:
        """Build the scorer; each part goes through its calibration, and a mix through its own."""
        names = _resolved(services, parsed, asked, calibrate=calibrate)
        weights = {full.name: part.weight for part, full in zip(parsed.parts, names, strict=True)}
        spec = weights if parsed.mixed else names[0].name
        used: dict[str, str] = {}

        def through(inner: Scorer) -> Scorer:
            found = with_calibration(services, inner)
            if isinstance(found, CalibratedScorer):
                used[inner.name] = found.calibration_id
            return found

        recorded: dict[str, dict[str, list[Score]]] = {name: {} for name in recorded_names(spec)}
        built = find_scorer(
            spec,
            profile=profile,
            recorded=recorded,
            open_sandbox=partial(open_sandbox, services.settings.sandbox, services.settings.sandbox_image),
            combine=parsed.combine,
            around=through,
            own={part.name: DeclaredScorer(part.declared) for part in parsed.parts if part.declared is not None},
            identities={} if profile is None else {name: f"{name}(profile={profile.name})" for name in PROFILED},
        )
        whole = through(built) if isinstance(spec, dict) else built
        return _Rule(spec, whole, parsed.cap, recorded, used, tuple(one for full in names for one in full.warnings))

    @property
    def is_reading(self) -> bool:
        """Whether the scorer only reads stored scores. A tournament computes them from stored preferences."""
        only_one = isinstance(self.spec, str) and self.cap is None
        return only_one and is_recorded(str(self.spec)) and source_of(str(self.spec)).scorer != TOURNAMENT

    def look_up(self, services: Services, runs: list[Trajectory]) -> None:
        """Replace the stored scores in memory by those of the next runs."""
        ids = [run.id or "" for run in runs]
        for name, by_run in self.recorded.items():
            by_run.clear()
            by_run.update(stored_scores_of(services, name, ids))

    def score(self, run: Trajectory) -> Score:
        """Score a run."""
        score = self.scorer.score(run)
        return score if self.cap is None else cap_score(score, self.cap)


def _score(services: Services, runs: Iterable[Trajectory], rule: _Rule, asked: _Asked, *, audit: bool) -> ScoreResult:
    """Score in one streaming pass with a chunk in memory; an untrusted call ends after `MAX_S` seconds."""
    from quintain.scoring.integrity.auditor import Auditor

    tally, auditor, stopped_at = Tally(rule.scorer.name), Auditor() if audit else None, None
    for gone in asked.forgotten:
        tally.add(_of_forgotten(gone, tally.name))
    apart = RatersApart(rule.recorded)
    deadline = math.inf if services.trusted else time.monotonic() + MAX_S
    stream = iter(runs)
    while stopped_at is None and (chunk := list(islice(stream, _CHUNK))):
        rule.look_up(services, chunk)
        scores = []
        for run in chunk:
            score = rule.score(run)
            scores.append(score)
            tally.add(score)
            apart.add(run.id or "")
            if auditor is not None:
                auditor.add(run, score)
            if time.monotonic() > deadline:
                stopped_at = run.id
                break
        if not rule.is_reading:
            services.store.scores.add_many(map(without_calibration, scores), services.clock())
    if stopped_at is not None and len(scores) == len(chunk) and next(stream, None) is None:
        stopped_at = None
    return ScoreResult(
        scorer=tally.name,
        **tally.counts(),
        calibrations=rule.calibrations,
        warnings=(*rule.warnings, *tally.constant_parts(), *apart.notes()),
        audit=auditor.report().model_dump() if auditor is not None else None,
        next_cursor=stopped_at,
        next_step=_next(tally, rule, asked, stopped_at, auditor.report().verdict if auditor is not None else None),
    )


def _next(tally: Tally, rule: _Rule, asked: _Asked, stopped_at: str | None, verdict: str | None) -> Hint:
    if stopped_at is not None:
        done = tally.values.n + tally.unscored_count
        more = f"call again with the same arguments and `cursor={stopped_at!r}`"
        return Hint(f"{done:,} runs are done after {MAX_S:g} s, and more are left: {more}.")
    if verdict == "suspicious":
        return Hint("The audit flags these rewards: follow each finding's remedy in `audit` before you train on them.")
    if tally.values.n >= FEWEST_ALIKE and tally.values.low == tally.values.high:
        scorers = call("list_library", kind="scorers")
        return Hint(
            f"All {tally.values.n:,} runs have the value {tally.values.low:g}, which ranks none of them; ",
            scorers,
            " has others.",
        )
    if tally.values.n:
        bound = round(tally.values.total / tally.values.n, 3)
        export = call(
            "export_dataset", kind="sft", name="good", scorer=tally.name, min_score=bound, **asked.arguments()
        )
        return Hint("Freeze the good ones with ", export, f"; {bound} is the mean, choose your own bound.")
    if rule.is_reading and rule.scorer.name == MONTECARLO:
        play = call("score_trajectories", scorer=MONTECARLO, judge="starter", **asked.arguments())
        agents = call("list_library", kind="agents")
        return Hint("No steps have values yet: ", play, " plays on from them in a job; ", agents, " has other agents.")
    if rule.is_reading and rule.scorer.name == INFLUENCE:
        compare = call("score_trajectories", scorer=INFLUENCE, judge="starter", target=..., **asked.arguments())
        return Hint("No run has a value yet: ", compare, " compares their gradients with those of a dataset's runs.")
    if rule.is_reading and set(tally.reasons) != {FORGOTTEN}:
        who = "person" if source_of(rule.scorer.name).scorer == "people" else None
        return Hint(
            "No verdict is stored yet: ", call("get_judging_batch", limit=10, judge=who), " shows runs to judge."
        )
    scorers = call("list_library", kind="scorers")
    return Hint(
        "Nothing could be scored, for the `reasons`; record what is missing, or use another scorer of ", scorers, "."
    )


def _in_a_job(
    services: Services,
    runs: Iterator[Trajectory],
    scorer: str | dict[str, Any],
    forgotten: Sequence[str],
    *,
    judge: str | None,
    rubric: str | dict[str, Any] | None,
    mode: JudgingMode,
    profile: DomainProfile | None,
    target: str | None,
) -> ScoreResult:
    from quintain.tools.labels import score_jobs

    if judge is not None and scorer not in ("judge", MONTECARLO, INFLUENCE):
        raise InvalidInput(
            f"`judge={clip(judge)!r}`: expected `scorer='judge'`, '{MONTECARLO}' or '{INFLUENCE}', got {shown(scorer)}; mixes read "
            "stored verdicts"
        )
    if target is not None and scorer != INFLUENCE:
        raise InvalidInput(f"only `scorer='{INFLUENCE}'` takes `target`, got {shown(scorer)}; leave it out")
    if judge is None or scorer in (MONTECARLO, INFLUENCE):
        if rubric is not None or mode != "score":
            raise InvalidInput("only a judge takes `rubric` and `mode`: `scorer='judge'`, `judge='NAME'`")
        if scorer == REPLAY:
            started = score_jobs.start_replay(services, runs)
        elif judge is None:
            scorer = full_scorer_name(services, str(scorer)).name.removeprefix(RAW)
            started = score_jobs.start_model_scoring(services, runs, scorer)
        elif scorer == INFLUENCE:
            started = score_jobs.start_influence(services, runs, agent=resolve_agent(services, judge), target=target)
        else:
            started = score_jobs.start_step_labels(services, runs, agent=resolve_agent(services, judge))
    else:
        started = score_jobs.start_judging(services, runs, judge=judge, rubric=rubric, mode=mode, profile=profile)
    tally = Tally()
    for gone in forgotten:
        tally.add(_of_forgotten(gone, str(scorer)))
    return ScoreResult(
        scorer=str(scorer),
        **tally.counts(),
        job_id=started.job_id,
        status=started.status,
        resource_uri=started.resource_uri,
        warnings=tuple(map(str, started.warnings)),
        next_step=started.next_step,
    )


def _profile(services: Services, name: str | None) -> DomainProfile | None:
    """Return the profile with this name, or in a file that the caller may read."""
    if name is None:
        return None
    looks_like_a_file = name not in PROFILES and ("/" in name or name.lower().endswith((".json", ".yaml", ".yml")))
    return find_profile(str(readable(services, name, "profile")) if looks_like_a_file else name)


def _resolved(services: Services, parsed: ParsedReward, asked: _Asked, *, calibrate: bool) -> list[ScorerName]:
    """Return the full names of the parts; a scorer without its calibration gets the prefix `raw:`."""
    names = list[ScorerName]()
    for part in parsed.parts:
        if part.judges or part.rubric is not None or part.mode is not None:
            raise InvalidInput(
                f"{clip(part.name)!r} has settings of a judge, which count in rewards of jobs; here stored verdicts count: name "
                "it with a weight alone, or start judging with `scorer='judge'` and `judge`"
            )
        declared = part.declared is not None
        found = ScorerName(part.name) if declared else full_scorer_name(services, part.name, asked.filter, asked.ids)
        if not calibrate and services.store.calibrations.newest(found.name) is not None:
            found = found._replace(name=RAW + found.name)
        if found.name in (one.name for one in names):
            raise InvalidInput(
                f"expected each scorer once in the mix, got {clip(found.name)!r} twice; add the weights up"
            )
        names.append(found)
    return names


def _forgotten(services: Services, ids: Sequence[str] | None) -> tuple[str, ...]:
    forgotten = services.store.lineage.forgotten(ids or ())
    return tuple(dict.fromkeys(run for run in ids or () if run in forgotten))


def _of_forgotten(run_id: str, scorer: str) -> Score:
    return Score(trajectory_id=run_id, scorer=scorer, status="unscored", reason=FORGOTTEN)


def _after(runs: Iterator[Trajectory], cursor: str | None) -> Iterator[Trajectory]:
    """Return the runs after the one where an earlier call stopped."""
    if cursor is None:
        return runs
    for run in runs:
        if run.id == cursor:
            return runs
    raise InvalidInput(
        f"cursor {clip(cursor)!r} is not one of these runs; repeat the call that returned it with all of its arguments, or leave it out"
    )
