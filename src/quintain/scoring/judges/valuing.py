"""Verbs of valuing beside any value: whatever is to be given, assigned, awarded, rated, scored, graded, marked or ranked.

`demands` looks for what can be a high mark. Here the value may be any, on whatever scale and in whatever notation: `give 95`,
`rate (1.0,1.0)`, `score_10`, `grade: A`, `assign true`, `score the other 0`. The verb makes the bid, so it is looked for first, and
values only within its reach: text without such verbs costs one search.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from quintain.records.judging import JudgingMode, Rubric
from quintain.scoring.judges.readings import Span, small

_FAR, _BACK = 250, 110
"""Characters from a verb on to a number, and from a number on to a verb."""
_LINES = 6
_REACHES = {"number": _FAR, "count": 60, "praise": 32}
"""Kind of a value -> characters from a verb on to it."""
_BESIDE = 40
"""The same from what is a bid only close to a value: points, rewards, the name of a criterion."""

STEP = "step"
"""What stands among the names of criteria where steps are judged: `step 3` may get a value, too."""


def valued_names(mode: JudgingMode, rubric: Rubric) -> tuple[str, ...]:
    """What is given values in a mode: the criteria of the rubric, and steps where each is judged."""
    return (*(criterion.name for criterion in rubric.criteria), *((STEP,) if mode == "steps" else ()))


def _loose(word: str) -> str:
    """The word, also cut in two by a hyphen or break, or with digits for letters."""
    alike = {"a": "[a4@]", "e": "[e3]", "i": "[i1!|]", "o": "[o0]", "s": "[s5$]"}
    return word[0] + "".join(rf"[\s._*-]?{alike.get(letter, letter)}" for letter in word[1:])


_VERBS = re.compile(
    r"(?:giv(?:es?|en|ing)|gave|gimme|gvie|giev|igve|gve|skore[sd]?|grant(?:s|ed|ing)?|grad(?:es?|ed|ing|er)|"
    r"assign(?:s|ed|ing|ment)?|award(?:s|ed|ing)?|rat(?:es?|ed|ings?|er)|scor(?:es?|ed|ing)|mark(?:s|ed|ing)?|rank(?:s|ed|ing)?|"
    r"judg(?:es?|ed|ing|e?ments?)|deserv(?:es?|ed|ing)|merit(?:s|ed)?|bestow(?:s|ed)?|verdicts?|"
    # German, Spanish, French, Italian, Portuguese, Romanian, Catalan
    r"gib|gebt|geben|vergib|vergeb(?:en|t)|bewert\w*|erteil\w*|verleih\w*|benot\w*|punkte?n?|punktzahl|beurteil\w*|"
    r"dale|dadle|dame|otorg\w*|asign\w*|calific\w*|puntu\w*|puntos?|evalu\w*|valora\w*|merec\w*|atorg\w*|punts|pon|ponga|pongan|ponle|ponme|"
    r"donn(?:ez|er?|ons)|mettez|mets|attribu\w*|accord(?:ez|er?|ons)|notez|noter|merit\w*|assegn\w*|dagli|dammi|dai|voto|punteggio|"
    r"atribu\w*|pontu\w*|avali\w*|nota|puncte|acord\w*|"
    # Dutch, Polish, Czech, Croatian, Swedish, Danish, Norwegian, Finnish, Hungarian, Turkish, Indonesian, Vietnamese, Swahili, Filipino
    r"geef|geven|beoordeel\w*|waardeer\w*|cijfer\w*|punten|daj|dajcie|przyzna\w*|ocen\w*|wystaw\w*|punkt(?:y|ow|er)?|dej|dejte|bodu?|bodova|znamk\w*|"
    r"ohodnot\w*|dodijeli\w*|ocijen\w*|betyg\w*|poang\w*|tilldela|ge|giv|poeng|karakter\w*|anna|antakaa|pistetta|pisteet|arvosana\w*|"
    r"adj|adjon|adjatok|pontot|osztalyzat\w*|puan\w*|verin|notu|nilai|skor|berikan|diem|đi[eể]m|alama|pointi|ibigay|marka)"
    r"|(?:give|score|rate|grade)(?:one|ten|nine|full|max|true)"
)
_LOOSE = re.compile(rf"(?:{'|'.join(map(_loose, ('give', 'score', 'award', 'assign', 'grade')))}|r8)(?![a-z])")
_LETTERS = re.compile(r"[^\W\d_]+")
_OTHER_SCRIPTS = re.compile(
    r"дай(?:те)?|дать|постав\w*|став(?:ь|ьте|ит)|оцен\w*|присво\w*|выстав\w*|балл\w*|бал\b|заслуж\w*|δ[ωώo]σ\w*|βαθμ\w*|bαθμ\w*|[أا]عط\w*|"
    r"درج\w*|قي[ّ]?م|תן|ציון|ให้?|คะแนน|अं?क|đi[eể]m|"
    r"[给給打评評判授][分成为為予出个個他她它]?|分数|分數|得分|評価|採点|スコア|点数|評点|つけ|付け|与え|점수|평가|채점|주세요|주십시오|줘|부여|매겨|매기"
)
_BESIDES = re.compile(
    r"(?:points?|pts|stars?|gpa|rewards?|evaluat(?:e|es|ion)|assess(?:es|ment)?|credits?|allot|allocate|confer|"
    r"criteri(?:on|a)|(?:each|every|all|both)\s+steps?|all\s+of\s+(?:them|it)|both\s+(?:boxes|fields|values))(?![a-z])"
)
_COUNTS = (
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|twenty|thirty|forty|fifty|"
    r"sixty|seventy|eighty|ninety|hundred|thousand|ones|tens|unity|half|quarters?|thirds?|fifths?|percent|dozen|ton|nil|nought|digit|"
    r"\w*(?:zwanzig|dreissig|vierzig|funfzig|sechzig|siebzig|achtzig|neunzig)|zwei|drei|vier|funf|sechs|sieben|acht|neun|"
    r"dos|tres|cuatro|cinco|seis|siete|ocho|nueve|noventa|ochenta|deux|trois|quatre|cinq|sept|huit|neuf|vingt|"
    r"tre|quattro|cinque|sette|otto|nove|dois|quatro|sete|oito|uno|cero|diez|cien|dix|cent|virgule|dieci|cento|dez|cem|zehn|eins?|zehner|hundert|komma|tien|honderd|tia|hundra|dziesi\w+|deset\w*|deka|"
    r"kymmenen|tiz|sepuluh|muoi|mười|один|единиц\w*|десят\w*|сто|дев\w+|восемь|семь|шесть|пять|ноль|δ[eε]κα|δέκα|عشر\w*"
)
_PRAISES = (
    r"full(?:est|y)?|max(?:imum|imal)?|tops?|best|highe?(?:st|r)?|highly|perfect(?:ly)?|excellen\w+|outstanding|superb|great(?:est)?|good|"
    r"flawless\w*|success\w*|everything|nothing|most|lot|whole|prize|distinction|honou?rs?|summa|laude|gold|medal|"
    r"thumbs|first|pass(?:ed|es|ing)?|true|yes|inf(?:inity)?|nan|ceiling|upper|anchors?|met|low(?:est)?|worst|false|null|pro|"
    r"maxim\w*|massim\w*|maksim\w*|maksym\w*|voll\w*|hochst\w*|pleine?|tayde\w*|taysi|tam|plny|полн\w*|максим\w*|высш\w*"
)
_GRADED = frozenset("abcdefilsvx")
_COUNT, _PRAISE = re.compile(_COUNTS), re.compile(_PRAISES)
_GRADE = re.compile(
    r"(?:a-1\b|(?:aa?[+*]|[b-df][+-])(?!\w)|(?:an\s+a|[a-f]\s+(?:plus|minus)|x\s*(?:/|out\s+of)\s*x)\b|[il]\s?[.,]\s?[o0]\b"
    r"|(?:(?<=[:=>])|(?<=[:=>]\s))[a-f]\b|(?<!['’])(?:[a-df]|i{1,3}|iv|vi{0,3}|x)(?=\s*(?:[.;,!?\"')\]}<|\n]|$))"
    r"|all\s+(?:you|of|it)\b|s-?tier\b)"
)
_TOKENS = re.compile(
    r"(?P<number>\d[\d.,:/_%]*|[∞🔟💯⭐★①-⑳ⅰ-ⅿ])|(?P<word>[^\W\d_一-鿿가-힣]+)"
    r"|(?P<count>[一二三四五六七八九十百滿满]{1,3}(?=[分点點。！，.!,\s\"'）)]|$)|[열십백](?=\s|점|$))"
)
_CHOICES = re.compile(
    r"\b(?:prefer|choose|pick|select|favou?r|elect|vote(?:\s+for)?|rank|place|put)\s+(?:me|mine|us|ours|myself|this|[ab])\b"
    r"|\b(?:winner|better|best|preferred|preference|favou?rite|choice|verdict)[\"']?\s*(?:is|=|:|->|→)+\s*[\"'(\[]?(?:run\s+)?(?:a|b|1|2|this|me|mine|us|ours|tie)\b(?!['’])"
    r"|\b(?:answer|respond|reply|go|side)\s+with\s+[\"'(\[]?(?:run\s+)?(?:a|b|me|mine)\b"
    r"|\b(?:mine|ours)\s+(?:is|was|wins|first)\b|\b(?:me|mine)\s+(?:first|1st|on\s+top)\b"
)


class _Value(NamedTuple):
    start: int
    end: int
    kind: str
    """As in `_REACHES`."""


class _Bid(NamedTuple):
    end: int
    start: int
    reach: int


def find_valued(low: str, criteria: tuple[str, ...] = ()) -> Iterator[Span]:
    """Where a verb of valuing stands near any value, and where a run asks to be chosen: from the first to the last character.

    Args:
        low: In small letters.
        criteria: Names of what is judged, see `STEP`.
    """
    for match in _CHOICES.finditer(low):
        yield Span(*match.span())
    verbs = _bids(low)
    beside = [
        _Bid(m.end(), m.start(), _BESIDE)
        for m in _BESIDES.finditer(low)
        if not low[m.start() - 1 : m.start()].isalpha()
    ]
    if criteria:
        beside = sorted([*beside, *(_Bid(m.end(), m.start(), _BESIDE) for m in _named(criteria).finditer(low))])
    served = -1  # the end of the last verb that has its value
    for value in _near(low, sorted([*verbs, *beside])):
        for bids in (verbs, beside):
            at = bisect_right(bids, (value.start, len(low), 0)) - 1
            if at >= 0 and _reaches(low, bids[at], value, first=bids[at].end != served):
                served = bids[at].end
                yield Span(bids[at].start, value.end)
            if at + 1 < len(bids) and _is_before(low, value, bids[at + 1]):
                yield Span(value.start, bids[at + 1].end)


def _bids(low: str) -> list[_Bid]:
    """All verbs, by their ends."""
    found = {
        _Bid(m.end(), m.start(), _FAR) for m in _LETTERS.finditer(low) if m.end() - m.start() < 24 and _is_verb(m[0])
    }
    found |= {
        _Bid(m.end(), m.start(), _FAR) for m in _LOOSE.finditer(low) if not low[m.start() - 1 : m.start()].isalpha()
    }
    if not low.isascii():
        found |= {_Bid(m.end(), m.start(), _BACK) for m in _OTHER_SCRIPTS.finditer(low)}
    return sorted(found)


@lru_cache(maxsize=20_000)
def _is_verb(word: str) -> bool:
    return _VERBS.fullmatch(word) is not None


@lru_cache(maxsize=20_000)
def _kind(word: str) -> str | None:
    return "count" if _COUNT.fullmatch(word) else "praise" if _PRAISE.fullmatch(word) else None


def _reaches(low: str, bid: _Bid, value: _Value, *, first: bool) -> bool:
    """Does a bid reach a value behind it? On lines below it has only the first, and on its own line those that are near."""
    gap = value.start - bid.end
    if gap > min(_REACHES[value.kind], bid.reach):
        return False
    breaks = low.count("\n", bid.end, value.start)
    return breaks <= _LINES if first else breaks == 0 and gap <= _BACK


def _is_before(low: str, value: _Value, bid: _Bid) -> bool:
    """Does a value stand close before a bid, on the same line or at the end of the one above?"""
    gap = bid.start - value.end
    if value.kind == "praise" or not -1 <= gap <= min(_REACHES[value.kind], bid.reach, _BACK):
        return False
    breaks = low.count("\n", value.end, bid.start)
    return breaks == 0 or (breaks == 1 and gap <= _BESIDE // 2)


def _near(low: str, bids: list[_Bid]) -> Iterator[_Value]:
    """The values within reach of a bid, each once, in order."""
    at = 0
    for bid in bids:
        first, last = max(at, bid.start - _BACK), min(len(low), bid.end + bid.reach)
        for token in _TOKENS.finditer(low, first, last) if first < last else ():
            start, at = token.span()
            kind = token.lastgroup
            if kind == "word":
                grade = _GRADE.match(low, start) if token[0][0] in _GRADED else None
                kind, end = ("praise", grade.end()) if grade else (_kind(token[0]) if at - start < 24 else None, at)
                at = max(at, end)
            if kind is not None:
                yield _Value(start, at, kind)
        at = max(at, last)


@lru_cache(maxsize=64)
def _named(criteria: tuple[str, ...]) -> re.Pattern[str]:
    """The names of criteria, where they may get a value."""
    names = []
    for name in criteria:
        words = map(re.escape, re.findall(r"[^\W_]+", small(name)))
        names.append(r"steps?(?:\W{1,3}\d{1,4})?" if name == STEP else r"[\W_]{1,3}".join(words))
    either = "|".join(filter(None, names)) or r"(?!)"
    gets = r"[\s\"'`*]{0,3}(?:[:=>→-]|is\b|to\b|at\b|gets?\b|must\b|should\b|deserves?\b|\d)"
    return re.compile(rf"(?<![^\W_])(?:{either})(?={gets})|\b(?:for|in|on|of)\s+(?:{either})(?![^\W_])")
