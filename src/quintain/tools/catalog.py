"""The catalog: every tool, once, and what adapters (server, facade, CLI) need to know of a tool. Its module is imported when it is used."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from itertools import islice
from typing import Any, Literal, NamedTuple, Self, TypeVar

from pydantic import PrivateAttr

from quintain.errors import NotFound
from quintain.next_step import Hint, ToolCall
from quintain.records.record import Record

R = TypeVar("R", bound=Record)


class Picture(NamedTuple):
    """The result of a tool that draws: a text with the same facts, and a PNG; None: there is nothing to draw yet."""

    text: str | Hint
    png: bytes | None
    figure: Mapping[str, Any] | None = None
    """The figure (`evaluation.reports.figures.Figure`), for hosts that draw it themselves."""
    job: Record | None = None
    """The job, for hosts that follow it."""

    def _repr_png_(self) -> bytes | None:
        return self.png


class IllustratedRecord(Record):
    """A result that may come with a picture, which its JSON does not contain."""

    _png: bytes | None = PrivateAttr(default=None)
    _figure: Mapping[str, Any] | None = PrivateAttr(default=None)

    @property
    def png(self) -> bytes | None:
        """The picture, if one was drawn."""
        return self._png

    @property
    def figure(self) -> Mapping[str, Any] | None:
        """The figure for hosts that draw it themselves, if there is one."""
        return self._figure

    def with_picture(self, png: bytes | None, figure: Mapping[str, Any] | None = None) -> Self:
        """Return the result with a picture, or with its description alone."""
        illustrated = self.model_copy()
        illustrated._png, illustrated._figure = png, figure
        return illustrated


class Entry(NamedTuple):
    """One entry of a form; its value is text, because not every client shows numbers."""

    name: str
    title: str
    options: tuple[str, ...] = ()
    """The choices; empty: free text."""
    required: bool = False


class Question(NamedTuple):
    """One form that a tool shows to the person."""

    message: str
    entries: tuple[Entry, ...]
    state: str
    """Returned with the answer, so that any process on this home can go on; the adapter keeps others from reading it."""


@dataclass(frozen=True)
class Answer:
    """The person's answer to a question. `lost`: none came back; `failed`: the client could not show the form."""

    action: Literal["accept", "decline", "cancel", "lost", "failed"]
    state: str
    values: Mapping[str, str] = field(default_factory=dict)


DEPRECATED: dict[str, Any] = {"deprecated": True}
"""Mark of an argument in its JSON schema: accepted as before, and left out of the list of tools."""

Source = Callable[..., Any] | str
"""A function, or `module:name` of one, which is imported when it is first used."""


