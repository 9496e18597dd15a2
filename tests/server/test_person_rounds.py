"""A person's round with trouble in it, in both eras: what was good is kept, what was declined stays theirs, nothing is silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import InputRequiredResult

from mcp_client import call
from quintain.records.trajectory import OutcomeStatus
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.services import Services, open_services
from server.test_elicitation import ACCEPTED, ERAS, Person, asked
from trajectory_runs import NOW, answer, run, user

ASK: dict[str, Any] = {"limit": 3, "judge": "person", "rater": "Eve"}
FILLED = {"score_task_completion": "5", "score_process": "2"}
"""0.6 * 1 + 0.4 * 0.25."""


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    opened = open_services(settings)
    runs = [run(f"t{n}", user(), answer(f"Answer {n}."), status=OutcomeStatus.UNKNOWN) for n in range(3)]
    opened.store.trajectories.add_many(runs, NOW)
    yield opened
    opened.close()


def given(services: Services) -> list[float | None]:
    """Values that people gave."""
    ids = [one.id or "" for one in services.store.trajectories.iterate()]
    return [score.value for scores in services.store.scores.by_scorers(["people"], ids).values() for score in scores]


def round_of(settings: Settings, person: Person, mode: str, *then: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """A round, and what `submit_scores` says to these answers to its batch afterwards."""

    async def main() -> list[dict[str, Any]]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), mode=mode, elicitation_callback=person) as client:
                found = [await call(client, "get_judging_batch", **{**ASK, **more})]
                for scores in then:
                    batch = found[0]["batch_id"]
                    found.append(await call(client, "submit_scores", batch_id=batch, scores=[scores]))
                return found

    return anyio.run(main)


@ERAS
def test_what_a_person_declined_or_answered_in_a_form_nobody_answers_for_them(
    settings: Settings, services: Services, mode: str
) -> None:
    ended, for_them, over_them = round_of(
        settings, Person(FILLED), mode, {"item_id": "i2", "value": 1}, {"item_id": "i1", "value": 0}
    )
    for step in (ended["next_step"], ended["submitted"]["next_step"]):
        assert "The person stopped, 2 items open" in step
        assert "submit" not in step
    for refused in (for_them, over_them):
        assert refused["accepted"] == 0
        assert "[asked_in_form] person:Eve was asked" in refused["rejected"][0]["reason"]
        assert "submit" not in refused["next_step"]
    assert given(services) == [pytest.approx(0.7)]


def test_where_the_form_breaks_down_the_open_items_can_be_passed_on_and_the_answered_stay(
    settings: Settings, services: Services
) -> None:
    ended, open_one, answered = round_of(
        settings,
        Person(FILLED, afterwards="break"),
        "legacy",
        {"item_id": "i2", "value": 1, "rationale": "good"},
        {"item_id": "i1", "value": 0},
    )
    assert [item["item_id"] for item in ended["items"]] == ["i2", "i3"]
    assert (open_one["accepted"], answered["accepted"]) == (1, 0)
    ids = [one.id or "" for one in services.store.trajectories.iterate()]
    said = {score.value: score.feedback for run_id in ids for score in services.store.scores.of_trajectory(run_id)}
    assert said == {0.7: "", 1.0: "(relayed) good"}


@ERAS
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"correct_step": "0"}, "a correction needs both"),
        ({"correct_step": "0", "correct_with": '{"tool": '}, "begins like JSON and is none"),
        ({"correct_step": "0", "correct_with": '{"tool": "tak"}'}, "did you mean 'take'"),
        ({"correct_step": "0", "correct_with": "Answer 0."}, "expected another step than the agent took"),
    ],
)
def test_a_correction_that_cannot_be_is_asked_again_and_the_scores_are_kept(
    settings: Settings, services: Services, mode: str, wrong: dict[str, str], why: str
) -> None:
    (first,) = [one.id for one in services.store.trajectories.iterate() if one.task.id == "t0"]
    mended = {"correct_step": "0", "correct_with": "Better said."}
    person = Person(FILLED | wrong, mended)
    (ended,) = round_of(settings, person, mode, limit=1, trajectory_ids=[first])
    assert why in person.seen[1].message
    assert list(person.seen[1].requested_schema["properties"]) == ["correct_step", "correct_with"]
    assert (ended["submitted"]["accepted"], ended["submitted"]["rejected"]) == (1, [])
    assert given(services) == [pytest.approx(0.7)]
    (better,) = ended["submitted"]["corrections"]
    assert services.store.trajectories.get(better).steps[-1].message == "Better said."


@ERAS
def test_a_correction_is_asked_again_once_and_then_told(settings: Settings, services: Services, mode: str) -> None:
    person = Person(FILLED | {"correct_step": "0"}, {"correct_step": "0"}, FILLED)
    (ended,) = round_of(settings, person, mode, limit=2)
    assert [seen.message[:7] for seen in person.seen] == ["1 of 2.", "1 of 2.", "2 of 2."]
    assert ended["submitted"]["accepted"] == 2
    assert [one["item_id"] for one in ended["submitted"]["rejected"]] == ["i1"]
    assert "Rejected: i1" in ended["next_step"]
    assert given(services) == [pytest.approx(0.7)] * 2


@ERAS
def test_a_choice_that_the_form_does_not_have_is_asked_again_by_itself(
    settings: Settings, services: Services, mode: str
) -> None:
    person = Person({"score_task_completion": "5", "score_process": "2.5", "note": "fine"}, {"score_process": "2"})
    (ended,) = round_of(settings, person, mode, limit=1)
    assert list(person.seen[1].requested_schema["properties"]) == ["score_process"]
    assert ended["submitted"]["accepted"] == 1
    assert given(services) == [pytest.approx(0.7)]


def test_a_repeated_last_request_reports_the_same(settings: Settings, services: Services) -> None:
    async def main() -> list[Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), elicitation_callback=Person()) as client:
                last = await asked(client, arguments=ASK)
                for _ in range(2):
                    last = await asked(
                        client, arguments=ASK, input_responses=ACCEPTED, request_state=last.request_state
                    )
                ends = [
                    await asked(client, arguments=ASK, input_responses=ACCEPTED, request_state=last.request_state)
                    for _ in range(2)
                ]
                return [end.structured_content for end in ends]

    one, again = anyio.run(main)
    assert (one["submitted"]["accepted"], one["submitted"]["remaining"]) == (3, [])
    assert again == one
    assert len(given(services)) == 3


def test_a_run_that_is_forgotten_while_its_form_is_open_is_told(settings: Settings, services: Services) -> None:
    async def main() -> Any:
        with anyio.fail_after(60):
            async with Client(create_server(settings), elicitation_callback=Person()) as client:
                first = await asked(client, arguments=ASK)
                assert isinstance(first, InputRequiredResult)
                batch = services.store.judging.newest(1)[0]
                await call(client, "forget", id=batch.items[0].trajectory_ids[0], dry_run=False)
                last: Any = first
                for _ in range(3):
                    last = await asked(
                        client, arguments=ASK, input_responses=ACCEPTED, request_state=last.request_state
                    )
                return last.structured_content

    ended = anyio.run(main)
    assert (ended["submitted"]["accepted"], ended["submitted"]["remaining"]) == (2, [])
    (told,) = ended["submitted"]["rejected"]
    assert told["item_id"] == "i1"
    assert "[run_changed] a run of i1 was forgotten" in told["reason"]
    assert "submit" not in ended["submitted"]["next_step"]
