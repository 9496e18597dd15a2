"""The difference between two JSON values as a small overlay (after JSON Merge Patch, RFC 7386).

In an object, null removes a key; lists of equal length are compared by place. Where that is ambiguous, the overlay
contains the whole value under `=`.
"""

from __future__ import annotations

from typing import Any

WHOLE = "="


def make_overlay(target: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the overlay that turns `base` into `target`; empty if they are equal."""
    found = _difference(target, base)
    return found if apply_overlay(base, found) == target else {WHOLE: target}


def apply_overlay(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Return the base with the overlay applied; neither is modified."""
    if overlay.keys() == {WHOLE}:
        return dict(overlay[WHOLE]) if isinstance(overlay[WHOLE], dict) else base
    return _merged(base, overlay)  # type: ignore[no-any-return]


def _difference(target: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(base.keys() - target.keys())
    for key, value in target.items():
        if key not in base:
            found[key] = value
        elif not _equal(value, base[key]):
            found[key] = _deeper(value, base[key])
    return found


def _deeper(target: Any, base: Any) -> Any:
    if isinstance(target, dict) and isinstance(base, dict):
        return _difference(target, base)
    if isinstance(target, list) and isinstance(base, list) and len(target) == len(base):
        pairs = [(str(i), one, other) for i, (one, other) in enumerate(zip(target, base, strict=True))]
        if all(isinstance(one, dict) and isinstance(other, dict) for _, one, other in pairs):
            return {place: _difference(one, other) for place, one, other in pairs if not _equal(one, other)}
    return target


def _merged(base: Any, overlay: Any) -> Any:
    if isinstance(base, dict) and isinstance(overlay, dict):
        merged = dict(base)
        for key, value in overlay.items():
            if key not in base:
                merged[key] = value
            elif value is None:
                del merged[key]
            else:
                merged[key] = _merged(base[key], value)
        return merged
    if isinstance(base, list) and isinstance(overlay, dict):
        return [_merged(item, overlay.get(str(i), {})) if str(i) in overlay else item for i, item in enumerate(base)]
    return overlay


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
