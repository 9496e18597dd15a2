"""Resources, each a view of something that a tool shows too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mcp import UriTemplate
from mcp.types import Annotations, Resource, ResourceTemplate

from quintain.errors import InvalidInput, NotFound
from quintain.records.record import Record
from quintain.server import apps
from quintain.server.calls.record_json import facts, scrub
from quintain.tools.catalog import Source, ToolSpec, load

if TYPE_CHECKING:
    from quintain.records.jobs.job import Job
    from quintain.tools.services import Services

_JSON, _TEXT, _MARKDOWN, _PNG = "application/json", "text/plain", "text/markdown", "image/png"
_LISTED_JOBS, _LISTED_DATASETS, _LISTED_AGENTS = 20, 10, 10
_MAX_LOG_LINES = 1000


@dataclass(frozen=True)
class ResourceSpec:
    """A family of resources: an RFC 6570 template, and the function that reads one of them."""

    uri: str
    title: str
    mime_type: str
    source: Source
    """`source(services, **variables, **arguments)` returns the content."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def annotations(self) -> Annotations:
        """For whom the content is, and how important from 0 to 1."""
        return _ANNOTATIONS[self.mime_type]

    @property
    def name(self) -> str:
        """The template without its punctuation: `job`, `job_metrics`, `guide_pipeline`, ..."""
        path = self.uri.replace("://", "/").split("{?")[0]
        return "_".join(part for part in path.split("/") if not part.startswith("{"))

    def read(self, services: Services, **variables: Any) -> Record | str | bytes:
        """Return the content of one resource."""
        content: Record | str | bytes = load(self.source)(services, **variables, **self.arguments)
        return content


_ANNOTATIONS: Mapping[str, Annotations] = {
    _MARKDOWN: Annotations(audience=["assistant"], priority=0.9),
    _JSON: Annotations(audience=["user", "assistant"], priority=0.5),
    _TEXT: Annotations(audience=["user", "assistant"], priority=0.3),
    _PNG: Annotations(audience=["user"], priority=0.3),
    apps.MIME_TYPE: Annotations(audience=["user"], priority=0.1),
}

_TOOLS = "quintain.tools"
_HERE, _GUIDE = "quintain.server.resources", "quintain.server.guide"
_CALIBRATION, _BATCHES = f"{_TOOLS}.labels.calibration", f"{_TOOLS}.labels.judging.forms"
_COMPARISON, _LEADERBOARDS = f"{_TOOLS}.evaluation.comparison", f"{_TOOLS}.evaluation.leaderboard"
_FIT = "calibration://{calibration_id}"
_FAMILIES: tuple[tuple[str, str, str, str, str | None], ...] = (
    ("job://{job_id}", "Job", _JSON, "get_job", None),
    ("job://{job_id}/metrics", "Job with its curves", _JSON, "get_job", None),
    ("job://{job_id}/log{?tail}", "End of a job's log", _TEXT, "get_job", f"{_HERE}:log_of"),
    ("job://{job_id}/figure", "Job with its figure", _JSON, "get_job", f"{_TOOLS}.jobs.dashboard:job_figure"),
    (apps.PAGE, "Training dashboard", apps.MIME_TYPE, "show_training_dashboard", "quintain.server.apps:dashboard_page"),
    ("trajectory://{trajectory_id}", "Trajectory", _JSON, "get_trajectory", None),
    ("dataset://{dataset_id}", "Dataset", _JSON, "list_library", f"{_HERE}:dataset_of"),
    ("agent://{agent_id}", "Agent", _JSON, "list_library", f"{_HERE}:agent_of"),
    (_FIT, "Calibration", _JSON, "fit_calibration", f"{_CALIBRATION}:calibration_of"),
    (f"{_FIT}/picture", "Reliability diagram", _PNG, "fit_calibration", f"{_CALIBRATION}:calibration_picture"),
    (f"{_FIT}/table", "Reliability as text", _TEXT, "fit_calibration", f"{_CALIBRATION}:calibration_table"),
    ("leaderboard://{environment}", "Leaderboard", _JSON, "compare_agents", f"{_LEADERBOARDS}:environment_leaderboard"),
    (
        "leaderboard://{environment}/suites/{suite}",
        "Leaderboard of a suite",
        _JSON,
        "compare_agents",
        f"{_LEADERBOARDS}:environment_leaderboard",
    ),
    ("comparison://{comparison_id}", "Comparison", _JSON, "compare_agents", f"{_COMPARISON}:comparison_of"),
    (
        "comparison://{comparison_id}/picture",
        "Forest plot",
        _PNG,
        "compare_agents",
        f"{_COMPARISON}:comparison_picture",
    ),
    ("judging://rubrics", "Rubrics", _JSON, "get_judging_batch", f"{_BATCHES}:rubric_list"),
    ("judging://{batch_id}", "Judging batch", _JSON, "get_judging_batch", f"{_BATCHES}:stored_batch"),
    ("lineage://{id}", "Ancestors and descendants", _JSON, "get_lineage", None),
    ("lineage://{id}/picture", "Picture of a lineage", _PNG, "get_lineage", f"{_TOOLS}.jobs.plots:lineage_picture"),
    ("guide://pipeline", "From runs to a better agent", _MARKDOWN, "", f"{_GUIDE}:pipeline_page"),
    ("guide://curation", "Selection of runs for a dataset", _MARKDOWN, "", f"{_GUIDE}:curation_page"),
    ("guide://methods/{method}", "Settings of a method", _MARKDOWN, "list_library", f"{_GUIDE}:method_guide"),
)
"""URI, title, media type, the tool that shows the same, and the function that reads it; None: the tool's own."""


