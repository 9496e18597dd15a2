"""Repositories of tasks: folders of this machine, from which the files of one commit are taken, and nothing of its history.

Git is told of the objects alone. It never reads a repository's own settings, which could make it run programs.
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
"""What the files of a commit may amount to."""
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_GIT_S = 300.0


@dataclass(frozen=True)
class Repository:
    """A repository on this machine."""

    name: str
    objects: Path

    def missing(self, commits: Sequence[str]) -> list[str]:
        """Those that it does not hold.

        Raises:
            Unavailable: git cannot be run.
        """
        asked = "".join(f"{commit}^{{commit}}\n" for commit in commits).encode()
        with self._git() as git:
            answers = git(["cat-file", "--batch-check"], asked).decode("utf-8", "replace").splitlines()
        return [commit for commit, answer in zip(commits, answers, strict=False) if " commit " not in answer]

    def check_out(self, commit: str, folder: Path) -> None:
        """Put the files of a commit into an empty folder.

        Raises:
            InvalidInput: the commit is not there, or too large.
            Unavailable: git cannot be run.
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
                    f"{commit} of {clip(self.name)!r} has {len(listed):,} files of {sum(sizes):,} bytes; at most "
                    f"{MAX_TREE_FILES:,} of {MAX_TREE_BYTES:,} are taken"
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

    def __call__(self, arguments: Sequence[str], told: bytes = b"") -> bytes:
        command = [shutil.which("git") or "git", *arguments]
        try:
            done = subprocess.run(
                command,
                input=told,
                capture_output=True,
                env=self.environment,
                cwd=self.folder,
                timeout=_GIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"git cannot be run ({type(error).__name__}); install git", code="no_git") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
            raise InvalidInput(
                f"git {arguments[0]} fails on {clip(self.name)!r}: {said[0][:200]}", code="bad_repository"
            )
        return done.stdout


def find_repository(name: str, folders: Sequence[Path]) -> Repository:
    """The repository of a row, below one of the folders that may be read.

    Args:
        name: A path, or `owner/name`, which may lie there as `owner/name`, `owner__name` or `name`, with `.git` or without.
        folders: Where to look, in this order.

    Raises:
        InvalidInput: there is none; says where it was looked for and how to get it there.
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
        f"repo {shown(name)} is no git repository below {looked}, and nothing is fetched from a network; clone it there, and name "
        "the folder with the option repos=FOLDER",
        code="no_repository",
    )


def _objects(place: Path, root: Path) -> Path | None:
    """The folder of its objects, where that lies below the root too."""
    for objects in (place / ".git" / "objects", place / "objects"):
        if objects.is_dir() and (objects.parent / "HEAD").exists() and objects.resolve().is_relative_to(root):
            return objects.resolve()
    return None


def require_commit(commit: object) -> str:
    """A commit's hash.

    Raises:
        InvalidInput: it is none; names can be moved, so that a task would not say what it is.
    """
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise InvalidInput(
            f"base_commit is {shown(commit)}; it must be the hash of a commit, 7 to 40 hexadecimal digits"
        )
    return commit
