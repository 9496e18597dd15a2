"""Inspect logs: `.eval` archives (whole and chunked samples, zstd or deflate) and their JSON form.

The first score of a sample is its verdict where it can be one: `C` and `I`, or exactly 1 and 0, are success and failure;
partial scores, no answer (`N`) and grades are not. An edited score counts as edited; of an invalidated sample no verdict
is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.archives import Archive, archive, is_zip
from quintain.importers.harnesses.inspect_samples import run_of_sample
from quintain.importers.importer import Importer
from quintain.importers.json_parser import Parser
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.transcripts.field_values import as_dict, as_list

_HEADERS = ("header.json", "_journal/start.json")
_WHOLE = re.compile(r"samples/(?:[^/]+|.+_epoch_\d+)\.json", re.DOTALL)
_CHUNK = re.compile(r"(messages|events|attachments)/([0-9]{1,15})\.json")
_CHUNKED = re.compile(r"samples/.+/sample\.json", re.DOTALL)
"""Matches members that are samples; the sample id is part of the name and may contain slashes."""


def _detect(probe: Probe) -> float:
    """Match an archive with its header, or a document with `eval` and a status."""
    if probe.shape == "zip":
        names = {name for name in probe.rows if isinstance(name, str)}
        started = names & set(_HEADERS)
        return 0.98 if started else 0.9 if probe.name.endswith(".eval") else 0.0
    row = probe.first
    if not isinstance(row.get("eval"), dict) or not (row.keys() & {"samples", "plan", "results", "stats"}):
        return 0.0
    return 0.98 if "status" in row and "version" in row else 0.8


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield one run a sample and epoch."""
    if is_zip(log.path, log.root):
        yield from _archived(log, report)
        return
    document = as_dict(log.document())
    if not isinstance(document.get("eval"), dict):
        raise InvalidInput("expected an inspect log with `eval`")
    samples = as_list(document.get("samples"))
    if not samples:
        report.note("the log has no samples, only its header")
    for n, sample in enumerate(samples, 1):
        yield from _checked(sample, as_dict(document["eval"]), n, report)


IMPORTER = Importer("inspect_ai", "inspect evaluation log", _detect, _read)


def _checked(sample: Any, about: dict[str, Any], n: int, report: Report) -> Iterator[Run]:
    if isinstance(sample, dict):
        yield from run_of_sample(sample, about, n, report)
    else:
        report.reject(n, f"expected a sample object, got {type(sample).__name__}")


def _archived(log: LogFile, report: Report) -> Iterator[Run]:
    parser = Parser(log.reading.repairs)
    with archive(log.path, log.root) as opened:
        names = dict.fromkeys(opened.names)
        about: dict[str, Any] = {}
        for header in (name for name in _HEADERS if name in names):
            try:
                about = as_dict(as_dict(parser.parse(opened.read(header))).get("eval"))
                break
            except InvalidInput as error:
                report.note(f"{header} cannot be read: {error.message}"[:200])
        members = [name for name in names if _CHUNKED.fullmatch(name) or _WHOLE.fullmatch(name)]
        if not members and any(name.startswith("samples/") for name in names):
            report.reject(None, "expected samples in `samples/`, got no member with the name of one")
        elif not members:
            report.note("the log has no samples, only its header")
        for n, member in enumerate(members, 1):
            try:
                sample = as_dict(parser.parse(opened.read(member)))
                if _CHUNKED.fullmatch(member):
                    sample = _joined(sample, member.removesuffix("sample.json"), opened, names, parser)
            except InvalidInput as error:
                report.reject(n, error.message)
                continue
            yield from _checked(sample, about, n, report)


def _joined(
    sample: dict[str, Any], folder: str, opened: Archive, names: dict[str, None], parser: Parser
) -> dict[str, Any]:
    """Join a sample whose messages, events and attachments are split into files named by their first index."""
    chunks: dict[str, list[tuple[int, str]]] = {"messages": [], "events": [], "attachments": []}
    for name in names:
        if name.startswith(folder) and (found := _CHUNK.fullmatch(name.removeprefix(folder))):
            chunks[found[1]].append((int(found[2]), name))
    parts = {
        sequence: [item for _, name in sorted(pieces) for item in as_list(parser.parse(opened.read(name)))]
        for sequence, pieces in chunks.items()
    }
    return {
        **sample,
        "message_pool": parts["messages"],
        "events": parts["events"],
        "attachments": {str(i): content for i, content in enumerate(parts["attachments"])},
    }
