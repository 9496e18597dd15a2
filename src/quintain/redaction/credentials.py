"""Secrets without a fixed format, recognized by their context: names, headers, and URLs.

A value is redacted if its name marks a secret (`DB_PASSWORD=...`, `--token ...`) and the value can be one: `password:
str`, `token=get_token()` and `<your key>` stay. Hashes, ids and other long strings stay under other names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from quintain.redaction.secrets import EDGE, Rule, Span, has_digit, pattern_rule
from quintain.redaction.shapes import ShapeRule
from quintain.redaction.value_ends import ITEM, MAX_EXAMINED, Surroundings, bare_value_end

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")
_SUFFIXES = {"value", "plain", "plaintext", "raw", "env", "prod", "dev", "test"}
_ENCODED = re.compile(r"[_-]?b(?:ase)?(?:58|64)$|(?<=key)[_-]?hex$|(?<=secret)[_-]?hex$", re.IGNORECASE)
"""Ends a name that states how its value is encoded."""
_PASSWORDS = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "passwort",
    "passcode",
    "contrasena",
    "contraseña",
    "パスワード",
)
_PASS_PREFIXES = frozenset({
    "db", "user", "admin", "root", "smtp", "mail", "email", "ftp", "ssh", "sudo", "my", "mysql", "postgres",
    "redis", "database", "login", "account", "proxy", "bind", "auth", "key", "become",
})  # fmt: skip
"""Words before `pass` that mark a password, unlike in `FAIL_TO_PASS`."""
_KEYS = tuple(
    f"{word}key"
    for word in (
        "api", "access", "secret", "private", "auth", "signing", "signature", "encryption", "master", "account",
        "subscription", "shared", "license",
    )
)  # fmt: skip
_TEXT_TOKENS = frozenset({
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "special", "stop", "next", "page", "continuation",
    "pagination", "sync", "start", "end", "first", "last", "prev", "previous", "current", "cancellation", "resume",
    "max", "min", "per", "num", "n", "total", "input", "output", "prompt", "completion", "reasoning", "image",
    "audio", "new", "string", "text", "word", "tokens", "added", "extra", "decoder", "draft", "sampled", "think",
    "separator", "syntax",
})  # fmt: skip
"""Words before `token` that mark a piece of text or a position in a list."""


@lru_cache(maxsize=16_384)
def secret_kind(name: str) -> str | None:
    """Return the kind of secret that a name marks, such as `password` for `dbPassword`; None for other names."""
    if len(name) > 80:
        return None
    words = [word.lower() for word in _WORD.findall(_ENCODED.sub("", name))]
    while len(words) > 1 and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    joined = "".join(words)
    if joined.endswith(_PASSWORDS) or (words[-1] in {"pass", "pw"} and words[-2:-1] and words[-2] in _PASS_PREFIXES):
        return "password"
    if joined.endswith("secretaccesskey") or joined.endswith("awssecret"):
        return "aws_key"
    if joined.endswith(_KEYS) or joined.endswith("privatekeyid"):
        return "api_key"
    if joined.endswith(("secret", "credential", "credentials")):
        return "secret"
    if joined.endswith("publickeytoken"):  # of an assembly of .NET
        return None
    if joined.endswith("token"):
        before = joined.removesuffix("token") if words[-1] != "token" else (words[-2] if len(words) > 1 else "")
        return None if before in _TEXT_TOKENS else "token"
    if joined in {"authorization", "proxyauthorization", "auth", "bearer"}:
        return "authorization"
    if joined.endswith(("cardnumber", "cardno", "cardnum")) or joined in {"creditcard", "debitcard", "pan"}:
        return "card"
    return "cookie" if joined in {"cookie", "setcookie", "cookies"} else None


_NOT_SECRET = re.compile(
    r"\[REDACTED|\$\{?\w+\}?$|\$\(|\$\{|%[({]?\w*[)}]?s?$|%\w+%$|<[^<>]*>$|\{.*\}$|process\.env|os\.environ|env[.:]|secrets\."
    r"|[*x•.#_?-]+$|(?:none|null|nil|true|false|undefined|string|str|text|bytes|required|optional|unset|empty|n/a)$",
    re.IGNORECASE,
)
_STAND_IN = re.compile(
    r"[a-z _.-]*(?:your|insert|replace|change|placeholder|todo|dummy|hidden|masked|removed)[a-z _.-]*", re.IGNORECASE
)


_TRIVIAL = re.compile(
    r"(?:tests?|testing|example|sample|demo|fake|mock|foo|bar|baz|foobar|pass|passw(?:or)?d|pwd|pw|secret|token|user(?:name)?)",
    re.IGNORECASE,
)


def is_placeholder(value: str) -> bool:
    """Whether a value is a typical placeholder for a password in examples and tests."""
    return is_stand_in(value) or _TRIVIAL.fullmatch(value) is not None


def is_stand_in(value: str) -> bool:
    """Whether a value is a reference to a secret, a placeholder, or the marker of an earlier redaction."""
    return _NOT_SECRET.match(value) is not None or _STAND_IN.fullmatch(value[:200]) is not None


_SEPARATOR = re.compile(
    r"""(?P<rest>[\w-]{1,48}+)(?:
      (?P<close>\\*["'`]?\]?\)?)[ \t]{0,80}+
      (?: :[ ]?(?:str|String|string|&str|SecretStr)[ ]?= | (?P<operator>:=|=>|={1,3}|!==?|:(?!:)|>) )[ \t]{0,80}+
    | \\*["'`][ \t]{1,3}value[ ]?=[ ]?
    | [ \t]+is:?[ \t]+
    )""",
    re.VERBOSE,
)
"""Up to 80 blanks on each side of the operator: formatters of code and of settings align the values of several lines."""
_FLAG = re.compile(r"(?P<rest>[\w-]{1,48}+)(?P<close>)[ \t]+(?P<operator>)")
"""As in `--password hunter2`; the groups are those of `_SEPARATOR`."""
_NAME_BACKWARDS = re.compile(r"[\w.-]*+")
"""Matches the end of a reversed name. A forward search would retry at each character of the name."""
_OPENING = re.compile(r"""[rbfuRBFU@$]{0,2}(?P<quote>\\{0,15}["'`])""")
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*)+|[A-Za-z_]+")
_SECRET_NAME = re.compile(
    r"[A-Z_]+|[A-Za-z_ -]*(?i:token|key|secret|password|credentials?)|[A-Z]\w*[a-z0-9](?:Token|Key|Secret|Password|Credentials?)(?:Types?)?"
)
"""Values that are themselves names of secrets, or of their types."""
_SPACE = re.compile(r"\s")
_DIGITS_AMONG_LETTERS = re.compile(r"(?:(?:\d(?=[^\W\d_])|[^\W\d_](?=\d)).*?){3}")
"""At least three changes between letters and digits within a word, as in generated passwords."""
_NUMBERS = re.compile(r"[\d,;]+|[+-]?\d*\.\d+(?:[eE][+-]?\d+)?|[~^<>=v]{0,2}\d+(?:\.\d+){1,3}(?:-[a-z]+(?:\.?\d+)*)?")
"""Numbers, and versions of packages that are named `spl-token` or `jsonwebtoken`."""
_PATH = re.compile(r"(?:[A-Za-z]:|~)?(?:(?:/[A-Za-z_.-]+)+|(?:/[\w.@+-]+){2,})/?")
"""A folder or file, such as the value of `PWD` in a listing of the environment."""
_URL = re.compile(r"https?:(?:\\?/){2}")
"""Secrets within a URL have rules of their own."""
_MAX_VALUE = 4096
_SHORTEST_STAND_IN = 3
_MAX_SPACED = 128
"""Maximum length of a password with spaces."""

_NAMES = (
    *("pass", "pwd", "_pw", "-pw", "contrase", "パスワード", "secret", "token", "credential"),
    *(f"{key.removesuffix('key')}{joint}key" for key in _KEYS for joint in ("", "_", "-")),
)


def _assigned(text: str, at: int) -> Span | None:
    """Return the value assigned to a secret name, if a word of that name begins at `at`."""
    found = _SEPARATOR.match(text, at)
    if found is None and "-" in text[max(0, at - 48) : at]:
        found = _FLAG.match(text, at)
    if found is None:
        return None
    begin = _name_start(text, at)
    lead, previous = text[begin:at], text[begin - 1 : begin]
    name = (lead + found["rest"]).strip("-")
    kind = secret_kind(name)
    is_flag = lead.startswith("-") or found["rest"].startswith("-") or previous in {"?", "&"}
    if kind is None or (found.re is _FLAG and not is_flag) or (found["operator"] == ">" and previous != "<"):
        return None
    opening = _OPENING.match(text, found.end())
    if not opening and (found["operator"] or "").endswith(("==", "!=")) and text[found.end() - 1].isspace():
        return None  # a comparison with a name, as in `token == token2`; `token==abc` is an argument of HTTPie
    if opening:
        span = _quoted(text, opening)
    else:
        span = _bare(text, found.end(), begin, _surroundings(kind, found["operator"], previous, is_flag=is_flag))
    if span is None:
        return None
    # `TOKEN=abc` is data, `TOKEN = token` is code.
    is_data = name.isupper() and not found["close"] and (text[found.end() - 1] == "=" or kind == "password")
    plain = bool(opening) or (is_flag and found.re is not _FLAG) or is_data
    sure = plain and (bool(found["close"]) or is_flag or name.isupper())
    start, end = span
    if not _can_be_secret(kind, text[start:end], plain=plain, sure=sure):
        return None
    if not opening and end - start == MAX_EXAMINED and (rest := ITEM.match(text, end)):
        end = rest.end()
    return Span(start, end, kind)


def _name_start(text: str, at: int) -> int:
    """Return where the name begins of which a word begins at `at`; the letter of an escape before it is not part of it."""
    before = _NAME_BACKWARDS.match(text[max(0, at - 48) : at][::-1])
    begin = at - len(before.group()) if before else at
    return begin + 1 if begin < at and text[begin - 1 : begin] == "\\" and text[begin] in "nrt" else begin


def _bare(text: str, start: int, begin: int, surroundings: Surroundings) -> tuple[int, int] | None:
    """Return the span of a value without quotes; None if it is not one, or begins with a reference or a placeholder."""
    end = bare_value_end(text, start, begin, surroundings)
    return None if end is None or _begins_with_stand_in(text, start) else (start, end)


def _surroundings(kind: str, operator: str | None, previous: str, *, is_flag: bool) -> Surroundings:
    if operator == ">":
        return "element"
    if previous in {"?", "&"}:
        return "query"
    if is_flag:
        return "argument"
    return "text" if kind in {"password", "secret"} else "token"


def _begins_with_stand_in(text: str, start: int) -> bool:
    """Whether a reference or a placeholder precedes a delimiter, as in `$DB_PASSWORD;ls`."""
    item = ITEM.match(text, start, start + MAX_EXAMINED)
    return item is not None and len(item.group()) >= _SHORTEST_STAND_IN and is_stand_in(item.group())


def _quoted(text: str, opening: re.Match[str]) -> tuple[int, int] | None:
    start, quote = opening.end(), opening["quote"]
    end = start
    while (end := text.find(quote, end, start + _MAX_VALUE)) >= 0:
        if text[end - 1] != "\\" or end == start:
            return (start, end)
        end += len(quote)
    return None


def _can_be_secret(kind: str, value: str, *, plain: bool, sure: bool) -> bool:
    """Return whether a value can be a secret."""
    if len(value) < (4 if kind == "password" else 6) or is_stand_in(value) or _URL.match(value):
        return False
    if _SPACE.search(value):
        return kind == "password" and _is_spaced_password(value)
    if not plain and (_CODE.fullmatch(value) or not has_digit(value)):
        return kind == "password" and not _CODE.fullmatch(value) and re.search(r"[!@#%^+~]", value) is not None
    if kind == "password":
        is_name = is_placeholder(value) or _PATH.fullmatch(value) is not None
        return not is_name and (secret_kind(value) is None or has_digit(value))
    if _NUMBERS.fullmatch(value) or (value.startswith("/") and kind != "aws_key"):
        return False
    if _SECRET_NAME.fullmatch(value):
        return False
    return has_digit(value) or (sure and len(value) >= 8 and re.search(r"[A-Z_.+/=-]", value[1:]) is not None)


def _is_spaced_password(value: str) -> bool:
    """Return whether a quoted value with spaces is a password rather than a sentence about one."""
    if len(value) > _MAX_SPACED or "\n" in value or value != value.strip():
        return False
    return any(_DIGITS_AMONG_LETTERS.search(word) for word in value.split())


def _is_key_like(secret: str) -> bool:
    return has_digit(secret) or len(secret) >= 32


def _is_url_password(secret: str) -> bool:
    return not is_placeholder(secret)


def _is_user_password(secret: str) -> bool:
    return not secret.isdigit() and not is_placeholder(secret) and "/" not in secret


_SHELL_ARGUMENT = (
    r"""(?:\\{0,3}["'])?(?P<secret>(?<=["'])[^'"\\\r\n]{4,256}|[^\s'"`\\;|&()<>-][^\s'"`\\;|&()<>]{3,255})"""
)
"""An argument in a shell, quoted or not."""
_NEXT_COMMAND = re.compile(r"[\r\n;|&]")
_PORTS = re.compile(r"[\d.:/tcpud-]+")


def _argument_rule(programs: tuple[str, ...], flag: str, pattern: str) -> Rule:
    """Build the rule for a password passed by a flag, within the same command as the name of the program."""
    compiled = re.compile(pattern)

    def read(text: str, at: int) -> Span | None:
        place = at
        for _ in range(3):  # skip up to two other flags with the same beginning
            place = text.find(flag, place + 1, at + 200)
            if place < 0 or _NEXT_COMMAND.search(text, at, place):
                return None
            found = compiled.match(text, place)
            if found and not is_placeholder(found["secret"]) and not _PORTS.fullmatch(found["secret"]):
                return Span(*found.span("secret"), "password")
        return None

    return Rule(programs, read)


_GAP = r"""(?:[ ]|\\+\s*\n|\\+n|["'],[ ]?["'])(?:[ ]|\\+\s*\n|\\+n){0,8}"""
"""Between arguments of a command: blanks, also over several lines, or the quotes of a list of strings."""
_OPTIONS = rf"""(?:{_GAP}(?:-{{1,2}}(?!p\b|p[^a])[\w-]+(?:(?:=|{_GAP})[^\s;|&-][^\s;|&"']*["']?)?|[\w-]*[.:][^\s;|&"']*)){{0,6}}?"""
"""Other options of a command, and the host that it logs in to."""


def _is_login_password(secret: str) -> bool:
    return not is_placeholder(secret) and not _PORTS.fullmatch(secret)


_PGPASS = re.compile(
    r""":(?:\d{4,5}|\*):(?:[A-Za-z_][\w-]{0,62}|\*):(?:[A-Za-z_][\w.@-]{0,62}|\*):"""
    r"""(?P<secret>(?:\\[\\:]|[^\s:"'\\]){4,256})(?=[\s"'\\]|$)"""
)
"""Port, database, user and password of a line of `.pgpass`. `\\:` is a colon in the password."""
_HOST_BACKWARDS = re.compile(
    r"""(?:[\w.-]{0,253}[A-Za-z]|\*|(?:\d{1,3}\.){3}\d{1,3}|\][0-9A-Fa-f:]{2,39}\[)(?=[\s"'→|+-]|n\\|$)"""
)


def _pgpass_spans(text: str, shape: bytes) -> Iterator[Span]:
    for found in _PGPASS.finditer(text):
        start = found.start()
        host = _HOST_BACKWARDS.match(text[max(0, start - 255) : start][::-1])
        if host and not is_placeholder(found["secret"]) and not found["secret"].isdigit():
            yield Span(*found.span("secret"), "password")


def credential_shapes() -> list[ShapeRule]:
    """Return the rule for lines of a PostgreSQL password file."""
    return [ShapeRule((b":0000:", b":00000:", b":*:"), _pgpass_spans)]


_LINES = r"(?:\s|\\n|\d{1,6}[\t→|:]){1,24}"
"""Between words of a file, also where its lines are numbered."""
_QUOTE = r"""(?:\\*["'`])?"""


def credential_rules() -> list[Rule]:
    """Return the rules for assignments, headers and URLs that contain a secret."""
    scheme = r"(?:(?i:Bearer|Basic|Token|Bot|ApiKey|Digest|Negotiate|SSWS)[ ]+)?"
    return [
        pattern_rule(
            "url_password",
            ("://", r":\/\/"),
            r""":(?:\\?/){2}[^\s:/?#@"'<>\[\]{}]{0,128}:(?P<secret>[^\s/?#@"'<>]{1,256})@""",
            accepts=_is_url_password,
        ),
        pattern_rule(
            "authorization",
            ("authorization",),
            rf"(?i:Authorization){_QUOTE}\]?[ \t]{{0,3}}[:=,][ \t]{{0,3}}{_QUOTE}{scheme}(?P<secret>[A-Za-z0-9._~+/=-]{{8,4096}}+)(?!\()",
            accepts=_is_key_like,
        ),
        pattern_rule(
            "authorization",
            ("bearer ",),
            r"(?i:Bearer)[ ]+(?P<secret>[A-Za-z0-9._~+/-]{16,4096}=*)",
            accepts=_is_key_like,
        ),
        pattern_rule(
            "cookie",
            ("cookie",),
            rf"(?i:Cookie){_QUOTE}[ \t]{{0,3}}:[ \t]{{0,3}}{_QUOTE}(?=[^\d\r\n]{{0,256}}\d)"
            r"""(?P<secret>[\w.-]{1,64}=[^\r\n"'`\\]{8,8192})""",
        ),
        pattern_rule(
            "authorization",
            ("_auth=", "_auth =", 'auth"', "auth\\"),
            rf"(?i:_?auth){_QUOTE}[ ]?[:=][ ]?{_QUOTE}(?P<secret>[A-Za-z0-9+/]{{12,1024}}={{0,2}})(?![\w(.])",
            accepts=_is_key_like,
        ),
        pattern_rule(
            "password",
            (" -u ", " --user", " --proxy-user"),
            r""" -(?:u[ ]|-user[ =]|-proxy-user[ =])\\{0,3}["']?(?P<name>(?!\+)[^\s:'"\\/]{1,128}):"""
            r"""(?!(?P=name)(?![^\s'"\\]))(?P<secret>[^\s'"\\]{4,256})""",
            accepts=_is_user_password,
        ),
        _argument_rule(("curl",), " -u", rf""" -u\\{{0,3}}["']?(?!\+)[^\s:'"\\/]{{1,128}}:{_SHELL_ARGUMENT}"""),
        _argument_rule(("mysql", "mariadb"), " -p", rf" -p{_SHELL_ARGUMENT}"),
        _argument_rule(("sshpass", "mongosh", "mongodump"), " -p", rf" -p[ ]?{_SHELL_ARGUMENT}"),
        _argument_rule(("redis-cli",), " -a", rf" -a[ ]?{_SHELL_ARGUMENT}"),
        _argument_rule(("ldapsearch", "ldapadd", "ldapmodify"), " -w", rf" -w[ ]?{_SHELL_ARGUMENT}"),
        pattern_rule(
            "password",
            (" login ", '"login"', "'login'"),
            rf"""[ "']login{_OPTIONS}{_GAP}-p(?:=|{_GAP})?{_SHELL_ARGUMENT}""",
            accepts=_is_login_password,
        ),
        pattern_rule(
            "password",
            ("machine ",),
            EDGE
            + rf"machine \S{{1,128}}{_LINES}login {{1,8}}\S{{1,128}}{_LINES}password {{1,8}}(?P<secret>\S{{4,256}})",
        ),
        Rule(_NAMES, _assigned),
    ]
