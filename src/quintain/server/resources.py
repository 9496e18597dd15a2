"""Resources, each a view of something that a tool shows as well, and completions of their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp import UriTemplate
from mcp.types import Resource, ResourceTemplate

from quintain.environments.registry import environment_ids
from quintain.errors import InvalidInput, NotFound
from quintain.records.filters import TrajectoryFilter
from quintain.records.record import Record
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.server.guide import PIPELINE, curation_page
from quintain.server.methods import method_page
from quintain.server.texts import facts, scrub
from quintain.tools.evaluation.comparison import comparison_of, comparison_picture, environment_leaderboard
from quintain.tools.jobs.jobs import job_log
from quintain.tools.jobs.pictures import lineage_picture
from quintain.tools.labels.calibration import calibration_of, calibration_picture, calibration_table
from quintain.tools.spec import ToolSpec
from quintain.tools.training.methods import METHODS, describe_method

if TYPE_CHECKING:
    from quintain.tools.services import Services

_JSON, _TEXT, _MARKDOWN, _PNG = "application/json", "text/plain", "text/markdown", "image/png"
_LISTED_JOBS = 20
_MAX_LOG_LINES = 1000
_MAX_COMPLETIONS = 100


@dataclass(frozen=True)
class ResourceSpec:
    """A family of resources: an RFC 6570 template and what reads one of them, `read(services, **variables)`."""

    uri: str
    title: str
    mime_type: str
    read: Callable[..., Record | str | bytes]

    @property
    def name(self) -> str:
        """The template without its punctuation: `job`, `job_metrics`, `guide_pipeline`, ..."""
        path = self.uri.replace("://", "/").split("{?")[0]
        return "_".join(part for part in path.split("/") if not part.startswith("{"))


def resource_specs(catalog: Sequence[ToolSpec]) -> tuple[ResourceSpec, ...]:
    """All resources whose tool is in the catalog: what a tool shows is read with that tool's function."""
    tools = {spec.name: spec.function for spec in catalog}

    def shown_by(tool: str, read: Callable[..., Record | str | bytes] | None = None, **arguments: Any) -> Any:
        return (read or partial(tools[tool], **arguments)) if tool in tools else None

    def method_guide(services: Services, method: str) -> str:
        if method not in METHODS:
            raise NotFound(f"there is no method {method!r}; valid: {', '.join(METHODS)}")
        return method_page(describe_method(method))

    families = (
        ("job://{job_id}", "Job", _JSON, shown_by("get_job")),
        ("job://{job_id}/metrics", "Job with its curves", _JSON, shown_by("get_job", detail="metrics")),
        ("job://{job_id}/log{?tail}", "End of a job's log", _TEXT, shown_by("get_job", _log)),
        ("trajectory://{trajectory_id}", "Trajectory", _JSON, shown_by("get_trajectory")),
        ("dataset://{dataset_id}", "Dataset", _JSON, shown_by("list_library", _dataset)),
        ("agent://{agent_id}", "Agent", _JSON, shown_by("list_library", _agent)),
        ("calibration://{calibration_id}", "Calibration", _JSON, shown_by("fit_calibration", calibration_of)),
        (
            "calibration://{calibration_id}/picture",
            "Reliability diagram",
            _PNG,
            shown_by("fit_calibration", calibration_picture),
        ),
        (
            "calibration://{calibration_id}/table",
            "Reliability as text",
            _TEXT,
            shown_by("fit_calibration", calibration_table),
        ),
        ("leaderboard://{environment}", "Leaderboard", _JSON, shown_by("compare_agents", environment_leaderboard)),
        ("comparison://{comparison_id}", "Comparison", _JSON, shown_by("compare_agents", comparison_of)),
        (
            "comparison://{comparison_id}/picture",
            "Forest plot",
            _PNG,
            shown_by("compare_agents", comparison_picture),
        ),
        ("lineage://{id}", "What made it, what it made", _JSON, shown_by("get_lineage")),
        ("lineage://{id}/picture", "Picture of a lineage", _PNG, shown_by("get_lineage", lineage_picture)),
        ("guide://pipeline", "From runs to a better agent", _MARKDOWN, lambda services: PIPELINE),
        ("guide://curation", "Which runs make it into a dataset", _MARKDOWN, lambda services: curation_page()),
        ("guide://methods/{method}", "Settings of a method", _MARKDOWN, shown_by("list_library", method_guide)),
    )
    return tuple(ResourceSpec(uri, title, kind, read) for uri, title, kind, read in families if read is not None)


