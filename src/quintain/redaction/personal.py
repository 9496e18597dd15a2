"""Personal data: e-mail addresses, payment cards, bank accounts; `contacts` has phone numbers and private addresses.

Cards and accounts need correct check digits (Luhn, ISO/IEC 7812-1; IBAN, ISO 13616). One number in ten passes Luhn, so
a card must also be grouped as by its network, or be near a word such as card or payment, or under a name that marks a
card. Test cards of payment providers and e-mail addresses of reserved domains (RFC 2606, RFC 6761) stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from quintain.redaction.contacts import phone_rules, private_address_rules, tel_rule
from quintain.redaction.national_ids import national_id_rules, passes_luhn
from quintain.redaction.secrets import EDGE, Rule, Span
from quintain.redaction.shapes import ShapeRule

_LOCAL_BACKWARDS = re.compile(r"(?:[^\W\u2e80-\U0010ffff]|[.%+'-]){1,64}+")
"""Matches the end of a reversed local part."""
_DOMAIN = re.compile(
    r"(?:@|%40)(?P<domain>(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?\.){1,8}(?P<top>[A-Za-z]{2,24}))(?![\w(@]|\.\w|:(?:[~/]|[\w.-]{1,64}(?:/|\.git\b)))"
)
"""Not followed by the path of an scp address (`user@host:path/x`, `git@host:x.git`)."""
_NO_TOP = frozenset({
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "ts", "tsx", "jsx", "mjs", "css", "html", "json",
    "yaml", "yml", "toml", "txt", "tgz", "gz", "zip", "whl", "lock", "so", "dll", "exe", "service", "socket",
    "timer", "target", "mount",
})  # fmt: skip
"""Suffixes of file and unit names, as in `icon@2x.png` and `getty@tty1.service`."""
_NO_DOMAIN = re.compile(
    r"(?:.*\.)?example\.(?:com|net|org)|.*\.(?:example|test|invalid|localhost)|(?:example|test|invalid|localhost)\.[a-z]+",
    re.IGNORECASE,
)
"""Names reserved by RFC 2606 and RFC 6761 with all names below them, and the same words directly under another top-level
domain (`test.com`), where writers of examples put them."""
_USER_OF_URL = re.compile(r"[^\s/?#@\"'<>]*(?:/\\?){2}:")
"""Matches the end of a reversed URL up to the user of its host."""
_NO_PERSON = frozenset({"git", "noreply", "no-reply", "donotreply"})
_ESCAPE = re.compile(r"(?:\\(?:[nrtbf]|u00[0-9A-Fa-f]{2})|%[0-9A-Fa-f]{2})+")


def _email(text: str, at: int) -> Span | None:
    domain = _DOMAIN.match(text, at)
    local = _LOCAL_BACKWARDS.match(text[max(0, at - 64) : at][::-1]) if domain else None
    if domain is None or local is None or domain["top"].lower() in _NO_TOP:
        return None
    start = at - local.end()
    if start and text[start - 1] == "\\" and (escape := _ESCAPE.match(text, start - 1)):
        start = min(escape.end(), at)
    name = text[start:at].strip(".'-%")
    if not name or name.lower() in _NO_PERSON or _NO_DOMAIN.fullmatch(domain["domain"]):
        return None
    if text[at] == "@" and _USER_OF_URL.match(text[max(0, at - 200) : at][::-1]):
        return None  # an account on a host, as in ssh://deploy@host
    return Span(text.index(name, start), domain.end(), "email")


def personal_rules() -> list[Rule]:
    """Return the rules for personal data that contains a literal."""
    return [Rule(("@", "%40"), _email), tel_rule(), *private_address_rules()]


def personal_shapes() -> list[ShapeRule]:
    """Return the rules for personal data that consists of digits."""
    return [ShapeRule((b"00000000", b"0000 0000"), _number_spans), *phone_rules(), *national_id_rules()]


_DIGITS = re.compile("[0-9][0-9][0-9][0-9][ -]?[0-9]{4}")  # twice as fast as `\d{4}` at the start
"""Every card starts with this, and every IBAN contains it."""
_CARD = re.compile(
    EDGE
    + r"(?<!\d\.)(?:(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6011|64[4-9]\d|65\d{2}|35[2-8]\d)(?P<gap>[ -]?)\d{4}(?P=gap)\d{4}(?P=gap)\d{4}"
    r"|3[47]\d{2}(?P<wide>[ -]?)\d{6}(?P=wide)\d{5})(?![\w-]|\.\d)",
    re.ASCII,
)
_IBAN = re.compile(EDGE + r"[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}", re.ASCII)
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28, "CH": 21,
    "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27,
    "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26,
    "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27,
    "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25,
    "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23,
    "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
"""Number of characters of an IBAN by country, from the SWIFT IBAN registry."""


def _number_spans(text: str, shape: bytes) -> Iterator[Span]:
    """Yield the payment cards and IBANs of a text. Its shape has the pieces that `_DIGITS` matches."""
    for found in _DIGITS.finditer(text):
        # Digits of an escape such as `%22` can precede the number.
        card = _CARD.search(text, found.start(), found.start() + 32)
        if card and card.start() <= found.start() + 4 and _passes(card) and _is_card_context(card):
            yield Span(*card.span(), "card")
            continue
        account = _IBAN.search(text, max(0, found.start() - 14), found.end() + 40)
        if account and account.start() < found.start() and (length := _iban_length(account.group())):
            yield Span(account.start(), account.start() + length, "iban")


_CARD_WORD = re.compile(
    r"card|visa|amex|american express|payment|credit|debit|(?<![a-z])pan(?![a-z])|cvv|cvc|カード", re.IGNORECASE
)
_BEFORE, _AFTER = 48, 24
"""Number of characters before and after a number to search for such a word."""
_TEST_CARDS = frozenset({
    "4111111111111111", "4242424242424242", "4012888888881881", "4000056655665556", "4000000000000002", "4000000000009995",
    "4000002500003155", "4000000000000077", "5555555555554444", "5105105105105100", "5200828282828210", "5454545454545454",
    "2223003122003222", "2223000048400011", "378282246310005", "371449635398431", "378734493671000", "6011111111111117",
    "6011000990139424", "6011601160116611", "3530111333300000", "3566002020360505",
})  # fmt: skip
"""Test cards in the documentation of Stripe, PayPal, Adyen and Braintree; no bank has issued them."""


def is_card(text: str) -> bool:
    """Return whether a whole text is the number of a payment card."""
    found = _CARD.fullmatch(text.strip())
    return found is not None and _passes(found) and _digits(found) not in _TEST_CARDS


def _is_card_context(card: re.Match[str]) -> bool:
    """Return whether a number with the format of a card is grouped as one or near a word for cards."""
    if _digits(card) in _TEST_CARDS:
        return False
    if card["gap"] or card["wide"]:
        return True
    text, start, end = card.string, card.start(), card.end()
    return bool(_CARD_WORD.search(text, max(0, start - _BEFORE), start) or _CARD_WORD.search(text, end, end + _AFTER))


def _digits(card: re.Match[str]) -> str:
    return "".join(character for character in card.group() if character.isdigit())


def _passes(card: re.Match[str]) -> bool:
    return passes_luhn([int(c) for c in _digits(card)])


def _iban_length(text: str) -> int | None:
    """Return the length of the IBAN at the start of a text, spaces included; None if its check digits are wrong."""
    wanted = _IBAN_LENGTHS.get(text[:2])
    if wanted is None:
        return None
    places = [i for i, character in enumerate(text) if character.isalnum()][:wanted]
    if len(places) < wanted or text[places[-1] + 1 : places[-1] + 2].isalnum():
        return None
    compact = "".join(text[i] for i in places)
    number = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return places[-1] + 1 if int(number) % 97 == 1 else None
