"""Data files of the built-in environments: read when first used, and checked against a shape."""

from __future__ import annotations

from importlib.resources import files
from typing import TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def read_data(path: str, shape: type[T]) -> T:
    """Return the contents of a YAML file as a value of the given shape.

    Callers cache the result, so that a file is read once and only by processes that play its environment.

    Args:
        path: File below `quintain/environments`, such as `math/data/stories.yaml`.
        shape: Any type that pydantic validates: a NamedTuple, a dataclass, a mapping of them.
    """
    import yaml  # only processes that play an environment need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load((files("quintain.environments") / path).read_bytes(), loader)
    return TypeAdapter(shape).validate_python(document)
