"""Work on code as an environment: a sandboxed workspace for each episode, and a verdict by hidden tests after `submit`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from quintain.environments.registry import SANDBOX_ID
from quintain.environments.sandbox.coding_tools import ARGUMENTS, TOOLS, CodingTools, Submit
from quintain.environments.sandbox.judging import Judgement, Patch, TooLarge, changes, patch_of
from quintain.environments.sandbox.projects import FAMILY, build_project
from quintain.environments.sandbox.rows import (
    Assignment,
    Commit,
    Repository,
    assignment_of,
    find_repository,
    generated_task,
)
from quintain.environments.tasks.families import Difficulty, FamilySource, Names, TaskKey
from quintain.environments.tasks.task_files import TaskFile, read_tasks
from quintain.environments.tool_calls import arguments_of, refusal
from quintain.errors import InvalidInput, Unavailable
from quintain.records.protocols import Environment, Policy, TimeStep
from quintain.records.record import require_number
from quintain.records.trajectory import Action, Observation, Task
from quintain.records.wording import clip
from quintain.sandbox.files import size_of
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import IMAGE, Sandbox, open_sandbox

SYSTEM_PROMPT = (
    "You work on the code in /workspace, a git repository, by calling tools. When the work is done, end with submit: tests that you "
    "cannot see decide. Changes of tests and of their settings do not count."
)
INITIALIZE_GIT = (
    "export GIT_AUTHOR_DATE=2024-01-01T00:00:00Z GIT_COMMITTER_DATE=2024-01-01T00:00:00Z; git init -q . && git symbolic-ref HEAD "
    "refs/heads/main && git config user.name agent && git config user.email agent@sandbox.invalid && git add -A -f && "
    "git commit -q --allow-empty -m Start"
)
_GIT_LIMITS = Limits(wall_s=300, cpu_s=300, memory_mb=4096, file_mb=1000, disk_mb=4000)
_SPARE_MB = 128
_MAX_SHOWN = 20_000

Backend = Literal["auto", "bubblewrap", "unshare", "docker", "off"]
Seconds = Annotated[float, Field(ge=1, le=3600), BeforeValidator(require_number)]


class Coding:
    """One episode: one task in its own workspace."""

    id = SANDBOX_ID
    system_prompt = SYSTEM_PROMPT
    tools = TOOLS
    max_turns = 40

    def __init__(self, source: Sandboxed) -> None:
        self._source = source
        self._stack = ExitStack()
        self._assignment: Assignment | None = None
        self._tools: CodingTools | None = None

    def reset(self, task: Task) -> TimeStep:
        """Write the files as a repository with one commit, and return the prompt.

        Raises:
            InvalidInput: an unknown task, or its repository lacks the commit.
            Unavailable: no sandbox backend works here.
        """
        sandbox = self._source.sandbox()
        self._assignment = assignment = self._source.assignment(task)
        workspace = self._stack.enter_context(sandbox.workspace({}, assignment.base.fill))
        ran = workspace.run(INITIALIZE_GIT, _GIT_LIMITS)
        if ran.exit_code != 0:
            output = (ran.stderr or ran.stdout or f"stopped by {ran.stopped}").strip()
            raise Unavailable(f"cannot initialise git in the workspace: {clip(output, 200)}", code="no_sandbox")
        spare = math.ceil(2 * size_of(workspace.folder) / 1_000_000) + _SPARE_MB
        limits = replace(self._source.limits, disk_mb=spare)
        self._tools = CodingTools(workspace, assignment.test_command, limits, assignment.test_s)
        return TimeStep(message=assignment.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the calls in order; `submit` ends the episode with reward 1 or 0."""
        assert self._tools is not None, "reset comes before step"
        if not actions:
            return TimeStep(message=f"You called no tool. Call one of: {', '.join(ARGUMENTS)}.")
        observations: list[Observation] = []
        for place, action in enumerate(actions):
            arguments = arguments_of(action, ARGUMENTS)
            if isinstance(arguments, str):
                observations.append(refusal(arguments))
            elif isinstance(arguments, Submit):
                late = refusal("the work is submitted, and nothing more was carried out")
                return self._submit(observations, (late,) * (len(actions) - place - 1))
            else:
                observations.append(self._tools.do(arguments))
        # Every step reports it, because an episode cut by its turn limit has no last step.
        return TimeStep(observations=tuple(observations), info={"metrics": {"commands": float(self._tools.commands)}})

    def close(self) -> None:
        """Remove the workspace."""
        self._tools = None
        self._stack.close()

    def _submit(self, before: Sequence[Observation], after: Sequence[Observation]) -> TimeStep:
        assert self._tools is not None
        patch, judgement = self._judge(self._tools)
        metrics = {
            "commands": float(self._tools.commands),
            "files_changed": float(patch.files),
            "diff_lines": float(patch.lines),
        }
        if judgement.tests:
            metrics["tests_passed"] = (judgement.passed or 0) / judgement.tests
        summary = Observation(content=clip(f"{judgement.summary}\n\n{patch.text}".strip(), _MAX_SHOWN))
        return TimeStep(
            observations=(*before, summary, *after),
            reward=float(judgement.solved),
            terminated=True,
            info={"metrics": metrics, "patch": patch.text},
        )

    def _judge(self, tools: CodingTools) -> tuple[Patch, Judgement]:
        assert self._assignment is not None
        sandbox, base = self._source.sandbox(), self._assignment.base
        try:
            with sandbox.workspace({}, base.fill) as fresh:
                found = changes(fresh, tools.workspace)
            patch = patch_of(sandbox, found, tools.limits)
            return patch, self._assignment.judge.judge(sandbox, base, found)
        except TooLarge as error:
            return Patch("", 0, 0), Judgement(False, f"The changes cannot be judged: {error}.")


