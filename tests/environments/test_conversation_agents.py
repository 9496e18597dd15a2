"""Who solves a talk and who does not: honest agents of few and of many words do, agents that guess or say everything do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from playing import act, play
from quintain.environments.conversation import advisory, discussion
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.scripted_policy import Expert
from quintain.environments.registry import task_source
from quintain.records.protocols import Reply, Turn
from quintain.records.trajectory import Action, Task

NAMES = ("conversation", "engineering", "advisory", "discussion")


class Speaking:
    """The expert, in other words."""

    def __init__(self, says: Callable[[str], str]) -> None:
        self._expert, self._says = Expert(), says

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [self._spoken(reply) for reply in self._expert.act(turns)]

    def close(self, episode_id: str) -> None:
        self._expert.close(episode_id)

    def _spoken(self, reply: Reply) -> Reply:
        if not reply.actions or reply.actions[0].tool != "respond":
            return reply
        (action,) = reply.actions
        said = Action(tool="respond", args={"message": self._says(action.args["message"])})
        return Reply(text=reply.text, thought=reply.thought, actions=(said,))


def terse(message: str) -> str:
    """The words that carry the message."""
    for words, short in (
        (r".*amount is (\d+) dollars.*", r"\1. Bye."),
        (r"I am sorry, this is not possible: (.*)\. .*", r"No, \1. Bye."),
        (r"I recommend (.*)\.", r"\1."),
        (r"No, it is (\d+); so says the (.*)\.", r"\1, \2."),
        (r"I agree, .*", "True."),
        (r"Thank you\. Is there", "Is there"),
    ):
        message = re.sub(words, short, message)
    return message


def verbose(message: str) -> str:
    """The same, with what polite people put before and behind it."""
    message = re.sub(
        r"I am sorry, this is not possible: ([^.]*)\.",
        r"I have checked your record and our policy, and unfortunately I cannot do this for you, since \1.",
        message,
    )
    message = re.sub(
        r"(.*amount is )(\d+)( dollars)",
        r"Great news: I have looked at your record as well as at the rules that apply to it, and \1**$\2.00**, i.e. \2\3",
        message,
    )
    message = re.sub(
        r"I recommend (.*)\.",
        r"I have compared every option with your wishes, one by one. On that basis I recommend the **\1**, which meets them all.",
        message,
    )
    message = re.sub(
        r"No, it is (\d+); so says the (.*)\.",
        r"I understand why one may think so; however, I have looked it up, and that is not correct. According to the \2, it is \1.",
        message,
    )
    return f"Thank you so much for your patience and for this information! {message}"


@pytest.mark.parametrize("says", [terse, verbose])
@pytest.mark.parametrize("name", NAMES)
def test_honest_agents_of_few_and_of_many_words_solve_every_task(name: str, says: Callable[[str], str]) -> None:
    source = task_source(f"quintain/{name}")
    episodes = play(source, Speaking(says), source.tasks("held_out", 48, 11))
    failed = [episode.trajectory.task.id for episode in episodes if episode.result.status != "success"]
    assert failed == []


def numbers(low: int, high: int, at_once: int = 8) -> Iterator[str]:
    for first in range(low, high, at_once):
        yield " ".join(map(str, range(first, min(first + at_once, high))))


STATUSES = [business.closed for business in desk.desk_texts().businesses.values()]
CLOSED = " ".join(sorted(STATUSES))
ASKS_ALL = "What is your price, memory, colour, system, month, kind, region, level, cover, size, days, place, topic?"
FIXED = {
    "says everything": [
        f"What is your name, and why? {CLOSED}.",
        *(f"What is your name, and the reason? {said}. Anything else?" for said in numbers(2, 90)),
        *("Goodbye.",) * 4,
    ],
    "says one by one": [*(f"What is the reason? {said}." for said in numbers(2, 90, 1)), "Goodbye."],
    "refuses": [*(f"Why? It is {status}." for status in STATUSES), f"{CLOSED}. Goodbye.", "Goodbye."],
    "goes at once": ["Goodbye.", "Goodbye."],
    "agrees": ["I agree, that is right."] * 4,
}


def wins(reference: str, n: int, play: Callable[[Any, Task], Iterator[tuple[str, dict[str, Any]]]]) -> int:
    source, won = task_source(reference), 0
    for task in source.tasks("held_out", n, 2):
        environment = source.make()
        environment.reset(task)
        for tool, args in play(environment, task):
            step = act(environment, tool, **args)
            if step.terminated:
                won += step.reward == 1.0
                break
    return won


@pytest.mark.parametrize("text", FIXED)
def test_a_fixed_text_solves_nothing_at_the_desk(text: str) -> None:
    def play(environment: Any, task: Task) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from (("respond", {"message": message}) for message in FIXED[text])

    assert wins("quintain/conversation", 36, play) == 0


def test_transferring_every_customer_solves_nothing() -> None:
    def play(environment: Any, task: Task) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "respond", {"message": "What is the reason?"}
        yield "get_policy", {"topic": str(task.type)}
        yield "transfer_to_human_agents", {"reason": "x"}

    assert wins("quintain/conversation?difficulty=hard", 24, play) == 0


def test_repeating_record_and_policy_refuses_nothing() -> None:
    def play(environment: Any, task: Task) -> Iterator[tuple[str, dict[str, Any]]]:
        scenario = desk.build(desk.FAMILY.parse(task.id))
        (number,) = scenario.expected.sources & set(scenario.records)
        record = act(environment, "get_record", record_id=number).observations[0].content
        policy = act(environment, "get_policy", topic=str(task.type)).observations[0].content
        for message in ("What is the reason?", f"{record}. {policy}", *["Goodbye."] * 3):
            yield "respond", {"message": message}

    assert wins("quintain/conversation?types=change,cancel,refund", 36, play) == 0


def test_naming_every_option_recommends_none() -> None:
    def play(environment: Any, task: Task) -> Iterator[tuple[str, dict[str, Any]]]:
        scenario = advisory.build(advisory.FAMILY.parse(task.id))
        names = [entry.title for entry in scenario.library]
        yield "knowledge_base", {"query": "all options"}
        yield from [("respond", {"message": ASKS_ALL})] * 3
        yield "respond", {"message": f"I recommend {' and '.join(names)}."}
        yield "respond", {"message": " ".join(f"I recommend {name}." for name in names)}
        yield "submit", {"option": scenario.expected.submission["option"]}

    assert wins("quintain/advisory", 24, play) == 0


@pytest.mark.parametrize("words", ["", "No, that is not so: it is ", "You are right, it is "])
def test_naming_every_number_settles_no_claim(words: str) -> None:
    def play(environment: Any, task: Task) -> Iterator[tuple[str, dict[str, Any]]]:
        scenario = discussion.build(discussion.FAMILY.parse(task.id))
        values = [claim.truth for claim in scenario.claims]
        values += [int(rival) for rival in scenario.claims[0].rivals if isinstance(rival, int)]
        for claim in scenario.claims:
            yield "knowledge_base", {"query": claim.point}
        sources = "Stream Register, Hydro Yearbook, Parish Roll, Borough Report"
        for first in (0, 3, 6):
            said = " ".join(map(str, values[first : first + 6]))
            yield "respond", {"message": f"{words}{said}; {sources}."}
        yield "submit", {"agreed": {claim.point: claim.truth for claim in scenario.claims}}

    assert wins("quintain/discussion", 24, play) == 0
