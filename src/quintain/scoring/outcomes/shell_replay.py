"""Shell commands replayed on the files of a workspace: here-documents, patches, moves and removals; what only looks does nothing.

A command is taken apart into simple ones. Of these a short list is known to change no file; whatever else could is a change that
cannot be replayed, and the files of the run are not known from there on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from quintain.scoring.outcomes.patches import added, changes, patched
from quintain.scoring.outcomes.replayed import Written

_HEREDOC = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)")
_LOOKS = frozenset(
    re.findall(
        r"\S+",
        "ls cat head tail grep egrep fgrep rg wc echo printf pwd which whereis type env printenv uname whoami id date sleep true false "
        "test [ uniq diff cmp stat file tree less more cut tr nl od xxd hexdump jq column seq basename dirname realpath readlink du df ps "
        "mkdir export set unset pytest py.test mypy pyflakes pylint exit ulimit md5sum sha256sum history man help submit :",
    )
)
"""Programs that change no file of a workspace."""
_MODULES = frozenset(
    {"pytest", "unittest", "py_compile", "doctest", "mypy", "compileall", "pip", "json.tool", "flake8", "pylint"}
)
_GIT_LOOKS = frozenset(
    {"status", "diff", "log", "show", "blame", "grep", "ls-files", "rev-parse", "add", "commit", "config", "fetch"}
)
_MOST_CHARS = 50_000
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "{", "}", "(", ")", "!"}
)
_SURE = frozenset({"cd", "mkdir", "cat", "echo", "export", "set", "true", "rm", "mv", "cp", "apply_patch", "tee"})
"""What can be taken to have succeeded where a later command stands behind `&&`."""
_CODE_WRITES = re.compile(
    r"\bopen\s*\((?![^()\n,]*\))(?![^()\n,]*,\s*(?:encoding|errors)\s*=)(?![^()\n,]*,\s*(?:mode\s*=\s*)?['\"]r?[bt]?['\"])"
    r"|\.(?:write_text|write_bytes|touch|unlink|rename|symlink_to|hardlink_to|rmdir|savetxt|to_csv|to_json|savefig|save|dump)\s*\("
    r"|\b(?:shutil|subprocess|fileinput|runpy|importlib|ctypes|sqlite3|tempfile)\b|\b(?:exec|eval|__import__|compile)\s*\("
    r"|\bos\.(?:rename|replace|remove|unlink|system|popen|exec\w*|spawn\w*|truncate|link|symlink|rmdir|removedirs|open|write)\b"
    r"|^\s*[%!]|\b\w{0,40}(?:edit|patch|write|insert|append|create|replace|delete)\w{0,20}(?:file|line|text|content)\w{0,40}\s{0,9}\("
)


def replay_command(command: str | Sequence[str], state: Written, folder: str = "") -> None:
    """Do to the files what a shell command did to them.

    Args:
        command: A line or script for a shell, or a program and its arguments.
        state: The workspace, which is changed.
        folder: Where the command ran.
    """
    if not isinstance(command, str):
        words = list(command)
        if len(words) > 2 and re.search(r"(?:^|/)(?:ba|z|da)?sh$", words[0]) and re.fullmatch(r"-\w*c", words[-2]):
            return replay_command(words[-1], state, folder)
        if words and words[0] == "apply_patch" and len(words) == 2:
            return replay_patch(words[1], state, folder)
        command = shlex.join(words)
    try:
        _Shell(state, folder).run(command)
    except _Unknown as why:
        state.lose(f"a shell command that may change files ({why}): {command.strip()[:80]!r}")
    return None


def replay_patch(patch: str, state: Written, folder: str = "") -> None:
    """Apply a patch, whole; one that does not apply exactly makes the files unknown."""
    try:
        for change in changes(patch):
            name = state.place(change.path, folder)
            if name is None:
                continue
            if change.kind == "delete":
                state.drop(name)
            elif change.kind == "add":
                state.put(name, added(change))
            elif name not in state.files:
                raise ValueError(f"the text of {name!r} is not known")
            else:
                text = patched(state.files[name], change)
                target = state.place(change.target, folder) if change.target else None
                if change.target:
                    state.drop(name)
                if target or not change.target:
                    state.put(target or name, text)
    except ValueError as error:
        state.lose(f"a patch that cannot be replayed: {error}")


def code_writes(code: str, state: Written, seen: frozenset[str] = frozenset()) -> bool:
    """May this Python code change files, by itself or by the modules of the workspace that it imports?"""
    if any(_CODE_WRITES.search(line) for line in code.splitlines()):
        return True
    names = {f"{name.replace('.', '/')}.py" for name in re.findall(r"(?m)^\s*(?:from|import)\s+([\w.]+)", code)}
    return any(code_writes(state.files[name], state, seen | names) for name in (names - seen) & state.files.keys())


class _Unknown(Exception):
    """A command of which nobody knows what it did."""


class _Shell:
    """One script, run over the files from its first command to its last."""

    def __init__(self, state: Written, folder: str) -> None:
        self.state, self.folder = state, folder
        self.bodies: list[tuple[str, bool]] = []

    def run(self, script: str) -> None:
        """Replay.

        Raises:
            _Unknown: it may change files in a way that is not known.
        """
        text = self._without_bodies(script.replace("\\\n", " "))
        if len(text) > _MOST_CHARS:
            raise _Unknown("it is too long")
        try:
            lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
            lexer.whitespace_split = True
            lexer.commenters = ""
            tokens = list(lexer)
        except ValueError as error:
            raise _Unknown(str(error).lower()) from None
        command: list[str] = []
        earlier, joined = "", ";"
        for token in [*tokens, ";"]:
            if re.fullmatch(r"[;|&]+", token) and not (command and re.fullmatch(r"[<>]+&?", command[-1])):
                if command:
                    self._simple(
                        command, sure=joined == ";" or (joined == "&&" and earlier in _SURE), piped=token == "|"
                    )
                    earlier, command = command[0], []
                joined = "&&" if token == "&&" else ";" if set(token) == {";"} else token
            else:
                command.append(token)

    def _without_bodies(self, script: str) -> str:
        """The script less its here-documents, each of which leaves its mark; their texts are kept in order."""
        kept, lines = [], iter(script.split("\n"))
        for line in lines:
            for found in list(_HEREDOC.finditer(line)):
                body = []
                for row in lines:
                    row = row.lstrip("\t") if found["dash"] else row
                    if row.rstrip() == found["end"]:
                        break
                    body.append(f"{row}\n")
                text = "".join(body)
                self.bodies.append((text, bool(found["quote"]) or not re.search(r"[$`\\]", text)))
            kept.append(_HEREDOC.sub(" __body__ ", line))
        return "\n".join(kept)

    def _simple(self, words: list[str], *, sure: bool, piped: bool) -> None:
        body = self.bodies.pop(0) if "__body__" in words else None
        words = [word for word in words if word != "__body__"]
        while words and (words[0] in _KEYWORDS or re.fullmatch(r"\w+=.*", words[0], re.DOTALL)):
            sure = sure and words[0] not in _KEYWORDS
            words = words[1:]
        words, target, more = self._redirected(words)
        if not words:
            if target:
                raise _Unknown("a file is emptied")
            return
        program, arguments = words[0].rpartition("/")[2], words[1:]
        if program == "tee" and body and len(arguments) == 1 and target is None:
            program, arguments, target = "cat", [], arguments[0]
        if program == "cat" and body and not arguments and target and not piped:
            self._write(target, body, more=more, sure=sure)
        elif target is not None and self.state.place(target, self.folder) is not None:
            raise _Unknown(f"it writes {target[:40]!r}")
        elif program == "apply_patch" and (body or len(arguments) == 1):
            if not sure or (body and not body[1]):
                raise _Unknown("a patch that may not have been applied")
            replay_patch(body[0] if body else arguments[0], self.state, self.folder)
        elif program == "cd":
            self._enter(arguments)
        elif program in {"rm", "mv", "cp"}:
            self._moved(program, arguments, sure=sure)
        elif not self._only_looks(program, arguments, body):
            raise _Unknown(program[:40])

    def _redirected(self, words: list[str]) -> tuple[list[str], str | None, bool]:
        """The words without redirections, the file that gets the output, and whether it is appended to."""
        kept: list[str] = []
        target, more, place = None, False, 0
        while place < len(words):
            word = words[place]
            if re.fullmatch(r"[<>&]+", word):
                file = words[place + 1] if place + 1 < len(words) else ""
                if kept and re.fullmatch(r"[012]", kept[-1]) and word != "<":
                    kept.pop()
                if ">" in word and not (word.endswith("&") and re.fullmatch(r"\d|-", file)) and file != "/dev/null":
                    if target is not None:
                        raise _Unknown("it writes several files")
                    target, more = file, ">>" in word
                place += 2
                continue
            kept.append(word)
            place += 1
        return kept, target, more

    def _write(self, target: str, body: tuple[str, bool], *, more: bool, sure: bool) -> None:
        name = None if re.search(r"[$*?~`]", target) else self.state.place(target, self.folder)
        if name is None:
            if re.search(r"[$*?~`]", target):
                raise _Unknown(f"it writes {target[:40]!r}")
            return
        if not sure or not body[1] or (more and name not in self.state.files):
            raise _Unknown(
                "a text that depends on the shell" if not body[1] else "a text that may not have been written"
            )
        self.state.put(name, (self.state.files[name] if more else "") + body[0])

    def _enter(self, arguments: list[str]) -> None:
        if len(arguments) != 1 or re.search(r"[$*?~`]|^-", arguments[0]):
            raise _Unknown("cd to a folder that is not known")
        path = arguments[0].rstrip("/") or "/"
        if path.startswith("/"):
            inside = next((root for root in self.state.roots if f"{path}/".startswith(f"{root}/")), None)
            self.folder = path if inside is None else path[len(inside) :].strip("/")
        elif path != ".":
            self.folder = f"{self.folder}/{path}" if self.folder else path

    def _moved(self, program: str, arguments: list[str], *, sure: bool) -> None:
        paths = [word for word in arguments if not word.startswith("-")]
        if any(re.search(r"[$*?~`\[]", path) for path in paths):
            raise _Unknown(f"{program} of files that are not told")
        names = [self.state.place(path, self.folder) for path in paths]
        if not any(names):
            return
        if not sure:
            raise _Unknown(f"{program} that may not have happened")
        if program == "rm":
            for name in filter(None, names):
                self.state.drop(name)
            return
        source, target = names if len(names) == 2 else (None, None)
        if source is None or target is None or source not in self.state.files or paths[1].endswith(("/", ".")):
            raise _Unknown(f"{program} of files that are not known")
        if any(name.startswith(f"{target}/") for name in self.state.files):
            target = f"{target}/{source.rpartition('/')[2]}"
        elif "." not in target.rpartition("/")[2]:  # a folder, it may be
            raise _Unknown(f"{program} to a place that is not known")
        text = self.state.files[source]
        if program == "mv":
            self.state.drop(source)
        self.state.put(target, text)

    def _only_looks(self, program: str, arguments: list[str], body: tuple[str, bool] | None) -> bool:
        options = " ".join(arguments)
        if any("`" in word or "$(" in word for word in arguments):
            return False
        if program == "sed":
            return not re.search(r"(?:^| )(?:-\w*i|--in-place)", options) and not re.search(r"(?:^|[;/\d}])w ", options)
        if program == "find":
            return not re.search(r"-(?:delete|exec|ok|fprint)", options)
        if program in {"awk", "gawk"}:
            return ">" not in options and "system" not in options
        if program == "git":
            return next((word for word in arguments if not word.startswith("-")), "") in _GIT_LOOKS
        if program in {"ruff", "black", "isort", "sort", "flake8"}:
            return (
                (program == "sort" and "-o" not in arguments)
                or "--check" in arguments
                or (options.startswith("check") and "--fix" not in options)
            )
        if program in {"timeout", "time", "nice", "env"} and arguments:
            rest = [word for word in arguments if not re.fullmatch(r"-.*|[\d.]+[smh]?|\w+=.*", word)]
            start = arguments.index(rest[0]) if rest else len(arguments)
            return not rest or self._only_looks(rest[0].rpartition("/")[2], arguments[start + 1 :], body)
        if re.fullmatch(r"python[\d.]*|ipython3?", program):
            return self._python_looks(arguments, body)
        return program in _LOOKS or program in {"pip", "pip3"}

    def _python_looks(self, arguments: list[str], body: tuple[str, bool] | None) -> bool:
        place = 0
        while place < len(arguments) and re.fullmatch(r"-[bBdEiIOqsSuvx]+|--version|-V", arguments[place]):
            place += 1
        rest = arguments[place:]
        if not rest or rest[0] == "-":
            return body is None or not code_writes(body[0], self.state)
        if rest[0] == "-c":
            return len(rest) > 1 and not code_writes(rest[1], self.state)
        if rest[0] == "-m" and len(rest) > 1:
            if rest[1] in _MODULES:
                return True
            rest = [f"{rest[1].replace('.', '/')}.py"]
        name = self.state.place(rest[0], self.folder)
        return name in self.state.files and not code_writes(self.state.files[name or ""], self.state)
