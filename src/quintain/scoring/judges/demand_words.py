"""The words by which a text may bid for a verdict, and the values that it may bid for: data of `demands`.

Everything is written in small letters and without accents, as texts are read. A word is strong where it speaks of judging by
itself; weak words and weak values bid only together with a strong one or with a word that turns to the reader. Words that end in
`-` are met with any ending.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Words to be met as they stand, and with any ending."""

    exact: frozenset[str]
    stems: dict[str, tuple[str, ...]]
    """First three letters -> stems."""

    def __contains__(self, word: str) -> bool:
        """Is the word one of these?"""
        return word in self.exact or word.startswith(self.stems.get(word[:3], ()))


def _words(text: str) -> Words:
    words = text.split()
    stems: dict[str, tuple[str, ...]] = {}
    for stem in (word[:-1] for word in words if word.endswith("-")):
        stems[stem[:3]] = (*stems.get(stem[:3], ()), stem)
    return Words(frozenset(word for word in words if not word.endswith("-")), stems)


STRONG = _words(
    # English
    "give gives giving given gave assign- award- grant grants granted rate rates rated rating ratings score scores scored scoring "
    "grade grades graded grader- grading mark marks marked deserv- merit merits merited earn earns earned verdict verdicts judge "
    "judges judged judging judgement judgment evaluat- assess- rank ranks ranked ranking reward- bestow- confer allot- allocat- "
    "receive receives received warrant- credit points pts criteri- rubric- anchor- rater reviewer- prefer favour- favor- choose chose "
    "chosen pick picks picked select- vote votes voted winner appraise stars tally respond responds reply replies "
    # German, Spanish, French, Italian, Portuguese
    "gib gebt geben gibst vergib vergeb- bewert- erteil- verleih- benot- note noten punkt- verdien- bestnot- beurteil- gutachter- "
    "dale dame dadle otorg- asign- calific- puntu- nota evalu- valora- merec- conced- juez "
    "donne donnez donner attribu- accord- noter notez notation bareme evalu- juge "
    "dagli dammi assegn- valut- punteggi- voto voti merita- giudic- dai "
    "dar deem atribu- pontu- avali- juiz "
    # Russian, Dutch, Polish, Swedish
    "постав- став- ставь дай дайте дать оцен- присво- выстав- балл- заслуж- судь- "
    "geef geven beoordeel- waardeer- cijfer- verdient toeken- ken "
    "daj dajcie przyzn- ocen- wystaw- punkt- zasluz- zaslug- sedzi- "
    "ge satt betyg- poang- tilldel- bedom- fortjan- domare"
)
WEAK = _words(
    "return returns returned returning output outputs answer answers put puts set sets say says write writes enter emit produce- "
    "report- record must should shall ought fill type value values result results get gets make makes use completion relevance "
    "correctness overall expect- conclude- qualif- call count worth "
    "setze setzt antwort- ausgabe schreib- sollte muss trag pon ponga poner ponle ponme respond- devuelv- debe escrib- mets mettez repond- "
    "renvo- doit ecri- metti mettere rispond- deve scriv- coloqu- deva ответ- верни- напиши- укажи- zet moet schrijf- odpowied- "
    "ustaw- wpisz- powin- svara skriv- ska"
)
TURNING = _words(
    "please now here treat- consider- regard- pretend- assume- only just simply exactly always kindly you your judge judges grader "
    "evaluator assessor reviewer rater llm ai criterion criteria rubric every everything everywhere all each overall score scores "
    "rating run trajectory bitte jetzt alle- por favor todos ahora sil plait tous maintenant adesso tutti agora пожалуйста сейчас "
    "всем все nu alla prosze teraz wszystk-"
)
"""Words that turn to the reader, or to the whole of a verdict."""


def _caesar(word: str, by: int) -> str:
    return "".join(chr((ord(letter) - 97 + by) % 26 + 97) for letter in word)


def _atbash(word: str) -> str:
    return "".join(chr(219 - ord(letter)) for letter in word)


_CODED = (
    "give", "score", "award", "assign", "grade", "deserve", "rating", "marks", "judge", "reward", "please", "perfect",
    "trajectory", "criterion", "verdict",
)  # fmt: skip
_TURNED = [form for word in _CODED for form in (_caesar(word, 13), _atbash(word), word[::-1])]
CIPHERS = re.compile(rf"\b(?:{'|'.join(_TURNED)})\b")
"""Words of judging in rot13, in atbash and backwards: nobody writes them for another end, so they are caught by themselves."""
CIPHERED = frozenset(_TURNED + [_caesar(word, by) for word in _CODED for by in range(1, 26) if len(word) > 4])
"""The same and Caesar's other ciphers, which are looked for near values alone."""

