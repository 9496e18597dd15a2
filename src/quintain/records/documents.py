"""Settings files in YAML, JSON or TOML.

Duplicate keys, YAML anchors (which can expand one line to gigabytes) and anything but a mapping are rejected.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.errors import InvalidInput, NotFound
from quintain.records.wording import clip, shown

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000


def read_document(path: Path) -> dict[str, Any]:
    """Read the mapping in a `.yaml`, `.yml` or `.json` file.

    Raises:
        NotFound: The file does not exist.
        InvalidInput: The file is too long, has another format, or does not contain a mapping.
    """
    if path.suffix.lower() not in READERS or path.suffix.lower() == ".jsonl":
        raise InvalidInput(
            f"expected settings in a file that ends in .yaml, .yml or .json, got {path}; write `name: value` lines in such a file",
            code="bad_config",
        )
    document = read_value(path)
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise InvalidInput(
            f"expected a mapping from names to values in {path}, got {type(document).__name__}", code="bad_config"
        )
    return dict(document)


def read_value(path: Path) -> Any:
    """Read the value in a file that ends as one of `READERS`; of a `.jsonl` file the list of its lines' values.

    Raises:
        NotFound: The file does not exist.
        InvalidInput: The file is too long or has another format.
    """
    content = _content(path)
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"expected at most {MAX_BYTES:,} bytes of settings in {path}, got more; put data in a dataset",
            code="bad_config",
        )
    try:
        return READERS[path.suffix.lower()](content.decode("utf-8-sig"))
    except RecursionError:
        raise InvalidInput(f"expected flat settings in {path}, got deep nesting", code="bad_config") from None
    except ValueError as error:
        raise InvalidInput(f"cannot read {path}: {error}", code="bad_config") from None


def read_toml(path: Path, code: str) -> dict[str, Any]:
    """Read the tables of one of the operator's TOML files; there are none where there is no file.

    Raises:
        InvalidInput: The file cannot be read; with `code` where it is too long or not TOML.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); give this user read permission") from None
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"expected at most {MAX_BYTES:,} bytes in {path}, got {len(content):,}", code=code)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"expected TOML in UTF-8 in {path}, got: {str(error)[:200]}", code=code) from None


def _content(path: Path) -> bytes:
    """Read at most `MAX_BYTES` + 1 bytes of a regular file. Pipes and devices are never read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("not a regular file")
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"cannot find {clip(str(path), 300)!r}; pass a YAML or JSON file") from None
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot read {clip(str(path), 300)!r}: {reason}; pass a readable regular file") from None


def parse_yaml(text: str) -> Any:
    """Parse YAML without anchors, tags and duplicate keys.

    Raises:
        ValueError: The text is not such YAML.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise ValueError(f"line {event.start_mark.line + 1} uses an anchor (& or *); write out the value")
            if (tag := getattr(event, "tag", None)) is not None:
                raise ValueError(f"line {event.start_mark.line + 1} uses a tag ({shown(tag)}); write a plain value")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise ValueError(f"expected a text as name in line {line}, got a list or mapping")
                if key.value in seen:
                    raise ValueError(f"line {line} repeats {shown(key.value)}; define it once")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a JSON object; refuse names that occur more than once."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"duplicate names {', '.join(map(shown, twice[:3]))}; define each once")
    return fields


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=distinct)


def _parse_lines(text: str) -> list[Any]:
    return [_parse_json(line) for line in text.splitlines() if line.strip()]


READERS = {".yaml": parse_yaml, ".yml": parse_yaml, ".json": _parse_json, ".jsonl": _parse_lines}
