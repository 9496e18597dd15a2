"""`quintain/conversation` and its siblings: scenarios, splits and verdicts. What all families share is in `test_families`."""

from __future__ import annotations

import pytest

from playing import call, start
from quintain.environments.conversation import advisory, discussion, engineering
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.scenario import Scenario
from quintain.environments.registry import task_source
from quintain.errors import InvalidInput
from quintain.records.protocols import TimeStep
from quintain.records.trajectory import Action

BUILDERS = {"conversation": desk, "engineering": engineering, "advisory": advisory, "discussion": discussion}
CANCEL = "conversation/train/cancel/medium/00001"
"""C1179 costs 80 and has 18 days left. With 21 or more days 90 percent is paid back, with fewer 10: that is 8 dollars."""
DEPLOYMENT = "engineering/train/deployment/hard/00001"
"""2270 users, then 2480, at 100 a replica, 2 to spare, Kenya from south-2, port 5319."""
LAPTOP = "advisory/train/laptop/hard/00001"
"""At most 1350, 8 gigabytes or more, red, Windows, then Linux: Orchid, then Falcon."""
RIVERS = "discussion/train/rivers/medium/00001"
"""39 bridges over Lohne, which is right; Tisso is 20 metres deep, in truth 10, and 95 metres wide, in truth 224."""


def say(message: str) -> Action:
    return call("respond", message=message)


def played(task_id: str, *actions: Action) -> TimeStep:
    """The last step; none before it may end the talk."""
    talk = start(task_id)
    steps = [talk.step([action]) for action in actions]
    assert not any(step.terminated for step in steps[:-1])
    return steps[-1]


def built(task_id: str) -> Scenario:
    module = BUILDERS[task_id.partition("/")[0]]
    scenario: Scenario = module.build(module.FAMILY.parse(task_id))
    return scenario


@pytest.mark.parametrize("name", BUILDERS)
def test_openings_hide_facts_and_the_splits_share_no_sentence_of_a_user_and_no_name(name: str) -> None:
    said: dict[str, set[str]] = {}
    for split in ("train", "held_out"):
        scenarios = [built(str(task.id)) for task in task_source(f"quintain/{name}").tasks(split, 96, 0)]
        for scenario in scenarios:
            hidden = [fact.sentence for fact in scenario.facts if fact.name not in scenario.opened]
            assert not any(sentence in scenario.opening for sentence in hidden)
            assert name != "discussion" or {claim.is_right for claim in scenario.claims} == {True, False}
        said[split] = {scenario.opening for scenario in scenarios}
        said[split] |= {fact.sentence for scenario in scenarios for fact in scenario.facts}
        said[split] |= {claim.sentence for scenario in scenarios for claim in scenario.claims}
        said[split] |= {str(record["customer"]) for scenario in scenarios for record in scenario.records.values()}
    assert not said["train"] & said["held_out"]


SET = [
    call("update_record", record_id="C1179", field="refund", value=8),
    call("update_record", record_id="c1179", field="refund_to", value="Card"),
    call("update_record", record_id="C1179", field="status", value="cancelled"),
]
READ = (call("get_record", record_id="c1179"), call("get_policy", topic="cancel"))
ASK = say("Shall I pay it back to your card, or as a voucher?")
TELL = say("It is cancelled, and you get $8.00 back. Goodbye!")


def test_a_desk_that_asks_acts_and_tells_has_served_its_customer() -> None:
    step = played(CANCEL, ASK, *READ, *SET, TELL)
    assert (step.reward, step.message) == (1.0, "Thank you. Goodbye.")
    assert step.info["metrics"] == {"asked": 1.0, "read": 1.0, "told": 1.0, "state": 1.0, "misled": 0.0}


@pytest.mark.parametrize(
    ("actions", "part"),
    [
        ((*SET, TELL), "asked"),
        ((ASK, *SET, say("It is done. Goodbye!")), "told"),
        ((ASK, *SET, say("You get 1 2 3 4 5 6 7 8 9 dollars back. Goodbye!")), "told"),
        ((ASK, TELL), "state"),
        ((ASK, *SET[:2], TELL), "state"),
        ((ASK, *SET, call("update_record", record_id="C2875", field="status", value="cancelled"), TELL), "state"),
        ((ASK, *SET, call("update_record", record_id="C1179", field="refund", value=72), TELL), "state"),
        ((ASK, *SET, say("You get 8 back."), call("transfer_to_human_agents", reason="why not")), "state"),
    ],
)
def test_each_part_of_serving_a_customer_counts(actions: tuple[Action, ...], part: str) -> None:
    step = played(CANCEL, *READ, *actions)
    assert (step.reward, step.terminated) == (0.0, True)
    metrics = step.info["metrics"]
    assert [name for name in ("asked", "read", "told", "state") if metrics[name] < 1] == [part]


@pytest.mark.parametrize(
    ("actions", "short"),
    [
        ((ASK, *SET, TELL), {"read", "told"}),
        ((ASK, *SET, READ[0], TELL), {"read", "told"}),
        ((ASK, *SET, say("You get 8 back."), *READ, say("Goodbye!")), {"told"}),
        ((ASK, *READ, *SET, say("You get 8 or 72 dollars back. Goodbye!")), {"told"}),
        ((ASK, *READ, *SET, say("It is 3, 4, 5."), say("Or 6, 7 or 9."), TELL), {"told"}),
    ],
)
def test_a_desk_statement_counts_after_a_lookup_and_without_rivals(
    actions: tuple[Action, ...], short: set[str]
) -> None:
    step = played(CANCEL, *actions)
    metrics = step.info["metrics"]
    assert (step.reward, {name for name in ("asked", "read", "told", "state") if metrics[name] < 1}) == (0.0, short)