class Sandboxed(FamilySource):
    """The task family `quintain/sandbox`, or the coding tasks of a file."""

    family = FAMILY
    waits = True

    def __init__(
        self,
        tasks: Path | None = None,
        repos: Path | None = None,
        difficulty: Difficulty = "all",
        types: Names = ("all",),
        backend: Backend = "auto",
        image: str = IMAGE,
        timeout_s: Seconds = 20.0,
        test_timeout_s: Seconds = 120.0,
    ) -> None:
        """Take generated tasks, or those of a file, whose repositories are in its folder or below `repos`.

        The sandbox is opened when tasks are first drawn or played.

        Raises:
            NotFound: the file does not exist.
            InvalidInput: an unknown type, a file together with types or a difficulty, or rows that cannot be played.
        """
        super().__init__(difficulty, types)
        self._open = cache(lambda: _opened(backend, image))
        self._test_s = test_timeout_s
        self.limits = Limits(wall_s=timeout_s, cpu_s=math.ceil(timeout_s), memory_mb=2048, file_mb=64)
        if tasks is None:
            return
        file = read_tasks(tasks)
        self._play_file(file, self.version)
        self._folders = [*([repos] if repos else []), file.path.parent]
        self._known = {task.id: task for task in file.tasks}
        faults = self._absent_commits(file)
        file.require(lambda task: self._fault(task) or faults.get(task.id or ""))

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` distinct tasks of `train` or `held_out`, without their hidden tests."""
        self.sandbox()
        tasks = super().tasks(split, n, seed)
        if self._file is None:
            return tasks
        kept = [{name: task.metadata[name] for name in _KEPT_METADATA if name in task.metadata} for task in tasks]
        return [task.model_copy(update={"metadata": one}) for task, one in zip(tasks, kept, strict=True)]

    def prompt(self, key: TaskKey) -> str:
        """Return the request of a generated task."""
        return build_project(key).prompt

    def make(self) -> Environment:
        """Return a fresh environment."""
        return Coding(self)

    def sandbox(self) -> Sandbox:
        """Return the sandbox of the episodes."""
        return self._open()

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return the scripted expert of the generated tasks."""
        from quintain.environments.sandbox.scripted_policy import Expert

        return Expert()

    def assignment(self, task: Task) -> Assignment:
        """Return the files and the judge of a task: a row of the file, or a generated task by its id."""
        row = None if self._file is None else self._known.get(task.id)
        if row is None or _is_generated(row):
            return generated_task(FAMILY.parse(task.id), self.limits)
        return assignment_of(row, self._find, self.limits, self._test_s)

    def _find(self, name: str) -> Repository:
        return find_repository(name, self._folders)

    def _fault(self, task: Task) -> str | None:
        try:
            self.assignment(task)
        except InvalidInput as error:
            return error.message
        return None

    def _absent_commits(self, file: TaskFile) -> dict[str, str]:
        """Return the tasks whose repository lacks their commit, with the reason."""
        asked: dict[Repository, dict[str, str]] = {}
        for task in file.tasks:
            if self._fault(task) is None and isinstance(base := self.assignment(task).base, Commit):
                asked.setdefault(base.repository, {})[task.id or ""] = base.commit
        return {
            task_id: f"repository {clip(repository.name)!r} lacks the commit {commit}; fetch it there"
            for repository, commits in asked.items()
            if (absent := set(repository.missing(sorted(set(commits.values())))))
            for task_id, commit in commits.items()
            if commit in absent
        }


_KEPT_METADATA = ("split", "repo", "base_commit")
"""Columns of a row that the agent's task keeps; others could reveal the hidden tests."""


def _is_generated(task: Task) -> bool:
    try:
        FAMILY.parse(task.id)
    except InvalidInput:
        return False
    return not task.metadata.keys() & {"repo", "checker"}


def _opened(backend: str, image: str) -> Sandbox:
    """Open the sandbox and check that it has the programs that every task needs."""
    sandbox = open_sandbox(backend, image)
    ran = sandbox.run("git --version && python3 --version", {}, Limits(wall_s=30))
    if ran.exit_code != 0:
        remedy = "use an image that has them (QUINTAIN_SANDBOX_IMAGE)" if sandbox.name == "docker" else "install them"
        raise Unavailable(
            f"expected git and python3 in the sandbox {sandbox.name}, got: "
            f"{clip((ran.stderr or ran.stdout).strip(), 200)}; {remedy}",
            code="no_sandbox",
        )
    return sandbox