@dataclass(frozen=True)
class ToolSpec:
    """One tool of the catalog."""

    name: str
    source: Source
    """`source(services, **arguments)` returns a record, or a `Picture` where `picture` is set."""
    title: str
    read_only: bool
    destructive: bool
    idempotent: bool
    toolset: str
    """The toolset that it belongs to. With every set come `jobs` and the read-only tools of `data`."""
    short: str = ""
    """Its name as an action of dict calls, beside the full one."""
    watch_source: Source | None = None
    """Yields records while waiting; the adapter sleeps `services.settings.poll_s` between and returns the last one."""
    asks_source: Source | None = None
    """Takes `answer` (`Answer`, None at first) beside the arguments and returns the next question for the person, at last
    the result; None: this call asks nobody, and `function` answers it. Used where the client can show forms."""
    operator_source: Source | None = None
    """The same function for a caller that is the user themself, at a terminal, on the web page or in Python, and not their
    assistant."""
    writes_with: str = ""
    """Argument with which a tool that only reads otherwise starts work. A read-only server refuses it."""
    is_listed: bool = True
    """Whether `tools/list` names it; what is left out is for the page, the terminal and Python, and answers calls all the same."""
    dry_run_with: str = ""
    """Argument that, unless false, makes a tool that writes only report what it would do."""
    open_world: bool = False
    picture: bool = False
    app: bool = False
    """Whether hosts of MCP Apps draw its figure with the page `ui://quintain/dashboard`."""
    answers_as: str | None = None
    """The tool whose result it shares, and which describes the fields."""

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function of the tool."""
        return load(self.source)

    @cached_property
    def for_operator(self) -> ToolSpec:
        """The tool as the user themself calls it."""
        return self if self.operator_source is None else replace(self, source=self.operator_source)

    @cached_property
    def watch(self) -> Callable[..., Iterator[Record]] | None:
        """The function that waits, if the tool has one."""
        return None if self.watch_source is None else load(self.watch_source)

    @cached_property
    def asks(self) -> Callable[..., Record | Question | None] | None:
        """The function that asks a person, if the tool has one."""
        return None if self.asks_source is None else load(self.asks_source)


def wait_for_last(records: Iterator[R], pause_s: float) -> R:
    """Return the last record of a watch, with a pause after every two: a finished watch ends its iterator at the second."""
    last: R | None = None
    while True:
        drawn = list(islice(records, 2))
        last = drawn[-1] if drawn else last
        if len(drawn) < 2:
            assert last is not None, "a watch yields a record"
            return last
        time.sleep(pause_s)


def load(source: Source) -> Callable[..., Any]:
    """Return the function of a source; this may import its module."""
    if not isinstance(source, str):
        return source
    module, _, name = source.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


_TOOLSETS = {"data": "data", "labels": "label", "training": "train", "jobs": "jobs", "evaluation": "evaluate"}
"""Package of a tool -> its toolset."""


def _read(function: str, title: str, **more: Any) -> ToolSpec:
    return _spec(function, title, read_only=True, **more)


def _write(function: str, title: str, **more: Any) -> ToolSpec:
    return _spec(function, title, read_only=False, **more)


def _spec(function: str, title: str, *, destructive: bool = False, idempotent: bool = True, **more: Any) -> ToolSpec:
    """Return a tool by `module:function`; `watch`, `asks` and `operator` name functions beside it."""
    module, _, name = function.partition(":")
    place = f"quintain.tools.{module}"
    beside: dict[str, Any] = {role: more.pop(role) for role in ("watch", "asks", "operator") if role in more}
    return ToolSpec(
        name=name,
        source=f"{place}:{name}",
        title=title,
        destructive=destructive,
        idempotent=idempotent,
        toolset=_TOOLSETS[module.partition(".")[0]],
        **more | {f"{role}_source": f"{place}:{one}" for role, one in beside.items()},
    )


CATALOG: tuple[ToolSpec, ...] = (
    _write("data.trajectories:record_trajectory", "Record a run", short="record", idempotent=False),
    _write("data.imports:import_trajectories", "Import agent logs", short="import"),
    _read("data.trajectories:search_trajectories", "Search runs", short="search"),
    _read("data.trajectories:get_trajectory", "Read a run", short="get"),
    _write("data.tags:tag_trajectories", "Tag runs"),
    _write("data.datasets:export_dataset", "Make a dataset of runs", short="export", idempotent=False),
    _read("data.preview:preview_dataset", "Preview a dataset", short="preview", watch="watch_preview"),
    _read("data.library:list_library", "List methods, scorers and environments", short="library"),
    _read("data.lineage:get_lineage", "Show where a thing comes from", short="lineage"),
    _write("data.forgetting:forget", "Forget runs", short="forget", destructive=True, dry_run_with="dry_run"),
    _write("data.backups:back_up_home", "Back up the home", short="backup", idempotent=False),
    _write("labels.scoring:score_trajectories", "Score runs", short="score"),
    _write("labels.preferences:record_preferences", "Prefer runs", short="prefer"),
    _write("labels.calibration:fit_calibration", "Calibrate scores by labels", short="calibrate", idempotent=False),
    _write(
        "labels.judging.tools:get_judging_batch", "Runs to judge", short="judge", idempotent=False, asks="ask_person"
    ),
    _write(
        "labels.judging.tools:submit_scores", "Submit verdicts on runs", short="submit", operator="submit_own_scores"
    ),
    _read("training.planning.plan:plan_training", "Plan a training", short="plan"),
    _write("training.start:start_training", "Start training"),
    _write("training.agents:register_agent", "Register an agent", short="register"),
    _write("training.export_agent:export_agent", "Export an agent", answers_as="start_training"),
    _read("jobs.jobs:get_job", "Follow a job", short="status", watch="watch_job"),
    _read("jobs.jobs:list_jobs", "List jobs", short="jobs"),
    _write("jobs.jobs:cancel_job", "Stop a job", short="cancel", destructive=True, answers_as="get_job"),
    _write("jobs.jobs:resume_job", "Continue a job", short="resume", answers_as="get_job"),
    _write("jobs.jobs:annotate_job", "Name a job or note something on it", answers_as="get_job", is_listed=False),
    _read("jobs.plots:plot_job", "Draw a job's curves", short="plot", picture=True, app=True),
    _read(
        "jobs.dashboard:show_training_dashboard",
        "Show the training dashboard",
        short="dashboard",
        picture=True,
        app=True,
    ),
    _write("evaluation.rollouts:collect_rollouts", "Collect rollouts", short="collect", answers_as="start_training"),
    _write("evaluation.rollouts:evaluate_agent", "Evaluate an agent", answers_as="start_training"),
    _write(
        "evaluation.conversations:talk_to_agent",
        "Talk to an agent",
        short="talk",
        idempotent=False,
        is_listed=False,
        watch="watch_talk",
    ),
    _read(
        "evaluation.comparison:compare_agents", "Compare agents", short="compare", writes_with="sequential", app=True
    ),
)
"""All tools, by toolset: data, label, train, evaluate, and jobs. With every set come jobs and the reading tools of data.