def test_a_plan_counts_as_the_client_last_wanted_it() -> None:
    asked = (say("How many users are there?"), say("Where are your customers?"), say("How many may fail?"))
    plan = {"replicas": 27, "region": "south-2", "port": 5319}
    before = {**plan, "replicas": 25}
    for same in (plan, {**plan, "port": "5319", "region": "South-2"}):
        assert played(DEPLOYMENT, *asked, call("submit", fields=same)).reward == 1.0
    assert played(DEPLOYMENT, *asked, call("submit", fields=before)).reward == 0.0
    at_once = say("How many users are there, where are your customers, and how many may fail?")
    assert played(DEPLOYMENT, at_once, call("submit", fields=before)).reward == 1.0  # the client has not thought again
    unasked = played(DEPLOYMENT, call("submit", fields=before))
    assert (unasked.reward, unasked.info["metrics"]["state"], unasked.info["metrics"]["asked"]) == (0.0, 1.0, 0.0)


def test_advice_succeeds_after_all_wishes_are_asked_and_the_option_is_recommended() -> None:
    asked = [call("knowledge_base", query="all")]
    asked += [say(f"What about the {name}?") for name in ("price", "colour", "system", "memory")]
    again = say("How much memory should it have?")  # this client answers the first time that they do not know
    advice, submit = say("I recommend the Falcon."), call("submit", option="falcon")
    assert played(LAPTOP, *asked, again, advice, submit).reward == 1.0
    assert played(LAPTOP, *asked, again, submit).info["metrics"]["told"] == 0.0
    assert played(LAPTOP, *asked, advice, submit).info["metrics"]["asked"] == 0.75
    for clear in ("Not the Orchid. I recommend the Falcon.", "Orchid costs more. My recommendation is Falcon."):
        assert played(LAPTOP, *asked, again, say(clear), submit).reward == 1.0
    both = "I recommend Falcon. I recommend Orchid."
    for vague in (both, "I do not recommend Falcon, nor Orchid.", "Falcon, Orchid."):
        assert played(LAPTOP, *asked, again, say(vague), submit).info["metrics"]["told"] == 0.0
    assert played(LAPTOP, *asked, again, advice, say("I recommend Orchid."), submit).info["metrics"]["told"] == 0.0
    assert played(LAPTOP, *asked[1:], again, advice, submit).info["metrics"]["told"] == 0.0
    before = call("submit", option="Orchid")
    assert played(LAPTOP, *asked, again, say("I recommend Orchid."), before).reward == 0.0


def test_a_discussion_counts_when_wrong_claims_were_corrected_and_right_ones_were_not() -> None:
    agreed = {"Lohne bridges": 39, "Tisso depth": 10, "Tisso width": 224}
    right, depth, width = map(say, ("You are right.", "No, it is 10 metres.", "That isn't so: it is 224 metres wide."))
    submit = call("submit", agreed=agreed)
    read = [call("knowledge_base", query=point) for point in agreed]
    assert played(RIVERS, *read, right, depth, width, submit).reward == 1.0
    assert played(RIVERS, right, depth, width, submit).info["metrics"]["told"] == 0.0
    assert played(RIVERS, *read[1:], right, depth, width, submit).info["metrics"]["read"] == pytest.approx(2 / 3)
    assert played(RIVERS, *read, right, depth, submit).info["metrics"]["told"] == 0.5
    dump = say("No, it is 224, 10, 39.")
    assert played(RIVERS, *read, right, dump, dump, submit).info["metrics"]["told"] == 0.0
    misled = played(RIVERS, *read, right, say("Yes, I agree."), width, say("It is 10 metres deep, though."), submit)
    assert (misled.reward, misled.info["metrics"]["misled"]) == (0.0, 1.0)
    slip = say("No, it is 39 metres.")
    assert played(RIVERS, *read, right, slip, depth, width, submit).reward == 1.0
    assert played(RIVERS, *read, right, slip, slip, depth, width, submit).info["metrics"]["misled"] == 1.0  # guesses
    wrong = call("submit", agreed={**agreed, "Tisso depth": 20})
    assert played(RIVERS, *read, right, depth, width, wrong).info["metrics"]["state"] == 0.0


def test_a_knowledge_base_finds_documents_by_words_or_reports_nothing() -> None:
    found = played(RIVERS, call("knowledge_base", query="How many BRIDGES has the Lohne?"))
    assert str(found.observations[0].content).splitlines()[0] == "Lohne bridges: 39 bridges (source: River Atlas)"
    nothing = played(RIVERS, call("knowledge_base", query="zebra"))
    assert nothing.observations[0].content == "Nothing is known about that."
    records = played(CANCEL, call("find_records", name="ada fisher"))
    assert records.observations[0].content == "C1179 City Radio\nC5143 Sport Weekly"
    assert played(CANCEL, call("find_records", name="Ada")).observations[0].content == "No customer has this name."


def test_options_of_the_user_are_checked() -> None:
    for wrong, message in (("user=model", "'scripted' or 'endpoint:NAME'"), ("user_temperature=3", "or equal to 2")):
        with pytest.raises(InvalidInput, match=message):
            task_source(f"quintain/conversation?{wrong}")
