"""Local repositories of tasks, from which the files of one commit are checked out without history.

Git gets the object folder only. It never reads a repository's configuration, which could make it run programs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quintain.errors import InvalidInput, Unavailable
from quintain.records.record import clip, shown

MAX_TREE_BYTES, MAX_TREE_FILES = 1_000_000_000, 50_000
"""Maximum size and number of the files of a commit."""
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_GIT_S = 300.0


@dataclass(frozen=True)
class Repository:
    """A repository on this machine."""

    name: str
    objects: Path

    def missing(self, commits: Sequence[str]) -> list[str]:
        """Return the commits that the repository lacks."""
        asked = "".join(f"{commit}^{{commit}}\n" for commit in commits).encode()
        with self._git() as git:
            answers = git(["cat-file", "--batch-check"], asked).decode("utf-8", "replace").splitlines()
        return [commit for commit, answer in zip(commits, answers, strict=False) if " commit " not in answer]

    def check_out(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into an empty folder.

        Raises:
            InvalidInput: the commit is missing or too large.
            Unavailable: git does not run.
        """
        with self._git(folder) as git:
            listed = git(["ls-tree", "-r", "-l", "-z", commit]).split(b"\0")
            sizes = [
                int(about[3])
                for line in listed
                if len(about := line.partition(b"\t")[0].split()) == 4 and about[3].isdigit()
            ]
            if len(listed) > MAX_TREE_FILES or sum(sizes) > MAX_TREE_BYTES:
                raise InvalidInput(
                    f"expected at most {MAX_TREE_FILES:,} files of {MAX_TREE_BYTES:,} bytes in {commit} of {clip(self.name)!r}, "
                    f"got {len(listed):,} files of {sum(sizes):,} bytes"
                )
            git(["read-tree", commit])
            git(["checkout-index", "--all", "--quiet"])

    @contextmanager
    def _git(self, folder: Path | None = None) -> Iterator[_Git]:
        with tempfile.TemporaryDirectory(prefix="quintain-git-") as own:
            environment = {
                "PATH": os.defpath,
                "HOME": own,
                "LANG": "C.UTF-8",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_DIR": f"{own}/git",
                "GIT_NO_LAZY_FETCH": "1",
                "GIT_TERMINAL_PROMPT": "0",
            }
            git = _Git(self.name, environment, folder or Path(own))
            git(["init", "--quiet", "--bare", "--template="])
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.objects)
            if folder is not None:
                environment["GIT_WORK_TREE"] = str(folder)
            yield git


@dataclass(frozen=True)
class _Git:
    name: str
    environment: dict[str, str]
    folder: Path

    def __call__(self, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        command = [shutil.which("git") or "git", *arguments]
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                env=self.environment,
                cwd=self.folder,
                timeout=_GIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"cannot run git ({type(error).__name__}); install git", code="no_git") from None
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise InvalidInput(
                f"git {arguments[0]} failed on {clip(self.name)!r}: {message[0][:200]}", code="bad_repository"
            )
        return done.stdout


def find_repository(name: str, folders: Sequence[Path]) -> Repository:
    """Return the repository of a row, below one of the allowed folders.

    Args:
        name: A path, or `owner/name`, found as `owner/name`, `owner__name` or `name`, with or without `.git`.
        folders: Folders to search, in this order.

    Raises:
        InvalidInput: no such repository.
    """
    bare = name.removesuffix(".git").rstrip("/")
    tails = [
        bare,
        *([bare.replace("/", "__"), bare.rpartition("/")[2]] if re.fullmatch(r"[\w.-]+/[\w.-]+", bare) else []),
    ]
    for folder in folders:
        root = folder.resolve()
        for tail in tails:
            for place in (root / tail, root / f"{tail}.git"):
                try:
                    found = _objects(place.resolve(), root)
                except (OSError, ValueError, RuntimeError):
                    continue
                if found is not None:
                    return Repository(name, found)
    looked = " or ".join(repr(clip(str(folder), 200)) for folder in folders)
    raise InvalidInput(
        f"expected a git repository below {looked}, got {shown(name)}; clone it there, or name its folder with the option "
        "repos=FOLDER (nothing is fetched from a network)",
        code="no_repository",
    )


def _objects(place: Path, root: Path) -> Path | None:
    """Return the folder of git objects, if it is below the root too."""
    for objects in (place / ".git" / "objects", place / "objects"):
        if objects.is_dir() and (objects.parent / "HEAD").exists() and objects.resolve().is_relative_to(root):
            return objects.resolve()
    return None


def require_commit(commit: object) -> str:
    """Return a commit's hash.

    Raises:
        InvalidInput: not a hash; branch and tag names can move, so that a task would change.
    """
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise InvalidInput(
            f"expected base_commit to be a commit hash of 7 to 40 hexadecimal digits, got {shown(commit)}"
        )
    return commit
