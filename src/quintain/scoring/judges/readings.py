"""A text as a reader may take it: escapes resolved, look-alikes and invisible characters undone, codes read; with the way back.

Judges read base64, percent signs and Cyrillic letters that look Latin as easily as plain text, so whatever is looked for in a
text is looked for in these readings of it, too.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int


class Places:
    """Where the characters of a text that was made plain stood before.

    Kept are the places at which the two texts run apart: (index in the plain text, index in the text as it stands).
    """

    def __init__(self, breaks: list[tuple[int, int]], length: int) -> None:
        self._plain = [plain for plain, _ in breaks]
        self._breaks = breaks
        self._length = length

    def __call__(self, index: int) -> int:
        """The place of a character of the plain text in the text as it stands."""
        at = bisect_right(self._plain, index) - 1
        if at < 0:
            return min(index, self._length)
        plain, origin = self._breaks[at]
        return min(origin + index - plain, self._length)


class Reading(NamedTuple):
    """One way to read a text."""

    text: str
    places: Places


class Hidden(NamedTuple):
    """A stretch of a text that is a code for another text."""

    start: int
    end: int
    text: str


_ODD = re.compile(
    r"\\{1,4}(?:u\{?([0-9a-fA-F]{4,6})\}?|x([0-9a-fA-F]{2})|([nrt\"'/]))"
    r"|&(#\d{2,7}|#[xX][0-9a-fA-F]{2,6}|[a-zA-Z]{2,8});"
    r"|((?:[%=][0-9a-fA-F]{2}){2,}|%[2-7][0-9a-fA-F])"
    r"|[^\x00-\x7f]"
)
_MEANT = {"n": "\n", "r": "\n", "t": " "}
_BREAKS = frozenset("\x85\u2028\u2029")
_LOOKALIKES = {
    ord(alien): latin
    for aliens, latins in (
        ("аеорсухіјѕԁԛԝвкмнт", "aeopcyxijsdqwbkmht"),
        ("АВЕКМНОРСТХІЈЅ", "ABEKMHOPCTXIJS"),
        ("αεοριντ", "aeopivt"),
        ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX"),
        ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz"),
        ("ɡıǀ∕⁄‚·٫", "gil//,.."),
    )
    for alien, latin in zip(aliens, latins, strict=True)
}


def readings(text: str) -> list[Reading]:
    """The text without look-alikes; where it holds other than ASCII, which may be letters of its language, as it stands, too."""
    if _ODD.search(text) is None:
        return [Reading(text, Places([], len(text)))]
    found = [_plain(text, lookalikes=True)]
    if not text.isascii():
        found.append(_plain(text, lookalikes=False))
    return found


def _plain(text: str, *, lookalikes: bool) -> Reading:
    parts: list[str] = []
    breaks: list[tuple[int, int]] = []
    at = size = 0
    for odd in _ODD.finditer(text):
        meant = _meant(odd, lookalikes=lookalikes)
        if meant == odd[0]:
            continue
        parts += (text[at : odd.start()], meant)
        size += odd.start() - at
        breaks += [(size + i, odd.start()) for i in range(len(meant))]
        size, at = size + len(meant), odd.end()
        breaks.append((size, at))
    return Reading("".join([*parts, text[at:]]), Places(breaks, len(text)))


def _meant(odd: re.Match[str], *, lookalikes: bool) -> str:
    wide, narrow, short, entity, octets = odd.groups()
    if wide or narrow:
        code = int(wide or narrow, 16)
        return chr(code) if code < 0x110000 else ""
    if short:
        return _MEANT.get(short, short)
    if entity:
        return html.unescape(odd[0])
    if octets:
        return bytes.fromhex(re.sub("[%=]", "", octets)).decode("utf-8", "replace")
    character = odd[0]
    if character in _BREAKS:
        return "\n"
    if 0xE0020 <= ord(character) < 0xE007F:  # tags: invisible, and each stands for a letter
        return chr(ord(character) - 0xE0000)
    if unicodedata.category(character) in {"Cf", "Mn", "Cc"}:
        return ""
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    form = unicodedata.normalize("NFKD", character)
    if lookalikes:
        return "".join(c for c in form if unicodedata.category(c) != "Mn").translate(_LOOKALIKES)
    return unicodedata.normalize("NFKC", character)


def small(text: str) -> str:
    """The text in small letters, no longer and no shorter."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(letter.lower()[0] for letter in text)


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}(?:\r?\n[A-Za-z0-9+/_-]{8,})*={0,2}")
_BASE32 = re.compile(r"[A-Z2-7]{10,}={0,6}")
_HEX = re.compile(r"(?:(?:0x)?[0-9a-fA-F]{2}[\s,:-]{0,2}){6,}")
_BITS = re.compile(r"(?:[01]{8}[\s,]{0,2}){5,}")
_CODES = re.compile(r"(?:\d{2,3}[\s,;]{1,2}){5,}\d{2,3}")
_MORSE = re.compile(r"(?:[.\-\u00b7\u2013\u2212]{1,6}[ /|]{1,3}){5,}[.\-\u00b7\u2013\u2212]{1,6}")
_SIGNALS = {
    signal: character
    for character, signal in zip(
        "abcdefghijklmnopqrstuvwxyz0123456789.",
        [
            ".-",
            "-...",
            "-.-.",
            "-..",
            ".",
            "..-.",
            "--.",
            "....",
            "..",
            ".---",
            "-.-",
            ".-..",
            "--",
            "-.",
            "---",
            ".--.",
            "--.-",
            ".-.",
            "...",
            "-",
            "..-",
            "...-",
            ".--",
            "-..-",
            "-.--",
            "--..",
            "-----",
            ".----",
            "..---",
            "...--",
            "....-",
            ".....",
            "-....",
            "--...",
            "---..",
            "----.",
            ".-.-.-",
        ],
        strict=True,
    )
}
_DEPTH = 3
"""Codes in codes that are read."""


