"""`import quintain`: the documented program runs on a real training, and the types and pages derive from the catalog."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from scripts.documented_program import BLOCKS, GUIDE
from scripts.make_python_client import METHODS, stale
from scripts.python_client_page import PAGE, page

import quintain as q
from jobs_in_process import in_process, starts_held
from quintain.client.frames import rows_of
from quintain.client.thing import run_in_thread
from quintain.errors import Conflict, InvalidInput, JobFailed, NotFound, WaitTimeout
from quintain.records.jobs.job import SelftestSpec
from quintain.records.jobs.job_events import JobEvent
from quintain.tools.catalog import CATALOG
from quintain.tools.dict_calls.actions import file_of_rows


def test_the_documented_program_trains_measures_and_compares(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    names: dict[str, Any] = {"__name__": "program"}
    with in_process():
        for block in BLOCKS:
            exec(compile(block, str(GUIDE), "exec"), names)
    job, evaluation = names["job"], names["evaluation"]
    assert repr(job).startswith(f"Job('{job.id}', kind='train', status='succeeded'")
    with q.open() as opened:
        assert f"Job('{job.id}', work='sft starter -> clerk on shown', status='succeeded')" in repr(opened.jobs())
        again = opened.job(job.id)
        assert again.curves["loss"].values == tuple(names["curve"]["loss"]), "they are asked for where they are read"
        assert (again.settings["method"], again.settings["config"]["epochs"]) == ("sft", 1)
        listed = opened.runs(limit=1)[0]
        assert f"Trajectory({listed.id!r}, outcome='{listed.outcome}', reward=" in repr(opened.runs(limit=1).to_list())
    assert (job.agent.id, evaluation.record.environment) == ("agent:clerk@1", "quintain/inventory")
    assert re.search(r"interval=\(0\.\d{1,4}, 1\.0\)|interval=\(0\.\d{1,4}, 0\.\d{1,4}\)", repr(evaluation)), "readable"
    assert evaluation.record.rate.n == 4
    assert list(names["curve"]["step"]) == list(range(1, len(names["curve"]) + 1))
    assert f"1 {len(names['curve'])} " in capsys.readouterr().out, "each step was passed to the callback"
    assert list(names["found"]["agent"]) == ["me"]
    assert [run.outcome for run in q.open(home).runs(tags=["arithmetic"])] == ["failure", "success"]
    assert len(names["rows"]) == names["ready"].num_rows == names["dataset"].record.rows
    assert names["ready"][0]["messages"] == names["dataset"].rows(limit=1)[0]["messages"]
    assert names["pair"].n_tasks == 4
    with q.open(tmp_path / "other") as other:
        copies = other.record(names["ready"], tags=["again"])
        assert len({run.id for run in copies}) == names["ready"].num_rows
        assert copies[0].messages() == names["ready"][0]["messages"], "out and in again"
        with pytest.raises(InvalidInput, match="expected JSON in tools of row 0"):
            other.record([{"messages": [], "tools": "["}])


def test_each_tool_is_a_typed_method_and_the_generated_files_are_current() -> None:
    assert list(stale()) == [], "run python -m scripts.make_python_client"
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.make_python_client"
    for spec in CATALOG:
        assert callable(getattr(q.Home, METHODS[spec.name].name)), spec.name
        assert callable(getattr(q.AsyncHome, METHODS[spec.name].name)), spec.name


def test_importing_quintain_loads_nothing_heavy_and_opening_a_home_neither() -> None:
    heavy = ["torch", "transformers", "numpy", "pandas", "datasets", "matplotlib", "mcp", "sqlalchemy"]
    program = "import sys, quintain as q; print('quintain.client' in sys.modules); q.open('x'); q.aopen('x')\n"
    program += f"print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[:2] == ["False", "[]"]


def test_errors_are_exceptions_with_a_code_and_a_remedy(home: Path) -> None:
    with q.open(home) as opened:
        with pytest.raises(LookupError, match="no-such-run") as missing:
            opened.trajectory("no-such-run")
        assert isinstance(missing.value, NotFound)
        assert q.NotFound is NotFound
        assert {"NotFound", "WaitTimeout", "open"} <= set(dir(q))
        with pytest.raises(InvalidInput, match="row 0"):
            opened.record(["not a row"])  # type: ignore[call-overload]
        rows = [{"messages": [{"role": "assistant", "content": "Done."}]}, {"task": "no messages"}]
        with pytest.raises(q.InvalidInput, match=r"row 1: expected .* \(rows before it are stored: 1\)"):
            opened.record(rows)
        with pytest.raises(InvalidInput) as refused:
            opened.runs(since="never")
        assert refused.value.code == "invalid_input"
        assert refused.value.remedy.endswith("correct it and call home.runs again")
        with pytest.raises(InvalidInput, match="did you mean 'agent'"):
            opened.runs(agnt="starter")  # type: ignore[call-arg]
        with pytest.raises(InvalidInput, match=r"expected files for kind 'text': .* as `data`$"):
            opened.create_dataset("text", "no-files")
        with pytest.raises(NotFound, match=r"with home\.register_agent\(name='baseline'"):
            opened.agent("nobody")
        with pytest.raises(NotFound, match=r"see home\.list_jobs"):
            opened.job("job-none")
        plan = opened.plan(goal=["measure_only"])
        assert plan.method is None or isinstance(plan.method, str)
        assert "home.evaluate(" in plan.next_step, "what to do next names methods, too"
        assert "with home.register_agent(" in opened.plan(method="sft", model="nobody").blockers[0].remedy
    with pytest.raises(Conflict, match="closed"):
        opened.datasets()


class PolarsFrame:
    """What polars' DataFrame has of pandas' and of its own."""

    columns = ("prompt", "response")

    def to_dict(self, as_series: bool = True) -> dict[str, list[str]]:
        return {"prompt": ["a"], "response": ["b"]}

    def to_dicts(self) -> list[dict[str, str]]:
        return [{"prompt": "a", "response": "b"}]


def test_rows_come_from_frames_of_other_libraries_and_what_is_no_rows_is_named() -> None:
    assert list(rows_of(PolarsFrame())) == [{"prompt": "a", "response": "b"}]
    twice = SimpleNamespace(columns=["text", "text"], to_dict=None)
    with pytest.raises(InvalidInput, match="several named text; rename them"):
        list(rows_of(twice))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="got an object of 'train', 'test'; pass a split of it"):
        list(rows_of({"train": [], "test": []}))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"got others at row 1 in image \(Object of type bytes"):
        file_of_rows(SimpleNamespace(), [{"image": None}, {"image": b"x"}])  # type: ignore[arg-type]


def test_runs_are_a_table_in_a_notebook_and_objects_go_to_other_processes(home: Path) -> None:
    with q.open(home) as opened:
        assert "<tbody></tbody>" in opened.runs()._repr_html_()
        chats = [[{"role": "user", "content": f"<b>{n}"}, {"role": "assistant", "content": "Ho"}] for n in range(11)]
        (*_, last) = opened.record([{"messages": chat} for chat in chats])
        shown = opened.runs()._repr_html_()
        assert (shown.count("<td>traj-"), "<b>1" in shown, "&lt;b&gt;10" in shown) == (10, False, True)
        assert "There are more" in shown
        assert "There are more" not in opened.runs(limit=3)._repr_html_()
        assert [len(opened.runs(limit=limit).to_list()) for limit in (0, 3, None)] == [0, 3, 11]
        assert [len(opened.runs(limit=limit)) for limit in (0, 3, None)] == [0, 3, 11]
        assert (opened.runs()[0], opened.runs()[-2:]) == (last, opened.runs().to_list()[-2:])
        with pytest.raises(IndexError, match="from 0 and below 11, got 11"):
            opened.runs()[11]
        with pytest.raises(InvalidInput, match="limit: expected a number of runs from 0, got -1"):
            opened.runs(limit=-1)
        copied = pickle.loads(pickle.dumps(last))
        assert (copied, copied.load().task.prompt) == (last, "<b>10")
        assert (copied.task.prompt, "tags" in dir(copied)) == ("<b>10", True)
        assert len(dir(copied)) == len({*dir(copied)}), "`id` is a field of the record, too"
        with pytest.raises(
            AttributeError, match=r"no attribute 'task_id'; fields of its record: id, .*task, tools, steps"
        ):
            str(copied.task_id)
        assert opened.evaluations() == opened.comparisons() == []


@pytest.mark.parametrize("event_loop", ["asyncio", "trio"])
def test_coroutines_load_what_they_list_and_properties_never_block_the_event_loop(home: Path, event_loop: str) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]

    async def main() -> None:
        async with q.aopen(home) as opened:
            run = await opened.record(messages=chat, outcome="success")
            assert [(one.id, one.outcome) async for one in opened.runs()] == [(run.id, "success")]
            with pytest.raises(Conflict, match="await its method `load`") as early:
                run.outcome  # noqa: B018
            assert early.value.code == "not_loaded"
            assert (await run.load()).outcome.status == run.outcome
            assert [message["role"] for message in await run.messages()] == ["user", "assistant"]
            assert run in {run}
            assert "outcome='success'" in repr(run)
            assert await opened.jobs() == []

            steps: list[int | None] = []
            with starts_held(opened.session.services().settings.jobs_dir):
                started = opened.session.services().jobs.start(SelftestSpec(steps=2)).job.id
                with pytest.raises(WaitTimeout):
                    await (await opened.job(started)).wait(timeout=0)
            job = await (await opened.job(started)).wait(on_step=lambda event: steps.append(event.step))
            assert ((await job.curves).keys(), (await job.settings)["steps"]) == ((await job.metrics()).keys(), 2)

            async def note(event: JobEvent) -> None:
                await anyio.lowlevel.checkpoint()
                steps.append(event.step)

            await job.wait(on_step=note)
            assert (job.status, steps) == ("succeeded", [1, 2, 1, 2])
            with pytest.raises(Conflict, match="whose result names its agent"):
                job.agent  # noqa: B018
            assert [event.step async for event in job.events() if event.type == "progress"] == [1, 2]
            assert [type(one) for one in await opened.jobs()] == [q.AsyncJob]
            assert (await opened.jobs())[0].status == "succeeded", "listed jobs are loaded"

    anyio.run(main, backend=event_loop)


def test_a_job_that_fails_or_takes_too_long_raises(home: Path) -> None:
    with q.open(home) as opened:
        start = opened.session.services().jobs.start
        with in_process():
            failing = opened.job(start(SelftestSpec(steps=2, fail_at=1)).job.id)
        with pytest.raises(JobFailed, match=failing.id) as failed:
            failing.wait()
        assert failed.value.code == failing.record.error.code  # type: ignore[union-attr]
        assert failed.value.remedy
        with pytest.raises(JobFailed):
            failing.agent  # noqa: B018
        slow = opened.job(start(SelftestSpec(steps=1000)).job.id)
        with pytest.raises(TimeoutError) as late:
            slow.wait(timeout=0)
        assert isinstance(late.value, WaitTimeout)
        assert slow.cancel().status in ("running", "cancelled")


def test_a_cancelled_coroutine_stops_waiting_for_the_job_of_its_call(home: Path) -> None:
    async def main() -> bool:
        async with q.aopen(home) as opened:
            started = opened.session.services().jobs.start(SelftestSpec(steps=1000)).job.id
            job = await opened.job(started)
            with anyio.move_on_after(0.2) as scope:
                await run_in_thread(job._blocking.wait)
            await job.cancel()
            return scope.cancelled_caught

    assert anyio.run(main)
