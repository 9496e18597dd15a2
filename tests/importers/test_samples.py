"""Every real log comes in as what it is, and no turn, call or result of it is lost."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quintain.importers.log_file import LogFile
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Report
from quintain.importers.registry import importer
from quintain.importers.run_sink import DryRun
from quintain.records.imports import ImportedFile, ImportReport

Is = Callable[[dict[str, Any]], bool]


def role(*names: str, key: str = "role") -> Is:
    return lambda found: found.get(key) in names


def has(*keys: str) -> Is:
    return lambda found: all(key in found for key in keys)


def kind(name: str, key: str = "type") -> Is:
    return lambda found: found.get(key) == name


def never(found: dict[str, Any]) -> bool:
    return False


class Expected(NamedTuple):
    """What a file holds; turns, calls and results are counted in its raw JSON by what their objects look like."""

    format: str
    runs: int
    turn: Is | int
    call: Is | int = never
    result: Is | int = never
    rejected: int = 0
    distinct: str | None = None
    """Turns that share this field are one."""


ASSISTANT = role("assistant")
CHAT_CALL, TOOL_RESULT = has("function", "id"), role("tool")
GPT, AI = role("gpt", key="from"), role("ai")
# A sampled agent's turn is repeated inside of each step of its trajectory, so these are counted in the completion alone.
SAMPLES: dict[str, Expected] = {
    "adp/toucan_std.json": Expected(
        "adp", 1, lambda d: str(d.get("class_", "")).endswith("_action"), kind("api_action", "class_"), 1
    ),
    "agentgym/agenttraj_l_shape.json": Expected("agentgym", 3, GPT),
    "agentinstruct/agenttuning_os.json": Expected("agentinstruct", 5, ASSISTANT),
    "alpaca/alpaca_en.json": Expected("alpaca", 20, has("instruction", "output")),
    "anthropic_messages/coverage_test_fix.json": Expected(
        "anthropic_messages", 1, ASSISTANT, kind("tool_use"), kind("tool_result")
    ),
    **dict.fromkeys(
        (
            "atif/openhands__hello-world.trajectory.json",
            "atif/terminus_2__hello-world-context-summarization-linear-history.trajectory.json",
            "atif/terminus_2__hello-world-context-summarization-linear-history.trajectory.cont-1.json",
            "atif/terminus_2__hello-world-invalid-json.trajectory.json",
        ),
        Expected("atif", 1, kind("agent", "source"), has("function_name", "arguments"), has("content")),
    ),
    "claude_code/edge_cases.jsonl": Expected("claude_code", 2, 4, kind("tool_use"), 2, rejected=4),
    "claude_code/hello-world-script.jsonl": Expected(
        "claude_code", 1, has("id", "role"), kind("tool_use"), kind("tool_result"), distinct="id"
    ),
    "claude_code/representative_messages.jsonl": Expected("claude_code", 1, 5, kind("tool_use"), kind("tool_result")),
    "claude_code/schema_kitchen_sink.jsonl": Expected("claude_code", 3, 4, 3, 2),
    "claude_code/subagents/agent-a485154.jsonl": Expected(
        "claude_code", 1, has("id", "role"), kind("tool_use"), kind("tool_result"), distinct="id"
    ),
    "claude_code/subagents/parent.jsonl": Expected(
        "claude_code", 1, has("id", "role"), kind("tool_use"), kind("tool_result"), distinct="id"
    ),
    "codex/interleaved.jsonl": Expected("codex", 1, 3, kind("function_call"), kind("function_call_output")),
    "codex/legacy_050.jsonl": Expected("codex", 0, 0, rejected=1),
    "codex/schema_kitchen_sink.jsonl": Expected("codex", 2, 8, 8, 6),
    "exports/openai_dpo.jsonl": Expected("preference", 2, ASSISTANT),
    "exports/openai_sft.jsonl": Expected("openai_chat", 1, ASSISTANT, CHAT_CALL, TOOL_RESULT),
    "exports/verl_rl_row.json": Expected("verl", 0, 0, rejected=1),
    "gemini_cli/session-2026-01-16.json": Expected(
        # Nine messages; the nine calls of one of them were made in five rounds, each begun when the last had ended.
        "gemini_cli",
        1,
        13,
        has("name", "args", "status"),
        has("name", "args", "status"),
    ),
    "harbor_traces/hello-world.traces.json": Expected("harbor_traces", 1, 2),
    "hf_sts/session_handmade.jsonl": Expected("hf_sts", 1, ASSISTANT),
    "inspect_ai/log_formats.json": Expected("inspect_ai", 1, 1),
    "inspect_ai/log_streaming.eval": Expected("inspect_ai", 4, 4),
    "inspect_ai/log_tool_call_error.json": Expected("inspect_ai", 0, 0, rejected=1),
    "langfuse/observations_v2_handmade.json": Expected("langfuse", 1, kind("GENERATION"), 1, kind("TOOL")),
    "langsmith/py_wrap_openai.json": Expected("langsmith", 1, 1),
    "mini_swe_agent/mini_coder_rows.json": Expected("mini_swe_agent", 1, ASSISTANT),
    "mini_swe_agent/v1_full.traj.json": Expected("mini_swe_agent", 1, 3),
    "openai_chat/openhands_fncall_messages.json": Expected("openai_chat", 1, ASSISTANT, CHAT_CALL, TOOL_RESULT),
    "openai_chat/reason_tool_use_demo.jsonl": Expected("openai_chat", 20, 55, 37, 24),
    "openai_chat/swe_smith_xml_tools.json": Expected("openai_chat", 1, ASSISTANT),
    "openai_chat/toucan.json": Expected("openai_chat", 1, 3, 1, 1),
    "opencode/storage/session/test-project/test-session-1.json": Expected("opencode", 1, 1, 2, 2),
    "openhands_v0/basic_interactions.json": Expected("openhands_v0", 1, 3, 1, 0),
    "openhands_v0/harbor_hello_world_events.json": Expected("openhands_v0", 1, 2, 2, 1),
    "openhands_v1/events.jsonl": Expected(
        "openhands_v1", 1, kind("ActionEvent", "kind"), has("tool_call"), 3, distinct="llm_response_id"
    ),
    "otel/claude_code_otel_events.jsonl": Expected("otel", 0, 0, rejected=1),
    "otel/otlp_genai_handmade.json": Expected("otel", 1, 2, 1, 1),
    "preference/llamafactory_dpo_en.json": Expected("preference", 20, 28),
    "preference/llamafactory_kto_en.json": Expected("preference", 10, ASSISTANT),
    **dict.fromkeys(
        (
            *(
                f"reward_hacking/{name}_{side}.jsonl"
                for name in ("answer_leakage_echo", "degenerate_repetition")
                for side in ("clean", "hacked")
            ),
        ),
        Expected("verifiers", 2, has("completion", "example_id")),
    ),
    "reward_hacking/length_inflation_clean.jsonl": Expected("verifiers", 10, has("completion", "example_id")),
    "reward_hacking/length_inflation_hacked.jsonl": Expected("verifiers", 10, has("completion", "example_id")),
    "sharegpt/glaive_toolcall_en.json": Expected(
        "sharegpt",
        20,
        role("gpt", "function_call", key="from"),
        role("function_call", key="from"),
        role("observation", key="from"),
    ),
    "swe_agent/function_calling_simple.traj": Expected("swe_agent", 1, ASSISTANT, CHAT_CALL, TOOL_RESULT),
    "swe_agent/humanevalfix-python-0.traj": Expected("swe_agent", 1, lambda d: ASSISTANT(d) and not d.get("is_demo")),
    "swe_agent/nebius_flattened.json": Expected("swe_agent_flat", 2, AI),
    "tau_bench/gpt-4o-airline.json": Expected("tau_bench", 2, ASSISTANT, CHAT_CALL, TOOL_RESULT),
    "trl/dpo_explicit.jsonl": Expected("preference", 2, ASSISTANT, 1),
    "trl/grpo_prompt_only.jsonl": Expected("prompt_completion", 0, 0, rejected=1),
    "trl/kto.jsonl": Expected("preference", 1, ASSISTANT, 1),
    "trl/sft_messages_tools.jsonl": Expected("openai_chat", 1, ASSISTANT, 1, TOOL_RESULT),
    "trl/sft_prompt_completion.jsonl": Expected("prompt_completion", 1, ASSISTANT, 1, TOOL_RESULT),
    "trl/stepwise.jsonl": Expected("stepwise", 1, 2),
    "verifiers/eval_run/results.jsonl": Expected("verifiers", 5, has("completion", "example_id")),
    "verifiers/multi_turn_rollout.jsonl": Expected("verifiers", 1, 2, 1, 1),
    "web_agent/webarena_successful.json": Expected("web_agent", 3, 4, 4, 1),
}
NO_LOGS = {
    "SOURCES.md",
    "openhands_v1/base_state.json",
    "otel/schema/gen-ai-input-messages.json",
    "otel/schema/gen-ai-output-messages.json",
}
WRITTEN_AS_TEXT = {"openai_chat", "anthropic_messages", "adp", "agentgym", "agentinstruct", "sharegpt", "harbor_traces"}
"""Formats of which every text of a turn must come in as it is."""
COMPANIONS = ("opencode/storage/message/", "opencode/storage/part/", "verifiers/eval_run/metadata.json")


@pytest.fixture(scope="module")
def report() -> ImportReport:
    folder = Path(__file__).parents[3] / "shared" / "samples"
    if not folder.is_dir():
        pytest.skip("no folder of real agent logs beside this repository")
    return import_logs(folder, ImportOptions(), DryRun({}))


def found(report: ImportReport, name: str) -> ImportedFile:
    return next(file for file in report.files if file.file == name)


def documents(path: Path) -> Iterator[Any]:
    if path.suffix == ".jsonl":
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
    elif path.suffix != ".eval":
        yield json.loads(path.read_text(encoding="utf-8"))
    else:
        with zipfile.ZipFile(path) as archive:
            yield from (json.loads(archive.read(name)) for name in archive.namelist())


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(inner)


def spoken(path: Path) -> set[str]:
    """Every text of a turn in a file of chats."""
    turns = (
        found
        for document in documents(path)
        for row in (document if isinstance(document, list) else [document])
        for key, value in row.items()
        if key not in {"tools", "tool_definitions"}
        for found in objects(value)
        if found.get("from") != "function_call" and found.get("type") not in {"function", "tool_call"}
    )
    texts = (turn.get(key) for turn in turns for key in ("content", "value", "text"))
    return {text for text in texts if isinstance(text, str) and text}


def counted(path: Path, what: Is | int, distinct: str | None = None) -> int:
    if isinstance(what, int):
        return what
    matching = [found for document in documents(path) for found in objects(document) if what(found)]
    return len({found.get(distinct) for found in matching}) if distinct else len(matching)


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_real_log_is_read_as_what_it_is_without_loss(samples: Path, report: ImportReport, name: str) -> None:
    expected, file = SAMPLES[name], found(report, name)
    assert (file.format, file.trajectories, file.rejected) == (expected.format, expected.runs, expected.rejected)
    assert file.confidence >= 0.8 or not expected.runs
    path = samples / name
    assert file.steps == counted(path, expected.turn, expected.distinct)
    assert file.actions == counted(path, expected.call)
    assert file.observations == counted(path, expected.result)
    if expected.format in WRITTEN_AS_TEXT:
        runs = importer(expected.format).read(LogFile(path, samples), Report())
        read = {text for run in runs for text in strings(run.trajectory.model_dump(mode="json"))}
        assert spoken(path) <= read


def test_every_file_of_the_samples_is_accounted_for(samples: Path, report: ImportReport) -> None:
    names = {path.relative_to(samples).as_posix() for path in samples.rglob("*") if path.is_file()}
    companions = {name for name in names if name.startswith(COMPANIONS)}
    assert names == set(SAMPLES) | NO_LOGS | companions
    assert {file.file for file in report.files if file.format is None} == NO_LOGS
    assert {file.file for file in report.files if file.format} == set(SAMPLES)
    assert (report.n_files, report.n_refused) == (len(names), len(NO_LOGS))
    assert report.n_rejected == sum(expected.rejected for expected in SAMPLES.values())
    assert report.imported + report.duplicates == sum(expected.runs for expected in SAMPLES.values())
