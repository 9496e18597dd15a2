"""A small real server: a handful of tools over a shelf of notes, run over stdio when this file is executed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from quintain.errors import NotFound
from quintain.records.record import Record
from quintain.server.app import build_server
from quintain.settings import Settings
from quintain.tools.catalog import Picture, ToolSpec


class Note(Record):
    """A note on the shelf."""

    title: str = Field(description="A property called title must survive the shortening of schemas.")
    text: str = ""
    pages: int = 0
    value: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class Edges(Record):
    """A range of pages, as a nested argument."""

    first: int = Field(ge=0)
    last: int = 0


class Waiting(Record):
    step: int
    total_steps: int
    phase: str


class Jobs:
    """Reports the changes that a test announces, one set a beat; fails where told to."""

    is_idle = False

    def __init__(self) -> None:
        self.beats: list[set[str] | Exception] = []
        self._changes = Counter[str]()
        self._seen = 0
        self._beat = threading.Condition()

    def reconcile(self) -> set[str]:
        with self._beat:
            self._seen += 1
            self._beat.notify_all()
        beat = self.beats.pop(0) if self.beats else set()
        if isinstance(beat, Exception):
            raise beat
        self._changes.update(beat)
        return beat

    def store_elsewhere(self, *job_ids: str) -> None:
        """Change jobs as another process does."""
        self._changes.update(job_ids)

    def states(self, job_ids: Iterable[str]) -> dict[str, int]:
        return {job_id: self._changes[job_id] for job_id in job_ids}

    def wait_for_beats(self, n: int) -> None:
        """Wait until so many more beats have begun; the one before them is over then."""
        with self._beat:
            end = self._seen + n
            assert self._beat.wait_for(lambda: self._seen >= end, 100)


@dataclass
class Shelf:
    """What the tools below work with."""

    settings: Settings
    jobs: Jobs = field(default_factory=Jobs)
    notes: dict[str, Note] = field(default_factory=dict)
    entered: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        self.closed.set()


def add_note(
    services: Shelf,
    title: Annotated[str, Field(description="Its name.", max_length=100)],
    text: str | None = None,
    pages: Annotated[int, Field(ge=1, le=200, description="How many pages.")] = 1,
    edges: Edges | None = None,
    mood: Literal["good", "bad"] = "good",
) -> Note:
    """Put a note on the shelf.

    The text is kept as it is.
    """
    note = Note(title=title, text=text or "", pages=pages, extra={"edges": edges and edges.last, "mood": mood})
    services.notes[title] = note
    return note


def get_note(services: Shelf, title: str) -> Note:
    """Read a note."""
    if title not in services.notes:
        raise NotFound(f"there is no note {title!r}; valid: {sorted(services.notes)}; call add_note")
    return services.notes[title]


def slow_note(services: Shelf, title: str) -> Note:
    """Begin to write, wait until told, and give an impatient server half a second to close the shelf meanwhile."""
    services.entered.set()
    assert services.go_on.wait(100)
    return add_note(services, title, "too late" if services.closed.wait(0.5) else "written while open")


def odd_note(services: Shelf, kind: Literal["surrogate", "nan", "crash", "noise"]) -> Note:
    """Answer what no protocol can carry, fail unexpectedly, or make noise on standard output."""
    if kind == "crash":
        raise RuntimeError("the secret is in /etc/shadow")
    if kind == "noise":
        sys.stdout.write("noise by print\n")
        sys.stdout.flush()
        subprocess.run([sys.executable, "-c", "import sys; print('noise by a child', sys.stdin.read())"], check=True)
    broken = "cut emoji \ud83d" if kind == "surrogate" else ""
    return Note.model_construct(title="odd", text=broken, extra={broken: [broken], "loss": float("nan")}, value=None)


def count(services: Shelf, steps: int = 3, wait_s: float = 5.0) -> Waiting:
    """Count the steps."""
    return list(watch_count(services, steps, wait_s))[-1]


def watch_count(services: Shelf, steps: int = 3, wait_s: float = 5.0) -> Iterator[Waiting]:
    """Yield each step."""
    end = time.monotonic() + wait_s
    for step in range(steps + 1):
        yield Waiting(step=step, total_steps=steps, phase="counting")
        if time.monotonic() >= end:
            return


def draw_note(services: Shelf) -> Picture:
    """Draw."""
    return Picture("a dot", b"\x89PNG dot")


CATALOG = (
    ToolSpec("get_note", get_note, "Read a note", True, False, True, "reading"),
    ToolSpec("add_note", add_note, "Add a note", False, False, True, "writing"),
    ToolSpec("slow_note", slow_note, "Add a note slowly", False, False, True, "writing"),
    ToolSpec("odd_note", odd_note, "Odd", False, True, False, "writing"),
    ToolSpec("count", count, "Count", True, False, True, "reading", watch_source=watch_count),
    ToolSpec("draw_note", draw_note, "Draw", True, False, True, "reading", picture=True),
)


if __name__ == "__main__":
    from quintain.server.http.serving import serve_http
    from quintain.server.http.tokens import TokenFile
    from quintain.server.transport.stdio import serve_stdio

    # PORT [HOME]: over HTTP, with the token of the home folder where one is named.
    port, home = [*sys.argv[1:], None, None][:2]
    settings = Settings(home=Path(home or tempfile.mkdtemp()), poll_s=0.05)
    server = build_server(CATALOG, lambda: Shelf(settings))  # type: ignore[arg-type,return-value]

    def announce(url: str) -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()

    if port:
        token = TokenFile(settings.home) if home else None
        serve_http(server, settings, port=int(port), token=token, on_ready=announce)
    else:
        serve_stdio(server)
