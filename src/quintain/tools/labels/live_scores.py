"""Scorers that can score a run as soon as it is over, inside the job that played it."""

from __future__ import annotations

from collections.abc import Mapping

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.record import clip
from quintain.scoring.recorded import RAW, is_recorded, source_of
from quintain.scoring.registry import is_registered
from quintain.scoring.registry import scorer as find_scorer
from quintain.tools.services import Services


def live_scorer(services: Services, scorer: str | Mapping[str, float]) -> str | dict[str, float]:
    """The scorer as a job takes it: one that needs the run and nothing else.

    A job knows no calibration. A single scorer's values are stored as they are anyway, and calibrated when they are read; a
    mix is stored as it was computed, so a part that has a calibration goes into it as `raw:NAME`, as its name shows.

    Raises:
        NotFound: there is no such scorer.
        InvalidInput: it needs a model, stored verdicts, a sandbox or this process; or the weights of the mix are wrong.
        Unavailable: an installed scorer is broken.
    """
    for name in [scorer] if isinstance(scorer, str) else scorer:
        if (why := _not_live(str(name))) is not None:
            raise InvalidInput(
                Hint(
                    f"{clip(str(name))!r} cannot score while episodes are played: {why}. Leave `scorer` out, and when the job is "
                    "done call ",
                    call("score_trajectories", scorer=str(name), filter=...),
                ),
                code="not_a_live_scorer",
            )
    find_scorer(scorer)
    if isinstance(scorer, str):
        return scorer
    newest = services.store.calibrations.newest
    return {name if newest(name) is None else RAW + name: float(weight) for name, weight in scorer.items()}


def _not_live(name: str) -> str | None:
    bare = source_of(name).scorer
    if is_recorded(bare):
        return "its verdicts come from a model, a person or a job of their own"
    if bare == "unit_tests":
        return "it runs tests in a sandbox"
    return "it is a function of this program, which the job's process does not have" if is_registered(bare) else None
