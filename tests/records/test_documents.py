from __future__ import annotations

import json
from pathlib import Path

import pytest

from quintain.errors import InvalidInput, NotFound
from quintain.records.documents import MAX_BYTES, parse_yaml, read_document


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_yaml_and_json_files_of_the_same_settings_read_alike(tmp_path: Path) -> None:
    content = {"method": "sft", "hyperparameters": {"epochs": 2, "lora": {"targets": ["q_proj"]}}}
    yaml = "method: sft\nhyperparameters:\n  epochs: 2\n  lora: {targets: [q_proj]}\n"
    assert read_document(written(tmp_path, "a.yaml", yaml)) == content
    assert read_document(written(tmp_path, "a.YML", yaml)) == content
    assert read_document(written(tmp_path, "a.json", json.dumps(content))) == content


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "x = 1", ["a.toml", ".yaml", ".json"]),
        ("a.yaml", "epochs: 1\nlr: 1\nepochs: 2\n", ["line 3", "'epochs'", "once"]),
        ("a.yaml", "a:\n  b: 1\n  b: 1\n", ["line 3", "'b'"]),
        ("a.json", '{"a": {"b": 1, "b": 2}}', ["'b'", "once"]),
        ("a.yaml", BOMB, ["line 1", "anchor"]),
        ("a.yaml", "a: *b\n", ["line 1", "anchor"]),
        ("a.yaml", "a: !!python/object/apply:os.system [echo]\n", ["line 1", "tag"]),
        ("a.yaml", "a: !!bool x\n", ["line 1", "tag"]),
        ("a.yaml", "a: 1\n? [a, b]\n: 2\n", ["line 2", "expected a text as name"]),
        ("a.yaml", "a:\n  ? {b: 1}\n  : 2\n", ["line 2", "expected a text as name"]),
        ("a.yaml", "- 1\n- 2\n", ["list", "mapping"]),
        ("a.yaml", "1: 2\n", ["mapping from names"]),
        ("a.yaml", "", ["NoneType", "mapping"]),
        ("a.yaml", "a: [1, 2\n", ["cannot read"]),
        ("a.json", "{", ["cannot read"]),
        ("a.json", "[" * 100_000, ["deep nesting"]),
        ("a.yaml", "a: " + "[" * 1_000, ["deep nesting"]),
        ("a.yaml", "a: " + "x" * MAX_BYTES, ["1,000,000 bytes"]),
    ],
)
def test_a_file_that_is_no_plain_mapping_is_refused_with_the_place(
    tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_document(written(tmp_path, name, text))
    assert raised.value.code == "bad_config"
    assert [word for word in words if word not in raised.value.message] == [], raised.value.message


def test_a_missing_or_binary_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.yaml"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="cannot read"):
        read_document(tmp_path / "a\0.yaml")
    (tmp_path / "b.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(InvalidInput, match="cannot read"):
        read_document(tmp_path / "b.yaml")
    with pytest.raises(InvalidInput, match="cannot read"):
        read_document(tmp_path.rename(tmp_path.with_suffix(".yaml")))


def test_yaml_values_keep_their_types() -> None:
    assert [parse_yaml(text) for text in ("2", "true", "null", "{rank: 8}", "a b")] == [
        2,
        True,
        None,
        {"rank": 8},
        "a b",
    ]