def resource_specs(catalog: Sequence[ToolSpec]) -> tuple[ResourceSpec, ...]:
    """Return the resources whose tool is in the catalog."""
    tools = {spec.name: spec.source for spec in catalog}
    more: Mapping[str, Mapping[str, Any]] = {"job://{job_id}/metrics": {"detail": "metrics"}}
    return tuple(
        ResourceSpec(uri, title, mime_type, source or tools[tool], more.get(uri, {}))
        for uri, title, mime_type, tool, source in _FAMILIES
        if not tool or tool in tools
    )


def templates(specs: Iterable[ResourceSpec]) -> list[ResourceTemplate]:
    """Return the families with variables, as the protocol lists them."""
    return [
        ResourceTemplate(
            uri_template=spec.uri,
            name=spec.name,
            title=spec.title,
            mime_type=spec.mime_type,
            annotations=spec.annotations,
        )
        for spec in specs
        if UriTemplate.is_template(spec.uri)
    ]


def fixed_resources(specs: Iterable[ResourceSpec]) -> list[Resource]:
    """Return the resources without variables; pages with their size in bytes, which do not depend on what is stored."""
    return [
        Resource(
            uri=spec.uri,
            name=spec.name,
            title=spec.title,
            mime_type=spec.mime_type,
            size=len(load(spec.source)(None).encode()) if spec.mime_type in (_MARKDOWN, apps.MIME_TYPE) else None,
            annotations=spec.annotations,
            meta=apps.PAGE_META if spec.mime_type == apps.MIME_TYPE else None,
        )
        for spec in specs
        if not UriTemplate.is_template(spec.uri)
    ]


def newest_jobs(services: Services) -> Sequence[Job]:
    """Return the newest jobs, newest first."""
    return services.store.jobs.page(limit=_LISTED_JOBS).items


def newest(services: Services) -> list[Resource]:
    """Return the newest jobs, datasets and agents as concrete resources, for clients that do not know templates."""
    store = services.store
    jobs = [
        _concrete(f"job://{job.id}", job.id, f"Job {job.id} ({job.kind}, {job.status})", job.updated_at)
        for job in newest_jobs(services)
    ]
    datasets = [
        _concrete(f"dataset://{item.id}", item.name, f"Dataset {item.name} ({item.kind})", item.created_at, item)
        for item in store.datasets.page(limit=_LISTED_DATASETS).items
    ]
    agents = [
        _concrete(f"agent://{item.id}", item.name, f"Agent {item.name}", item.created_at, item)
        for item in (found.without_install_path() for found in store.agents.page(limit=_LISTED_AGENTS).items)
    ]
    return [*jobs, *datasets, *agents]


def newest_uris(services: Services) -> list[str]:
    """Return the URIs of the newest jobs, datasets and agents."""
    return [str(resource.uri) for resource in newest(services)]


def _concrete(uri: str, name: str, title: str, modified: datetime | None, content: Record | None = None) -> Resource:
    """Return a stored thing as a resource, with its size if its content is at hand and will not change."""
    annotations = _ANNOTATIONS[_JSON].model_copy(update={"last_modified": modified and modified.isoformat()})
    size = None if content is None else len(facts(content).text.encode())
    return Resource(uri=uri, name=name, title=title, mime_type=_JSON, size=size, annotations=annotations)


def read(specs: Iterable[ResourceSpec], services: Services, uri: str) -> tuple[str | bytes, str]:
    """Return the content and the media type of one resource; a picture is bytes.

    Raises:
        NotFound: no family has such a URI, or the id is unknown.
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


def dataset_of(services: Services, dataset_id: str) -> Record:
    """Return a stored dataset."""
    return services.store.datasets.get(dataset_id)


def agent_of(services: Services, agent_id: str) -> Record:
    """Return a stored agent."""
    return services.store.agents.get(agent_id).without_install_path()


def log_of(services: Services, job_id: str, tail: str = "100") -> str:
    """Return the last lines of a job's log."""
    from quintain.tools.jobs.jobs import job_log

    if not tail.isdecimal() or not 1 <= int(tail[:9]) <= _MAX_LOG_LINES:
        raise InvalidInput(f"tail: expected a number of lines, 1..{_MAX_LOG_LINES}, got {tail[:40]!r}; correct tail")
    return job_log(services, job_id, int(tail[:9]))
