"""National identity and tax numbers, each with the check digits that its issuer prescribes.

A number counts only in the form in which it is written, with a right date where it contains one, and with right check
digits. The number of the United States has none: it must follow its name. Numbers whose only protection is one check
digit on a plain number (Netherlands, Turkey) are not found: one in ten numbers of that length would pass.

Sources of the algorithms: ISO/IEC 7064, and the pages of each issuer as listed in the documentation of `python-stdnum`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import ascii_uppercase, digits

from quintain.redaction.secrets import EDGE
from quintain.redaction.shapes import ShapeRule, shape_rule

_MONTH, _DAY = r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_BEFORE, _AFTER = EDGE + r"(?<!\.)", r"(?![\w-]|\.\d)"
_CHARACTERS = re.compile(r"[0-9A-Z]")


def passes_luhn(numbers: Sequence[int]) -> bool:
    """Return whether digits pass the test of ISO/IEC 7812-1, annex B; equal digits do not."""
    doubled = (2 * d - 9 * (d > 4) for d in numbers[-2::-2])
    return len(set(numbers)) > 1 and (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0


def _characters(found: re.Match[str]) -> str:
    return "".join(_CHARACTERS.findall(found.group().upper()))


def _numbers(found: re.Match[str]) -> list[int]:
    return [int(c) for c in found.group() if c.isdigit()]


def _sum(weights: Sequence[int], numbers: Sequence[int]) -> int:
    return sum(weight * number for weight, number in zip(weights, numbers, strict=False))


def _china(found: re.Match[str]) -> bool:
    """ISO 7064 MOD 11-2."""
    number = _characters(found)
    total = sum(2 ** (17 - i) * int(c) for i, c in enumerate(number[:17]))
    return number[17] == "10X98765432"[total % 11]


def _france(found: re.Match[str]) -> bool:
    number = _characters(found).replace("2A", "19").replace("2B", "18")
    return 97 - int(number[:13]) % 97 == int(number[13:])


_ODD_PLACES = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
"""Value of A to Z, and of 0 to 9 as of A to J, at odd places of the codice fiscale (decreto of 23 December 1976)."""


def _italy(found: re.Match[str]) -> bool:
    code = _characters(found)
    values = [digits.index(c) if c in digits else ascii_uppercase.index(c) for c in code[:15]]
    total = sum(value if i % 2 else _ODD_PLACES[value] for i, value in enumerate(values))
    return ascii_uppercase[total % 26] == code[15]


def _spain(found: re.Match[str]) -> bool:
    number = _characters(found)
    plain = number[:-1].replace("X", "0").replace("Y", "1").replace("Z", "2")
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(plain) % 23] == number[-1]


def _brazil(found: re.Match[str]) -> bool:
    n = _numbers(found)
    checks = [_sum(range(size, 1, -1), n) * 10 % 11 % 10 for size in (10, 11)]
    return checks == n[9:] and len(set(n)) > 1


def _germany(found: re.Match[str]) -> bool:
    """ISO 7064 MOD 11,10; one digit occurs twice or three times among the first ten, the others at most once."""
    n = _numbers(found)
    counts = sorted(n[:10].count(d) for d in set(n[:10]))
    product = 10
    for digit in n[:10]:
        product = 2 * ((digit + product) % 10 or 10) % 11
    return counts[-1] in {2, 3} and counts[:-1] == [1] * (len(counts) - 1) and (11 - product) % 10 == n[10]


def _sweden(found: re.Match[str]) -> bool:
    return passes_luhn(_numbers(found)[-10:])


def _finland(found: re.Match[str]) -> bool:
    code = _characters(found)
    return "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(code[:6] + code[-4:-1]) % 31] == code[-1]


def _norway(found: re.Match[str]) -> bool:
    n = _numbers(found)
    return _sum((3, 7, 6, 1, 8, 9, 4, 5, 2, 1), n) % 11 == 0 == _sum((5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1), n) % 11


def _india(found: re.Match[str]) -> bool:
    """Verhoeff's test: permutations of the digits, multiplied in the dihedral group of order 10."""
    check = 0
    for place, digit in enumerate(reversed(_numbers(found))):
        for _ in range(place % 8):
            digit = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[digit]
        turned = check + (digit if check < 5 else -digit)
        check = turned % 5 + 5 * ((check < 5) != (digit < 5))
    return check == 0


def _korea(found: re.Match[str]) -> bool:
    n = _numbers(found)
    check = (11 - _sum((2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5), n) % 11) % 10
    return n[12] == check or (n[6] in {5, 6, 7, 8} and n[12] == (check + 2) % 10)