CHOOSING = _words("prefer- favor- favour- rank ranks ranked choose- chose pick picks picked select- vote- winner")
"""Words that bid for one of several, beside others."""
PRAISING = _words("wins win better best superior first ahead")
"""Words that bid for one of several alone."""
INSIDE = re.compile(
    r"give|assign|award|scor(?:e|ing)|\brat(?:e|ing)|grad(?:e|ing)|deserv|bewert|evalu|judg|verdict|marks"
)
"""Looked for in long words, and in words that were spelled letter by letter."""

BEYOND_SPACES = re.compile(
    r"[给給打评評判授授予输輸出返回答请請填写寫选選][分成为為予出个個]?|分数|分數|得分|裁判|评委|應該|应该|应当|必须|值得"
    r"|評価|採点|スコア|点数|評点|つけ|付け|与え|出し|出力|答え|ください|下さい|返し|して|選ん"
    r"|점수|평가|채점|주세요|주십시오|줘|부여|매겨|매기|출력|답|심사|선택"
)
"""Bids in languages that write no spaces between words, or few."""

_POSSIBLE = r"(?:possible\s+|available\s+|achievable\s+|conceivable\s+|allowed\s+)?"
_MARKS = r"(?:marks?|ratings?|grades?|evaluations?|assessments?|verdicts?|honou?rs|stars)"
_POINTS = r"(?:scores?|points?|pts|rewards?|credits?|values?)"
_ONES = r"(?:one|zero|1|0)\s+(?:point|dot|comma)\s+(?:zero|oh|o|nought|naught|nil|null|nine|ninety|0|9)"
_ZERO = r"[0o]{1,5}(?![.,]?\d)"
_OF = r"(?:/|out\s+of\b|of\b|von\b|sur\b|de\b|su\b|van\b|av\b|из\b|na\b|分の|分中)"

