"""The scripted user: what they understand, what they tell, how they lose patience; and what agents that do not ask get."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.environments.conversation import advisory, discussion, engineering
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.scenario import Scenario
from quintain.environments.conversation.user import PATIENCE, ScriptedUser, UserReply, parse_message

MODULES: dict[str, Any] = {
    "conversation": desk,
    "engineering": engineering,
    "advisory": advisory,
    "discussion": discussion,
}
HARD = "conversation/train/change/hard/00001"
"""Hanna Cook's order A3113 goes to 8 Lake Lane, and then to 12 Hill Road; a change costs 6 dollars."""
QUESTIONS = {
    HARD: {
        "Hello! How may I assist you today?": "wish",
        "Hi, what can I do for you?": "wish",
        "Could you please provide your order number?": "number",
        "May I have your order ID?": "number",
        "No problem. Could I get your full name so that I can look it up?": "name",
        "Which item did you order?": "item",
        "What would you like to change?": "choice",
        "To which address shall we deliver?": "choice",
        "I need your order number to proceed.": "number",
    },
    "conversation/train/refund/medium/00001": {
        "May I ask why you want a refund?": "wish reason",
        "What went wrong with the order?": "reason",
        "Would you prefer the refund to your card or as a voucher?": "choice",
        "How would you like to receive the money?": "choice",
        "In what condition did it arrive?": "reason",
    },
    "engineering/train/deployment/hard/00001": {
        "How many users do you expect?": "users",
        "Where are most of your users located?": "users country",
        "How many replicas may fail at once?": "spare",
        "Any availability requirements?": "spare",
    },
    "engineering/train/backup/medium/00001": {
        "How many hours of data loss are acceptable?": "loss",
        "How often should backups run?": "loss",
        "How long should backups be kept?": "keep",
        "What kind of data does it store?": "data",
    },
    "engineering/train/incident/medium/00004": {
        "What is the error message?": "code",
        "When did it start?": "since",
    },
    "engineering/train/alert/medium/00001": {
        "What problem should the alert watch for?": "harm",
        "At what value should it fire?": "limit",
        "Who should be notified?": "team",
    },
    "advisory/train/laptop/hard/00001": {
        "What is your budget?": "price",
        "How much RAM do you need?": "memory",
        "Which operating system do you prefer?": "system",
        "What are your requirements?": "",
    },
    "advisory/train/holiday/hard/00001": {
        "How long would you like to stay?": "days",
        "Beach or mountains?": "place",
        "What meals do you want included?": "board",
    },
    "advisory/train/course/hard/00001": {
        "How many weeks can you spend?": "price weeks",
        "Do you prefer online or evening classes?": "form",
    },
    "advisory/train/insurance/hard/00001": {
        "What sum should be covered?": "cover",
        "What deductible would you accept?": "excess",
        "Do you travel abroad with it?": "area",
    },
}
"""Task -> question -> the facts that it asks for."""


def built(task_id: str) -> Scenario:
    module = MODULES[task_id.partition("/")[0]]
    scenario: Scenario = module.build(module.FAMILY.parse(task_id))
    return scenario


def hears(user: ScriptedUser, message: str, *, told_now: bool = False) -> UserReply:
    return user.answer(message, parse_message(message), told_now)


@pytest.mark.parametrize(
    ("message", "asks"),
    [
        ("What is your order number?", True),
        ("Please tell me the number of it", True),
        ("I need your number.", True),
        ("could i have the NUMBER", True),
        ("The number is gone. What a pity?", False),
        ("I have your number.", False),
        ("Is there anything else, such as another number?", False),
        ("Wie ist Ihre Bestellung?", False),
    ],
)
def test_a_word_is_asked_for_where_its_sentence_asks(message: str, asks: bool) -> None:
    assert ("number" in parse_message(message).asked) is asks


@pytest.mark.parametrize("task_id", QUESTIONS)
def test_the_same_thing_can_be_asked_in_many_ways(task_id: str) -> None:
    for question, facts in QUESTIONS[task_id].items():
        asked = parse_message(question).asked
        assert [fact.name for fact in built(task_id).facts if not fact.words.isdisjoint(asked)] == facts.split(), (
            question
        )


def test_values_are_heard_as_numbers_and_as_whole_words() -> None:
    heard = parse_message(
        "You get $1,250.00 back for A1042, on 3\u00a0May at 7\u2019s; that isn\u2019t 12.5 or .5 or x9."
    )
    assert heard.numbers == {1250.0, 3.0, 7.0, 12.5}
    assert heard.names(1250)
    assert heard.names("3 May")
    assert not heard.names("May a")
    assert not heard.names("Ma")
    assert not heard.names("")
    assert heard.disagrees
    assert not parse_message("9 " * 9).is_flood
    flood = parse_message(" ".join(map(str, range(9))))
    assert flood.is_flood
    assert flood.numbers == frozenset()


