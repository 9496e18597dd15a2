"""Lists of stored and available things: datasets, agents, results, environments, scorers, methods."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from quintain.environments.foreign.profiles import LIBRARIES, outline_profile
from quintain.environments.registry import (
    describe,
    environment_ids,
    list_foreign,
    list_servers,
    option_names,
    task_source,
)
from quintain.environments.servers import PREFIX, outline
from quintain.errors import Conflict, InvalidInput, QuintainError
from quintain.evaluation.games import players_of
from quintain.next_step import Hint, call
from quintain.records.agent import Agent, ModelRef
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.filters import EVERY_RUN, Page
from quintain.records.labels.calibration import Calibration
from quintain.records.record import left_out
from quintain.records.wording import counted, shown
from quintain.scoring.registry import describe_scorers
from quintain.store.database.paging import decode_cursor, encode_cursor
from quintain.tools.data.lineage import forgotten_sources_note
from quintain.tools.evaluation.environment_references import face_of
from quintain.tools.evaluation.leaderboard import leaderboard_uri
from quintain.tools.labels.tournaments import tournament_of_agents
from quintain.tools.results import LibraryResult
from quintain.tools.run_selection import Cursor, PageSize, count_fitting, fitting_page
from quintain.tools.services import Services
from quintain.tools.training.methods import list_methods, mentions

Kind = Literal[
    "datasets",
    "agents",
    "evaluations",
    "comparisons",
    "calibrations",
    "environments",
    "scorers",
    "methods",
    "tournament",
]

_NEXT = {
    "datasets": Hint("Plan a training on one with ", call("plan_training", dataset_id=...), "."),
    "agents": Hint("Measure one with ", call("evaluate_agent", agent=..., environment="quintain/inventory"), "."),
    "evaluations": Hint("Compare two of the same suite with ", call("compare_agents", agents=...), "."),
    "comparisons": Hint("Read one with its flips by ", call("compare_agents", agents=["cmp-..."]), "."),
    "calibrations": Hint(
        "The newest of a scorer is applied wherever its scores are read; look at one at calibration://ID."
    ),
    "environments": Hint(
        "Let an agent act in one with ",
        call("collect_rollouts", agent="starter", environment=...),
        ", or collect demonstrations with ",
        call("collect_rollouts", agent="expert", environment=...),
        ". Options follow the id: quintain/tasks?file=PATH&plain=true.",
    ),
    "scorers": Hint("Use one, or a weighted mix, in ", call("score_trajectories", scorer=..., filter=...), "."),
    "tournament": Hint(
        "Let a judge compare more runs of these agents with ",
        call("score_trajectories", scorer="judge", judge=..., mode="pairwise", filter=...),
        "; what `rater` entries list is taken out of the strengths.",
    ),
    "methods": Hint(
        "Plan a training by one with ",
        call("plan_training", method=...),
        "; ",
        call("list_library", kind="methods", text="grpo"),
        " has all settings of one, and `text='*'` those that all share.",
    ),
}


_OWN_SERVER = (
    "The tools of your own MCP server: its operator adds [mcp.NAME] with command and args to environments.toml in the home "
    "folder. Tasks are generated from the tools' schemas, or written with `tasks` of collect_rollouts."
)

_FIRST = {
    "datasets": Hint(
        "Freeze runs into one with ", call("export_dataset", kind="sft", name="good", filter=EVERY_RUN), "."
    ),
    "agents": Hint(
        "Name a model with ",
        call("register_agent", name="baseline", model="starter"),
        "; a training makes an agent too.",
    ),
    "evaluations": Hint(
        "Measure an agent with ", call("evaluate_agent", agent="starter", environment="quintain/inventory"), "."
    ),
    "comparisons": Hint("Compare two evaluations of the same tasks with ", call("compare_agents", agents=...), "."),
}
"""Kind -> the next step if its list is empty."""


def list_library(
    services: Services,
    kind: Annotated[Kind, Field(description="What to list.")],
    limit: PageSize = 20,
    cursor: Cursor = None,
    text: Annotated[
        str | None,
        Field(
            max_length=200,
            description="Words in the id, name or description.",
        ),
    ] = None,
) -> LibraryResult:
    """List what there is to work with; agents with their result on most tasks.

    tournament: agents ranked by preferences between their runs.
    """
    if text is not None and kind == "calibrations":
        raise InvalidInput(
            f"expected no text for {kind}, which are listed by age, got {shown(text)}; leave it out and page by cursor"
        )
    unreadable = list[str]()
    if kind in {"environments", "scorers", "methods", "tournament"}:
        first = 0 if cursor is None else decode_cursor(cursor, kind)
        rest = _available(services, kind, text)[first:]
        fit = count_fitting(rest)
        items, following = tuple(rest[:fit]), encode_cursor(first + fit, kind) if fit < len(rest) else None
    else:

        def fetch(most: int) -> tuple[list[dict[str, Any]], str | None]:
            entries, page = _stored(services, kind, most, cursor, text or "")
            unreadable[:] = page.unreadable
            return entries, page.next_cursor

        items, following = fitting_page(fetch, limit)
    step = _NEXT[kind] if items or cursor else _FIRST.get(kind, _NEXT[kind])
    if text and not items and cursor is None:
        known = [item["id"] for item in _environments()] if kind == "environments" else []
        step = Hint(
            f"Nothing has {shown(text)} in its id, name or description; ",
            call("list_library", kind=kind),
            f" lists all{': ' * bool(known)}{', '.join(known)}.",
        )
    if blocked := [item["id"] for item in items if item.get("forgotten")]:
        others = step if len(blocked) < len(items) else Hint("Export them again.")
        more = " and others" if len(blocked) > 3 else ""
        step = Hint(f"No training starts on {', '.join(blocked[:3])}{more}, which contain forgotten runs. ", others)
    if unreadable:
        step = Hint(f"Left out {left_out(unreadable)}. ", step)
    return LibraryResult(kind=kind, items=items, next_cursor=following, next_step=step, unreadable=tuple(unreadable))


def _available(services: Services, kind: Kind, text: str | None) -> Sequence[dict[str, Any]]:
    if kind == "methods":
        return list_methods(text)
    if kind == "environments":
        found = _environments()
    else:
        found = tournament_of_agents(services) if kind == "tournament" else _scorers(services)
    return _with_most_words(found, (text or "").split())


def _with_most_words(found: Sequence[dict[str, Any]], words: Sequence[str]) -> Sequence[dict[str, Any]]:
    """Return the entries that mention the most of the words; empty where none mentions any."""
    counts = [
        sum(mentions([one for one in item.values() if isinstance(one, str)], word) for word in words) for item in found
    ]
    most = max(counts, default=0)
    return [item for item, count in zip(found, counts, strict=True) if count == most and (count or not words)]


def _stored(
    services: Services, kind: Kind, limit: int, cursor: str | None, text: str
) -> tuple[list[dict[str, Any]], Page[Any]]:
    """Return the entries of a page of records, and the page."""
    store = services.store
    if kind == "datasets":
        datasets = store.datasets.page(text=text, limit=limit, cursor=cursor)
        blocked = store.lineage.datasets_with_forgotten([item.id for item in datasets.items])
        rows = [item.model_dump(mode="json", exclude={"files"}) for item in datasets.items]
        return [row | _blocked(row["id"], blocked.get(row["id"], 0)) for row in rows], datasets
    if kind == "agents":
        agents = store.agents.page(text=text, limit=limit, cursor=cursor)
        return [_agent(services, item) for item in agents.items], agents
    if kind == "calibrations":
        calibrations = store.calibrations.page(limit=limit, cursor=cursor)
        return [_calibration(item) for item in calibrations.items], calibrations
    if kind == "comparisons":
        comparisons = store.evaluations.page_comparisons(text=text, limit=limit, cursor=cursor)
        return [_comparison(item) for item in comparisons.items], comparisons
    evaluations = store.evaluations.page(text=text, limit=limit, cursor=cursor)
    return [item.model_dump(mode="json", exclude={"results"}) for item in evaluations.items], evaluations


def _agent(services: Services, agent: Agent) -> dict[str, Any]:
    notes, evaluations = [forgotten_sources_note(services, agent.id).strip()], list[Evaluation]()
    try:
        evaluations = services.store.evaluations.of_agent(agent.id or "")
    except Conflict as error:
        notes.append(f"Its results are unknown: {error.message}.")
    results = [
        {
            "evaluation_id": item.id,
            "environment": item.environment,
            "success_rate": item.rate.value,
            "ci_low": item.rate.ci_low,
            "ci_high": item.rate.ci_high,
            "n": item.rate.n,
        }
        for item in sorted(evaluations, key=lambda one: one.rate.n, reverse=True)[:1]  # of as many tasks the newest
    ]
    note = " ".join(filter(None, notes))
    about = agent.without_install_path().model_dump(mode="json")
    return {**about, "size_bytes": _size_of(agent.model), "results": results, **({"note": note} if note else {})}


def _size_of(model: ModelRef) -> int | None:
    """Return the bytes of an agent's own files: of its adapter, else of its model. Null: this user cannot see them here."""
    if model.adapter is None and model.source not in {"folder", "gguf", "starter"}:
        return None
    path = Path(model.own_path)
    with suppress(OSError):
        files = [path] if path.is_file() else path.rglob("*")
        sizes = [file.stat().st_size for file in files if file.is_file()]
        return sum(sizes) if sizes else None
    return None


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """Return what was compared, and how many differences are significant."""
    kept = comparison.model_dump(mode="json", include={"id", "environment", "created_at"})
    return {
        **kept,
        "agents": [row.agent for row in comparison.leaderboard],
        "pairs": len(comparison.comparisons),
        "significant": sum(pair.significant for pair in comparison.comparisons),
        "flips": len(comparison.flips),
        "resource_uri": f"comparison://{comparison.id}",
    }