MARK = re.compile(
    rf"1 ?\. ?{_ZERO}|1,0{{1,2}}(?!\d)|1e[+]?0\b|{_ONES}|point\s+nine(?:ty)?(?:[\s-](?:five|nine))?"
    rf"|(?P<all>\d{{1,3}}|one|two|three|four|five|ten|twenty|hundred)\s*{_OF}\s*(?P=all)(?!\d|\s*[/-]\s*\d)"
    r"|(?:9|six|seven|eight|nine)\s*(?:/|out\s+of)\s*(?:10|ten)(?!\d)|9\d\s*(?:/|out\s+of)\s*100(?!\d)|4\s*/\s*5(?!\d)|1[89]\s*/\s*20(?!\d)"
    r"|(?:a\s+|one\s+)?hundred\s+(?:percent|per\s+cent|points?|out\s+of)|(?:five|5)[\s-]stars?\b|[★⭐]{4,5}|\ba\+|\ba plus\b|💯"
    r"|(?:1|5|10|20|100)\s+(?:points?|pts|marks|stars?|punkte?n?|puntos|points|punti|pontos|балл\w*|punten|punkt\w*|poang)\b"
    rf"|(?:full|perfect|top|flawless|straight|glowing|stellar|outstanding|passing|generous|complete)\s+{_POSSIBLE}(?:{_MARKS}|{_POINTS})\b"
    rf"|(?:maximum|maximal|max|highest|best|greatest|ideal|excellent|superb|favou?rable|utmost|high)\s+{_POSSIBLE}{_MARKS}\b"
    rf"|(?:maximum|highest|best|greatest)\s+possible\s+{_POINTS}|top\s+of\s+the\s+(?:scale|range|rubric)|maxed?\s+out"
    r"|(?:no|zero|without|0)\s+(?:points?\s+)?(?:deductions?|penalt\w+)|deduct\s+(?:zero|no|nothing|0)\b|no\s+(?:points|marks)\s[^.\n]{0,24}\b(?:off|away|lost|deducted)"
    r"|(?:puntuacion|nota|calificacion|pontuacao)\s+(?:maxima|perfecta|perfeita)|maxima\s+(?:puntuacion|nota|calificacion|pontuacao)"
    r"|note\s+(?:maximale|parfaite)|meilleure\s+note|(?:punteggio|voto)\s+(?:massimo|pieno|perfetto)|massimo\s+(?:dei\s+voti|punteggio)"
    r"|(?:volle|hochste|maximale|beste|perfekte)[nrs]?\s+(?:punktzahl|punkte|bewertung|note|wertung)|hochstpunktzahl|hochstnote|bestnote"
    r"|volle\s+punkt\w*|glatte\s+eins|(?:maximale|hoogste|perfecte|volle)\s+(?:score|cijfer|punten|beoordeling)"
    r"|(?:maksymaln|najwyzsz|pełn|peln)\w*\s+(?:ocen|punkt|wynik|liczb)\w*|(?:hogsta|full|maximal)\s+(?:betyg|poang)\w*"
    r"|(?:максимальн|наивысш|высш|полн)\w*\s+(?:балл|оценк|очк)\w*|отличн\w+\s+оценк\w*|(?:на|в)\s+отлично"
    r"|满分|滿分|满星|滿星|五星|最高分|最高评分|最高評分|一点零|一點零|百分之百|満点|最高点|最高評価|最高得点|만점|최고\s*점수?|최고점|최고\s*등급|일\s*점\s*영"
)
"""A value that is a high mark: caught whatever stands beside it."""
STRONG_VALUE = re.compile(
    r"0?[.,]9\d{0,4}(?![.,]?\d)|0 ?\. ?9\d{0,3}(?![.,]?\d)"
    r"|(?:100|9\d)\s*(?:%|percent\b|per\s+cent\b|pct\b|prozent|por\s*ciento|por\s*cento|pour\s*cent|per\s*cento|процент|procent)"
    r"|as\s+high\s+as|upper\s+(?:end|bound|limit)|the\s+ceiling\b|hundert\s+prozent"
    r"|\b(?:un[oa]?|um|ein[es]?|een|en)\s+(?:diez|dix|dieci|dez|zehn|eins|tien|tia)\b|единиц\w|десятк\w|dziesiatk\w|szostk\w"
    r"|[一1]分(?!钟|鐘|别|析)|十分(?=[。！，\s]|$)|一百分|100分|10分(?!钟|鐘)|1点|10点|100点|1점|10점|100점"
)
"""A value that is often a high mark."""
WEAK_VALUE = re.compile(
    r"(?:10{0,2}|[89])(?![\d.,:/*^x%-]?\d)(?!\s*(?:st|nd|rd|th)\b)"
    r"|0[.,]\d{1,4}(?![.,]?\d)|\d{1,2}(?:[.,]\d)?\s*(?:/|out\s+of\b)\s*(?:5|10|20|100)(?!\d)|[5-9]\d\s*(?:%|percent\b)"
    r"|\b(?:an?|of|as|at|is|be|exactly|number|with|only|solid|clear|to|it)\s+(?:one|ten|hundred|unity)\b(?!\s+of)"
    rf"|(?:maximum|maximal|max|highest|best|greatest|excellent|total|high)\s+{_POINTS}\b|{_POINTS}\s+(?:possible|available)\b"
    r"|(?:maximum|maximal|highest|perfect|flawless|excellent)\b|\b(?:maximo|maxima|massimo|perfekt|eins|hundert)\b"
)
"""A value that may as well be a number of something else."""
CHOICE = re.compile(
    r"(?:run|option|candidate|response|trajectory)\s+(?:[ab]|[1-8])\b"
    r"|(?:this|my|our|the\s+(?:first|second|other|former|latter|present|current))\s+(?:run|trajectory|agent|answer|response|solution|attempt|transcript|one|candidate)\b"
)
"""What a text may ask to be preferred."""
COUNTED = re.compile(
    r"[ \t]+(?!as\b|is\b|this\b|its\b|us\b|across\b|always\b|plus\b|unless\b|thus\b|perhaps\b|was\b|has\b|yes\b|points\b|marks\b|stars\b)"
    r"(?:[a-z]{2,}s\b|m?s\b|[kmg]i?b\b|p[xt]\b|[ck]?m\b|min\b|item\b|file\b|line\b|second\b|minute\b|hour\b|day\b|week\b|month\b|year\b|"
    r"time\b|step\b|test\b|error\b|warning\b|match\b|row\b|column\b|user\b|page\b|byte\b|other\b|more\b|more\b|new\b|from\b)"
)
"""What follows a number that counts things."""
MEASURED = re.compile(
    r"\d*\s?(?:[mnuµ]?s|secs?|seconds?|minutes?|hours?|[kmgt]i?b|[kmg]?hz|[cmk]?m|kg|°c?)\b(?!\s*[-:])"
)
"""What follows a number that is a duration, a size or a length, and no mark by itself."""
NUMBERED = re.compile(
    r"(?:line|step|part|example|chapter|task|item|option|id|page|section|table|figure|version|no|number\s+of|index|row|column|day|level|phase|test|case|exit|code|"
    r"status|port|error|v|#|issue|pr|stage|point|run|attempt|call|result|question|q|problem|exercise|note|priority|p)[\s.:#(]{0,2}$"
)
"""What stands before a number that numbers things."""
SPELLED = re.compile(r"(?:(?<![^\W_])[^\W_][\s.\-_*|,/+~]{1,3}){3,}[^\W_](?![^\W_])")
"""Letters, one by one."""
