"""Keys in every field of a run and in every kind of failure: none is in an answer, a file of the home folder, or the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from quintain.errors import QuintainError
from quintain.records.filters import TrajectoryFilter
from quintain.server.calls.bindings import bind_all, read_arguments
from quintain.server.calls.failures import tool_failure
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import open_services

BODY = "aB3dE5gH7jK9mN1pQ3rS"
KEYS = (
    f"sk-ant-api03-{BODY}{BODY}-AbCdEf",
    f"sk-proj-{BODY}_{BODY}-{BODY}{BODY}",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    f"glpat-{BODY}",
    "AKIA2E0A8F3B244C9986",
    "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    f"github_pat_11AAAAAAA0123456789abc_{BODY}{BODY}{BODY[:10]}",
    "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",
)


def test_no_key_is_kept_or_repeated(
    settings: Settings, caplog: pytest.LogCaptureFixture, record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", len(KEYS))
    services, bindings = open_services(settings), bind_all(CATALOG)
    answers: list[str] = []

    def ask(tool: str, **arguments: Any) -> None:
        binding = bindings[tool]
        try:
            answers.append(str(binding.spec.function(services, **read_arguments(binding, arguments))))
        except QuintainError as error:
            answers.append(tool_failure(tool, error).content[0].text)

    for number, key in enumerate(KEYS):
        text = f"The key is {key}."
        action = {"call_id": "c", "tool": "login", "args": {"token": key, "nested": [{"x": text}]}}
        step = {
            "actor": "agent",
            "message": text,
            "thought": text,
            "actions": [action],
            "observations": [{"call_id": "c", "content": text}],
        }
        task = {"id": f"t{number}", "prompt": text}
        run = {"task": task, "steps": [step, {"actor": "agent", "message": "done"}], "outcome": {"status": "success"}}
        ask("record_trajectory", trajectory=run)
        ask("record_trajectory", messages=[{"role": "user", "content": text}, {"role": "assistant", "content": text}])
        (settings.inbox_dir / f"log{number}.jsonl").write_text(
            json.dumps({"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}]}) + "\n"
        )
        ask("import_trajectories", path=f"log{number}.jsonl")
        (settings.inbox_dir / f"log{number}.jsonl").unlink()
        ask("record_trajectory", trajectory={"task": text, "steps": text, text: key})  # refused
        ask("get_trajectory", trajectory_id=text)
    ask("search_trajectories")
    ask("export_dataset", kind="sft", name="kept", filter={"outcome": "success"})
    runs = services.store.trajectories.count(TrajectoryFilter())
    services.close()
    kept = b"".join(path.read_bytes() for path in settings.home.rglob("*") if path.is_file())
    assert runs > len(KEYS)
    assert kept.count(b"login") >= len(KEYS)  # the runs are in the database and in the dataset
    for key in KEYS:
        assert key.encode() not in kept
        assert key not in caplog.text
        assert [answer for answer in answers if key in answer] == []
