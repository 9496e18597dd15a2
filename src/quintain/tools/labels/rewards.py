"""Rewards of jobs: what a caller names, resolved to a spec with a snapshot of every model in it."""

from __future__ import annotations

import subprocess
import sys

from quintain.endpoints.profiles import read_profiles
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.hyperparameters.methods import ONLINE_METHODS
from quintain.records.labels.reward import JudgePart, RewardPart, RewardSpec, SandboxChoice
from quintain.records.wording import clip
from quintain.sandbox.sandbox import open_sandbox
from quintain.scoring.custom import RewardFunction, function_reference, module_folder
from quintain.scoring.declared import DEFAULTS, DeclaredScorer
from quintain.scoring.recorded import AGENT, RAW, is_recorded, source_of
from quintain.scoring.registry import is_registered, registered_declared, registered_function
from quintain.scoring.registry import scorer as find_scorer
from quintain.tools.labels.reward_parsing import ParsedPart, parse_reward
from quintain.tools.labels.score_jobs import judge_fields
from quintain.tools.labels.scorer_resolution import find_rubric
from quintain.tools.services import Services
from quintain.tools.training.agents import ENDPOINT, require_reward_model, resolve_scorer

_IMPORT_S = 60.0

REWARDED = frozenset({"grpo", "ranking", "dpo", "orpo", "simpo", "bc"})
"""Methods that learn from the rewards or the order of a dataset's runs."""
_ACTING = sorted({*ONLINE_METHODS, "evolve"} - {"distill"})
"""Methods that learn from the rewards of an environment; `distill` has a teacher in their place."""


def training_reward(services: Services, method: str, reward: object, *, acts: bool) -> RewardSpec | None:
    """Return the reward of a training; None where none is named.

    Raises:
        InvalidInput: The method does not learn from rewards, or as `reward_spec`.
    """
    if reward is None:
        return None
    if method not in (_ACTING if acts else REWARDED):
        raise InvalidInput(
            f"{method} does not learn from rewards, so `reward` would have no effect; leave it out, or use one of "
            f"{', '.join(sorted(REWARDED))} on a dataset, or {', '.join(_ACTING)} in an environment",
            code="no_reward",
        )
    return reward_spec(services, reward)


