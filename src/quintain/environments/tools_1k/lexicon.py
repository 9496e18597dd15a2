"""The vocabulary of tools and prompts: verbs, objects, parameters and their paraphrases."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

_TABLE = (
    (
        "calendar",
        "in the calendar",
        "meeting/get-together, appointment/date with somebody, reminder/nudge, deadline/due day, shift/working turn, "
        "holiday/day off, birthday/yearly anniversary, booking/reserved slot, interview/job talk, workshop/hands-on course",
    ),
    (
        "mail",
        "in the mailbox",
        "email/electronic letter, draft/unsent text, newsletter/circular, signature/closing line, attachment/enclosed piece, "
        "filter/sorting rule, mailbox/post tray, contact/known person, template/ready-made text, thread/exchange of letters",
    ),
    (
        "finance",
        "in the accounts",
        "invoice/bill, payment/money transfer, budget/spending plan, expense/outlay, refund/money back, payroll/wages run, "
        "loan/borrowed sum, receipt/proof of purchase, forecast/outlook on money, subscription/recurring charge",
    ),
    (
        "travel",
        "of a journey",
        "flight/plane trip, hotel/overnight stay, itinerary/route plan, visa/entry permit, rental_car/hired vehicle, "
        "train_ticket/rail fare, passport/travel document, cruise/sea voyage, excursion/day tour, luggage/suitcases",
    ),
    (
        "music",
        "in the music library",
        "playlist/row of songs, song/piece of music, album/record, concert/live show, lyric/words of a song, podcast/talk show, "
        "instrument/thing to play on, melody/tune, remix/new mix, soundtrack/film score",
    ),
    (
        "kitchen",
        "in the kitchen book",
        "recipe/cooking instruction, menu/list of dishes, grocery_list/things to buy, pantry_item/food in stock, "
        "meal_plan/eating schedule, diet/eating habit, spice/seasoning, cocktail/mixed drink, cake/sweet bake, leftover/remaining food",
    ),
    (
        "health",
        "in the health file",
        "prescription/medicine order, vaccination/jab, symptom/complaint, allergy/intolerance, workout/exercise session, "
        "sleep_log/nights record, therapy/course of treatment, diagnosis/finding of the doctor, blood_test/lab sample, wound/injury",
    ),
    (
        "home",
        "in the house",
        "thermostat/heating control, light_scene/room brightness setting, alarm/burglar warning, camera/video watch, "
        "door_lock/entrance bolt, sprinkler/lawn watering, vacuum_robot/floor cleaner, blind/window shade, doorbell/chime, "
        "power_meter/electricity counter",
    ),
    (
        "shop",
        "in the online shop",
        "order/purchase, coupon/discount code, wishlist/list of wants, review/buyer's opinion, basket/cart, parcel/delivery box, "
        "return_label/send-back slip, product/article for sale, gift_card/voucher, warranty/guarantee",
    ),
    (
        "project",
        "of a project",
        "ticket/reported issue, milestone/stage goal, sprint/two-week block, backlog/pile of open work, roadmap/long-term plan, "
        "risk/possible trouble, estimate/guess of effort, standup/morning round, retrospective/look back, stakeholder/interested party",
    ),
    (
        "code",
        "in the repository",
        "branch/line of development, commit/saved change, pull_request/merge proposal, release/published version, "
        "pipeline/build chain, snippet/piece of program, dependency/needed library, test_case/automatic check, changelog/news of versions, "
        "webhook/call-back address",
    ),
    (
        "data",
        "in the warehouse of data",
        "table/grid of rows, query/database question, dashboard/overview screen, chart/diagram, index/lookup structure, "
        "backup/safety copy, schema/field layout, report/written summary, dataset/body of samples, trigger/automatic reaction",
    ),
    (
        "documents",
        "in the document store",
        "contract/legal agreement, letter/written message, form/sheet to fill in, slide_deck/presentation, "
        "spreadsheet/calculation sheet, manual/user guide, certificate/official proof, memo/short notice, "
        "poster/wall picture, brochure/leaflet",
    ),
    (
        "photos",
        "in the photo archive",
        "photo/picture, portrait/likeness of a face, panorama/wide view, slideshow/row of images, thumbnail/small preview, "
        "watermark/owner's mark, frame/edging, collage/combined image, screenshot/capture of the screen, negative/undeveloped film",
    ),
    (
        "school",
        "at the school",
        "homework/task for home, exam/final check of knowledge, grade/mark, lesson/class hour, timetable/weekly plan of classes, "
        "essay/long composition, quiz/short test, textbook/study book, scholarship/study grant, attendance/list of those present",
    ),
    (
        "people",
        "of the staff",
        "vacancy/open position, applicant/candidate, onboarding/start of a newcomer, training/skill building, "
        "bonus/extra pay, promotion/step up, badge/staff pass, sick_note/illness slip, survey/set of questions, "
        "resignation/notice to leave",
    ),
    (
        "maps",
        "on the map",
        "route/way to go, landmark/well-known sight, parking_spot/place for the car, bus_stop/halt, trail/footpath, "
        "district/part of town, border/frontier line, coordinate/point on the globe, detour/way around, geofence/watched area",
    ),
    (
        "sports",
        "of the club",
        "match/game, tournament/cup, team/squad, referee/umpire, stadium/arena, season/year of play, league/division of clubs, "
        "trophy/prize cup, membership/belonging to the club, scoreboard/display of points",
    ),
    (
        "news",
        "in the news room",
        "article/written piece, headline/title line, column/regular comment, press_release/statement to reporters, "
        "correction/fixed error, poll/opinion count, feed/stream of stories, obituary/note of a death, "
        "cartoon/drawn joke, advert/paid notice",
    ),
    (
        "network",
        "in the network",
        "server/host machine, firewall_rule/traffic barrier, domain/web name, certificate_chain/trust path, vpn_tunnel/private line, "
        "router/packet forwarder, password/secret word, user_account/login, access_token/key for programs, incident/outage",
    ),
)


class Category(NamedTuple):
    """A group of tools."""

    place: str
    """The end of descriptions."""
    objects: dict[str, str]
    """Objects of its tools -> paraphrase."""


def _objects(pairs: str) -> dict[str, str]:
    return {name: other for name, _, other in (pair.partition("/") for pair in pairs.split(", "))}


CATEGORIES = {name: Category(place, _objects(pairs)) for name, place, pairs in _TABLE}


@dataclass(frozen=True)
class Verb:
    """The action of a tool."""

    name: str
    train: str
    """Paraphrase in training tasks."""
    held_out: str
    required: tuple[str, ...]
    """Names of the required parameters."""


VERBS = {
    verb.name: verb
    for verb in (
        Verb("create", "set up", "put together", ("title",)),
        Verb("delete", "get rid of", "wipe out", ("reference",)),
        Verb("update", "revise", "amend", ("reference", "title")),
        Verb("share", "pass on", "hand over", ("reference", "recipient")),
        Verb("export", "save", "pull out", ("reference", "format")),
        Verb("archive", "put away", "stow", ("reference",)),
        Verb("copy", "duplicate", "clone", ("reference", "copies")),
        Verb("track", "keep an eye on", "follow", ("reference", "days")),
        Verb("approve", "sign off", "give the green light to", ("reference", "budget")),
        Verb("rate", "judge", "assess", ("reference", "points")),
    )
}
VERBS_OF_CATEGORY = 5


@dataclass(frozen=True)
class Parameter:
    """A parameter of tools, and its phrases in prompts."""

    name: str
    type: str
    """JSON schema type."""
    about: str
    train: str
    held_out: str
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema."""
        choices = {"enum": list(self.choices)} if self.choices else {}
        return {"type": self.type, "description": self.about, **choices}


PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("title", "string", "Its name.", 'called "{}"', 'under the name "{}"'),
        Parameter("reference", "string", "Which one.", "with the reference {}", "that has the number {}"),
        Parameter("recipient", "string", "E-mail address.", "to be sent to {}", "so that {} gets it"),
        Parameter("format", "string", "Kind of file.", "as {}", "in the form of {}", ("pdf", "csv", "json", "html")),
        Parameter("copies", "integer", "How many.", "{} times", "making {} of it"),
        Parameter("days", "integer", "How long.", "for {} days", "over {} days"),
        Parameter("budget", "number", "At most so many euros.", "up to {} euros", "not above {} euros"),
        Parameter("points", "integer", "From 1 to 10.", "with {} points", "at {} out of 10"),
        Parameter("priority", "string", "How urgent.", "with {} priority", "at {} urgency", ("low", "normal", "high")),
        Parameter("date", "string", "Day, as YYYY-MM-DD.", "on {}", "dated {}"),
        Parameter("note", "string", "Remark.", 'with the note "{}"', 'adding the remark "{}"'),
        Parameter("notify", "boolean", "Tell all members?", "and notify everybody", "while telling all members"),
    )
}
OPTIONAL = ("priority", "date", "note", "notify", "budget")

OPENERS = {
    "train": ("Please", "I want you to", "Could you", "We have to"),
    "held_out": ("Kindly", "It is time to", "Somebody must"),
}
_WORDS = {
    "train": (("amber", "blue", "calm", "dark", "fresh"), ("harbour", "meadow", "signal", "garden", "tower", "bridge")),
    "held_out": (("quiet", "rapid", "silver", "tall"), ("valley", "window", "zebra", "yard")),
}
_PEOPLE = {"train": ("ada", "ben", "clara", "david", "emil", "flora"), "held_out": ("rosa", "samuel", "tilda", "umar")}


def value_of(parameter: Parameter, rng: Random, split: str) -> str | int | float | bool:
    """Return a random value for a prompt of the split; numbers with n mod 4 = 3 are held out."""
    if parameter.choices:
        return rng.choice(parameter.choices)
    match parameter.name:
        case "title" | "note":
            first, second = _WORDS[split]
            return f"{rng.choice(first)} {rng.choice(second)}"
        case "reference":
            return f"{rng.choice('ABCDEFGH')}{rng.choice('KLMNPQRS')}-{_number(rng, split, 100, 999)}"
        case "recipient":
            return f"{rng.choice(_PEOPLE[split])}@example.com"
        case "date":
            return f"2027-{rng.randint(1, 12):02d}-{_number(rng, split, 1, 28):02d}"
        case "points":
            return _number(rng, split, 1, 10)
        case "budget":
            return _number(rng, split, 10, 400) + rng.choice((0.25, 0.5, 0.75))
        case "notify":
            return True
    return _number(rng, split, 2, 60)


def _number(rng: Random, split: str, low: int, high: int) -> int:
    return rng.choice([n for n in range(low, high + 1) if (n % 4 == 3) == (split == "held_out")])
