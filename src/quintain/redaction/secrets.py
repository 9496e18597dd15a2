"""Redaction rules, and the rules for keys and tokens with a known format.

Every match contains a lower-case literal of its rule at a fixed distance from its start. One search for all literals in
the lower-cased text finds the positions to check. Patterns are anchored there and read one character class at a time,
so the time is linear in the text.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of text to redact."""

    start: int
    end: int
    kind: str


Reader = Callable[[str, int], Span | None]
"""Returns the span to redact at the position of a literal; None if there is none."""


@dataclass(frozen=True)
class Rule:
    """The literals of a secret, and the function that finds its span."""

    literals: tuple[str, ...]
    """Lower case."""
    read: Reader
    initials: str = ""
    """Possible first characters of the literals in their original case, as a fast filter; empty for any."""


ESCAPE = (
    r"(?<=\\[nrtbf])|(?<=\\u00[0-9A-Fa-f]{2})|(?<=%[0-9A-Fa-f]{2})"
    r"|(?<=\[[mK])|(?<=[\[;]\dm)|(?<=[\[;]\d\dm)|(?<=;\d\d\dm)"
)
"""Behind an escape such as `\\n` or `%3D`, or behind the colour of a terminal (`ESC[01;31m`)."""
EDGE = rf"(?:(?<![A-Za-z0-9_-])|{ESCAPE})"
"""The beginning of a word; letters of an escape do not belong to the word."""


def pattern_rule(
    kind: str,
    literals: tuple[str, ...],
    pattern: str | re.Pattern[str],
    *,
    back: int = 0,
    accepts: Callable[[str], bool] = lambda secret: True,
    initials: str = "",
) -> Rule:
    """Build a rule from a pattern that matches at a literal.

    Args:
        kind: The kind in the marker.
        literals: In lower case; each match contains one of them, `back` characters after its start.
        pattern: Its group `secret` is redacted, or the whole match without such a group.
        back: Number of characters of the match before the literal; negative if the literal starts first.
        accepts: A further condition on the redacted text.
        initials: See `Rule`.
    """
    compiled = re.compile(pattern)
    group = "secret" if "secret" in compiled.groupindex else 0

    def read(text: str, at: int) -> Span | None:
        found = compiled.match(text, at - back) if at >= back else None
        if found is None or found[group].startswith("[REDACTED:") or not accepts(found[group]):
            return None
        return Span(*found.span(group), kind)

    return Rule(literals, read, initials)


_DIGIT = re.compile(r"\d")


def has_digit(secret: str) -> bool:
    """Return whether a text contains a digit, as keys do and words do not."""
    return _DIGIT.search(secret) is not None


_LONG_RUN = re.compile(r"[A-Za-z0-9]{16,}")


def _has_key_run(secret: str) -> bool:
    """Return whether a text contains a long run of letters and digits, unlike the style name `sk-container-id-1`."""
    run = _LONG_RUN.search(secret)
    return run is not None and (has_digit(secret) or len(run.group()) >= 32)


_W = r"[A-Za-z0-9_-]"
_HEX_PAIRS = tuple(f"{n:02x}" for n in range(256))

_GITLAB_TOKENS = ("pat", "dt", "ptt", "rt", "ft", "soat", "cbt", "imt", "agent", "oas")
"""Between `gl` and the hyphen, by the type of the token (documentation of GitLab, "Token overview")."""

