"""Parse OpenTelemetry spans from OTLP JSON, SDK span dumps, and log records.

Attributes are flat names with values; OTLP wraps these in `stringValue`, `arrayValue`, `kvlistValue` and the like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
)

_SPAN_LISTS = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_BODIES = ("gen_ai.event.content", "event_body")
_PLAIN = {"stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value"}
_FAILED = {2, "2", "STATUS_CODE_ERROR", "ERROR", "Error", "error"}


@dataclass
class Event:
    """Event of a span."""

    name: str
    fields: dict[str, Any]


@dataclass
class Span:
    """One operation of a trace."""

    trace: str
    id: str
    parent: str | None
    name: str
    start: datetime | None
    attributes: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    error: str | None = None
    service: str | None = None
    version: str | None = None

    def get(self, *keys: str) -> Any:
        """Return the first attribute that is set, with JSON text decoded."""
        return next((parse_json_text(value) for key in keys if (value := self.attributes.get(key)) is not None), None)

    def first(self, *keys: str) -> str | None:
        """Return the first attribute that is non-empty text."""
        return nonblank(*(self.attributes.get(key) for key in keys))

    def below(self, prefix: str) -> list[Any]:
        """Return attributes `PREFIX.0.a.b`, `PREFIX.1.c`, ... or the list `PREFIX` itself as a list of objects."""
        whole = parse_json_text(self.attributes.get(prefix))
        return (
            [_expanded(item) for item in whole] if isinstance(whole, list) else _listed(_tree(self.attributes, prefix))
        )


def is_export(value: Any) -> bool:
    """Whether a value is part of an OTLP export."""
    keys = as_dict(value).keys()
    return bool(keys & {"resourceSpans", "resource_spans", "resourceLogs", "resourceMetrics"}) or (
        "batches" in keys and any(set(batch) & {*_SPAN_LISTS} for batch in dicts_in(as_dict(value).get("batches")))
    )


def is_span(value: Any) -> bool:
    """Whether a value is a span as SDKs and tools dump it."""
    row = as_dict(value)
    traced = any(key in row for key in ("traceId", "trace_id", "context", "context.trace_id"))
    return traced and (isinstance(row.get("attributes"), dict | list) or any(k.startswith("attributes.") for k in row))


def data_frame_rows(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the spans of a data frame that pandas saved as one object, by columns, by rows or split; [] for others."""
    columns, index, data = (as_list(value.get(key)) for key in ("columns", "index", "data"))
    if columns and data and all(isinstance(row, list) and len(row) == len(columns) for row in data):
        named = {str(column): [row[n] for row in data] for n, column in enumerate(columns)}
        keys = index if len(index) == len(data) else list(range(len(data)))
        value = {column: dict(zip(map(str, keys), cells, strict=True)) for column, cells in named.items()}
    if not value or not all(isinstance(cells, dict) for cells in value.values()):
        return []
    if not any(name.startswith("attributes.") for name in value):  # by rows
        rows = [{"context.span_id": key, **row} for key, row in value.items()]
    else:
        places = dict.fromkeys(key for cells in value.values() for key in cells)
        rows = [{"context.span_id": key, **{name: cells.get(key) for name, cells in value.items()}} for key in places]
    return rows if all(map(is_span, rows)) else []


def spans_in(value: Any) -> Iterator[Span]:
    """Yield the spans of a row; a log record becomes a span with one event."""
    row = as_dict(value)
    if is_span(row):
        yield _span(row, {})
        return
    for group in (*dicts_in(row.get("resourceSpans", row.get("resource_spans"))), *dicts_in(row.get("batches"))):
        resource = attributes_of(as_dict(group.get("resource")).get("attributes"))
        for scope in (scope for key in _SPAN_LISTS for scope in dicts_in(group.get(key))):
            for span in dicts_in(scope.get("spans")):
                yield _span(span, resource)
    for group in dicts_in(row.get("resourceLogs")):
        resource = attributes_of(as_dict(group.get("resource")).get("attributes"))
        for scope in dicts_in(group.get("scopeLogs")):
            for entry in dicts_in(scope.get("logRecords")):
                if nonblank(entry.get("traceId")) is not None:
                    yield _logged(entry, resource)


def attributes_of(value: Any) -> dict[str, Any]:
    """Return attributes as a plain dictionary."""
    if isinstance(value, dict):
        return value
    return {pair["key"]: _plain(pair.get("value")) for pair in dicts_in(value) if isinstance(pair.get("key"), str)}