def _calibration(calibration: Calibration) -> dict[str, Any]:
    fits = {
        domain: fit.model_dump(mode="json", include={"n_labels", "error_before", "error_after", "spearman"})
        for domain, fit in calibration.domains.items()
    }
    kept = calibration.model_dump(mode="json", include={"id", "scorer", "version", "labels", "warnings", "created_at"})
    return {**kept, "domains": fits, "resource_uri": f"calibration://{calibration.id}"}


def _blocked(dataset_id: str, forgotten: int) -> dict[str, Any]:
    """Return the note on a dataset with forgotten runs."""
    if not forgotten:
        return {}
    remove = call("forget", id=dataset_id, dry_run=False)
    note = Hint(
        f"Blocked: {counted(forgotten, 'run')} of it forgotten since; export what is left anew; ",
        remove,
        " removes it.",
    )
    return {"forgotten": forgotten, "note": note}


def _scorers(services: Services) -> list[dict[str, Any]]:
    """Return all scorers, broken ones with the reason, and the newest trained reward models."""
    items = [
        {name: value for name, value in scorer._asdict().items() if value is not None} for scorer in describe_scorers()
    ]
    for agent in services.store.agents.page(limit=200, cursor=None).items:
        if agent.role in ("reward_model", "step_model"):
            about = f"a {agent.role.replace('_', ' ')}: alone it starts a job, in a mix its stored scores count"
            items.append({"name": agent.id, "about": about, "source": f"trained by {agent.job_id or 'an earlier job'}"})
    return items


