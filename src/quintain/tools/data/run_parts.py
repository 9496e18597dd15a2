"""Parts of runs' scores, which the heads of a reward model are trained by."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.record import clip
from quintain.scoring.recorded import RecordedScorer
from quintain.tools.labels.scorer_resolution import full_scorer_name, stored_scores_of
from quintain.tools.services import Services


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
