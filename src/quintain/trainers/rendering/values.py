"""Argument values: JSON, Python literals, and text that a schema types."""

from __future__ import annotations

import ast
import json
import keyword
import re
import unicodedata
import warnings
from typing import Any

MAX_PYTHON = 50_000
"""Maximum characters of Python to parse: a syntax tree is much larger than its text."""

_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_TOOL = re.compile(r"[\w.-]{1,200}")
_BARE_KEY = re.compile(r"([{,]\s*)([^\s{}\[\],:\"]{1,200}):")
_SPACE = re.compile(r"\s*")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; write a finite number, a string or null")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def decode(text: str) -> Any:
    """Parse a text as JSON."""
    return _decoder.decode(text)


def decode_at(text: str, place: int) -> tuple[Any, int]:
    """Parse the JSON value at a position, after white space; return it with its end. Raises as `decode`."""
    space = _SPACE.match(text, place)
    return _decoder.raw_decode(text, space.end() if space else place)


def decode_quoted(text: str, place: int, quote: str, close: str) -> tuple[Any, int]:
    """Parse JSON with bare keys and unescaped strings between special marks; return it with the end of its closing mark.

    Raises:
        ValueError: It is not such a value, or not closed.
        RecursionError: It is nested too deeply.
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


def parse_untyped(text: str, schema: Any) -> Any:
    """Parse a value that was written without its type, as in XML forms.

    It is a string where the schema allows nothing else; otherwise JSON or a Python literal of a type that the schema allows;
    otherwise the text itself.
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
        try:  # some templates write Python lists and objects
            value = _literal(_python(word))
        except (ValueError, RecursionError, MemoryError):
            return text
    return value if not types or "string" not in types or _types_of(value) & types else text


def _types(schema: Any) -> set[str]:
    """Return the JSON types that a schema allows; empty if unknown."""
    if not isinstance(schema, dict):
        return set()
    types = schema.get("type")
    if isinstance(types, str):
        return {types}
    if isinstance(types, list):
        return {name for name in types if isinstance(name, str)}
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return {"string"}
    either: list[Any] = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), [])
    kinds = [_types(inner) for inner in either if isinstance(inner, dict) and not {"anyOf", "oneOf"} & inner.keys()]
    return set().union(*kinds) if kinds and all(kinds) else set()


def _types_of(value: Any) -> set[str]:
    """Return the JSON schema names of a value's type."""
    if value is None or isinstance(value, (bool, str, list, dict)):
        kinds: dict[type, str] = {bool: "boolean", str: "string", list: "array", dict: "object"}
        return {kinds.get(type(value), "null")}
    return {"number", "integer"} if isinstance(value, int) or float(value).is_integer() else {"number"}


def python_calls(text: str, limit: int) -> list[tuple[str, dict[str, Any]]]:
    """Parse `[tool(argument=value), ...]` with literal values; nothing is executed.

    Raises:
        ValueError: It is something else, longer than `MAX_PYTHON`, or has more than `limit` calls.
        RecursionError, MemoryError: It is nested too deeply.
    """
    tree = _python(text.strip())
    calls = tree.elts if isinstance(tree, ast.List) else [tree]
    if not 1 <= len(calls) <= limit:
        raise ValueError(f"expected 1 to {limit} calls, got {len(calls)}")
    return [_python_call(call) for call in calls]


def python_call(name: str, arguments: Any) -> str:
    """Return a call as `python_calls` parses it; arguments that are not an object are written as they are."""
    if not isinstance(arguments, dict):
        return f"{name}({arguments})"
    named = [f"{key}={_written(value)}" for key, value in arguments.items() if _is_argument(key)]
    others = {key: value for key, value in arguments.items() if not _is_argument(key)}
    return f"{name}({', '.join([*named, *([f'**{_written(others)}'] if others else [])])})"


def _is_argument(key: str) -> bool:
    return key.isidentifier() and not keyword.iskeyword(key) and unicodedata.is_normalized("NFKC", key)


def _written(value: Any) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(map(_written, value))}]"
        case dict():
            return f"{{{', '.join(f'{_written(key)}: {_written(item)}' for key, item in value.items())}}}"
    return repr(value)


def _python(text: str) -> ast.expr:
    """Parse a Python expression; raises as `python_calls`."""
    if len(text) > MAX_PYTHON:
        raise ValueError(f"expected at most {MAX_PYTHON} characters, got {len(text)}")
    with warnings.catch_warnings():  # of odd escapes in strings
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"{error.msg} (line {error.lineno}, column {error.offset})") from None


def _python_call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    prefix = ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):  # a name with hyphens
        prefix, node = f"{ast.unparse(node.left).replace(' ', '')}-", node.right
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("calls must be written as `[tool(argument=value)]`, every argument with its name")
    if not _TOOL.fullmatch(name := prefix + ast.unparse(node.func)):
        raise ValueError("expected an identifier, with or without dots and hyphens, as the name of a tool")
    arguments: dict[str, Any] = {}
    for given in node.keywords:
        value = _literal(given.value)
        if given.arg is None and not isinstance(value, dict):
            raise ValueError("expected `**` before an object of arguments only")
        arguments |= value if given.arg is None else {given.arg: value}
    return name, arguments


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
    raise ValueError("expected a literal as value: a string, number, list, dict, True, False or None")