def test_a_hurried_customer_tells_what_is_asked_for_and_thinks_again_at_the_end() -> None:
    user = ScriptedUser(built(HARD))
    said = [
        hears(user, message, told_now="6" in message).text
        for message in (
            "I will gladly look into it.",
            "How can I help you?",
            "What is the number, and what is your name?",
            "What is the new address?",
            "Where, please?",
            "It is done, for 6 dollars.",
            "Anything else?",
            "Done. What is the new address again?",
            "Goodbye!",
        )
    ]
    assert said == [
        "Quickly, please. Sorry, I do not understand. Please ask me one clear question.",
        "I want to change the address of my order.",
        "It is number A3113. My name is Hanna Cook.",
        "The new address is 8 Lake Lane.",
        "The new address is 8 Lake Lane.",
        "I see.",
        "Wait, I have to correct myself. The new address is 12 Hill Road.",
        "The new address is 12 Hill Road.",
        "Thank you. Goodbye.",
    ]
    assert user.corrected


def test_an_easy_user_lists_what_can_be_asked_and_a_refused_one_asks_for_an_exception_once() -> None:
    listed = "Sorry, I do not understand. You can ask me about: my name, what it is, how the money comes back."
    assert hears(ScriptedUser(built("conversation/train/refund/easy/00002")), "Guten Tag").text == listed
    scenarios = (built(f"conversation/held_out/cancel/hard/{number:05d}") for number in range(200))
    user = ScriptedUser(next(scenario for scenario in scenarios if scenario.insists))
    assert "some way around that rule?" in hears(user, "It is over. Goodbye.", told_now=True).text
    assert hears(user, "No. Goodbye.").leaves


@pytest.mark.parametrize("difficulty", PATIENCE)
def test_patience_ends(difficulty: str) -> None:
    user = ScriptedUser(built(f"conversation/train/cancel/{difficulty}/00007"))
    said = [hears(user, "Lorem ipsum dolor.") for _ in range(PATIENCE[difficulty])]
    assert [one.leaves for one in said] == [False] * (PATIENCE[difficulty] - 1) + [True]
    assert said[-1].text == "This leads nowhere. Goodbye."
    client = ScriptedUser(built("advisory/train/laptop/hard/00001"))
    again = [hears(client, "Is there anything else?").leaves for _ in range(4)]
    assert again == [False, False, False, True], "to ask for more again and again costs patience too"


def test_who_is_right_stays_with_it_and_who_is_wrong_wants_to_know_better() -> None:
    user = ScriptedUser(built("discussion/train/rivers/medium/00001"))
    assert hears(user, "No, that is wrong.").text == "I am sure of it. Look it up again."
    assert hears(user, "No, not 39.").text == "I am sure of it. Look it up again."
    assert hears(user, "Indeed, there are 39.").text == "Good, so we agree. Next point: Tisso is 20 metres deep."
    assert hears(user, "That is wrong.").text == "What is it then?"
    assert hears(user, "It is 10.").text == "You are right, I give in. Next point: Tisso is 95 metres wide."
    assert not user.misled
    assert hears(user, "You are right.").text.endswith("That was all. Please write down what we agreed on.")
    assert user.misled


def test_a_hard_opponent_wants_the_source() -> None:
    key = discussion.FAMILY.parse("discussion/held_out/foods/hard/00011")
    scenario = discussion.build(key)
    user = ScriptedUser(scenario)
    for claim in scenario.claims:
        if not claim.is_right:
            assert hears(user, f"No, it is {claim.truth}.").text.endswith("Who says so? Name the source.")
            assert "Fine, then I was mistaken." in hears(user, f"The {claim.source} says so.").text
        else:
            hears(user, "I agree.")
    assert not user.misled


@given(
    st.sampled_from(sorted(MODULES)),
    st.integers(0, 30),
    st.lists(
        st.text(max_size=200)
        | st.sampled_from(["number?", "What about the price?", "users? where?", "x? " * 600, "bye"]),
        max_size=8,
    ),
)
def test_whatever_is_said_the_user_answers_and_tells_only_what_was_asked(
    name: str, number: int, messages: list[str]
) -> None:
    module = MODULES[name]
    scenario = module.build(module.FAMILY.parse(f"{name}/train/{module.FAMILY.types[0]}/hard/{number:05d}"))
    user = ScriptedUser(scenario)
    asked: set[str] = set()
    for message in messages:
        heard = parse_message(message)
        asked |= heard.asked
        said = user.answer(message, heard, False)
        assert said.text
        for fact in scenario.facts:
            if fact.words.isdisjoint(asked):
                assert fact.sentence not in said.text
                assert (fact.correction or fact.sentence) not in said.text
                assert fact.name not in user.known
