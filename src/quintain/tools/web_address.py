"""Where the web page of a home is, and which of its pages shows what a tool's answer is about."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from quintain.jobs.processes import read_locked, try_lock, unlock
from quintain.next_step import ToolCall

_FILE = "web-page"
_PAGES = {
    "job-": "jobs",
    "traj-": "runs",
    "ds-": "datasets",
    "agent:": "agents",
    "cmp-": "comparisons",
    "eval-": "evaluations",
}
"""Prefix of an id -> first part of the path of its page; `static/routes.js` has the same."""
_LISTS = {
    "list_jobs": "/jobs",
    "search_trajectories": "/runs",
    "tag_trajectories": "/runs",
    "list_library": "/{kind}",
    "get_judging_batch": "/judging",
    "compare_agents": "/comparisons",
    "get_lineage": "/lineage/{id}",
    "forget": "/lineage/{id}",
}
"""Tool -> path of the page that does the same, with arguments of the call in braces."""
_LIBRARIES = ("agents", "datasets", "comparisons")
_OF_ONE = frozenset(
    {
        *("get_job", "cancel_job", "resume_job", "annotate_job", "plot_job"),
        *("get_trajectory", "preview_dataset", "talk_to_agent"),
    }
)
"""Tools whose work is on the page of the object that they name."""
_SCHEMES = ("http://", "https://")
_LONGEST = 500


@contextmanager
def page_announced(home: Path, url: str) -> Iterator[None]:
    """Name a page as that of a home while the block runs; where several run, the newest is named.

    The file is locked for as long as this process lives, so one that a killed process left behind is not believed.
    """
    path, aside = home / _FILE, home / f".{_FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = try_lock(aside)
    if descriptor is None:  # a home that this user may not write has no announcement
        yield
        return
    try:
        os.write(descriptor, url.rstrip("/").encode())
        aside.replace(path)
        yield
    finally:
        try:
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                path.unlink()
        except FileNotFoundError:
            pass
        unlock(descriptor)


def web_address(home: Path) -> str | None:
    """Return the URL of the page that shows a home now, or None."""
    found = read_locked(home / _FILE, _LONGEST)
    text = found.decode("utf-8", "replace") if found is not None else ""
    return text if text.startswith(_SCHEMES) else None


def page_url(home: Path, answer: Mapping[str, Any]) -> str | None:
    """Return the URL of the page of what an answer is about, as `page_of`, while a web page shows the home; else None."""
    page = page_of(answer)
    address = None if page is None else web_address(home)
    return None if address is None else f"{address}{page}"


def page_of(answer: Mapping[str, Any]) -> str | None:
    """Return the path of the page of what an answer is about, or None: by `resource_uri`, else by its ids."""
    scheme, _, rest = str(answer.get("resource_uri") or "").partition("://")
    if scheme == "lineage":
        return f"/lineage/{_quoted(rest)}"
    run = answer.get("trajectory")
    ids = [rest.partition("/")[0], run.get("id") if isinstance(run, Mapping) else None]
    ids += [answer.get(name) for name in ("id", "trajectory_id", "comparison_id", "dataset_id", "agent", "job_id")]
    for found in ids:
        for prefix, page in _PAGES.items():
            if isinstance(found, str) and found.startswith(prefix):
                return f"/{page}/{_quoted(found.removeprefix('agent:'))}"
    return None


def page_of_call(call: ToolCall) -> str | None:
    """Return the path of the page where a person does what a call does, or None: there is none."""
    arguments = call.arguments
    if call.tool in _OF_ONE:
        return page_of(arguments)
    if call.tool not in _LISTS or (call.tool == "list_library" and arguments.get("kind") not in _LIBRARIES):
        return None
    named = arguments.get("agents")
    first = named[0] if isinstance(named, list | tuple) and named and isinstance(named[0], str) else None
    if call.tool == "compare_agents" and first is not None:
        return (
            page_of({"comparison_id": first})
            if first.startswith("cmp-")
            else f"/comparisons?{urlencode({'agent': first})}"
        )
    wanted = arguments.get("filter")
    query = (
        {name: value for name, value in wanted.items() if isinstance(value, str)} if isinstance(wanted, Mapping) else {}
    )
    try:
        path = _LISTS[call.tool].format_map({name: _quoted(str(value)) for name, value in arguments.items()})
    except KeyError:  # the page of one thing, of which the call names none
        return None
    return f"{path}?{urlencode(query)}" if query else path


def _quoted(name: str) -> str:
    return quote(name, safe="@")