def _plain(value: Any) -> Any:
    """Unwrap an OTLP value."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    kind, inner = next(iter(value.items()))
    if kind in {"arrayValue", "array_value"}:
        return [_plain(item) for item in as_list(as_dict(inner).get("values"))]
    if kind in {"kvlistValue", "kvlist_value"}:
        return attributes_of(as_list(as_dict(inner).get("values")))
    if kind in {"intValue", "int_value"}:
        is_whole = isinstance(inner, str) and inner.removeprefix("-").isdigit() and inner.isascii() and len(inner) < 20
        return int(inner) if is_whole else inner
    return inner if kind in _PLAIN else value


def _span(row: dict[str, Any], resource: dict[str, Any]) -> Span:
    context = as_dict(row.get("context"))
    flat = {
        key.removeprefix("attributes."): value
        for key, value in row.items()
        if key.startswith("attributes.") and value is not None  # a data frame has every column in every row
    }
    resource = resource or attributes_of(as_dict(row.get("resource")).get("attributes"))
    attributes = flat or _unnested(attributes_of(row.get("attributes")))
    if isinstance(row.get("span_kind"), str):
        attributes = {"openinference.span.kind": row["span_kind"], **attributes}
    # Pydantic's instrumentation keeps the events of a span as one attribute.
    inner_events = dicts_in(parse_json_text(attributes.get("events")))
    status = as_dict(row.get("status"))
    code = status.get("code", status.get("status_code", row.get("status_code")))
    error_text = nonblank(status.get("message"), status.get("description"), row.get("status_message"))
    span_id = _id(row, context, "spanId", "span_id", "id")
    return Span(
        trace=_id(row, context, "traceId", "trace_id") or span_id,
        id=span_id,
        parent=_id(row, context, "parentSpanId", "parent_span_id", "parent_id", "parentId") or None,
        name=as_text(row.get("name")),
        start=_start(row),
        attributes=attributes,
        events=[_event(event) for event in dicts_in(row.get("events"))]
        + [Event(as_text(event.get("event.name")), event) for event in inner_events],
        error=(error_text or "error") if isinstance(code, str | int) and code in _FAILED else None,
        service=_service(resource),
        version=nonblank(resource.get("service.version")),
    )


def _service(resource: dict[str, Any]) -> str | None:
    """Return the name of the service; None for the default (opentelemetry.io/docs/specs/semconv/resource/#service)."""
    name = nonblank(resource.get("service.name"))
    return None if name is None or name.startswith("unknown_service") else name


def _start(row: dict[str, Any]) -> datetime | None:
    keys = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
    return next((known for key in keys if (known := parse_time(row.get(key))) is not None), None)


def _id(row: dict[str, Any], context: dict[str, Any], *keys: str) -> str:
    found = (row.get(key, context.get(key, row.get(f"context.{key}"))) for key in keys)
    return next((known for value in found if (known := as_name(value)) is not None), "")


def _unnested(attributes: dict[str, Any]) -> dict[str, Any]:
    """Flatten Phoenix's nested attributes: `{"llm": {"model_name": ...}}` becomes `llm.model_name`."""
    flat: dict[str, Any] = {}
    stack = [("", attributes)]
    while stack:
        prefix, level = stack.pop()
        for key, value in level.items():
            path = f"{prefix}{key}"
            is_nested = path.count(".") < 2 and path.split(".")[0] in {"llm", "openinference", "tool"}
            if is_nested and isinstance(value, dict):
                stack.append((path + ".", value))
            else:
                flat[path] = value
    return flat


def _event(event: dict[str, Any]) -> Event:
    fields = attributes_of(event.get("attributes"))
    body = next((body for key in _BODIES if (body := as_dict(parse_json_text(fields.get(key))))), {})
    return Event(as_text(event.get("name")), {**fields, **body})


def _logged(entry: dict[str, Any], resource: dict[str, Any]) -> Span:
    fields = attributes_of(entry.get("attributes"))
    body = parse_json_text(_plain(entry.get("body")))
    event = Event(nonblank(entry.get("eventName"), fields.get("event.name")) or "", {**fields, **as_dict(body)})
    time = parse_time(entry.get("timeUnixNano")) or parse_time(entry.get("observedTimeUnixNano"))
    trace, span = as_text(entry.get("traceId")), as_text(entry.get("spanId"))
    return Span(trace, span, None, "", time, fields, [event], service=_service(resource))


def _tree(attributes: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the attributes below a prefix as nested objects."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix + ".") or key.count(".") > 30:
            continue
        at = root
        *path, last = key[len(prefix) + 1 :].split(".")
        for part in path:
            inner = at.setdefault(part, {})
            at = inner if isinstance(inner, dict) else {}
        at[last] = value
    return root


def _listed(tree: dict[str, Any]) -> list[Any]:
    """Return the values of numeric keys in order, recursively."""
    indices = sorted((key for key in tree if key.isascii() and key.isdigit()), key=lambda key: (len(key), key))
    return [_untangled(tree[key]) for key in indices]


def _expanded(value: Any) -> Any:
    """Return an object with dotted names as nested objects: `{"message.role": ...}` becomes `{"message": {"role": ...}}`."""
    if isinstance(value, list):
        return [_expanded(item) for item in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for key, inner in value.items():
        head, _, rest = key.partition(".")
        if rest and isinstance(tree.setdefault(head, {}), dict):
            tree[head][rest] = inner
        elif not rest:
            tree[key] = inner
    return {key: _expanded(inner) for key, inner in tree.items()}


def _untangled(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    if all(key.isascii() and key.isdigit() for key in value):
        return _listed(value)
    return {key: _untangled(inner) for key, inner in value.items()}
