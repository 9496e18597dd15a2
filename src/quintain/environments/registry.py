"""Environments by reference: built-in ones, entry points of other packages, and those that a program registers.

A reference is an id with optional options: `quintain/inventory?difficulty=hard`. The option `tasks=FILE` gives any environment the
tasks of a file (`task_files`). Several environments with weights form a mixture, `{"quintain/inventory": 2, "acme/shop": 1}`, whose text
form is `mix(acme/shop=1,quintain/inventory=2)`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import from_json

from quintain.endpoints.profiles import find_profile
from quintain.environments.configuration import configuration
from quintain.environments.data_files import read_data
from quintain.environments.foreign.profiles import ForeignProfile, is_foreign, list_profiles
from quintain.environments.references import Reference, mixture_text, parse_reference, parts_of, write_reference
from quintain.environments.servers import PREFIX, ServerProfile, find_server, read_servers
from quintain.errors import Conflict, InvalidInput, NotFound, QuintainError, Unavailable
from quintain.extensions import ExtensionGroup, load
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import TaskSource
from quintain.records.wording import clip, explain, nearest

GROUP = "quintain.environments"
"""Entry-point group; each entry names a callable that returns a `TaskSource`."""

Factory = Callable[..., TaskSource]
"""Its keyword parameters, with annotations and defaults, are the environment's options; `**options` takes any others as text."""

SANDBOX_ID = "quintain/sandbox"
"""The environment whose tasks run commands."""

_BUILT_IN = {
    f"quintain/{name}": EntryPoint(f"quintain/{name}", f"quintain.environments.{value}", GROUP)
    for name, value in (
        ("inventory", "inventory:Inventory"),
        ("math", "math:Math"),
        ("conversation", "conversation:Conversation"),
        ("engineering", "conversation:Engineering"),
        ("advisory", "conversation:Advisory"),
        ("discussion", "conversation:Discussion"),
        ("sandbox", "sandbox:Sandboxed"),
        ("nim", "nim:Nim"),
        ("tasks", "questions:Questions"),
        ("tools-1k", "tools_1k:ThousandTools"),
        ("benchmark", "benchmarks:Benchmark"),
    )
}

EXTENSIONS = ExtensionGroup(GROUP, frozenset(_BUILT_IN))

PATH_OPTIONS = ("file", "tasks", "repos")
"""Options that name files or folders; callers that accept references from clients check these paths."""

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)*(?::[\w.-]+)?")
_registered: dict[str, Factory] = {}


def operator_endpoint(name: str) -> Endpoint:
    """Return an endpoint profile of the operator, for environments in which a model plays a user."""
    return find_profile(configuration().endpoints or Path("endpoints.toml"), name)


def environment_ids() -> list[str]:
    """Return the ids of all available environments, sorted; without those of the operator's file if it cannot be read."""
    try:
        profiles = [server.id for server in list_servers()] + [profile.id for profile in list_foreign()]
    except QuintainError:  # naming or listing them reports this error
        profiles = []
    return sorted({*_BUILT_IN, *EXTENSIONS.installed().entries, *_registered, *profiles})


def knows(environment_id: str) -> bool:
    """Whether there is an environment of this id; those of libraries, such as `gymnasium/ID`, may still lack the id."""
    return is_foreign(environment_id) or environment_id in environment_ids()


def list_foreign() -> list[ForeignProfile]:
    """Return the servers and tasksets of other libraries in the operator's file, sorted by id."""
    return list_profiles(configuration().servers)


def list_servers() -> list[ServerProfile]:
    """Return the MCP servers of the operator's file, sorted by name."""
    servers = read_servers(configuration().servers)
    return [servers[name] for name in sorted(servers)]


def register(environment_id: str, factory: Factory) -> None:
    """Register an environment in this process; jobs run in other processes and need an entry point.

    Raises:
        InvalidInput: an invalid id, or a factory that is not callable.
        Conflict: another environment has this id.
    """
    if not _ID.fullmatch(environment_id):
        raise InvalidInput(f"expected an environment id such as 'acme/shop', got {clip(environment_id)!r}")
    if not callable(factory):
        raise InvalidInput(f"expected a callable as the factory of {environment_id!r}, got {type(factory).__name__}")
    if environment_id in environment_ids():
        raise Conflict(f"environment id {environment_id!r} is taken; choose another id")
    _registered[environment_id] = factory


def task_source(reference: str | Mapping[str, float]) -> TaskSource:
    """Return the task source of an environment, or of a weighted mixture of several.

    Raises:
        NotFound: an unknown id; the message lists the known ones.
        InvalidInput: an unknown option or an invalid value, or as `references.parts_of`.
        Unavailable: the package of the environment cannot be imported, or its source cannot be made.
    """
    if (parts := parts_of(reference)) is not None:
        return _mixed(parts, task_source)
    assert isinstance(reference, str)
    name, options = parse_reference(reference)
    factory = _factory(name)
    try:
        if "tasks" not in options or "tasks" in inspect.signature(factory).parameters:
            return _complete(name, factory(**_checked(name, factory, options)))
        own = {option: value for option, value in options.items() if option != "tasks"}
        source = _complete(name, factory(**_checked(name, factory, own)))
    except (QuintainError, MemoryError):
        raise
    except Exception as error:  # other people's code
        raise Unavailable(
            f"{name} cannot be opened: {type(error).__name__}: {str(error)[:300]}; correct its options, or repair its package",
            code="environment_broken",
        ) from error
    from quintain.environments.tasks.task_files import FileTasks

    return FileTasks(source, Path(options["tasks"]))