def reward_spec(services: Services, value: object, where: str = "reward", *, calibrate: bool = True) -> RewardSpec:
    """Resolve a reward for a job: full names, declared scorers, and snapshots of models, endpoints and rubrics.

    With `calibrate`, values go through the newest calibrations, of which the spec keeps a copy. Jobs that store values
    leave them uncalibrated: in a mix such a part is named `raw:NAME`.

    Raises:
        NotFound: There is no such scorer, agent, rubric or endpoint.
        InvalidInput: The form is wrong, or a scorer cannot score inside a job.
        Refused: `unit_tests` is named, and the operator has disabled sandboxes.
        Unavailable: An installed scorer is broken, or no sandbox works for `unit_tests`.
    """
    parsed = parse_reward(value, where)
    parts = tuple(_part(services, part, calibrate=calibrate, mixed=parsed.mixed) for part in parsed.parts)
    names = [part.scorer for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{where}: expected each scorer once, got {clip(name)!r} twice; add the weights up")
    if parsed.combine != "mean" and len(parts) < 2:
        find_scorer(names[0], combine=parsed.combine)
    return RewardSpec(parts=parts, combine=parsed.combine, cap=parsed.cap)


def _part(services: Services, part: ParsedPart, *, calibrate: bool, mixed: bool) -> RewardPart:
    name, weight = part.name, part.weight
    if part.declared is not None:
        return RewardPart(scorer=name, weight=weight, declared=part.declared)
    source = source_of(name)
    if source.scorer == "judge":
        return _judged(services, part, calibrate=calibrate)
    if source.scorer.startswith(AGENT):
        agent = require_reward_model(resolve_scorer(services, source.scorer), "score runs")
        calibration = services.store.calibrations.newest(agent.id or name) if calibrate and not source.raw else None
        return RewardPart(scorer=agent.id or name, weight=weight, agent=agent, calibration=calibration)
    if (declared := registered_declared(name)) is not None:
        return RewardPart(scorer=name, weight=weight, declared=declared)
    if (function := registered_function(name)) is not None:
        return RewardPart(scorer=name, weight=weight, **_import_of(name, function))
    if (why := _not_live(name)) is not None:
        raise InvalidInput(
            Hint(
                f"{clip(name)!r} cannot score inside a job: {why}. A dataset brings its stored values along: ",
                call("export_dataset", kind=..., name=..., scorer=name, filter=...),
                "; where an agent acts, leave it out, and when the job is done call ",
                call("score_trajectories", scorer=name, filter=...),
            ),
            code="not_a_live_scorer",
        )
    find_scorer(name)
    sandbox = _sandbox(services, source.scorer)
    calibration = None if source.raw else services.store.calibrations.newest(name)
    if calibration is not None and not calibrate:
        name, calibration = RAW + name if mixed else name, None
    declared = DEFAULTS.get(name)
    return RewardPart(
        scorer=name if declared is None else DeclaredScorer(declared).name,
        weight=weight,
        declared=declared,
        calibration=calibration,
        sandbox=sandbox,
    )


def _sandbox(services: Services, name: str) -> SandboxChoice | None:
    if name not in ("unit_tests", "checker"):
        return None
    settings = services.settings
    if name == "unit_tests":
        open_sandbox(settings.sandbox, settings.sandbox_image)
    return SandboxChoice(backend=settings.sandbox, image=settings.sandbox_image)


def _judged(services: Services, part: ParsedPart, *, calibrate: bool) -> RewardPart:
    """Return a part that models judge, with their rubric."""
    source = source_of(part.name)
    rubric = find_rubric(services, part.rubric if part.rubric is not None else source.rubric)
    mode = part.mode or "score"
    if len(part.judges) > 1 and not calibrate:
        raise InvalidInput(
            f"{clip(part.name)!r}: expected one judge of runs that are stored, got {len(part.judges)}; name one, and let the "
            "others judge the stored runs"
        )
    named = part.judges or (_only_endpoint(services, part.name),)
    judges = tuple(JudgePart(**judge_fields(services, name, rubric, mode)) for name in named)
    scorer = f"judge:{rubric.name}"
    # A calibration is fitted to ratings of single runs. Shares of a group's other runs are not on its scale.
    fits = calibrate and not source.raw and mode == "score"
    calibration = services.store.calibrations.newest(scorer) if fits else None
    return RewardPart(scorer=scorer, weight=part.weight, judges=judges, calibration=calibration)


def _only_endpoint(services: Services, name: str) -> str:
    """Return the judge where none is named: the operator's only endpoint."""
    profiles = sorted(read_profiles(services.settings.endpoints_file))
    if len(profiles) == 1:
        return f"{ENDPOINT}{profiles[0]}"
    there = f"endpoints: {', '.join(profiles)}" if profiles else "there is no endpoint"
    raise InvalidInput(
        f"expected who judges by {clip(name)!r}, got no name; give {{{name!r}: {{'weight': 1, 'judge': 'endpoint:NAME'}}}}, "
        f"or an agent as judge ({there}); a dataset exported with scorer={name!r} has the stored verdicts",
        code="no_judge",
    )


def _not_live(name: str) -> str | None:
    """Return why a scorer cannot run inside a job; None if it can."""
    bare = source_of(name).scorer
    if is_recorded(bare):
        return "its verdicts come from people or from a job of their own"
    return "it has settings of this program, which the job's process does not have" if is_registered(bare) else None


def _import_of(name: str, function: RewardFunction) -> dict[str, str]:
    """Return how the process of a job imports a function: by its reference, and by the folder of its module if need be."""
    reference, folder = function_reference(function), module_folder(function)
    why = "the running program defines it"
    ways = [] if reference is None else [{"function": reference}]
    ways += [{**way, "folder": folder} for way in ways if folder is not None]
    for way in ways:
        try:
            _require_importable(*way.values())
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or str(error).encode()
            why = output.decode(errors="replace").strip().splitlines()[-1][:200]
        else:
            return way
    raise InvalidInput(
        f"the reward function {name!r} cannot reach a job, which runs and resumes in a separate process ({why}); write it at "
        "the top level of a module beside the program, such as rewards.py, and import it from there",
        code="not_a_live_scorer",
    )


def _require_importable(reference: str, *folder: str) -> None:
    """Import a function in a fresh interpreter."""
    code = (
        "import importlib, operator, sys; module, _, name = sys.argv[1].partition(':'); sys.path += sys.argv[2:]; "
        "operator.attrgetter(name)(importlib.import_module(module))"
    )
    command = [sys.executable, "-P", "-c", code, reference, *folder]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_IMPORT_S, check=True)
