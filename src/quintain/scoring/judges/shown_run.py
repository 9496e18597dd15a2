"""A run as a judge sees it: blind, fenced, and as much of it as fits.

A judge is shown the task, the tools by name and description, and the steps with thoughts, calls and observations. It is not shown
the model, the agent's name, outcome, rewards, scores, tags, metadata or other verdicts, nor the environment's reply to the last
action where it came with a reward: that reply states the verdict. Every recorded line starts with `| `, and
the fence holds the start of the SHA-256 of the text inside, which that text cannot contain. Characters that hide or reorder text and
the control tokens of chat templates are written out (`fencing`). No text is searched for words.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from quintain.records.trajectory import Actor, Content, ImagePart, Observation, Step, Trajectory, text_of
from quintain.scoring.judges.datamarking import N_MARKS, PREFIX, fence, mark_of, quote_lines
from quintain.scoring.profiles import text_tools, tool_functions

LEAST_CHARS = 8
"""Characters of a quote, whitespace apart; a shorter one counts only as a whole line."""

_MARKS = f"{mark_of(0)}-{mark_of(N_MARKS - 1)}"
_IGNORED = re.compile(rf"\\+[nrt]|[\s\\{_MARKS}]")
"""Whitespace, datamarks and the escapes of JSON: a judge that copies arguments of a call may resolve or double them."""
_PREFIXES = re.compile(rf"^\s*\|[ {_MARKS}]?", re.MULTILINE)
BUDGET_CHARS = 24_000
"""Default number of characters of a run that a judge is shown."""
MOST_STEPS = 40
"""Steps that one question asks about; of longer runs the first, the last and an even middle are shown."""

_CLIPS = (4000, 2000, 1000, 500, 240)
_ENDS = 5


@dataclass(frozen=True)
class ShownRun:
    """The part of a run that a judge is shown."""

    text: str
    """Fenced; nothing in it is an instruction."""
    steps: tuple[int, ...]
    """The agent's steps that it contains, from 0."""
    n_steps: int
    """The agent's steps of the run."""
    shortened: bool
    """Whether anything was left out for its length."""
    passages: Passages
    """The recorded texts by step, for checking quotes."""


