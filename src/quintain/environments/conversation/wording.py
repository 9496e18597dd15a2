"""How users speak, in each split in other words."""

from __future__ import annotations

from typing import NamedTuple


class Manner(NamedTuple):
    """What users say besides facts."""

    lost: str
    """They did not understand."""
    ask_about: str
    """What they can be asked about, with `{labels}`; patient users say so."""
    ask_clearly: str
    flood: str
    vague: str
    """Asked for the first time for something that they have not thought about, with `{label}`."""
    corrects: str
    noted: str
    insists: str
    hurry: str
    """Before what impatient users say."""
    nothing_more: str
    thanks: str
    leaves: str
    """Their patience is at its end."""
    stands: str
    """They were told that they are wrong, and are not."""
    what_then: str
    """They were told that they are wrong, and not what is right."""
    source: str
    concedes: str
    agreed: str
    next: str
    all_said: str


MANNERS = {
    "train": Manner(
        lost="Sorry, I do not understand.",
        ask_about="You can ask me about: {labels}.",
        ask_clearly="Please ask me one clear question.",
        flood="So many numbers. Which one do you mean?",
        vague="Hm, {label}? I have not thought about that.",
        corrects="Wait, I have to correct myself.",
        noted="I see.",
        insists="Can you not make an exception for me?",
        hurry="Quickly, please.",
        nothing_more="No, nothing else.",
        thanks="Thank you. Goodbye.",
        leaves="This leads nowhere. Goodbye.",
        stands="I am sure of it. Look it up again.",
        what_then="What is it then?",
        source="Where does that stand?",
        concedes="You are right, I give in.",
        agreed="Good, so we agree.",
        next="Next point:",
        all_said="That was all. Please write down what we agreed on.",
    ),
    "held_out": Manner(
        lost="Pardon? That makes no sense to me.",
        ask_about="What I can tell you: {labels}.",
        ask_clearly="One plain question at a time would help me.",
        flood="That is a heap of figures. What exactly are you saying?",
        vague="Well, {label}, that is hard to say.",
        corrects="No, hold on, forget what I said before.",
        noted="Understood.",
        insists="Surely there is some way around that rule?",
        hurry="I have little time.",
        nothing_more="That is all there is.",
        thanks="Many thanks, that is everything. Bye.",
        leaves="I have had enough of this. Bye.",
        stands="No, I know that for certain. Check once more.",
        what_then="And what would be right?",
        source="Who says so? Name the source.",
        concedes="Fine, then I was mistaken.",
        agreed="Glad that you see it as I do.",
        next="And another thing:",
        all_said="I have nothing else. Please put our result in writing.",
    ),
}
