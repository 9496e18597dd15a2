"""What clients of both protocol eras are notified of: changed lists, log messages; what they complete and read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, ClientSession, MCPError, UriTemplate
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    PromptReference,
    Request,
    RequestParams,
    ResourceTemplateReference,
    Result,
)
from pydantic import TypeAdapter

from jobs_in_process import jobs_in_process, starts_held  # noqa: F401
from mcp_client import call
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobStatus, SelftestSpec
from quintain.server.app import create_server
from quintain.server.completions import SOURCES
from quintain.server.lifespan import JobEvent, events_between
from quintain.server.tasks import EXTENSION, TASK_STATUS
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.services import Services
from server.talks import ERAS, serve
from store_shelves import NOW, base_agent, queued
from tools.stored_records import add_runs
from trajectory_runs import run

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|removed) as of 2026-07-28:mcp.MCPDeprecationWarning")


class Inbox:
    """Notifications that a client of the handshake era gets, by method."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._arrived = anyio.Condition()

    async def __call__(self, message: object) -> None:
        async with self._arrived:
            self.messages.append(message)
            self._arrived.notify_all()

    async def until(self, condition: Callable[[Any], bool]) -> Any:
        """Return the first message that meets a condition."""
        async with self._arrived:
            while True:
                for message in self.messages:
                    if condition(message):
                        return message
                await self._arrived.wait()

    def logs(self) -> list[Any]:
        return [one.params for one in self.messages if getattr(one, "method", "") == "notifications/message"]


async def register(client: Client) -> None:
    await call(client, "register_agent", name="clerk", model="starter")


@ERAS
def test_only_the_list_of_resources_is_advertised_as_changing(settings: Settings, mode: str) -> None:
    async def talk(client: Client) -> None:
        capabilities = client.server_capabilities
        assert not capabilities.tools.list_changed
        assert not capabilities.prompts.list_changed
        assert capabilities.resources.list_changed is True
        assert capabilities.resources.subscribe is True
        assert capabilities.logging is not None

    serve(create_server(settings), mode, talk)


def test_a_new_agent_changes_the_list_for_a_listener_of_the_modern_era(settings: Settings) -> None:
    async def talk(client: Client) -> None:
        async with client.listen(tools_list_changed=True, resources_list_changed=True) as events:
            assert events.honored.tools_list_changed is None
            assert events.honored.resources_list_changed is True
            await register(client)
            async for event in events:
                assert type(event).__name__ == "ResourcesListChanged"
                break
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert "agent://agent:clerk@1" in uris

    serve(create_server(settings), "auto", talk)


@pytest.mark.usefixtures("jobs_in_process")
def test_a_session_hears_of_a_changed_list_and_of_jobs_from_its_level_on(
    settings: Settings, services: Services
) -> None:
    inbox = Inbox()

    async def talk(client: Client) -> None:
        await client.list_resources()
        await client.set_logging_level("info")
        job = services.jobs.start(SelftestSpec(steps=2)).job.id
        await inbox.until(lambda one: getattr(one, "method", "") == "notifications/resources/list_changed")
        ended = await inbox.until(
            lambda one: getattr(one, "method", "") == "notifications/message" and "succeeded" in one.params.data
        )
        assert (ended.params.level, ended.params.logger) == ("info", "quintain.jobs")
        assert job in ended.params.data
        assert {message.level for message in inbox.logs()} == {"info"}

    serve(create_server(settings), "legacy", talk, message_handler=inbox)


def test_of_a_job_that_goes_on_its_steps_are_details_and_its_new_warnings_are_warnings() -> None:
    before = queued("job-1", status=JobStatus.RUNNING, phase="stepping", step=1, total_steps=4, warnings=("old",))
    later = before.model_copy(update={"step": 3, "warnings": ("old", "new")})
    said = [JobEvent("debug", "job-1 (selftest): step 3 of 4"), JobEvent("warning", "job-1 (selftest): new")]
    assert list(events_between(before, later)) == said


class Task(RequestParams):
    """Parameters of requests about a task."""

    task_id: str


class TaskCreated(Result):
    """What a call that started a job returns to a client with the extension."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TasksClient(ClientExtension):
    """A client that declares the extension, and remembers the tasks that calls return."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.created: list[TaskCreated] = []

    def claims(self) -> list[ResultClaim[TaskCreated]]:
        async def resolve(created: TaskCreated, ctx: ClaimContext) -> CallToolResult:
            """Poll the task to its end, as a host does; the client checks the answer by the tool's output schema."""
            self.created.append(created)
            while (found := await about_task(ctx.session, "tasks/get", created.task_id))["status"] == "working":
                await ctx.session.call_tool("get_job", {"job_id": created.task_id, "wait_s": 20, "until": "done"})
            return CallToolResult.model_validate(found["result"])

        return [ResultClaim(result_type="task", model=TaskCreated, resolve=resolve)]


async def about_task(session: ClientSession, method: str, task_id: str) -> dict[str, Any]:
    request = Request[Task, str](method=method, params=Task(task_id=task_id))
    return await session.send_request(request, TypeAdapter(dict[str, Any]))


async def ended_task(client: Client, task_id: str) -> dict[str, Any]:
    while (found := await about_task(client.session, "tasks/get", task_id))["status"] == "working":
        await call(client, "get_job", job_id=task_id, wait_s=20, until="done")
    return found