_TOKENS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("aws_key", ("absk",), EDGE + r"ABSK[A-Za-z0-9+/]{80,}={0,2}"),
    ("google_key", ("aiza",), EDGE + rf"AIza{_W}{{30,45}}"),
    ("google_key", ("ya29.",), rf"ya29\.{_W}{{20,2048}}"),
    ("google_key", ("gocspx-",), rf"GOCSPX-{_W}{{20,64}}"),
    ("google_key", ("1//0",), EDGE + rf"1//0{_W}{{30,200}}"),
    ("github_token", tuple(f"gh{c}_" for c in "pousr"), r"gh[pousr]_[A-Za-z0-9]{20,255}"),
    ("github_token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    (
        "gitlab_token",
        tuple(f"gl{name}-" for name in _GITLAB_TOKENS),
        rf"gl(?:{'|'.join(_GITLAB_TOKENS)})-{_W}{{20,1024}}(?:\.[0-9a-z.]{{9,12}})?",
    ),
    ("gitlab_token", ("gr1348941",), rf"GR1348941{_W}{{20,50}}"),
    ("anthropic_key", ("sk-ant-",), rf"sk-ant-{_W}{{16,256}}"),
    ("openai_key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), rf"sk-(?:proj|svcacct|admin)-{_W}{{20,256}}"),
    ("huggingface_token", ("hf_",), EDGE + r"hf_(?:oauth_)?[A-Za-z0-9]{20,64}"),
    ("huggingface_token", ("api_org_",), r"api_org_[A-Za-z0-9]{34}"),
    ("slack_token", tuple(f"xox{c}-" for c in "abeoprs"), r"xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    ("slack_token", ("xoxe.xox", "xapp-"), r"(?:xoxe\.xox[bp]|xapp)-[A-Za-z0-9-]{20,255}"),
    (
        "slack_token",
        ("hooks.slack.com",),
        r"hooks\.slack\.com\\?/(?:services|workflows|triggers)\\?/(?P<secret>[A-Za-z0-9_/\\]{16,200})",
    ),
    (
        "api_key",
        ("infura.io/", "alchemy.com/"),
        r"(?i:infura\.io|alchemy\.com)/(?:ws/)?v[23]/(?P<secret>[A-Za-z0-9_-]{32,40})(?![\w-])",
    ),
    ("api_key", ("quiknode.pro/",), r"(?i:quiknode\.pro)/(?P<secret>[0-9a-f]{40})(?!\w)"),
    ("discord_token", ("/webhooks/",), r"/webhooks/\d{15,22}/(?P<secret>[\w-]{50,100})"),
    ("discord_token", ("mfa.",), EDGE + rf"mfa\.{_W}{{80,95}}"),
    (
        "api_key",
        ("wandb login ", "wandb.login("),
        r"(?i:wandb)(?: login (?:--[\w-]+(?:[ =]https?:\S+)?[ ]){0,6}|\.login\([^)\n]{0,80}?)"
        r"(?<![0-9A-Za-z])(?P<secret>[0-9a-f]{40})(?!\w)",
    ),
    ("stripe_key", ("sk_live_", "rk_live_", "sk_test_", "rk_test_"), r"[rs]k_(?:live|test)_[0-9A-Za-z]{16,255}"),
    ("stripe_key", ("whsec_",), r"whsec_[A-Za-z0-9+/]{24,64}"),
    ("square_key", ("sq0csp-", "sq0csb-"), rf"sq0cs[pb]-{_W}{{40,50}}"),
    ("sendgrid_key", ("sg.",), EDGE + rf"SG\.{_W}{{16,32}}\.{_W}{{32,64}}"),
    ("twilio_key", tuple(f"sk{pair}" for pair in _HEX_PAIRS), EDGE + r"SK[0-9a-fA-F]{32}(?![0-9A-Za-z])"),
    ("npm_token", ("npm_",), EDGE + r"npm_[A-Za-z0-9]{30,64}"),
    ("pypi_token", ("pypi-ageichlwas5vcmc", "pypi-agendgvzdc5wexbplm9yzw"), rf"pypi-Ag{_W}{{50,1024}}"),
    ("telegram_token", (":aa",), r"(?<=\d{8}):(?P<secret>AA[\w-]{32,35})(?![\w-])"),
    ("jwt", ("eyj",), EDGE + rf"eyJ{_W}{{8,}}\.{_W}{{8,}}(?:\.{_W}*){{0,3}}"),
    ("azure_key", ("accountkey=", "sharedaccesskey="), r"(?i:\w{6,15}Key)=(?P<secret>[A-Za-z0-9+/\\]{40,100}={0,2})"),
    ("azure_key", ("sig=",), r"(?i:sig)=(?P<secret>(?:[A-Za-z0-9/+]|%[0-9A-Fa-f]{2}){40,100}={0,2})"),
    ("aws_key", ("x-amz-signature=",), r"(?i:x-amz-signature)=(?P<secret>[0-9a-f]{64})"),
)
"""Kind, literals, pattern."""

_AZURE_MARKS = tuple(f"{version}q~" for version in range(10))
_DISCORD_IDS = tuple(base64.b64encode(f"{number}".encode()).decode().lower() for number in range(100, 1000))
"""A bot token begins with its id, 17 to 20 digits, in base64; these encode the first three digits."""
_FCM_KEY = EDGE + rf"AAAA{_W}{{7}}:{_W}{{140}}(?![\w-])"
"""A server key of Firebase Cloud Messaging. Its prefix `AAAA` is too frequent in base64 for a literal."""


_CLASSES = {
    "h": "[0-9a-f]",
    "H": "[0-9a-fA-F]",
    "a": "[A-Za-z0-9]",
    "w": "[A-Za-z0-9_-]",
    "b": "[A-Za-z0-9+/]",
    "digit": r"(?=[A-Za-z_-]*\d)",
}
"""Marks of `issuers.toml`."""


def _issued_keys() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the literals and the pattern of each row; short prefixes begin a word, keys of fixed length end one."""
    listed = tomllib.loads(Path(__file__).with_name("issuers.toml").read_text(encoding="utf-8"))
    for beginnings, rest in {" ".join(f"sk_{n:02x}" for n in range(256)): "<h>{46}", **listed}.items():
        literals = tuple(beginnings.split())
        edge = EDGE if min(map(len, literals)) < 6 else ""
        end = "(?![0-9A-Za-z])" if re.search(r"\{\d+\}$", rest) else ""
        for name, characters in _CLASSES.items():
            rest = rest.replace(f"<{name}>", characters)
        yield literals, rf"{edge}(?i:{'|'.join(map(re.escape, literals))}){rest}{end}"


def token_rules() -> list[Rule]:
    """Return the rules for tokens with a known format."""
    own = [pattern_rule(kind, literals, pattern) for kind, literals, pattern in _TOKENS]
    keys = [pattern_rule("api_key", literals, pattern) for literals, pattern in _issued_keys()]
    return [
        *own,
        *keys,
        pattern_rule(
            "aws_key",
            ("a3t", "abia", "acca", "akia", "asia"),
            r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}",
            accepts=lambda key: not key.endswith("EXAMPLE"),  # as in the documentation of AWS
        ),
        # One of the ids is written `NDEx`, and `index` is a frequent word.
        pattern_rule(
            "discord_token",
            _DISCORD_IDS,
            EDGE + rf"[MNO]{_W}{{23,27}}\.{_W}{{6}}\.{_W}{{27,45}}(?![\w-])",
            initials="MNO",
        ),
        pattern_rule("google_key", tuple(f"{before}aaaa" for before in " \n=:,\"'`([>"), _FCM_KEY, back=-1),
        pattern_rule("google_key", (":apa91b",), _FCM_KEY, back=11),
        # Short or common prefixes: the rest must look like a key.
        pattern_rule(
            "openai_key",
            ("sk-",),
            EDGE + rf"sk-(?!ant-|or-v1-|lf-|proj-|svcacct-|admin-){_W}{{20,256}}",
            accepts=_has_key_run,
        ),
        pattern_rule("api_key", (".atlasv1.",), rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_W}{{60,80}}", back=14),
        pattern_rule("azure_key", _AZURE_MARKS, r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}", back=3),
        pattern_rule("api_key", ("_mmk",), r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)", back=36),
        pattern_rule(
            "api_key",
            (".webhook.office.com/",),
            r"\.webhook\.office\.com/webhookb2/(?P<secret>[\w@-]{36,80}/IncomingWebhook/[\w/-]{32,80})",
        ),
        pattern_rule("mailchimp_key", tuple(f"-us{n}" for n in range(1, 10)), r"[0-9a-f]{32}-us\d{1,2}(?!\w)", back=32),
    ]
