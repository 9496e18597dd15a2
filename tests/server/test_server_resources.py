"""Resources, prompts, subscriptions and the reconciler's beat."""

from __future__ import annotations

import logging

import anyio
import pytest
from mcp import Client, MCPError

from quintain.server.app import QuintainServer
from quintain.server.guide import INSTRUCTIONS
from server.small_server import Shelf
from server.talks import ERAS, serve


@ERAS
def test_a_guide_is_served_and_an_unknown_resource_is_an_invalid_parameter(small: QuintainServer, mode: str) -> None:
    async def talk(client: Client) -> None:
        (page,) = (await client.read_resource("guide://pipeline")).contents
        assert page.mime_type == "text/markdown"
        assert '"actor": "agent"' in page.text
        assert "- `fit_memory`: train on a machine with little memory" in page.text
        with pytest.raises(MCPError, match=r"\[unknown_resource\] .* valid: .*guide://pipeline") as caught:
            await client.read_resource("guide://nothing")
        assert caught.value.error.code == -32602

    serve(small, mode, talk)


def test_prompts_name_the_tools_and_miss_no_required_argument(small: QuintainServer) -> None:
    async def talk(client: Client) -> None:
        assert [p.name for p in (await client.list_prompts()).prompts] == [
            "train_end_to_end",
            "diagnose_run",
            "label_data",
            "compare_agents",
        ]
        prompt = await client.get_prompt("train_end_to_end", {"environment": "my/env"})
        assert "start_training" in prompt.messages[0].content.text
        assert "'my/env'" in prompt.messages[0].content.text
        for run, tools in (("traj-1", ("get_trajectory", "'rules'")), ("job-1", ("detail='log'", "resume_job"))):
            text = (await client.get_prompt("diagnose_run", {"run": run})).messages[0].content.text
            assert all(part in text for part in (f"{run!r}", *tools)), text
        label = (await client.get_prompt("label_data", {"agent": "clerk", "rubric": "coding"})).messages[0].content.text
        assert label.index("judge='person'") < label.index("judge='assistant'") < label.index("fit_calibration")
        assert "rubric='coding', filter={'agent': 'clerk'}" in label
        with pytest.raises(MCPError, match="expected `agents` of the prompt compare_agents"):
            await client.get_prompt("compare_agents", {})
        with pytest.raises(MCPError, match=r"valid: train_end_to_end, diagnose_run, label_data, compare_agents"):
            await client.get_prompt("nothing", {})

    serve(small, "legacy", talk)


def test_the_instructions_fit_where_clients_cut_them() -> None:
    assert len(INSTRUCTIONS.encode()) < 2000


def test_a_job_that_another_process_changed_reaches_a_listener_of_the_modern_era(
    small: QuintainServer, shelf: Shelf
) -> None:
    async def talk(client: Client) -> None:
        async with client.listen(resource_subscriptions=["job://job-1"]) as events:
            shelf.jobs.store_elsewhere("job-2", "job-1")
            async for event in events:
                assert event.uri == "job://job-1"
                break

    serve(small, "auto", talk)


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed:mcp.MCPDeprecationWarning")
def test_a_changed_job_reaches_a_subscriber_of_the_handshake_era_once(small: QuintainServer, shelf: Shelf) -> None:
    heard: list[str] = []

    async def main() -> None:
        async def listen(message: object) -> None:
            if getattr(message, "method", "") == "notifications/resources/updated":
                heard.append(str(message.params.uri))  # type: ignore[attr-defined]

        with anyio.fail_after(100):
            async with Client(small, mode="legacy", message_handler=listen) as client:
                for _ in range(2):
                    await client.session.subscribe_resource("job://job-1")
                shelf.jobs.beats += [{"job-1"}, {"job-2"}]
                await anyio.to_thread.run_sync(shelf.jobs.wait_for_beats, 4)
                await client.session.unsubscribe_resource("job://job-1")
                shelf.jobs.beats.append({"job-1"})
                await anyio.to_thread.run_sync(shelf.jobs.wait_for_beats, 3)

    anyio.run(main)
    assert heard == ["job://job-1"]


def test_a_failing_look_at_the_jobs_is_logged_once_and_tried_again(
    small: QuintainServer, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.jobs.beats += [OSError("disk"), OSError("disk"), {"job-1"}]

    async def talk(client: Client) -> None:
        await anyio.to_thread.run_sync(shelf.jobs.wait_for_beats, 4)

    serve(small, "auto", talk)
    failures = [r for r in caplog.records if r.levelno == logging.ERROR and "looking after the jobs" in r.message]
    assert len(failures) == 1