@pytest.mark.usefixtures("jobs_in_process")
def test_a_job_is_a_task_whose_end_never_changes(settings: Settings, services: Services) -> None:
    assert TASK_STATUS.keys() == set(JobStatus)
    extension = TasksClient()

    async def talk(client: Client) -> None:
        assert EXTENSION in (client.server_capabilities.extensions or {})
        await client.call_tool(
            "collect_rollouts", {"agent": "expert", "environment": "quintain/inventory", "n_tasks": 2}
        )
        (task,) = extension.created
        failing = services.jobs.start(SelftestSpec(steps=3, fail_at=1)).job.id
        with starts_held(settings.jobs_dir):
            waiting = services.jobs.start(SelftestSpec(steps=9)).job.id
            assert (await about_task(client.session, "tasks/get", waiting))["status"] == "working"
            assert (await about_task(client.session, "tasks/cancel", waiting))["resultType"] == "complete"
        assert (await ended_task(client, waiting))["status"] == "cancelled"
        done = await ended_task(client, task.task_id)
        assert (done["status"], done["result"]["isError"]) == ("completed", False)
        failed = await ended_task(client, failing)
        assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
        for one in (done, failed):
            await about_task(client.session, "tasks/cancel", one["taskId"])
            assert (await about_task(client.session, "tasks/get", one["taskId"]))["status"] == "completed"
        with pytest.raises(MCPError) as unknown:
            await about_task(client.session, "tasks/get", "job-0000000000")
        assert unknown.value.error.code == INVALID_PARAMS

    serve(create_server(settings), "auto", talk, extensions=[extension])


@ERAS
def test_a_client_without_the_extension_gets_plain_answers_and_no_tasks(settings: Settings, mode: str) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(MCPError) as refused:
            await about_task(client.session, "tasks/get", "job-0000000000")
        expected = {"auto": MISSING_REQUIRED_CLIENT_CAPABILITY, "legacy": METHOD_NOT_FOUND}
        assert refused.value.error.code == expected[mode]

    serve(create_server(settings), mode, talk)


@pytest.mark.usefixtures("jobs_in_process")
def test_every_argument_of_prompts_and_templates_is_completed(settings: Settings, services: Services) -> None:
    job = services.jobs.start(SelftestSpec(steps=1)).job.id
    base_agent(services.store, "mine")
    services.store.agents.add(Agent(name="shown", model=ModelRef(source="expert", path="")), NOW)

    async def talk(client: Client) -> None:
        templates = (await client.list_resource_templates()).resource_templates
        prompts = (await client.list_prompts()).prompts
        variables = {name for one in templates for name in UriTemplate.parse(one.uri_template).variable_names}
        arguments = {argument.name for prompt in prompts for argument in prompt.arguments or ()}
        assert SOURCES.keys() == variables | arguments
        for name, start, expected in (
            ("job_id", "job-", job),
            ("id", job[:8], job),
            ("tail", "1", "100"),
            ("environment", "quintain/inv", "quintain/inventory"),
            ("rubric", "def", "default"),
        ):
            ref = ResourceTemplateReference(uri="job://{job_id}")
            found = await client.complete(ref=ref, argument={"name": name, "value": start})
            assert expected in found.completion.values, name
        prompt = PromptReference(name="train_end_to_end")
        found = await client.complete(ref=prompt, argument={"name": "model", "value": ""})
        assert found.completion.values == ["starter", "mine", "agent:mine@1"], "a scripted expert cannot be trained"

    serve(create_server(settings), "auto", talk)


@pytest.mark.usefixtures("jobs_in_process")
def test_resources_come_with_audience_priority_time_and_size(settings: Settings, services: Services) -> None:
    job = services.jobs.start(SelftestSpec(steps=1)).job
    services.store.agents.add(Agent(name="clerk", model=ModelRef(source="starter", path="starter")), services.clock())
    add_runs(services, run("t1"))
    export_dataset(services, "sft", "good", filter=TrajectoryFilter(task_id="t1"))

    async def talk(client: Client) -> None:
        listed = {str(one.uri): one for one in (await client.list_resources()).resources}
        sizes = {uri: one.size for uri, one in listed.items() if one.size is not None}
        assert listed.keys() - sizes.keys() == {f"job://{job.id}", "judging://rubrics"}
        assert {"ui://quintain/dashboard", "guide://pipeline", "agent://agent:clerk@1"} < sizes.keys()
        for uri, size in sizes.items():
            assert len((await client.read_resource(uri)).contents[0].text.encode()) == size, uri
        assert listed["guide://pipeline"].annotations.audience == ["assistant"]
        annotations = listed[f"job://{job.id}"].annotations
        assert datetime.fromisoformat(annotations.last_modified) >= job.created_at
        assert annotations.audience == ["user", "assistant"]
        for one in (await client.list_resource_templates()).resource_templates:
            assert 0 < one.annotations.priority < 1, one.uri_template

    serve(create_server(settings), "auto", talk)


def test_a_request_of_the_modern_era_gets_its_phases_and_warnings_as_it_asks(
    settings: Settings, services: Services
) -> None:
    job = services.jobs.start(SelftestSpec(steps=2)).job.id
    inbox = Inbox()

    async def logging(params: Any) -> None:
        inbox.messages.append(params)

    async def talk(client: Client) -> None:
        waiting = {"job_id": job, "wait_s": 20, "until": "done"}
        await client.call_tool("get_job", waiting, meta={"io.modelcontextprotocol/logLevel": "info"})
        assert {(one.level, one.logger) for one in inbox.messages} == {("info", "quintain.get_job")}
        before = len(inbox.messages)
        await client.call_tool("get_job", waiting)
        assert len(inbox.messages) == before

    serve(create_server(settings), "auto", talk, logging_callback=logging)
