"""All texts of a run are searched together: that search may be mistaken in one direction only."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.records.imports import BOTH_LEVELS
from quintain.records.trajectory import Trajectory
from quintain.redaction.redact import _may_contain_escaped_json, _Redactor, redact, texts_of
from quintain.redaction.search import texts_with_spans

KEY = "sk-ant-api03-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4-AbCdEf"
SECRETS = (
    KEY,
    "password=hunter22",
    '"api_key": "q1w2e3r4t5y6u7i8"',
    "postgres://app:s3cr3tpw@db.internal/app",
    "jane.doe@corp.quinceworks.io",
    "card 4556 7375 8689 9855",
    "DE89 3704 0044 0532 0130 00",
    "Authorization: Bearer mF_9.B5f-4.1JqMmF_9.B5f",
    "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAy8Dbv8prpJ/0kKhlGeJYozo2t60EG8L0561g13R29LvM\n" * 2,
)


def _escaped(text: str) -> str:
    """As JSON where every character is spelt by its number."""
    return '{"a": "' + "".join(f"\\u{ord(c):04x}" for c in text if ord(c) < 0x10000) + '"}'


HALVES = [half for secret in SECRETS for half in (secret[: len(secret) // 2], secret[len(secret) // 2 :])]
PIECES = st.sampled_from(
    [
        *SECRETS,
        *HALVES,
        *(json.dumps(secret)[1:-1] for secret in SECRETS),
        *(json.dumps({"a": secret}).replace("/", "\\/") for secret in SECRETS),
        *map(_escaped, SECRETS),
        *(
            "\0",
            "\n",
            "\\n",
            "\\",
            '"',
            "İ",
            "ẞ",
            "é",
            "\\u00e9",
            "𝒳",
            " ",
            "--token ",
            "_" * 50,
            "index",
            "tokens: ",
            "5" * 9,
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=4).map("".join)
NAMES = st.one_of(
    TEXTS, st.sampled_from(["password", "api_key", "name", "key", "value", "token", "max_tokens", "logprob", "id"])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, st.sampled_from(["hunter22", "q1w2e3r4t5y6u7i8", 123456, 0, None, True, 1.5])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
RUNS = st.builds(
    lambda prompt, asked, said, thought, args, raw, seen, extra, metadata, tags: Trajectory.model_validate(
        {
            "task": {"prompt": prompt, "metadata": {"m": metadata}},
            "steps": [
                {"actor": "user", "message": asked},
                {
                    "actor": "agent",
                    "message": [{"type": "text", "text": said}],
                    "thought": thought,
                    "actions": [{"tool": "f", "args": args, "raw_args": raw}],
                    "observations": [{"content": seen}],
                },
            ],
            "tags": tags,
            "extra": {"e": extra},
        }
    ),
    *(TEXTS, TEXTS, TEXTS, TEXTS),
    st.none() | st.dictionaries(NAMES, VALUES, max_size=3),
    *(st.none() | TEXTS, TEXTS, VALUES, VALUES, st.lists(TEXTS, max_size=2)),
)


@given(RUNS)
@settings(max_examples=60)
def test_a_run_that_the_search_lets_pass_holds_nothing_that_a_walk_through_its_fields_finds(run: Trajectory) -> None:
    """The walk of every field, without the search before it, is the measure: it finds the same, and counts the same."""
    walker = _Redactor()
    walked = walker.record(run)
    texts, is_named = texts_of(run)
    clean = redact(run)
    if walked is run:
        assert clean == run.model_copy(update={"redaction": BOTH_LEVELS})
    else:
        assert texts_with_spans(texts) or is_named or any(map(_may_contain_escaped_json, texts))
        assert clean.model_copy(update={"redactions": {}, "redaction": ()}) == walked
        told_twice = Counter[str]()
        if walked.task is not run.task and run.task.prompt == run.steps[0].message:
            told_twice = Counter(redact(Trajectory.model_validate(_saying(run.task.prompt))).redactions)
        assert Counter(clean.redactions) == walker.counts - told_twice


def _saying(text: str) -> dict[str, Any]:
    return {"steps": [{"actor": "agent", "message": text}]}


def test_a_secret_far_behind_others_is_found_in_its_own_text() -> None:
    """Texts are searched in blocks of 65,536 characters, whose borders fall anywhere in them."""
    for shift in range(-60, 5, 3):
        texts = ["-" * 40_000, "-" * (25_536 + shift), f" {KEY} ", "token"]
        assert texts_with_spans(texts) == {f" {KEY} "}


@pytest.mark.parametrize("value", ["hunter22", ["hunter22"], 123456])
def test_a_value_that_only_its_name_makes_a_secret_is_not_passed_over(value: Any) -> None:
    for held in ({"password": value}, [{"deep": {"db_password": value}}]):
        run = Trajectory.model_validate({**_saying("hello"), "extra": {"e": held}})
        assert redact(run).redactions == {"password": 1}
    if isinstance(value, str):
        run = Trajectory.model_validate({**_saying("hello"), "extra": {"e": {"name": "DB_PASSWORD", "value": value}}})
        assert redact(run).redactions == {"password": 1}
