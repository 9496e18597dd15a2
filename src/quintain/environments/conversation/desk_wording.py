"""The support desk's customers, goods and rules as data, in the words of each split."""

from __future__ import annotations

from typing import NamedTuple

from quintain.environments.conversation.scenario import FactKind


class Business(NamedTuple):
    """What a record is about."""

    noun: str
    prefix: str
    """Of the ids of its records."""
    open: str
    """Status in which it can be changed."""
    closed: str
    items: dict[str, tuple[str, ...]]
    field: str
    """The field that customers want to change."""
    values: dict[str, tuple[str, ...]]
    change: FactKind
    """The value that they want it to have."""
    detail: str
    """The field that customers ask for."""
    wonders: FactKind
    wants_change: FactKind


def _wish(train: str, held_out: str) -> FactKind:
    return FactKind("wish", "what I want", "help problem wish want matter issue about assist do", train, held_out)


BUSINESSES = (
    Business(
        *("order", "A", "processing", "shipped"),
        {
            "train": ("red lamp", "oak table", "steel kettle", "blue kite", "wool coat", "glass bowl", "paper lantern"),
            "held_out": ("brass clock", "green tent", "silk scarf", "stone vase", "cork board", "tin whistle"),
        },
        "address",
        {
            "train": ("5 Oak Street", "12 Hill Road", "8 Lake Lane", "31 Mill Way", "7 Church Square", "19 Park Row"),
            "held_out": ("4 Elm Close", "27 Bridge Gate", "16 Harbour Walk", "9 Castle Mews", "22 Forge Alley"),
        },
        FactKind(
            "choice",
            "the new address",
            "new address street where change",
            "The new address is {value}.",
            "Send it to {value} now.",
        ),
        "arrives_in_days",
        _wish("I want to know in how many days my order arrives.", "How many days will my order still be on its way?"),
        _wish("I want to change the address of my order.", "My order has to go to another address."),
    ),
    Business(
        *("booking", "B", "confirmed", "begun"),
        {
            "train": (
                "room in Hotel Astra",
                "cabin at Lake Mora",
                "seat to Velden",
                "boat on the Sill",
                "tour of Karst",
            ),
            "held_out": ("suite in Villa Orsa", "hut on Mount Pell", "berth to Norrin", "bus to Tarvo"),
        },
        "date",
        {
            "train": ("3 May", "14 May", "9 June", "21 June", "6 July", "28 July", "12 August"),
            "held_out": ("4 September", "17 September", "8 October", "25 October", "11 November"),
        },
        FactKind(
            "choice",
            "the new date",
            "new date day when change",
            "The new date is {value}.",
            "Put it on {value} instead.",
        ),
        "place_number",
        _wish("I want to know the place number of my booking.", "Which place number does my booking have?"),
        _wish("I want to change the date of my booking.", "My booking has to be on another date."),
    ),
    Business(
        *("subscription", "C", "active", "ended"),
        {
            "train": ("Sport Weekly", "Garden Post", "City Radio", "Chess Club", "Film Box", "Daily Note"),
            "held_out": ("Ocean Review", "Jazz Stream", "Puzzle Hour", "Mountain Mail"),
        },
        "plan",
        {
            "train": ("basic", "family", "student", "premium", "duo"),
            "held_out": ("silver", "gold", "junior", "senior", "weekend"),
        },
        FactKind("choice", "the new plan", "new plan change", "The new plan is {value}.", "Make it the plan {value}."),
        "renews_in_days",
        _wish("I want to know in how many days my subscription renews.", "How many days until my subscription renews?"),
        _wish("I want to change the plan of my subscription.", "My subscription has to run on another plan."),
    ),
)

CANCEL = {
    business.noun: _wish(f"I want to cancel my {business.noun}.", f"My {business.noun} has to be called off.")
    for business in BUSINESSES
}
REFUND = _wish("I want my money back for my order.", "I would like to be paid back for my order.")
VAGUE = FactKind(
    "opening", "", "", "I have something to settle about my {value}.", "There is a matter with my {value}."
)

NUMBER = FactKind("number", "the number", "number id reference code", "It is number {value}.", "The number is {value}.")
NO_NUMBER = FactKind(
    "number", "the number", "number id reference code", "I do not have the number.", "The number I cannot find."
)
NAME = FactKind("name", "my name", "name called", "My name is {value}.", "I am called {value}.")
ITEM = FactKind(
    "item", "what it is", "item product article ordered bought booked", "It is the {value}.", "It is about the {value}."
)
REASON = FactKind(
    "reason",
    "the reason",
    "reason why happened wrong return broken damaged condition late unwanted",
    "The reason is that it is {value}.",
    "It is {value}, that is the reason.",
)
METHOD = FactKind(
    "choice",
    "how the money comes back",
    "card voucher method money receive refunded paid",
    "I want the money as {value}.",
    "Pay it back as {value}.",
)
METHODS = ("card", "voucher")

PEOPLE = {
    "train": (
        *("Ada", "Ben", "Clara", "David", "Emil", "Flora", "Hanna", "Ivan"),
        *("Miller", "Baker", "Fisher", "Cook", "Potter", "Carter"),
    ),
    "held_out": (
        *("Quentin", "Rosa", "Samuel", "Tilda", "Umar", "Vera", "Willem", "Zoe"),
        *("Novak", "Ortega", "Lindgren", "Okafor", "Tanaka", "Rossi"),
    ),
}
"""Eight first names and six last names of each split."""

POLICIES = {
    "question": "Questions: look into the customer's record and tell what stands there.",
    "change": (
        "Changes: only while the status is {open}. With any other status nothing is changed; tell the customer the status. "
        "A change costs {fee} dollars: tell the customer."
    ),
    "cancel": (
        "Cancelling: only while the status is {open}. With any other status nothing is cancelled; tell the customer the "
        "status. With {days} or more days_left {high} percent of the price is paid back, with fewer {low} percent. Ask whether "
        "as card or voucher. Set status to cancelled, refund to the amount, refund_to to card or voucher. Tell the amount."
    ),
    "refund": (
        "Refunds: ask for the reason. broken: the whole price. late: {late} percent of the price. unwanted: the price less "
        "{fee} dollars, and only up to {days} days_since_delivery; after that nothing, tell the customer the {days} days. An "
        "amount above {limit}: transfer to a human agent and set nothing. Else ask whether as card or voucher, set refund to "
        "the amount and refund_to to card or voucher. Tell the amount."
    ),
}
