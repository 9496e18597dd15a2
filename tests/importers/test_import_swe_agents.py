"""Readers of SWE-agent and mini-swe-agent, on small logs made by hand after their layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_logs import function_call, message, outline, read_as, read_one, write
from hostile import survives
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import DryRun
from quintain.records.trajectory import OutcomeStatus
from small_logs import log_path, small_log


def swe_message(role: str, content: Any, kind: str, **more: Any) -> dict[str, Any]:
    return message(role, content, agent="main", message_type=kind, **more)


def test_a_swe_agent_history_is_read_without_demonstrations_and_submitted_is_no_verdict(tmp_path: Path) -> None:
    path = write(tmp_path / "i__1" / "i__1.traj", small_log("swe_agent"))
    run, report = read_one("swe_agent", path, tmp_path)
    assert outline(run) == [
        "system: SETTING",
        "user: Issue",
        "agent: Look. > bash(k1) < Old environment output: (3 lines omitted)(k1)",
        "agent: Edit.\n```\nsubmit\n```",
    ]
    made = run.trajectory
    assert (made.outcome.status, made.outcome.exit_status) == (OutcomeStatus.UNKNOWN, "submitted")
    assert (made.task.id, made.task.prompt, made.agent.model) == ("i__1", "The issue", "gpt-x")
    assert made.agent_steps[1].extra == {"command": "submit"}
    assert report.unknown == {"demonstration": 1}
    assert any("elided" in note for note in report.notes)
    write(tmp_path / "i__1" / "report.json", {"i__1": {"resolved": False}})
    run, _ = read_one("swe_agent", path, tmp_path)
    assert run.trajectory.outcome.status is OutcomeStatus.FAILURE


def test_swe_agent_steps_are_read_where_there_is_no_history(tmp_path: Path) -> None:
    asked = [message("system", "S"), message("user", "Demo", is_demo=True), message("user", "Issue")]
    listing, submitting = "I list.\n```\nls\n```", "```\nsubmit\n```"
    steps = [
        {"action": "ls", "observation": "a.py", "response": listing, "thought": "I list.", "query": asked},
        {"action": "submit", "observation": "diff", "response": submitting, "thought": "", "query": [*asked, {}]},
    ]
    path = write(
        tmp_path / "x__y-2.traj", {"environment": "main", "trajectory": steps, "info": {"exit_status": "submitted"}}
    )
    write(tmp_path / "results.json", {"resolved": ["x__y-2"], "applied": ["x__y-2"]})
    run, _ = read_one("swe_agent", path, tmp_path)
    assert outline(run) == [
        "system: S",
        "user: Issue",
        "agent: I list.\n```\nls\n```",
        "user: a.py",
        "agent: ```\nsubmit\n```",
    ]
    assert (run.trajectory.task.id, run.trajectory.outcome.status) == ("x__y-2", OutcomeStatus.SUCCESS)


def test_flat_swe_agent_rows_keep_text_mask_and_verdict() -> None:
    path = log_path("swe_agent_flat")
    runs, _ = read_as("swe_agent_flat", path, path.parent)
    assert outline(runs[0]) == ["system: S", "user: Issue", "agent: ```ls```", "agent: copied"]
    assert [step.train for step in runs[0].trajectory.agent_steps] == [None, False]
    assert [run.trajectory.outcome.status.value for run in runs] == ["failure", "truncated"]
    assert runs[1].trajectory.outcome.exit_status == "exit_cost"


def test_mini_swe_agent_keeps_text_mode_as_text(tmp_path: Path) -> None:
    whole = small_log("mini_swe_agent")
    path = write(tmp_path / "i-1" / "i-1.traj.json", whole)
    run, _ = read_one("mini_swe_agent", path, tmp_path)
    assert outline(run)[2:] == [
        "agent: THOUGHT\n```bash\nls\n```",
        "user: <returncode>1</returncode>\n<output>\n</output>",
    ]
    step = run.trajectory.agent_steps[0]
    assert (step.actions, step.model, step.usage and step.usage.input_tokens) == ((), "m-1", 6)
    assert (run.trajectory.task.id, run.trajectory.task.prompt) == ("i-1", "Solve this")
    assert (run.trajectory.outcome.status, run.trajectory.outcome.exit_status) == (OutcomeStatus.UNKNOWN, "Submitted")
    rows = [
        {"messages": whole["messages"], "patch": "d", "verified": ok, "instance_id": "q", "model": "w"}
        for ok in (True, False)
    ]
    runs, _ = read_as("mini_swe_agent", write(tmp_path / "rows.jsonl", rows), tmp_path)
    assert [run.trajectory.outcome.status.value for run in runs] == ["success", "failure"]
    assert runs[0].trajectory.agent.model == "w"


def test_mini_swe_agent_reads_calls_in_tool_mode_and_of_the_responses_api(tmp_path: Path) -> None:
    output = [
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Next."}]},
        {"type": "function_call", "name": "bash", "arguments": '{"command": "x"}', "call_id": "k2"},
    ]
    messages = [
        {"role": "user", "content": "Solve this"},
        {"role": "assistant", "content": None, "tool_calls": [function_call("bash", '{"command": "ls"}', "k1")]},
        {"role": "tool", "tool_call_id": "k1", "content": "<returncode>2</returncode>\n<output>no</output>"},
        {"object": "response", "model": "m-3", "output": output, "usage": {"input_tokens": 4, "output_tokens": 2}},
        {"type": "function_call_output", "call_id": "k2", "output": "fine", "extra": {"returncode": 0}},
        {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}},
    ]
    row = {"trajectory_format": "mini-swe-agent-1.1", "messages": messages, "instance_id": "i"}
    run, report = read_one("mini_swe_agent", write(tmp_path / "t.json", row), tmp_path)
    assert outline(run)[1:] == [
        "agent:  > bash(k1) < !<returncode>2</returncode>\n<output>no</output>(k1)",
        "agent: Next. > bash(k2) < fine(k2)",
    ]
    last = run.trajectory.agent_steps[1]
    assert (last.thought, last.model, last.usage and last.usage.output_tokens) == ("hm", "m-3", 2)
    assert (run.trajectory.outcome.exit_status, report.unknown) == ("Submitted", {"role:exit": 1})


def test_each_attempt_of_swe_agent_is_a_run_and_the_verdict_is_on_the_submitted_one(tmp_path: Path) -> None:
    def attempt(said: str) -> dict[str, Any]:
        history = [swe_message("user", "Issue", "x"), swe_message("assistant", said, "x")]
        return {"trajectory": [], "history": history, "info": {"exit_status": "submitted"}}

    tried = [attempt("First."), attempt("Second.")]
    best = {**tried[1], "info": {"best_attempt_idx": 1}, "attempts": tried}
    write(tmp_path / "report.json", {"resolved_ids": ["a"]})
    runs, _ = read_as("swe_agent", write(tmp_path / "a.traj", best), tmp_path)
    assert [outline(run) for run in runs] == [["user: Issue", "agent: First."], ["user: Issue", "agent: Second."]]
    assert [run.trajectory.outcome.status.value for run in runs] == ["unknown", "success"]
    assert [run.trajectory.episode_key for run in runs] == ["attempt-0", "attempt-1"]


# --- SWE-agent and SWE-bench


def history() -> list[dict[str, Any]]:
    return [
        swe_message("user", "Fix", "observation"),
        swe_message("assistant", "ls", "action", action="ls", tool_calls=[function_call("bash", "{}", "c")]),
        swe_message("tool", "a.py", "observation", tool_call_ids=["c"]),
    ]


def swe_run(folder: Path, instance: str) -> Path:
    info = {"exit_status": "submitted", "submission": "diff --git a b"}
    return write(folder / instance / f"{instance}.traj", {"history": history(), "trajectory": [], "info": info})


HARNESS = {"resolved_ids": ["a-1"], "unresolved_ids": ["a-2"], "error_ids": []}


@pytest.mark.parametrize("place", ["beside", "inside", "instances", "leaderboard"])
def test_verdicts_of_the_swe_bench_harness_are_joined(tmp_path: Path, place: str) -> None:
    folder = tmp_path / ("trajs" if place == "leaderboard" else "run")
    for instance in ("a-1", "a-2"):
        path = swe_run(folder, instance)
        write(path.with_suffix(".pred"), {"instance_id": instance, "model_name_or_path": "org/m"})
        alone = {instance: {"resolved": instance == "a-1"}}
        if place == "instances":
            write(tmp_path / "logs/run_evaluation/e/org__m" / instance / "report.json", alone)
            other = {instance: {"resolved": instance != "a-1"}}
            write(tmp_path / "logs/run_evaluation/e/other" / instance / "report.json", other)
        elif place == "leaderboard":
            write(tmp_path / "logs" / instance / "report.json", alone)
    if place in ("beside", "inside"):
        write((tmp_path if place == "beside" else folder) / "org__m.first.json", HARNESS)
        write(tmp_path / "another.first.json", {"resolved_ids": ["a-2"], "unresolved_ids": ["a-1"]})
    for instance, status in (("a-1", "success"), ("a-2", "failure")):
        run, _ = read_one("swe_agent", folder / instance / f"{instance}.traj", tmp_path)
        assert (run.trajectory.outcome.status.value, run.trajectory.extra["submission"]) == (status, "diff --git a b")


def test_a_harness_report_on_another_model_is_no_verdict_on_a_run(tmp_path: Path) -> None:
    path = swe_run(tmp_path / "run", "a-1")
    write(tmp_path / "run" / "preds.json", {"a-1": {"model_name_or_path": "mine"}})
    write(tmp_path / "theirs.e.json", HARNESS)
    run, _ = read_one("swe_agent", path, tmp_path)
    assert run.trajectory.outcome.status.value == "unknown"


def test_a_file_that_was_opened_in_search_of_a_report_stays_in_the_answer(tmp_path: Path) -> None:
    """Its name is that of a harness report, `MODEL.RUN.json`, and its content is something else."""
    path = swe_run(tmp_path / "run", "a-1")
    write(path.parent / "notes.session.json", {"todo": 1})
    report = import_logs(tmp_path, ImportOptions(), DryRun({}))
    assert [file.file.rpartition("/")[2] for file in report.files] == ["a-1.traj", "notes.session.json"]
    assert report.n_files == 2


def test_without_a_history_calls_and_whole_outputs_come_from_the_queries_of_later_steps(tmp_path: Path) -> None:
    first, second = history()[:1], history()
    elided = [*second[:2], {**second[2], "content": "Old environment output: (1 lines omitted)"}]
    last = [*elided, {**second[1], "content": "again"}, {**second[2], "content": "b.py"}]
    steps = [
        {"query": first, "response": "ls", "action": "ls", "observation": "a.py"},
        {"query": second, "response": "again", "action": "ls", "observation": "b.py"},
        {"query": last, "response": "Done", "action": "submit", "observation": "diff"},
    ]
    run, _ = read_one("swe_agent", write(tmp_path / "x.traj", {"trajectory": steps, "info": {}}), tmp_path)
    assert outline(run) == [
        "user: Fix",
        "agent: ls > bash(c) < a.py(c)",
        "agent: again > bash(c) < b.py(c)",
        "agent: Done > submit(None) < diff(None)",
    ]
    survives("swe_agent", [{"trajectory": steps[:2]}], tmp_path)


ENDED = {
    "truncated": [
        "LimitsExceeded",
        "exit_cost",
        "submitted (exit_context)",
        "max_steps",
        "RuntimeError: Agent reached maximum iteration in headless mode",
    ],
    "error": ["IndexError", "exit_error"],
    "unknown": ["submitted", "Submitted", "exit_format", None],
}


def test_without_a_verdict_a_limit_truncates_and_an_exception_is_an_error() -> None:
    for status, exits in ENDED.items():
        assert [outcome_from(None, ended).status.value for ended in exits] == [status] * len(exits)
        assert {outcome_from(True, ended).status.value for ended in exits} == {"success"}


def test_the_folder_of_a_log_is_not_left_when_reports_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a-1" / "report.json", {"a-1": {"resolved": True}})
    path = swe_run(tmp_path / "inner", "a-1")
    run, _ = read_one("swe_agent", path, tmp_path / "inner")
    assert run.trajectory.outcome.status.value == "unknown"
    assert LogFile(path, tmp_path / "inner").folders("../..") == []


def test_swe_agent_steps_that_the_history_lacks_at_its_end_are_kept(tmp_path: Path) -> None:
    listing = {"id": "k1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    history = [
        {"role": "system", "content": "S", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "Issue", "agent": "main", "message_type": "observation"},
        {"role": "assistant", "content": "Look.", "agent": "main", "action": "ls", "tool_calls": [listing]},
        {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["k1"]},
    ]
    refused = {"action": "ls -x", "observation": "no", "response": "Look so.", "thought": ""}
    looked = {"action": "ls", "observation": "a.py", "response": "Look.", "thought": "Look."}
    submitted = {"action": "submit", "observation": "diff", "response": "All done.", "thought": "All done."}
    row = {"history": history, "trajectory": [refused, looked, submitted], "info": {"exit_status": "submitted"}}
    run, report = read_one("swe_agent", write(tmp_path / "x.traj", row), tmp_path)
    expected = ["agent: Look. > bash(k1) < a.py(k1)", "agent: All done. > submit(None) < diff(None)"]
    assert outline(run)[2:] == expected
    assert any("last steps" in note for note in report.notes)
    whole = {**row, "trajectory": [refused, looked]}
    run, report = read_one("swe_agent", write(tmp_path / "x.traj", whole), tmp_path)
    assert outline(run)[2:] == expected[:1]
    assert not any("last steps" in note for note in report.notes)
    assert report.unknown == {"reply that the program rejected and asked for again": 1}


@pytest.mark.parametrize(("status", "action"), [("submitted (exit_context)", ""), ("exit_cost", "exit_cost")])
def test_what_swe_agent_writes_in_place_of_a_reply_is_no_turn(tmp_path: Path, status: str, action: str) -> None:
    """The reply before it was rejected for its form and is in the steps alone."""
    said = {"content": "Exit due to a limit", "thought": "Exit due to a limit", "action": action, "agent": "main"}
    listed = {"content": "Look.\n```\nls\n```", "thought": "Look.", "action": "ls", "agent": "main"}
    history = [
        {"role": "user", "content": "Issue", "agent": "main", "message_type": "observation"},
        {"role": "assistant", **listed, "message_type": "action"},
        {"role": "user", "content": "a.py", "agent": "main", "message_type": "observation"},
        {"role": "assistant", **said, "message_type": "action"},
        {"role": "user", "content": "Exited", "agent": "main", "message_type": "observation"},
    ]
    steps = [
        {"response": listed["content"], "thought": "Look.", "action": "ls", "observation": "a.py"},
        {"response": "I see.", "thought": "I see.", "action": "", "observation": ""},
        {"response": said["content"], "thought": said["content"], "action": action, "observation": "Exited"},
    ]
    row = {"history": history, "trajectory": steps, "info": {"exit_status": status}}
    run, report = read_one("swe_agent", write(tmp_path / "x.traj", row), tmp_path)
    assert outline(run) == ["user: Issue", f"agent: {listed['content']}", "user: a.py", "agent: I see."]
    assert any("in place of a reply" in note for note in report.notes)
