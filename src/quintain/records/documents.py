"""Settings files in YAML or JSON, as people write them: small, plain, and without surprises.

A key that is given twice, a YAML anchor (one line of which can stand for gigabytes) and anything but a mapping are refused.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.errors import InvalidInput, NotFound
from quintain.records.record import clip, shown

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
"""A settings file is shorter than this."""


def read_document(path: Path) -> dict[str, Any]:
    """The mapping in a `.yaml`, `.yml` or `.json` file.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it is too long, not of these formats, or holds no mapping.
    """
    readers = {".yaml": parse_yaml, ".yml": parse_yaml, ".json": _parse_json}
    if path.suffix.lower() not in readers:
        raise InvalidInput(
            f"{path} is neither YAML nor JSON by its name; call it .yaml, .yml or .json", code="bad_config"
        )
    content = _content(path)
    if len(content) > MAX_BYTES:
        raise InvalidInput(
            f"{path} holds more than {MAX_BYTES:,} bytes; settings are short, data belongs into a dataset",
            code="bad_config",
        )
    document = _parsed(readers[path.suffix.lower()], content, str(path))
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise InvalidInput(
            f"{path} holds {type(document).__name__}; it must be a mapping from names to values", code="bad_config"
        )
    return dict(document)


def _content(path: Path) -> bytes:
    """The first `MAX_BYTES` of a regular file, and one more; a pipe or device never blocks and is never read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("it is no regular file")
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {clip(str(path), 300)!r}; name a YAML or JSON file") from None
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(
            f"{clip(str(path), 300)!r} cannot be read: {reason}; name a regular file that you may read"
        ) from None


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; anchors, tags and repeated keys are refused.

    Raises:
        ValueError: the text is not such YAML.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise ValueError(f"line {event.start_mark.line + 1} uses an anchor (& or *); write the value out")
            if (tag := getattr(event, "tag", None)) is not None:
                raise ValueError(f"line {event.start_mark.line + 1} uses a tag ({shown(tag)}); write the value plainly")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise ValueError(f"line {line} has a list or a mapping for a name; names are plain text")
                if key.value in seen:
                    raise ValueError(f"line {line} gives {shown(key.value)} again; give it once")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"it gives {', '.join(map(shown, sorted(twice)[:3]))} again; give it once")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _parsed(parse: Callable[[str], Any], content: bytes, name: str) -> Any:
    try:
        return parse(content.decode("utf-8-sig"))
    except RecursionError:
        raise InvalidInput(f"{name} is nested too deeply; settings are flat", code="bad_config") from None
    except ValueError as error:
        raise InvalidInput(f"{name} cannot be read: {error}", code="bad_config") from None
