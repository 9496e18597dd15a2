"""Check the JSON of an answer against a JSON schema (2020-12), with bounds on what a schema may cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from quintain.checkers.json_equality import TooDeepError, stated_json
from quintain.checkers.patterns import TIMEOUT_S, compile_pattern
from quintain.records.score import CheckResult

MAX_REFERENCES = 1000
"""References followed in one check; schemas can double their work with each reference."""
_UNSUPPORTED = ("patternProperties", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef")
"""Keywords that match patterns without a time limit, or follow references without a bound."""


class _TooCostlyError(Exception):
    """The check exceeded a bound."""


def require_schema(schema: Mapping[str, Any]) -> None:
    """Check that a schema can be used.

    Raises:
        ValueError: It is not a JSON schema, or has an unsupported keyword.
    """
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        list(_validator(schema).iter_errors(None))
    except jsonschema.SchemaError as error:
        raise ValueError(f"expected a JSON schema (2020-12), got {error.message[:200]}") from None
    except (_TooCostlyError, RecursionError, ValueError, TypeError) as error:
        raise ValueError(f"expected a JSON schema (2020-12), got one that cannot be used: {error}") from None


def check_schema(schema: Mapping[str, Any], message: str) -> CheckResult:
    """Score 1 if the JSON of a message fits the schema, else 0; no score where the check exceeds a bound.

    The last fenced block of the message counts, else the message itself.
    """
    import jsonschema

    validator = _validator(schema)
    try:
        stated = stated_json(message)
    except TooDeepError:
        return CheckResult(None, "the JSON of the last message is nested too deeply to parse")
    except ValueError as error:
        return CheckResult(0.0, str(error))
    try:
        fault = next(validator.iter_errors(stated), None)
    except (_TooCostlyError, RecursionError) as error:
        return CheckResult(None, f"the schema takes too much work on this message: {error}; simplify it")
    except (jsonschema.exceptions._WrappedReferencingError, jsonschema.SchemaError) as error:
        return CheckResult(None, f"the schema cannot be used: {str(error)[:200]}")
    if fault is None:
        return CheckResult(1.0, "The JSON fits the schema.")
    return CheckResult(0.0, f"The JSON does not fit at {fault.json_path[:100]}: {fault.message[:200]}")


def schema_fault(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return why a value does not fit a schema; None: it fits, or the schema cannot be used."""
    import jsonschema

    try:
        require_schema(schema)
        fault = next(_validator(schema).iter_errors(value), None)
    except (_TooCostlyError, RecursionError, ValueError, jsonschema.exceptions._WrappedReferencingError):
        return None
    return None if fault is None else f"{fault.message[:300]} at {fault.json_path[:100]}"


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_REFERENCES


def _validator(schema: Mapping[str, Any]) -> Any:
    """Return the validator of a schema for one check, with its whole budget of references."""
    validator, budget = _bounded_validator(json.dumps(schema, sort_keys=True))
    budget.left = MAX_REFERENCES
    return validator


@lru_cache(maxsize=64)
def _bounded_validator(schema: str) -> tuple[Any, _Budget]:
    """Return the validator of a schema, which never fetches one and bounds patterns and references, and its budget."""
    import referencing
    from jsonschema import Draft202012Validator, validators

    budget = _Budget()
    follow = Draft202012Validator.VALIDATORS["$ref"]

    def reference(validator: Any, target: Any, instance: Any, inside: Any) -> Iterator[Any]:
        budget.left -= 1
        if budget.left < 0:
            raise _TooCostlyError(f"more than {MAX_REFERENCES} references")
        yield from follow(validator, target, instance, inside) or ()

    def refuse(keyword: str) -> Any:
        def check(validator: Any, value: Any, instance: Any, inside: Any) -> Iterator[Any]:
            raise _TooCostlyError(f"{keyword} is not supported")

        return check

    inherited = Draft202012Validator.VALIDATORS["additionalProperties"]

    def additional(validator: Any, value: Any, instance: Any, inside: Any) -> Iterator[Any]:
        if "patternProperties" in inside:  # it would match these patterns itself
            raise _TooCostlyError("patternProperties is not supported")
        yield from inherited(validator, value, instance, inside) or ()

    allowed = {"$ref": reference, "additionalProperties": additional, "pattern": _pattern}
    allowed |= {name: refuse(name) for name in _UNSUPPORTED}
    kind = validators.extend(Draft202012Validator, allowed)
    return kind(_without_dialect(json.loads(schema)), registry=referencing.Registry()), budget


def _without_dialect(schema: Any) -> Any:
    """Return a schema without its `$schema`; an inner one would bring back the validator without bounds."""
    inner = [schema] if not isinstance(schema, dict) else [v for name, v in schema.items() if name != "$schema"]
    while inner:
        part = inner.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$schema"), str):
                raise ValueError("only the schema itself can have $schema")
            inner.extend(part.values())
        elif isinstance(part, list):
            inner.extend(part)
    return {name: v for name, v in schema.items() if name != "$schema"} if isinstance(schema, dict) else schema


def _pattern(validator: Any, pattern: Any, instance: Any, inside: Any) -> Iterator[Any]:
    import jsonschema

    if not isinstance(instance, str):
        return
    try:
        found = compile_pattern(pattern, "").search(instance, timeout=TIMEOUT_S)
    except (TimeoutError, ValueError, MemoryError) as error:
        raise _TooCostlyError(f"the pattern {pattern[:60]!r} cannot be searched: {error}") from None
    if found is None:
        yield jsonschema.ValidationError(f"{instance[:60]!r} does not match {pattern[:60]!r}")
