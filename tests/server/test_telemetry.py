"""Spans of requests and jobs: names, outcomes, parents and links, and no stored text."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from mcp import Client
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from jobs_in_process import jobs_in_process  # noqa: F401
from mcp_client import call
from quintain.errors import Unavailable
from quintain.records.jobs.job import SelftestSpec
from quintain.server.app import build_server, create_server
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import Services, open_services
from server.talks import ERAS, serve

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "the-text-of-a-run"


class Exporter(InMemorySpanExporter):
    """Keeps spans, and lets a thread wait for that of a job."""

    def __init__(self) -> None:
        super().__init__()
        self.has_job = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        exported = super().export(spans)
        if any(span.name.startswith("job ") for span in spans):
            self.has_job.set()
        return exported


def spans_of(settings: Settings, mode: str, talk: Any) -> list[ReadableSpan]:
    exporter, provider = Exporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    serve(build_server(CATALOG, lambda: open_services(settings), provider=provider), mode, lambda c: talk(c, exporter))
    return list(exporter.get_finished_spans())


@ERAS
@pytest.mark.usefixtures("jobs_in_process")
def test_a_call_and_its_job_are_spans_with_outcome_parent_and_link(
    settings: Settings, services: Services, mode: str
) -> None:
    job = services.jobs.start(SelftestSpec(steps=2)).job.id

    async def talk(client: Client, exporter: Exporter) -> None:
        meta: Any = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        await client.call_tool("get_job", {"job_id": job}, meta=meta)
        await call(client, "get_job", job_id=job, wait_s=20, until="done")
        await client.call_tool("get_trajectory", {"trajectory_id": SECRET})
        await client.call_tool(f"no_{SECRET}", {})
        assert await anyio.to_thread.run_sync(exporter.has_job.wait, 60)

    spans = spans_of(settings, mode, talk)
    first, second = [span for span in spans if span.name == "tools/call get_job"]
    assert (first.context.trace_id, first.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    assert first.attributes["quintain.job.id"] == job
    assert second.links[0].context.span_id == first.context.span_id
    assert second.status.status_code is StatusCode.UNSET
    (ended,) = [span for span in spans if span.name == "job selftest"]
    assert ended.links[0].context.trace_id == int(TRACE, 16)
    assert ended.attributes["quintain.job.status"] == "succeeded"
    assert ended.end_time > ended.start_time
    (failed,) = [span for span in spans if span.name == "tools/call get_trajectory"]
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "not_found")
    assert SECRET not in "".join(span.to_json() for span in spans)


def test_a_collector_without_the_extra_is_refused_by_name(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(Unavailable, match=r"\[missing_extra\].*quintain\[telemetry\]"):
        create_server(settings.model_copy(update={"telemetry_endpoint": "http://127.0.0.1:9"}))
