"""Degenerate repetition: the same words, sentences or calls over and over, with a reward for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from quintain.records.trajectory import text_of
from quintain.scoring.integrity.samples import Sign
from quintain.scoring.integrity.subject import Subject
from quintain.scoring.integrity.text import grams, prose_of, quoted, sentences, words

_ASKED = re.compile(
    r"\b(?:repeat|repeated|repeating|\d+ times(?! *\d)|times in a row|chorus|refrain|song|lyrics|poem|mantra|chant|copies of|lines? of|"
    r"over and over|lorem ipsum|stress test|filler|tongue twister|palindrome|paste|printed|transcript|dump)\b|"
    r"\b(?:wiederhol\w*|(?:\d+ ?|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|\w*(?:zig|ßig)|hundert|tausend)mal|gedicht\w*|lied|"
    r"kehrvers\w*|liedtext\w*|répét\w*|répèt\w*|\w+ fois|poème|chanson|repit\w*|repet\w*|\w+ veces|\w+ vezes|\w+ volte|poema|canción|"
    r"estribillo)\b|"
    r"重复|重複|[\d一二三四五六七八九十百两]+ ?[遍次回]|繰り返|反复|抄写|诗|歌|[\d]+ ?раз|повтор|반복",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“”„«»「『‘']([^\"“”„«»「」『』’'\n]{4,200})[\"“”»」』’']|[:：]\s*([^\n]{4,200})")
_WAITING = re.compile(
    r"wait|sleep|poll|status|scroll|next|prev|click|press|key|page|(?<![a-z])check(?!_(?:answer|solution|result))|get_job|move|step|turn|look|"
    r"observe|(?<![a-z])(?:play|roll|dice|flip|toss|spin|draw|random|sample|shuffle|guess|attack|jump|walk|go)(?![a-z])",
    re.IGNORECASE,
)
_POLLS = re.compile(
    r"\b(?:sleep|watch|wait|timeout)\b|\b(?:squeue|sacct|qstat|bjobs|nvidia-smi|docker ps|jobs|uptime|ping|pgrep|tail|ps)\b|"
    r"\bkubectl (?:get|describe|logs|rollout)|\bgh (?:run|pr|workflow)|"
    r"\bsystemctl (?:status|is-active)|\b(?:status|health|ready|healthz|progress)\b",
    re.IGNORECASE,
)
"""Commands and arguments that look whether something is there yet."""
_SYMBOLS = re.compile(r"([^\x00-\x7f\s\w\u2010-\u2027\u2190-\u25ff·…]{1,4}?)\1{59,}")

MIN_WORDS = 24
MIN_LOOPED, MIN_LAPS = 0.5, 4
"""Share of a message that is one block again and again, and how often in a row."""
MIN_SENTENCES, MIN_REPEATED_SENTENCES = 6, 0.6
MAX_DISTINCT, MIN_REPEATED_GRAMS = 0.15, 0.75
"""Share of distinct words, and of four-word runs seen before, of a text that has collapsed without an exact loop."""
MIN_SAME_CALLS, MIN_SAME_SHARE = 10, 0.7
_PERIODS = 60
_MOST, _MOST_CHARS = 4000, 30_000


def find_repetition(subject: Subject) -> Sign | None:
    """What shows that a run is degenerate; None where nothing does."""
    found = None
    if not _ASKED.search(subject.prompt):
        texts = [text for step in subject.own_steps for text in (text_of(step.message), step.thought or "")]
        found = next(
            (found for text in texts if (found := _in_text(text)) and not _dictated(subject.prompt, text)), None
        )
    found = found or _in_calls(subject)
    return Sign(found) if found else None


def repeated_share(of: Sequence[str]) -> float:
    """Share of the four-word runs that came before in the text, 0..1."""
    runs = grams(of, 4)
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def _in_text(text: str) -> str | None:
    if len(text) > _MOST_CHARS:
        text = f"{text[: _MOST_CHARS // 2]}\n{text[-_MOST_CHARS // 2 :]}"
    if symbols := _SYMBOLS.search(text):
        return f"{len(symbols.group())} signs in a row are one: {quoted(symbols.group(), 20)}"
    said = words(prose_of(text))
    if len(said) > _MOST:
        said = said[: _MOST // 2] + said[-_MOST // 2 :]
    if len(said) < MIN_WORDS:
        return None
    repeated = repeated_share(said)
    if repeated < 0.3:  # no text with such a loop has less
        return None
    share, laps = _loop(said)
    if share >= MIN_LOOPED and laps >= MIN_LAPS:
        return f"{share:.0%} of {len(said)} words are one block {laps} times in a row: {quoted(text)}"
    parts = [part for part in (" ".join(words(line)) for line in sentences(prose_of(text))) if part.count(" ") >= 3]
    again = len(parts) - len(set(parts))
    if len(parts) >= MIN_SENTENCES and again / len(parts) >= MIN_REPEATED_SENTENCES:
        return f"{again} of {len(parts)} sentences were said before: {quoted(text)}"
    distinct = len(set(said)) / len(said)
    if distinct <= MAX_DISTINCT and repeated >= MIN_REPEATED_GRAMS:
        return f"{distinct:.0%} of {len(said)} words are distinct, {repeated:.0%} of the four-word runs repeat: {quoted(text)}"
    return None


def _dictated(prompt: str, text: str) -> bool:
    """Does the prompt quote what the text says over and over?"""
    said = words(text)
    for quote in _QUOTED.finditer(prompt[-_MOST_CHARS:]):
        block = words(quote.group(1) or quote.group(2))
        if len(block) >= 3 and grams(said, len(block)).count(tuple(block)) >= MIN_LAPS:
            return True
    return False


def _loop(said: Sequence[str]) -> tuple[float, int]:
    """Share of the words in the longest exact loop of the shortest block that is enough, and its laps."""
    best, laps = 0, 0
    for period in range(1, min(_PERIODS, len(said) // MIN_LAPS) + 1):
        length = 0
        for i in range(period, len(said) + 1):
            if i < len(said) and said[i] == said[i - period]:
                length += 1
                continue
            if length >= (MIN_LAPS - 1) * period and length + period > best:
                best, laps = length + period, (length + period) // period
            length = 0
        if best >= MIN_LOOPED * len(said):
            break
    return best / len(said), laps


def _in_calls(subject: Subject) -> str | None:
    """Calls that are made over and over with one result, most of the run; waiting, walking, playing and turning pages are no such calls."""
    calls: Counter[tuple[str, str, str]] = Counter()
    n = 0
    for step in subject.own_steps:
        results = [text_of(seen.content) for seen in step.observations]
        for place, action in enumerate(step.actions):
            n += 1
            arguments = json.dumps(action.args, sort_keys=True, default=str) if action.args else action.raw_args or ""
            if not _WAITING.search(action.tool) and not _POLLS.search(arguments[:2000]):
                calls[action.tool, arguments, results[place] if place < len(results) else ""] += 1
    again = {call: same for call, same in calls.items() if same >= MIN_SAME_CALLS}
    if not again or sum(again.values()) < MIN_SAME_SHARE * n:
        return None
    tool, arguments, _ = max(again, key=again.__getitem__)
    which = "the same" if len(again) == 1 else f"{len(again)} different ones"
    return f"{sum(again.values())} of {n} calls are {which} with the same result each: {tool} {quoted(arguments)}"
