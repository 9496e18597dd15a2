"""Confidence of detection: high only for what no other format can be."""

from __future__ import annotations

import pytest

from quintain.importers.files.probing import probe
from quintain.importers.protocol import Probe
from quintain.importers.registry import IMPORTERS, detect
from small_logs import SMALL_LOGS, log_path

HIGH = 0.9
FOREIGN = ({"type": "answer", "content": "x"}, {"kind": "step", "value": 1}, {"event": "a", "text": "b"})


@pytest.fixture(params=sorted(SMALL_LOGS))
def found(request: pytest.FixtureRequest) -> tuple[str, Probe]:
    path = log_path(request.param)
    return request.param, probe(path, path.parent)


def test_at_most_one_reader_is_sure_of_a_file(found: tuple[str, Probe]) -> None:
    format, beginning = found
    sure = {known.name for known in IMPORTERS if known.detect(beginning) >= HIGH}
    assert sure <= {format}


def test_one_line_of_a_format_among_lines_of_another_program_proves_nothing(found: tuple[str, Probe]) -> None:
    _, beginning = found
    for row in beginning.rows if beginning.shape in {"lines", "array"} else ():
        mixed = Probe(("log.jsonl",), beginning.shape, rows=(*FOREIGN, row, *FOREIGN))
        assert detect(mixed).confidence < HIGH, row


def test_a_prompt_in_one_line_of_many_makes_no_file_of_prompts() -> None:
    hooks = [{"hook_event_name": "UserPromptSubmit", "prompt": "Go"}, *({"hook_event_name": "Stop"} for _ in range(5))]
    assert detect(Probe(("hooks.jsonl",), "lines", rows=tuple(hooks))).importer is None
    only = detect(Probe(("rows.jsonl",), "lines", rows=({"prompt": "Go"}, {"prompt": "Come"}))).importer
    assert only is not None
    assert only.name == "prompt_completion"


def test_an_object_of_numbers_is_no_log() -> None:
    vocabulary = {word: n for n, word in enumerate(("prompt", "completion", "reward", "answer", "trace", "messages"))}
    assert detect(Probe(("vocab.json",), "object", document=vocabulary)).importer is None