A read-only tool changes no run, label, dataset, agent or training. It may store what it computed: a preview, a comparison.
"""


def tool(name: str) -> ToolSpec:
    """Return a tool by its name.

    Raises:
        NotFound: there is no such tool.
    """
    for spec in CATALOG:
        if spec.name == name:
            return spec
    raise NotFound(f"there is no tool {name!r}; valid: {', '.join(spec.name for spec in CATALOG)}", code="unknown_tool")


@cache
def _mentions() -> re.Pattern[str]:
    """Return what finds a tool in a text, with the arguments of a call; a name that is also a word only between backticks."""
    names = sorted((spec.name for spec in CATALOG), key=len, reverse=True)
    return re.compile(
        "|".join(rf"\b{name}\b(?:\([^()]*\))?" if "_" in name else f"(?<=`){name}(?=`)" for name in names)
    )


def read_hint(text: str) -> Hint:
    """Return a plain text with the tools and calls in it as data, as a stored hint has them; it stays the same text."""
    parts, end = list[str | ToolCall](), 0
    for found in _mentions().finditer(text):
        if str(call := _call_of(found[0])) == found[0]:
            parts += [text[end : found.start()], call]
            end = found.end()
    return Hint(*parts, text[end:])


_CODE = re.compile(r"`([^`]+)`|\b(?:arguments\.|(?=hyperparameters\.))(\w+(?:\.\w+)*)(?:\[\d+\])*")
"""A span of code in a text, or the place of an argument or a setting in an error."""


def translate(text: str, calls: Callable[[ToolCall], str], arguments: Callable[[str], str | None]) -> str:
    """Return a text of ours in the words of a face: its calls of tools, and the arguments that it names between backticks.

    Args:
        text: A hint, or a plain text.
        calls: Writes a call.
        arguments: Writes an argument, alone or with a value: `n_tasks`, `curation.seed`, `columns={'label': ...}`. None leaves
            the code as it is.
    """
    parts = text.parts if isinstance(text, Hint) else (text,)
    read = [
        read_hint(_CODE.sub(lambda found: arguments(found[1] or found[2]) or found[0], part))
        if isinstance(part, str)
        else part
        for part in parts
    ]
    return Hint(*read).render(calls)


def _call_of(text: str) -> ToolCall:
    try:
        parsed = ast.parse(text, mode="eval").body
        keywords = parsed.keywords if isinstance(parsed, ast.Call) and not parsed.args else []
        arguments = {one.arg: ast.literal_eval(one.value) for one in keywords if one.arg is not None}
    except (SyntaxError, ValueError):
        arguments = {}
    return ToolCall(text.partition("(")[0], arguments)