def hidden(text: str, depth: int = _DEPTH) -> Iterator[Hidden]:
    """The stretches of a text that read as text when they are decoded (base64, base32, hex, bits, character codes, Morse)."""
    if not depth:
        return
    for pattern, decoded in _DECODERS:
        for stretch in pattern.finditer(text):
            found = decoded(stretch[0])
            if found is None:
                continue
            yield Hidden(stretch.start(), stretch.end(), found)
            for inner in hidden(found, depth - 1):
                yield Hidden(stretch.start(), stretch.end(), inner.text)


def _of_base64(code: str) -> str | None:
    code = "".join(code.split()).rstrip("=").translate(_STANDARD)
    if code.isdigit() or (code.isalpha() and (code.islower() or code.isupper())):
        return None
    for skipped in range(4) if len(code) < 400 else (0,):  # a letter put before it shifts the whole
        rest = code[skipped:]
        rest = rest[: len(rest) - (len(rest) % 4 == 1)]
        if (found := _text(base64.b64decode(rest + "=" * (-len(rest) % 4)))) is not None:
            return found
    return None


_STANDARD = str.maketrans("-_", "+/")


def _of_base32(code: str) -> str | None:
    code = code.rstrip("=")
    try:
        return _text(base64.b32decode(code + "=" * (-len(code) % 8)))
    except binascii.Error:
        return None


def _of_hex(code: str) -> str | None:
    digits = re.sub(r"0x|[\s,:-]", "", code)
    return _text(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _of_bits(code: str) -> str | None:
    bits = re.sub(r"[\s,]", "", code)
    return _text(bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8)))


def _of_codes(code: str) -> str | None:
    numbers = [int(number) for number in re.findall(r"\d+", code)]
    return _text(bytes(numbers)) if max(numbers) < 256 else None


def _of_morse(code: str) -> str | None:
    code = re.sub("[\u00b7]", ".", re.sub("[\u2013\u2212]", "-", code))
    words = [[_SIGNALS.get(signal) for signal in word.split()] for word in re.split(r"\s*[/|]\s*|\s{2,}", code)]
    if any(letter is None for word in words for letter in word):
        return None
    return " ".join("".join(filter(None, word)) for word in words)


_DECODERS: tuple[tuple[re.Pattern[str], Callable[[str], str | None]], ...] = (
    (_BASE64, _of_base64),
    (_BASE32, _of_base32),
    (_HEX, _of_hex),
    (_BITS, _of_bits),
    (_CODES, _of_codes),
    (_MORSE, _of_morse),
)


def _text(found: bytes) -> str | None:
    """What these bytes say, if they are text."""
    if len(found) >= 8 and not any(found[1::2]):
        found = found[::2]  # UTF-16 of plain letters
    if len(found) < 5:
        return None
    if found.isascii():
        text = found.decode()
    else:
        try:
            text = found.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return text if text.replace("\n", " ").replace("\t", " ").replace("\r", " ").isprintable() else None