def _complete(name: str, source: TaskSource) -> TaskSource:
    if missing := [member for member in ("id", "version", "tasks", "make") if not hasattr(source, member)]:
        raise Unavailable(
            f"expected {name} to return a task source with id, version, tasks and make, got {type(source).__name__} without "
            f"{', '.join(missing)}; repair its package",
            code="environment_broken",
        )
    return source


def open_source(reference: str | Mapping[str, float]) -> TaskSource:
    """Return the task source for a job; environments of other packages run in child processes, which can be killed.

    A package whose environment cannot hang sets the attribute `may_hang = False` on its factory.
    """
    if (parts := parts_of(reference)) is not None:
        return _mixed(parts, open_source)
    assert isinstance(reference, str)
    name, _ = parse_reference(reference)
    if getattr(_factory(name), "may_hang", name not in _BUILT_IN):
        from quintain.environments.isolation.isolated import IsolatedSource

        return IsolatedSource(reference, servers=configuration().servers)
    return task_source(reference)


def describe(environment_id: str) -> str:
    """Return a sentence on an environment: of the built-in ones from their data, else the first line of the factory's docstring."""
    if (sentence := _descriptions().get(environment_id)) is not None:
        return sentence
    return next(iter((inspect.getdoc(_factory(environment_id)) or "").splitlines()), "")


@cache
def _descriptions() -> dict[str, str]:
    return read_data("data/descriptions.yaml", dict[str, str])


def option_names(environment_id: str) -> list[str]:
    """Return the names of an environment's options, `tasks` among them."""
    parameters = inspect.signature(_factory(environment_id)).parameters.values()
    return [*dict.fromkeys([about.name for about in parameters if about.kind is not about.VAR_KEYWORD] + ["tasks"])]


def _mixed(parts: Mapping[str, int], open_part: Callable[[str], TaskSource]) -> TaskSource:
    sources = {part: open_part(part) for part in parts}
    if len(sources) == 1:
        return next(iter(sources.values()))
    from quintain.environments.mixture import Mixture

    return Mixture(mixture_text(parts), sources, parts)


def _factory(name: str) -> Factory:
    if is_foreign(name):
        from quintain.environments.foreign.source import factory as foreign_factory

        return foreign_factory(name, configuration().servers)
    if name.startswith(PREFIX):
        from quintain.environments.mcp_server.source import factory as server_factory

        return server_factory(find_server(configuration().servers, name.removeprefix(PREFIX)), configuration().variable)
    if name in _registered and name not in EXTENSIONS.installed().entries:
        return _registered[name]
    entry = _BUILT_IN.get(name) or EXTENSIONS.find(name)
    if entry is None:
        known = ", ".join(environment_ids())
        near = _nearest(name)
        tasks = write_reference(Reference("quintain/tasks", {"file": clip(name) if Path(name).suffix else "PATH"}))
        raise NotFound(
            f"no environment is called {clip(name)!r}{near}; known here: {known}; for your own questions "
            f"{tasks}, for your MCP server {PREFIX}NAME, for your code a package with the entry point {GROUP}",
            code="environment_not_found",
        )
    factory: Factory = load(entry)
    return factory


def _nearest(name: str) -> str:
    """Return which environment an unknown name may mean: by its spelling, or because its description has these words."""
    full = f"quintain/{name}"
    if near := f" (did you mean {full!r}?)" if full in environment_ids() else nearest(name, environment_ids()):
        return near
    words = _words(name.removeprefix("quintain/"))
    described = [one for one, sentence in _descriptions().items() if words.strip() and words in _words(sentence)]
    return f" (the description of {' and '.join(map(repr, described))} has the word)" if 0 < len(described) < 4 else ""


def _words(text: str) -> str:
    """Return the words of a text between spaces, so that one is found in another by whole words."""
    return " ".join(["", *re.findall(r"[^\W_]+", text.casefold()), ""])


def _checked(name: str, factory: Factory, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options converted to the types of the factory's parameters."""
    parameters = inspect.signature(factory).parameters
    named = {option: about for option, about in parameters.items() if about.kind is not about.VAR_KEYWORD}
    if not options and all(about.default is not about.empty for about in named.values()):
        return {}  # the types of a package may be known to its type checker alone
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory, include_extras=True)
    fields: dict[str, Any] = {
        option: (hints.get(option, str), ... if about.default is about.empty else about.default)
        for option, about in named.items()
    }
    others = {option: text for option, text in options.items() if option not in named}
    if others and len(named) == len(parameters):
        raise InvalidInput(
            f"expected an option of {name}, got {clip(min(others))!r}; valid: {', '.join(option_names(name))}",
            code="unknown_option",
        )
    model: type[BaseModel] = create_model(
        "options", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields
    )
    try:
        checked = model.model_validate({o: _read(options[o], fields[o][0]) for o in options.keys() & named.keys()})
    except ValidationError as error:
        raise InvalidInput(explain(error, f"options of {name}"), code="bad_option") from None
    return others | {option: getattr(checked, option) for option in checked.model_fields_set}


def _read(text: str, hint: Any) -> Any:
    """Return the text of an option, or the list or object that it states as JSON where the option is not a text."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if str in choices or text[:1] not in ("[", "{"):
        return text
    try:
        return from_json(text)
    except ValueError:
        return text