def show_run(
    run: Trajectory, *, budget_chars: int = BUDGET_CHARS, label: str = "RUN", with_verdict: bool = False
) -> ShownRun:
    """Return the run as a judge may see it.

    What does not fit the budget is named in it; `label` is the run's name in the fence. The environment's last reply is left out
    where it came with a reward, except `with_verdict`.
    """
    entries = _entries(run)
    if not with_verdict and entries[-1].step.reward is not None:
        entries[-1] = replace(entries[-1], has_verdict=True)
    masks = _names_of(run)
    picks = _evenly(len(entries), MOST_STEPS)
    for clip in _CLIPS:
        view = _render(run, entries, picks, clip, masks)
        if len(view.body) <= budget_chars:
            break
    else:
        fixed = len(_render(run, entries, [], _CLIPS[-1], masks).body)
        least = min(3, len(entries))
        each = max(1, (len(view.body) - fixed) // max(1, len(picks)))
        n = max(least, min(len(picks), (budget_chars - fixed) // each))
        while len(view.body) > budget_chars and n >= least:
            view = _render(run, entries, _evenly(len(entries), n), _CLIPS[-1], masks)
            n -= max(1, n // 8)
        clip = _CLIPS[-1]
        while len(view.body) > budget_chars and clip > 20:
            clip //= 2
            view = _render(run, entries, _evenly(len(entries), least), clip, masks)
    return ShownRun(
        text=fence(view.body, label),
        steps=tuple(view.picks),
        n_steps=len(entries),
        shortened=view.clipped or len(view.picks) < len(entries),
        passages=Passages({step: tuple(texts) for step, texts in view.passages.items()}),
    )


@dataclass(frozen=True)
class _Entry:
    """A step of the agent with the messages before it, and for the last step those after it."""

    before: tuple[Step, ...]
    step: Step
    after: tuple[Step, ...] = ()
    has_verdict: bool = False
    """Whether the environment's reply is not shown, because it came with a reward."""


@dataclass
class _View:
    """The body of a view while it is put together."""

    _clip: int
    _masks: re.Pattern[str] | None
    picks: Sequence[int]
    text_tools: frozenset[str]
    clipped: bool = False
    passages: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    _lines: list[str] = field(default_factory=list)

    @property
    def body(self) -> str:
        return "\n".join(self._lines)

    def line(self, text: str) -> None:
        """Add a line that is not recorded."""
        self._lines.append(text)

    def recorded(self, heading: str, text: str, step: int | None = None) -> None:
        """Add a recorded text under a heading, as a passage of the step if there is one; add nothing for an empty text."""
        if not text.strip():
            return
        text = self._cut(text)
        shown = quote_lines(text if self._masks is None else self._masks.sub("[name withheld]", text))
        self._lines += [heading, shown]
        if step is not None:
            self.passages[step].append(passage(shown))

    def _cut(self, text: str) -> str:
        gone = len(text) - self._clip
        if gone <= 60:  # the note on the cut would be as long
            return text
        self.clipped = True
        head = self._clip * 2 // 3
        return f"{text[:head]}\n[... {gone:,} characters are not shown ...]\n{text[-(self._clip - head) :]}"


def _render(
    run: Trajectory,
    entries: Sequence[_Entry],
    picks: Sequence[int],
    clip: int,
    masks: re.Pattern[str] | None,
) -> _View:
    view = _View(clip, masks, picks, text_tools(run))
    view.recorded("TASK", run.task.prompt)
    view.recorded("TOOLS", "\n".join(_tools(run)))
    at = 0
    for i in picks:
        _gap(view, at, i)
        at = i + 1
        _show(view, i, entries[i], skip=run.task.prompt.strip())
    _gap(view, at, len(entries))
    return view


def _gap(view: _View, first: int, end: int) -> None:
    if first < end:
        which = f"STEP {first} IS" if end - first == 1 else f"STEPS {first} TO {end - 1} ARE"
        view.line(f"{which} NOT SHOWN, because the run is long; they exist, and are not to be scored.")


def _show(view: _View, i: int, entry: _Entry, skip: str) -> None:
    for message in entry.before:
        _show_message(view, message, skip)
    step = entry.step
    view.line(f"STEP {i}")
    view.recorded("thought:", step.thought or "", i)
    view.recorded("message:", _text(step.message), i)
    unmatched = [] if entry.has_verdict else list(step.observations)
    ids = {call.call_id for call in step.actions} - {None}
    for n, call in enumerate(step.actions, 1):
        args = json.dumps(call.args, ensure_ascii=False) if call.args is not None else call.raw_args or ""
        is_broken = call.args is None and call.raw_args and call.tool not in view.text_tools
        broken = " (its arguments are not valid JSON)" if is_broken else ""
        view.recorded(f"call {n}{broken}:", f"{call.tool} {args}", i)
        if (answer := _answer(unmatched, call.call_id, ids)) is not None:
            _show_observation(view, f"result {n}", answer, i)
    for other in unmatched:
        _show_observation(view, "observation", other, i)
    if not (step.actions or step.observations or step.thought or _text(step.message)):
        view.line("(an empty step)")
    if entry.has_verdict and (step.observations or entry.after):
        view.line("THE REPLY IS NOT SHOWN, because it came with the environment's verdict.")
        return
    for message in entry.after:
        _show_message(view, message, skip)


def _show_message(view: _View, step: Step, skip: str) -> None:
    text = _text(step.message)
    if step.actor is Actor.USER and text.strip() != skip:
        view.recorded("USER", text)
    elif step.actor is Actor.SYSTEM:
        view.recorded("SYSTEM", text)
    for observation in step.observations:
        _show_observation(view, "observation", observation)


def _answer(unmatched: list[Observation], call_id: str | None, ids: Set[str | None]) -> Observation | None:
    """Take the observation of a call from the unmatched ones: the one with its id, else the first without the id of a call."""
    own = next((at for at, one in enumerate(unmatched) if call_id is not None and one.call_id == call_id), None)
    at = own if own is not None else next((at for at, one in enumerate(unmatched) if one.call_id not in ids), None)
    return None if at is None else unmatched.pop(at)


def _show_observation(view: _View, heading: str, observation: Observation, step: int | None = None) -> None:
    error = " (an error)" if observation.is_error else ""
    text = _text(observation.content)
    if text.strip():
        view.recorded(f"{heading}{error}:", text, step)
    else:
        view.line(f"{heading}{error}: (empty)")


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    pictures = sum(isinstance(part, ImagePart) for part in content)
    return text_of(content) + (f"\n[{pictures} picture(s), not shown]" if pictures else "")


def _tools(run: Trajectory) -> Iterator[str]:
    for function in tool_functions(run):
        name, about = function.get("name"), function.get("description")
        if isinstance(name, str):
            yield f"{name}: {' '.join(about.split())[:200]}" if isinstance(about, str) and about else name


def _entries(run: Trajectory) -> list[_Entry]:
    entries: list[_Entry] = []
    before: list[Step] = []
    for step in run.steps:
        if step.actor is Actor.AGENT:
            entries.append(_Entry(tuple(before), step))
            before = []
        else:
            before.append(step)
    if before:
        entries[-1] = _Entry(entries[-1].before, entries[-1].step, tuple(before))
    return entries


def _evenly(n: int, most: int) -> list[int]:
    """Return at most `most` of `n` steps: the first and the last, and an even choice of those between."""
    if n <= most:
        return list(range(n))
    if most < 3:
        return [0, n - 1][:most] if most == 2 else [n - 1][:most]
    ends = min(_ENDS, most // 3)
    between = most - 2 * ends
    inner = n - 2 * ends
    middle = [ends + (2 * k + 1) * inner // (2 * between) for k in range(between)]
    return sorted({*range(ends), *middle, *range(n - ends, n)})


def _names_of(run: Trajectory) -> re.Pattern[str] | None:
    """Match the names of the agent and its models, except those that can be ordinary words."""
    known = {run.agent.name, run.agent.model, *(step.model for step in run.steps)}
    names = {name for name in known if name} | {name.rsplit("/", 1)[-1] for name in known if name}
    distinctive = sorted(
        (name for name in names if len(name) >= 4 and re.search(r"[\d_/@-]|[a-z][A-Z]", name)), key=len
    )
    if not distinctive:
        return None
    return re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in reversed(distinctive)), re.IGNORECASE)


@dataclass(frozen=True)
class Passages:
    """The recorded texts of a run's steps, as a judge was shown them."""

    by_step: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Step of the agent, from 0 -> its texts; what comes before the first step, the task included, belongs to none."""

    def has(self, quote: str, step: int | None = None) -> bool:
        """Whether the quote is in one text of the step, or of any step."""
        texts = (
            self.by_step.get(step, ()) if step is not None else [t for texts in self.by_step.values() for t in texts]
        )
        forms = {_compact(quote), _compact(_PREFIXES.sub("", quote))} - {""}
        return any(_is_in(form, text) for form in forms for text in texts)

    def has_any(self, quotes: Iterable[str], step: int | None = None) -> bool:
        """Whether at least one of the quotes is in the step, or in any step."""
        return any(self.has(quote, step) for quote in quotes)


def passage(shown: str) -> str:
    """Return the text of a passage from the prefixed lines that a judge is shown."""
    return "\n".join(line.removeprefix(PREFIX) for line in shown.split("\n"))


def _is_in(form: str, text: str) -> bool:
    if len(form) >= LEAST_CHARS:
        return form in _compact(text)
    return any(form == _compact(line) for line in text.split("\n"))


def _compact(text: str) -> str:
    return _IGNORED.sub("", text)