def templates(specs: Iterable[ResourceSpec]) -> list[ResourceTemplate]:
    """The families with variables, as the protocol lists them."""
    return [
        ResourceTemplate(uri_template=spec.uri, name=spec.name, title=spec.title, mime_type=spec.mime_type)
        for spec in specs
        if UriTemplate.is_template(spec.uri)
    ]


def fixed(specs: Iterable[ResourceSpec]) -> list[Resource]:
    """The resources without variables."""
    return [
        Resource(uri=spec.uri, name=spec.name, title=spec.title, mime_type=spec.mime_type)
        for spec in specs
        if not UriTemplate.is_template(spec.uri)
    ]


def newest_jobs(services: Services) -> list[Resource]:
    """The newest jobs as concrete resources, for clients that do not know templates."""
    jobs = services.store.jobs.page(limit=_LISTED_JOBS).items
    return [
        Resource(uri=f"job://{job.id}", name=job.id, title=f"Job {job.id} ({job.kind}, {job.status})", mime_type=_JSON)
        for job in jobs
    ]


def read(specs: Iterable[ResourceSpec], services: Services, uri: str) -> tuple[str | bytes, str]:
    """The content and the media type of one resource; a picture is bytes.

    Raises:
        NotFound: no family has such a URI, or there is no such thing in it.
    """
    for spec in specs:
        variables = UriTemplate.parse(spec.uri).match(uri)
        if variables is not None:
            content = spec.read(services, **variables)
            if isinstance(content, Record):
                return facts(content).text, spec.mime_type
            return scrub(content) if isinstance(content, str) else content, spec.mime_type
    families = ", ".join(spec.uri for spec in specs)
    raise NotFound(f"there is no resource {uri!r}; valid: {families}", code="unknown_resource")


def complete(services: Services, argument: str, start: str) -> list[str]:
    """What an argument of a resource or prompt can take, newest first, of that which begins with `start`.

    Of several by comma the last is completed.
    """
    store = services.store

    def jobs() -> Iterable[str | None]:
        return (job.id for job in store.jobs.page(limit=_MAX_COMPLETIONS).items)

    def agents() -> Iterable[str | None]:
        return (agent.id for agent in store.agents.page(limit=_MAX_COMPLETIONS).items)

    def names() -> Iterable[str | None]:
        return dict.fromkeys((agent or "").removeprefix("agent:").split("@")[0] for agent in agents())

    def trajectories() -> Iterable[str | None]:
        return (item.id for item in store.trajectories.search(TrajectoryFilter(), limit=_MAX_COMPLETIONS).items)

    sources: Mapping[str, Callable[[], Iterable[str | None]]] = {
        "job_id": jobs,
        "dataset_id": lambda: (item.id for item in store.datasets.page(limit=_MAX_COMPLETIONS).items),
        "agent_id": agents,
        "calibration_id": lambda: (made.id for made in store.calibrations.page(limit=_MAX_COMPLETIONS).items),
        "trajectory_id": trajectories,
        "environment": environment_ids,
        "method": lambda: METHODS,
        "model": lambda: dict.fromkeys(("starter", *names(), *agents())),
        "agents": lambda: (*names(), *agents()),
        "agent": names,
        "run": lambda: (*trajectories(), *jobs()),
        "rubric": lambda: RUBRICS,
    }
    before, comma, last = start.rpartition(",") if argument == "agents" else ("", "", start)
    given = f"{before}{comma}{' ' * (len(last) - len(last.lstrip()))}"
    values = sources[argument]() if argument in sources else ()
    return [f"{given}{value}" for value in values if value and value.startswith(last.lstrip())][:_MAX_COMPLETIONS]


def _dataset(services: Services, dataset_id: str) -> Record:
    return services.store.datasets.get(dataset_id)


def _agent(services: Services, agent_id: str) -> Record:
    return services.store.agents.get(agent_id)


def _log(services: Services, job_id: str, tail: str = "100") -> str:
    if not tail.isdecimal() or not 1 <= int(tail[:9]) <= _MAX_LOG_LINES:
        raise InvalidInput(f"tail is {tail[:40]!r}; it must be a number of lines, 1..{_MAX_LOG_LINES}")
    return job_log(services, job_id, int(tail[:9]))
