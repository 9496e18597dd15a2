"""Conversations by tool: the real job in this process, with a person whose messages are in its folder before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs_in_process import _run_in_main_thread
from quintain.errors import Conflict, InvalidInput
from quintain.jobs import processes
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.talk import MESSAGES, TalkMessage, TalkSpec
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.evaluation.conversations import talk_to_agent, watch_talk
from quintain.tools.jobs.jobs import get_job, start
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent

KEY = "ghp_" + "x7Q2aB" * 6
"""Of the form of a key."""


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> list[TalkMessage]:
    """What the person has sent when a job begins; jobs run in this process."""
    messages: list[TalkMessage] = []

    def run(argv: Sequence[str], *rest: Any) -> None:
        path = Path(argv[-1]) / MESSAGES
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(one.model_dump_json() + "\n" for one in messages), encoding="utf-8")
        _run_in_main_thread(argv, *rest)

    monkeypatch.setattr(processes, "start_detached", run)
    return messages


def test_a_conversation_goes_on_with_tools_until_the_person_keeps_it_as_a_run(
    services: Services, says: list[TalkMessage]
) -> None:
    says += [TalkMessage(text="And which is cheaper?"), TalkMessage(end="keep")]
    begun = talk_to_agent(
        services, "starter", f"My key is {KEY}. What is the price of the red lamp?", environment="quintain/inventory"
    )
    *_, talk = watch_talk(services, job_id=begun.job_id)
    assert (talk.turn, talk.status, talk.ended, talk.kept) == ("over", "succeeded", "by the person", True)
    asked = [step["message"] for step in talk.steps if step["actor"] == "user"]
    assert asked[1:] == ["And which is cheaper?"]
    assert "red lamp" in asked[0]
    assert KEY not in asked[0]
    assert talk.steps[1]["actor"] == "agent"
    assert talk.example, "a task of the environment shows what can be asked"

    (found,) = services.store.trajectories.search(TrajectoryFilter(job_id=talk.job_id)).items
    run = services.store.trajectories.get(found.id)
    assert (run.tags, run.outcome.status, run.agent.name) == (("conversation",), OutcomeStatus.UNKNOWN, "starter")
    assert run.tools, "the environment's tools were offered"
    assert all(step.sampled for step in run.agent_steps), "the sampled ids are kept for training"
    assert [step.message for step in run.steps if step.actor == "user"] == asked
    with pytest.raises(Conflict, match="this conversation has ended; begin another"):
        talk_to_agent(services, job_id=talk.job_id, message="Hello?")


def test_a_conversation_without_messages_ends_by_itself_and_leaves_no_run(
    services: Services, says: list[TalkMessage]
) -> None:
    assert not says
    spec = TalkSpec(agent=resolve_agent(services, "starter"), message="Hello", idle_s=0.05)
    job_id = start(services, spec, "talk-1").job_id
    services.jobs.reconcile()
    talk = talk_to_agent(services, job_id=job_id)
    assert (talk.turn, talk.kept, talk.ended) == ("over", False, "after 0.05 s without a message")
    assert [step["actor"] for step in talk.steps] == ["user", "agent"]
    assert services.store.trajectories.search(TrajectoryFilter(job_id=job_id)).items == ()
    assert get_job(services, job_id).label == "talk to starter"


def test_a_conversation_that_cannot_begin_is_refused(services: Services) -> None:
    for arguments, message in (
        ({}, "expected either `agent` to begin with or `job_id` to go on with, got both or none"),
        ({"agent": "starter"}, "expected `message` at the begin of a conversation, got none"),
        ({"agent": "starter", "message": "a", "end": "keep"}, "expected `message` or `end`, got both"),
        ({"agent": "expert", "message": "a"}, "expected a model, got the scripted expert"),
    ):
        with pytest.raises(InvalidInput, match=message):
            talk_to_agent(services, **arguments)
    assert services.store.jobs.unfinished() == []
