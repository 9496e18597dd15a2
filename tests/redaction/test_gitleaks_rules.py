"""Redaction against the public rules of gitleaks: one token for each rule, made at run time so that no scanner finds it here."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path

import pytest
import yaml

from quintain.redaction.redact import redact_text

_LOWER, _ALL = string.ascii_lowercase + string.digits, string.ascii_letters + string.digits
_CLASSES = {
    **{"h": "0123456789abcdef", "H": "0123456789ABCDEF", "d": string.digits, "n": _LOWER, "a": _ALL},
    **{"U": string.ascii_uppercase + string.digits, "w": _ALL + "_-", "b": _ALL + "+/"},
}
RULES = yaml.safe_load(Path(__file__).with_name("gitleaks_rules.yaml").read_text("utf-8"))


def token(shape: str, seed: str) -> tuple[str, str]:
    """A token of a shape, and its last random part; these begin and end with a letter or digit, and hold a digit."""
    draw, parts = random.Random(seed), [""]

    def part(found: re.Match[str]) -> str:
        length, characters = int(found[2]), _CLASSES[found[1]]
        text = draw.choices(characters, k=length)
        text[0], text[-1] = (draw.choice([c for c in characters if c.isalnum()]) for _ in range(2))
        text[length // 2] = "7"
        parts.append("".join(text))
        return parts[-1]

    return re.sub(r"<([hHdnaUwb])(\d+)>", part, shape), parts[-1]


@pytest.mark.parametrize("rule", RULES["alone"])
def test_a_token_with_a_shape_of_its_own_is_redacted(rule: str) -> None:
    secret, random_part = token(RULES["alone"][rule], rule)
    for around in ("{}", 'It is "{}" here.', "a\\n{}\\nb"):
        clean, counts = redact_text(around.replace("{}", secret))
        assert sum(counts.values()) >= 1, secret
        assert random_part not in clean


@pytest.mark.parametrize("rule", RULES["named"])
def test_a_token_under_the_name_of_its_service_is_redacted(rule: str) -> None:
    secret, _ = token(RULES["named"][rule], rule)
    name = rule.upper().replace("-", "_")
    camel = re.sub(r"-(\w)", lambda letter: letter[1].upper(), rule)
    for text in (f"{name}={secret}", f'{camel}: "{secret}"', f'"{name.lower()}": "{secret}"', f"{camel} := '{secret}'"):
        assert secret not in redact_text(text)[0], text


def test_the_list_names_each_rule_once() -> None:
    names = [rule for group in RULES.values() for rule in group]
    assert len(names) == len(set(names)) == 222
