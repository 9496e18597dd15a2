"""Values of arguments as models write them: JSON, Python literals, and text whose type only a schema tells."""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

MAX_PYTHON = 50_000
"""Characters of Python that are read: a syntax tree takes far more room than its text."""

_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_TOOL = re.compile(r"[\w.]{1,200}")
_BARE_KEY = re.compile(r"([{,]\s*)([^\s{}\[\],:\"]{1,200}):")
_SPACE = re.compile(r"\s*")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; write a finite number, a string or null")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def decode(text: str) -> Any:
    """The JSON value that a text is.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deep.
    """
    return _decoder.decode(text)


def decode_at(text: str, place: int) -> tuple[Any, int]:
    """The JSON value that begins at a place or after white space there, and where it ends; raises as `decode`."""
    space = _SPACE.match(text, place)
    return _decoder.raw_decode(text, space.end() if space else place)


def decode_quoted(text: str, place: int, quote: str, close: str) -> tuple[Any, int]:
    """JSON with bare keys whose strings stand between marks of their own and are not escaped, and where its end mark ends.

    Args:
        text: Holds it.
        place: Where it begins.
        quote: The mark around strings.
        close: The mark behind the whole.

    Raises:
        ValueError: it is none, or not closed.
        RecursionError: it is nested too deep.
    """
    pieces: list[str] = []
    opened = -1
    for mark in re.compile(f"{re.escape(quote)}|{re.escape(close)}").finditer(text, place):
        if opened >= 0 and mark[0] == quote:
            pieces.append(json.dumps(text[opened : mark.start()]))
            opened, place = -1, mark.end()
        elif opened < 0:
            pieces.append(_BARE_KEY.sub(r'\1"\2":', text[place : mark.start()]).replace("None", "null"))
            if mark[0] == close:
                return decode("".join(pieces)), mark.end()
            opened = mark.end()
    raise ValueError(f"a call is not closed; end it with {close}")


def typed(text: str, schema: Any) -> Any:
    """A value that was written without its type, as XML forms do.

    A string where the schema allows nothing else; else JSON, or the words that Python has for it, where the schema allows
    what that is; else the text itself.

    Args:
        text: The value as it was written.
        schema: The argument's JSON schema; anything else counts as unknown.
    """
    types = _types(schema)
    if types == {"string"}:
        return text
    word = text.strip()
    try:
        value = _WORDS[word] if word in _WORDS else decode(text)
    except (ValueError, RecursionError):
        if word[:1] not in {"[", "{"}:
            return text
        try:  # some templates write lists and objects as Python does
            value = _literal(_python(word))
        except (ValueError, RecursionError, MemoryError):
            return text
    return value if not types or "string" not in types or _types_of(value) & types else text


def _types(schema: Any) -> set[str]:
    """The JSON types that a schema allows; empty where it does not say."""
    if not isinstance(schema, dict):
        return set()
    given = schema.get("type")
    if isinstance(given, str):
        return {given}
    if isinstance(given, list):
        return {kind for kind in given if isinstance(kind, str)}
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return {"string"}
    either: list[Any] = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), [])
    kinds = [_types(inner) for inner in either if isinstance(inner, dict) and not {"anyOf", "oneOf"} & inner.keys()]
    return set().union(*kinds) if kinds and all(kinds) else set()


def _types_of(value: Any) -> set[str]:
    """The names that JSON schema has for a value's type."""
    if value is None or isinstance(value, (bool, str, list, dict)):
        kinds: dict[type, str] = {bool: "boolean", str: "string", list: "array", dict: "object"}
        return {kinds.get(type(value), "null")}
    return {"number", "integer"} if isinstance(value, int) or float(value).is_integer() else {"number"}


def python_calls(text: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of `[tool(argument=value), ...]`: literals only, nothing is ever run.

    Raises:
        ValueError: it is anything else, longer than `MAX_PYTHON`, or more than `limit` calls.
        RecursionError, MemoryError: it is nested too deep.
    """
    tree = _python(text.strip())
    calls = tree.elts if isinstance(tree, ast.List) else [tree]
    if not 1 <= len(calls) <= limit:
        raise ValueError(f"it has {len(calls)} calls; 1 to {limit} can be read")
    return [_python_call(call) for call in calls]


def _python(text: str) -> ast.expr:
    """A Python expression, parsed and not run; raises as `python_calls`."""
    if len(text) > MAX_PYTHON:
        raise ValueError(f"it has {len(text)} characters; {MAX_PYTHON} can be read")
    with warnings.catch_warnings():  # of odd escapes in strings
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"{error.msg} (line {error.lineno}, column {error.offset})") from None


def _python_call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("calls must be written as `[tool(argument=value)]`, every argument with its name")
    if not _TOOL.fullmatch(name := ast.unparse(node.func)):
        raise ValueError("the name of a tool must be an identifier, with dots or without")
    return name, {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            names = [_literal(key) if key else None for key in keys]
            if all(isinstance(name, str) for name in names):
                return dict(zip(names, map(_literal, values), strict=True))
    raise ValueError("a value is no literal; write a string, number, list, dict, True, False or None")
