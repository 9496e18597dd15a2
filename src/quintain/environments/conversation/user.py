"""The user of a talk: the protocol of all users, and the scripted one, who follows rules and needs no model.

The scripted user tells what is asked for and nothing else. A correction comes later than what it corrects, one claim of a
discussion after the other; messages that lead to nothing cost patience, and who has none left goes. Same scenario, same
messages, same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from quintain.environments.conversation.hearing import Heard
from quintain.environments.conversation.scenario import PATIENCE, Claim, Fact, Scenario
from quintain.environments.conversation.wording import MANNERS

MOST_WRONG = 1
"""Messages of a discussion that hold a wrong number against a claim: one is a slip, more are guesses."""


class Said(NamedTuple):
    """What a user answers."""

    text: str
    left: bool = False
    """Is the talk over for them?"""


class User(Protocol):
    """Whoever the agent talks to."""

    known: set[str]
    """Facts that the agent was told so far."""
    corrected: bool
    """Did the user correct themselves?"""
    misled: bool
    """Did the agent agree with something wrong, or hold other numbers of the library against a claim again and again?"""
    is_certain: bool
    """Is it certain what they told? A model says things in words of its own."""

    def hear(self, message: str, heard: Heard, told_now: bool) -> Said:
        """Answer a message.

        Args:
            message: As the agent wrote it.
            heard: What it says.
            told_now: Does it say something that the user had to be told, and was not told yet?
        """

    def costs(self) -> Mapping[str, float]:
        """What this user has used up so far, as metrics of the episode."""

    def close(self) -> None:
        """Free what is held."""


class ScriptedUser:
    """A user who follows rules."""

    def __init__(self, scenario: Scenario) -> None:
        self.known: set[str] = set(scenario.opened)
        self.corrected = False
        self.misled = False
        self.is_certain = True
        self._scenario = scenario
        self._manner = MANNERS[scenario.split]
        self._patience = PATIENCE[scenario.difficulty]
        self._vague = set(scenario.vague)
        self._insists = scenario.insists
        self._claim = 0
        self._wrong = 0
        self._wants_source = True
        self._hurries = scenario.difficulty == "hard"
        # Facts that were told, as they stand to be corrected; those of the opening are none of them.
        self._to_correct = next((fact for fact in scenario.facts if fact.corrected), None)

    def hear(self, message: str, heard: Heard, told_now: bool) -> Said:
        """Answer what is asked, go on with the discussion, or say that nothing was understood."""
        parts, moved = self._answer(heard)
        if self._scenario.claims:
            more, on = self._discuss(heard)
            parts, moved = [*parts, *more], moved or on
        elif not parts and told_now:
            parts = [self._manner.insists if self._insists else self._manner.noted]
            if heard.ends and self._scenario.records and not self._insists:
                return Said(self._manner.thanks, left=True)
            self._insists = False
        elif not parts and heard.ends:
            if self._scenario.records:
                return Said(self._manner.thanks, left=True)
            parts = [self._manner.nothing_more]
        if not (moved or told_now):
            self._patience -= 1
            if self._patience <= 0:
                return Said(self._manner.leaves, left=True)
        return Said(self._spoken(parts or [self._puzzled(heard)]))

    def costs(self) -> Mapping[str, float]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing is held."""

    def _answer(self, heard: Heard) -> tuple[list[str], bool]:
        """What is told of what is asked, and whether it is more than was known."""
        due = self._due(heard)
        asked = [fact for fact in self._scenario.facts if not fact.words.isdisjoint(heard.asked)]
        new = [fact for fact in asked if fact.name not in self.known]
        parts, moved = [], bool(new)
        for fact in new or asked:  # what is known already is said again where nothing else is asked
            if fact.name in self._vague:
                self._vague.remove(fact.name)
                parts.append(self._manner.vague.format(label=fact.label))
                continue
            self.known.add(fact.name)
            if fact is not due:
                parts.append(fact.corrected if self.corrected and fact.corrected else fact.says)
        if due is not None:
            assert due.corrected is not None
            self.corrected, moved = True, True
            parts += [self._manner.corrects, due.corrected]
        return parts, moved

    def _due(self, heard: Heard) -> Fact | None:
        """The fact that is corrected now: one that was told before, in a talk that ends by goodbye when the agent says it."""
        fact = self._to_correct
        if fact is None or fact.name not in self.known or (self._scenario.records and not heard.ends):
            return None
        self._to_correct = None
        return fact

    def _discuss(self, heard: Heard) -> tuple[list[str], bool]:
        """What is said about the claim in question, and whether the discussion went on."""
        manner, claims = self._manner, self._scenario.claims
        if self._claim >= len(claims):
            return [manner.all_said], False
        claim = claims[self._claim]
        if heard.names_only(claim.truth, claim.rivals) and not (claim.is_right and heard.disagrees):
            if not claim.is_right and claim.source and self._wants_source and not heard.names(claim.source):
                self._wants_source = False
                return [manner.source], True
            return self._settled(manner.agreed if claim.is_right else manner.concedes)
        if claim.source and not self._wants_source and heard.names_only(claim.source, claim.rivals):
            return self._settled(manner.concedes)
        if heard.agrees:
            self.misled = self.misled or not claim.is_right
            return self._settled(manner.agreed)
        self._wrong += any(map(heard.names, claim.rivals))
        self.misled = self.misled or self._wrong > MOST_WRONG
        if heard.disagrees:
            return [manner.stands if claim.is_right else manner.what_then], False
        return [], False

    def _settled(self, reaction: str) -> tuple[list[str], bool]:
        self._claim, self._wants_source = self._claim + 1, True
        left: tuple[Claim, ...] = self._scenario.claims[self._claim :]
        return [reaction, *((self._manner.next, left[0].says) if left else (self._manner.all_said,))], True

    def _puzzled(self, heard: Heard) -> str:
        manner = self._manner
        if heard.is_flood:
            return manner.flood
        open_facts = [fact.label for fact in self._scenario.facts if fact.name not in self.known]
        if self._scenario.difficulty == "easy" and open_facts:
            return f"{manner.lost} {manner.ask_about.format(labels=', '.join(open_facts))}"
        return f"{manner.lost} {manner.ask_clearly}"

    def _spoken(self, parts: list[str]) -> str:
        hurry = [self._manner.hurry] if self._hurries else []
        self._hurries = False
        return " ".join([*hurry, *parts])
