"""Insert images from a row's image column where its messages mark them (`<image>` or an empty image part)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quintain.importers.protocol import Report
from quintain.importers.transcripts.field_values import as_dict, as_text, transpose_columns

_COLUMNS = ("images", "image", "image_paths", "image_urls")
_MARK = "<image>"
_BYTES = "images stored as bytes are left out; only images given by path or URL are kept"


def with_pictures(messages: Iterable[Any], row: Mapping[str, Any], report: Report) -> Iterable[Any]:
    """Return the messages with their row's images in order; unmarked images go before the first user message."""
    pictures = _pictures(row, report)
    if not pictures:
        return messages
    marked = [_marked(message, pictures) for message in messages]
    asked = next((n for n, message in enumerate(marked) if as_dict(message).get("role") == "user"), None)
    if pictures and asked is not None:
        content = marked[asked].get("content")
        rest = content if isinstance(content, list) else [{"type": "text", "text": as_text(content)}]
        marked[asked] = {**marked[asked], "content": [*pictures, *rest]}
    return marked


def _pictures(row: Mapping[str, Any], report: Report) -> list[dict[str, Any]]:
    pictures = next((transpose_columns(row[key]) for key in _COLUMNS if row.get(key)), None)
    found = []
    for picture in pictures if isinstance(pictures, list) else [pictures]:
        named = (picture, *(as_dict(picture).get(key) for key in ("path", "url", "uri")))
        place = next((each for each in named if isinstance(each, str) and each), None)
        if place is not None:
            found.append({"type": "image_url", "image_url": {"url": place}})
        elif picture:
            report.note(_BYTES)
    return found


def _marked(message: Any, pictures: list[dict[str, Any]]) -> Any:
    """Replace the image marks of a message and remove the images used from the list."""
    content = as_dict(message).get("content")
    if isinstance(content, list):
        empty = [set(as_dict(part)) == {"type"} and as_dict(part)["type"] in ("image", "image_url") for part in content]
        filled = [pictures.pop(0) if hole and pictures else part for part, hole in zip(content, empty, strict=True)]
        return {**message, "content": filled} if any(empty) else message
    if not isinstance(content, str) or _MARK not in content or not pictures:
        return message
    parts: list[Any] = []
    before, *rest = content.split(_MARK)
    for piece in rest:
        leading_text, before = before, piece
        parts += [{"type": "text", "text": leading_text}] if leading_text else []
        parts.append(pictures.pop(0) if pictures else {"type": "text", "text": _MARK})
    return {**message, "content": [*parts, *([{"type": "text", "text": before}] if before else [])]}
