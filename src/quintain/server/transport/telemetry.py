"""OpenTelemetry spans: one a request, one a job. They name tools, ids, kinds and codes, and never a stored text.

The spans of the SDK contain the messages of errors, which quote what a caller sent, so that these take their place. Without
a provider there are none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from opentelemetry.propagate import extract
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider

import quintain
from quintain.errors import Unavailable

if TYPE_CHECKING:
    from quintain.records.jobs.job import Job
    from quintain.tools.services import Services

_MAX_JOBS = 1000
"""Jobs whose first span is remembered; the oldest is forgotten first."""

_JOB = "quintain.job.id"


def otlp_provider(endpoint: str) -> TracerProvider:
    """Return a provider that sends spans over HTTP to an OpenTelemetry collector, such as `http://localhost:4318`.

    Raises:
        Unavailable: The extra `telemetry` is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # type: ignore[import-not-found,unused-ignore]
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise Unavailable(
            "expected the OpenTelemetry SDK with its OTLP exporter for QUINTAIN_TELEMETRY_ENDPOINT, got none; pip install "
            "'quintain[telemetry]', or unset the variable",
            code="missing_extra",
        ) from error
    resource = Resource.create({"service.name": "quintain", "service.version": quintain.__version__})
    provider = SdkProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    return provider


class Spans:
    """Middleware that records each request, and the jobs that requests started; only these tools by their name.

    The trace context in a request's `_meta` becomes the parent of its span. A span about a job links to the span of the
    call that started it, as far as this process saw it.
    """

    def __init__(self, provider: TracerProvider, tools: Collection[str]) -> None:
        self._tracer = provider.get_tracer("quintain", quintain.__version__)
        self._tools = frozenset(tools)
        self._started: dict[str, SpanContext] = {}
        self._unfinished: set[str] = set()

    async def __call__(self, ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
        """Record one request."""
        params: Mapping[str, Any] = ctx.params or {}
        name = params.get("name")
        tool = name if ctx.method == "tools/call" and isinstance(name, str) and name in self._tools else None
        attributes = {"mcp.method.name": ctx.method, "mcp.protocol.version": ctx.protocol_version}
        if tool:
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        with self._tracer.start_as_current_span(
            f"{ctx.method} {tool}" if tool else ctx.method,
            context=extract(dict(ctx.meta)) if ctx.meta else None,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=self._links((params.get("arguments") or {}).get("job_id") if tool else None),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                result = await call_next(ctx)
            except MCPError as error:
                _fail(span, str(error.error.code))
                raise
            except Exception as error:
                _fail(span, type(error).__qualname__)
                raise
            if tool and isinstance(result, Mapping):
                self._record_answer(span, result)
            return result

    def _record_answer(self, span: Span, result: Mapping[str, Any]) -> None:
        """Record the outcome of a tool call and the job that it is about."""
        if result.get("isError"):
            _fail(span, _error_code(result))
        job_id = result.get("taskId") or (result.get("structuredContent") or {}).get("job_id")
        if isinstance(job_id, str):
            span.set_attribute(_JOB, job_id)
            if job_id not in self._started:
                if len(self._started) >= _MAX_JOBS:
                    self._started.pop(next(iter(self._started)))
                self._started[job_id] = span.get_span_context()
                self._unfinished.add(job_id)

    def record_ended_jobs(self, services: Services) -> None:
        """Record each job that has ended since the last call, of those that a request of this process was about."""
        from quintain.records.jobs.job import UNFINISHED

        for job_id in sorted(self._unfinished):
            job = services.store.jobs.get(job_id)
            if job.status not in UNFINISHED:
                self._unfinished.discard(job_id)
                self._record_job(job)

    def _record_job(self, job: Job) -> None:
        ended = job.ended_at or job.updated_at
        span = self._tracer.start_span(
            f"job {job.kind}",
            kind=SpanKind.INTERNAL,
            attributes={_JOB: job.id, "quintain.job.kind": job.kind, "quintain.job.status": str(job.status)},
            links=self._links(job.id),
            start_time=_nanoseconds(job.started_at or job.created_at),
        )
        if job.status == "failed":
            _fail(span, job.error.code if job.error else "failed")
        span.end(_nanoseconds(ended))

    def _links(self, job_id: object) -> list[Link]:
        start = self._started.get(job_id) if isinstance(job_id, str) else None
        return [Link(start)] if start else []


def _fail(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR)


def _error_code(result: Mapping[str, Any]) -> str:
    """Return the code with which the text of an error begins, `[code] ...`."""
    text = str((result.get("content") or [{}])[0].get("text", ""))
    return text[1 : text.find("]")] if text.startswith("[") else "tool_error"


def _nanoseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1e9)