def _belgium(found: re.Match[str]) -> bool:
    number = _characters(found)
    return int(number[9:]) in {97 - int(number[:9]) % 97, 97 - int("2" + number[:9]) % 97}


def _chile(found: re.Match[str]) -> bool:
    number = _characters(found)
    total = sum((2 + i % 6) * int(c) for i, c in enumerate(reversed(number[:-1])))
    return number[-1] == "0K987654321"[total % 11]


def _switzerland(found: re.Match[str]) -> bool:
    """The check digit of EAN-13."""
    n = _numbers(found)
    return (sum(n[0::2]) + 3 * sum(n[1::2])) % 10 == 0


def _mexico(found: re.Match[str]) -> bool:
    code, alphabet = _characters(found), "0123456789ABCDEFGHIJKLMN_OPQRSTUVWXYZ"  # Ñ is at the place of `_`
    total = sum((18 - i) * alphabet.index(c) for i, c in enumerate(code[:17]))
    return str(-total % 10) == code[17]


_SOCIAL_SECURITY = re.compile(r"(?<![a-z])ssn|social.?security", re.IGNORECASE)
_NEAR = 48
"""Number of characters before a number to search for its name."""


def _united_states(found: re.Match[str]) -> bool:
    return _SOCIAL_SECURITY.search(found.string, max(0, found.start() - _NEAR), found.start()) is not None


_IDS: tuple[tuple[Callable[[re.Match[str]], bool], tuple[bytes, ...], str], ...] = (
    (_china, (b"00000000000000000",), rf"[1-9]\d{{5}}(?:19|20)\d{{2}}{_MONTH}{_DAY}\d{{3}}[\dXx]"),
    (
        _france,
        (b"000000000000000", b"000000A00000000", b"0 00 00 00 000 000 00", b"0 00 00 0A 000 000 00"),
        rf"[12](?P<gap> ?)\d{{2}}(?P=gap){_MONTH}(?P=gap)(?:\d{{2}}|2[AB])(?:(?P=gap)\d{{3}}){{2}}(?P=gap)\d{{2}}",
    ),
    (_italy, (b"AAAAAA00A00A000A",), rf"[A-Z]{{6}}\d{{2}}[ABCDEHLMPRST](?:{_DAY}|[4-6]\d|7[01])[A-Z]\d{{3}}[A-Z]"),
    (_spain, (b"00000000A", b"00000000 A", b"A0000000", b"A 0000000"), r"(?:\d{8}|[XYZ]-?\d{7})-?[A-HJ-NP-TV-Z]"),
    (_brazil, (b"000.000.000 00",), r"\d{3}\.\d{3}\.\d{3}-\d{2}"),
    (_germany, (b"00000000000", b"00 000 000 000"), r"[1-9]\d(?P<gap> ?)\d{3}(?P=gap)\d{3}(?P=gap)\d{3}"),
    (_sweden, (b"000000 0000", b"000000+0000"), rf"(?:19|20)?\d{{2}}{_MONTH}{_DAY}[-+]\d{{4}}"),
    (_finland, (b"000000 000", b"000000+000", b"000000A000"), rf"{_DAY}{_MONTH}\d{{2}}[-+A-FU-Y]\d{{3}}[0-9A-FHJ-NPR-Y]"),
    (_norway, (b"00000000000", b"000000 00000"), rf"{_DAY}{_MONTH}\d{{2}} ?\d{{5}}"),
    (_india, (b"0000 0000 0000",), r"(?<!\d )[2-9]\d{3} \d{4} \d{4}(?! \d)"),
    (_korea, (b"000000 0000000",), rf"\d{{2}}{_MONTH}{_DAY}-[0-9]\d{{6}}"),
    (_belgium, (b"00.00.00 000.00",), rf"\d{{2}}\.{_MONTH}\.{_DAY}-\d{{3}}\.\d{{2}}"),
    (_chile, (b"0.000.000 0", b"0.000.000 A", b"0.000.000 k"), r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]"),
    (_switzerland, (b"000.0000.0000.00",), r"756\.\d{4}\.\d{4}\.\d{2}"),
    (_united_states, (b"000 00 0000",), r"(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}"),
    (_mexico, (b"AAAA000000AAAAAA",), rf"[A-Z]{{4}}\d{{2}}{_MONTH}{_DAY}[HMX][A-Z]{{5}}[0-9A-Z]\d"),
)  # fmt: skip
"""Test of the check digits, pieces of the shape, form as written."""


def national_id_rules() -> list[ShapeRule]:
    """Return the rules for the identity numbers of 16 countries."""
    return [
        shape_rule("national_id", pieces, re.compile(_BEFORE + form + _AFTER, re.ASCII), accepts)
        for accepts, pieces, form in _IDS
    ]