def _environments() -> list[dict[str, Any]]:
    """Return all environments; MCP servers and those of other libraries as configured, without starting or contacting them."""
    listed: list[dict[str, Any]] = []
    for kind, outlines in (("mcp", lambda: map(outline, list_servers())), ("foreign", _foreign)):
        try:
            listed += outlines()
        except QuintainError as error:
            listed.append({"id": f"{kind}:", "unusable": str(error)})
    profiles = {item["id"] for item in listed}
    return [*(_environment(name) for name in environment_ids() if name not in profiles), *listed]


def _foreign() -> list[dict[str, Any]]:
    own = {"id": f"{PREFIX}NAME", "about": _OWN_SERVER}
    return [own, *({"id": f"{name}/ID", "about": about} for name, about in LIBRARIES.items())] + [
        outline_profile(profile) for profile in list_foreign()
    ]


def _environment(name: str) -> dict[str, Any]:
    """Return an environment; one of another package that fails is listed with the reason."""
    try:
        source = task_source(name)
        face = face_of(source)
        return {
            "id": name,
            "about": describe(name),
            "version": source.version,
            "tools": face.tools,
            "max_turns": face.max_turns,
            "options": option_names(name),
            "leaderboard": leaderboard_uri(source.id),
            **({"players": players} if (players := players_of(source)) else {}),
        }
    except QuintainError as error:
        return {"id": name, "unusable": str(error)}
    except Exception as error:  # other people's code
        return {"id": name, "unusable": f"{type(error).__name__}: {error}"}
