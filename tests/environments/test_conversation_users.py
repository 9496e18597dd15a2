"""The scripted user: what they understand, what they tell, how they lose patience; and what agents that do not ask get."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.environments.conversation import advisory, discussion, engineering
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.message_parsing import parse_message
from quintain.environments.conversation.scenario import Scenario
from quintain.environments.conversation.user import PATIENCE, ScriptedUser, UserReply

MODULES: dict[str, Any] = {
    "conversation": desk,
    "engineering": engineering,
    "advisory": advisory,
    "discussion": discussion,
}
HARD = "conversation/train/change/hard/00001"
"""Hanna Cook's order A3113 goes to 8 Lake Lane, and then to 12 Hill Road; a change costs 6 dollars."""


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


@pytest.mark.parametrize(
    ("task_id", "question", "facts"),
    [
        ("conversation/train/change/hard/00001", "Hello! How may I assist you today?", "wish"),
        ("conversation/train/change/hard/00001", "Hi, what can I do for you?", "wish"),
        ("conversation/train/change/hard/00001", "Could you please provide your order number?", "number"),
        ("conversation/train/change/hard/00001", "May I have your order ID?", "number"),
        (
            "conversation/train/change/hard/00001",
            "No problem. Could I get your full name so that I can look it up?",
            "name",
        ),
        ("conversation/train/change/hard/00001", "Which item did you order?", "item"),
        ("conversation/train/change/hard/00001", "What would you like to change?", "choice"),
        ("conversation/train/change/hard/00001", "To which address shall we deliver?", "choice"),
        ("conversation/train/change/hard/00001", "I need your order number to proceed.", "number"),
        ("conversation/train/refund/medium/00001", "May I ask why you want a refund?", "wish reason"),
        ("conversation/train/refund/medium/00001", "What went wrong with the order?", "reason"),
        (
            "conversation/train/refund/medium/00001",
            "Would you prefer the refund to your card or as a voucher?",
            "choice",
        ),
        ("conversation/train/refund/medium/00001", "How would you like to receive the money?", "choice"),
        ("conversation/train/refund/medium/00001", "In what condition did it arrive?", "reason"),
        ("engineering/train/deployment/hard/00001", "How many users do you expect?", "users"),
        ("engineering/train/deployment/hard/00001", "Where are most of your users located?", "users country"),
        ("engineering/train/deployment/hard/00001", "How many replicas may fail at once?", "spare"),
        ("engineering/train/deployment/hard/00001", "Any availability requirements?", "spare"),
        ("engineering/train/backup/medium/00001", "How many hours of data loss are acceptable?", "loss"),
        ("engineering/train/backup/medium/00001", "How often should backups run?", "loss"),
        ("engineering/train/backup/medium/00001", "How long should backups be kept?", "keep"),
        ("engineering/train/backup/medium/00001", "What kind of data does it store?", "data"),
        ("engineering/train/incident/medium/00004", "What is the error message?", "code"),
        ("engineering/train/incident/medium/00004", "When did it start?", "since"),
        ("engineering/train/alert/medium/00001", "What problem should the alert watch for?", "harm"),
        ("engineering/train/alert/medium/00001", "At what value should it fire?", "limit"),
        ("engineering/train/alert/medium/00001", "Who should be notified?", "team"),
        ("advisory/train/laptop/hard/00001", "What is your budget?", "price"),
        ("advisory/train/laptop/hard/00001", "How much RAM do you need?", "memory"),
        ("advisory/train/laptop/hard/00001", "Which operating system do you prefer?", "system"),
        ("advisory/train/laptop/hard/00001", "What are your requirements?", ""),
        ("advisory/train/holiday/hard/00001", "How long would you like to stay?", "days"),
        ("advisory/train/holiday/hard/00001", "Beach or mountains?", "place"),
        ("advisory/train/holiday/hard/00001", "What meals do you want included?", "board"),
        ("advisory/train/course/hard/00001", "How many weeks can you spend?", "price weeks"),
        ("advisory/train/course/hard/00001", "Do you prefer online or evening classes?", "form"),
        ("advisory/train/insurance/hard/00001", "What sum should be covered?", "cover"),
        ("advisory/train/insurance/hard/00001", "What deductible would you accept?", "excess"),
        ("advisory/train/insurance/hard/00001", "Do you travel abroad with it?", "area"),
    ],
)
def test_the_same_thing_can_be_asked_in_many_ways(task_id: str, question: str, facts: str) -> None:
    asked = parse_message(question).asked
    assert [fact.name for fact in built(task_id).facts if not fact.words.isdisjoint(asked)] == facts.split()


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


def test_an_easy_user_lists_what_can_be_asked() -> None:
    user = ScriptedUser(built("conversation/train/refund/easy/00002"))
    said = hears(user, "Guten Tag")
    assert said.text == (
        "Sorry, I do not understand. You can ask me about: my name, what it is, how the money comes back."
    )


def test_a_refused_customer_asks_for_an_exception_once() -> None:
    scenarios = (built(f"conversation/held_out/cancel/hard/{number:05d}") for number in range(200))
    user = ScriptedUser(next(scenario for scenario in scenarios if scenario.insists))
    assert "some way around that rule?" in hears(user, "It is over. Goodbye.", told_now=True).text
    assert hears(user, "No. Goodbye.").leaves


@pytest.mark.parametrize("difficulty", PATIENCE)
@pytest.mark.parametrize("name", MODULES)
def test_patience_ends(name: str, difficulty: str) -> None:
    module = MODULES[name]
    user = ScriptedUser(module.build(module.FAMILY.parse(f"{name}/train/{module.FAMILY.types[0]}/{difficulty}/00007")))
    said = [hears(user, "Lorem ipsum dolor.") for _ in range(PATIENCE[difficulty])]
    assert [one.leaves for one in said] == [False] * (PATIENCE[difficulty] - 1) + [True]
    assert said[-1].text == "This leads nowhere. Goodbye."


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
