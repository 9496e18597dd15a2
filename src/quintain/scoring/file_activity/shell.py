"""Shell scripts as simple commands: words, redirections, here-documents, and whether each command surely ran.

A lexer and no full parser: agents' scripts are often cut short or malformed, and all readers need are simple commands in order.
`bashlex` is GPL and rejects such scripts; `shlex` loses quoting, comments and newlines; `tree-sitter-bash` would work at the price
of two compiled dependencies.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_WORD = re.compile(r"""(?:[^\s;|&()<>'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\].*)+""", re.DOTALL)
_BLANKS = re.compile(r"(?:[ \t\r]|\\\n)*")
_TOKEN = re.compile(
    r"(?P<blank>(?:[ \t\r]|\\\n)+)"
    r"|(?P<comment>#[^\n]*)"
    r"|(?P<redirect>(?:\d+|&)?(?:<<<|<<-?|>>|>\||[<>]&|<>|[<>]))(?P<descriptor>\d+\b|-(?=[\s;|&)]|\Z))?"
    r"|(?P<operator>&&|\|\||\|&?|;;?|&|\n|[()]|[\v\f\x1c-\x1f\x85\u2028\u2029])"
    rf"|(?P<word>{_WORD.pattern})"
    r"|(?P<other>.)",
    re.DOTALL,
)
_PIECE = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)|(?P<plain>[^'"\\]+|.)""", re.DOTALL
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_EXPANDS = re.compile(r"[$`]")
_EXPANDS_BARE = re.compile(r"[$`*?\[~]")
_OPENING = frozenset({"if", "for", "while", "until", "case", "select", "{"})
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!"}) | {"{"} | _CLOSING
_WRAPPERS = frozenset({"sudo", "time", "timeout", "env", "nice", "nohup", "command", "stdbuf"})
_WRAPPER_ARGUMENT = re.compile(r"-.*|[\d.]+[smhd]?|[A-Za-z_]\w*=.*", re.DOTALL)
_OPTION_WITH_VALUE = frozenset({"-u", "-n", "-k", "-s"})
_SHELL = re.compile(r"(?:^|/)(?:ba|z|da|k)?sh$")
MAX_CHARS = 50_000
"""Longer scripts are read up to here."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection of a command to or from a file."""

    operator: str
    """`>`, `>>`, `<`, ..., without its file descriptor."""
    target: str
    is_literal: bool


@dataclass(frozen=True, slots=True)
class HereDocument:
    """The text that a command reads from the script itself."""

    text: str
    is_literal: bool
    """Whether the shell leaves the text as it is: quoted delimiter, or nothing to expand."""


@dataclass(slots=True)
class Command:
    """A simple command.

    Attributes:
        words: Program and arguments without quotes, assignments, keywords and wrappers such as `timeout 5`.
        source: The command as written.
        operator: Operator between it and the command before: `;`, `&&`, `||`, `|`, `&`.
        piped: Whether the output goes to the next command.
        is_literal: Whether no word depends on a variable or a substitution.
        is_nested: Whether the command is part of a condition or a loop.
    """

    words: tuple[str, ...]
    source: str
    operator: str = ";"
    piped: bool = False
    is_literal: bool = True
    is_nested: bool = False
    redirects: tuple[Redirect, ...] = ()
    here_document: HereDocument | None = None

    @property
    def program(self) -> str:
        """The name of the program, without its folder; empty for a bare redirection."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the program."""
        return self.words[1:]

    @property
    def git(self) -> tuple[str, ...]:
        """The subcommand of git with its arguments, without the options before it; empty for another program."""
        words = self.arguments if self.program == "git" else ()
        while words and words[0].startswith("-"):
            words = words[2 if words[0] in {"-C", "-c"} else 1 :]
        return words

    @property
    def outputs(self) -> list[Redirect]:
        """Redirections that write a file, other than `/dev/null`."""
        return [one for one in self.redirects if one.operator.startswith((">", "<>")) and one.target != "/dev/null"]


def script_of(command: str | Sequence[str]) -> str:
    """Return the script of a command line; of `["bash", "-lc", SCRIPT]` the script."""
    if isinstance(command, str):
        return command
    words = list(command)
    if len(words) > 2 and _SHELL.search(words[0]) and re.fullmatch(r"-\w*c", words[-2]):
        return words[-1]
    return shlex.join(words)


@lru_cache(maxsize=64)
def parse_script(script: str) -> tuple[Command, ...]:
    """Return the simple commands of a shell script, in order.

    Commands inside `$(...)` and of `bash -c SCRIPT` are listed too; what is inside double quotes is not taken apart.
    """
    commands = _Parser(script[:MAX_CHARS]).parse()
    nested = [text for command in commands if (text := _inline_script(command)) is not None]
    return (*commands, *(command for text in nested for command in parse_script(text)))


def _inline_script(command: Command) -> str | None:
    """Return the script of `bash -c SCRIPT`, which is shorter than the command itself."""
    if not _SHELL.search(command.program):
        return None
    arguments = command.arguments
    place = next((i for i, word in enumerate(arguments) if re.fullmatch(r"-\w*c", word)), None)
    return arguments[place + 1] if place is not None and place + 1 < len(arguments) else None


@dataclass(slots=True)
class _PendingDocument:
    """A here-document whose text starts on the next line."""

    delimiter: str
    strips_tabs: bool
    is_quoted: bool
    owner: Command | None = None


class _Parser:
    """Collects tokens into simple commands."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._commands: list[Command] = []
        self._words: list[tuple[str, bool]] = []
        self._redirects: list[Redirect] = []
        self._pending: list[_PendingDocument] = []
        self._inline_document: HereDocument | None = None
        self._start = 0
        self._operator = ";"
        self._depth = 0

    def parse(self) -> list[Command]:
        """Return the commands of the whole script."""
        place = 0
        while found := _TOKEN.match(self._script, place):
            place = found.end()
            if found["redirect"]:
                place = self._read_redirect(found)
            elif found["word"]:
                self._words.append(_unquoted(found["word"]))
            elif operator := found["operator"]:
                self._finish(found.start(), operator)
                if operator == "\n":
                    place = self._read_documents(place)
                self._start = place
        self._finish(len(self._script), "\n")
        return self._commands

    def _read_redirect(self, found: re.Match[str]) -> int:
        """Note a redirection; return where it ends."""
        operator = found["redirect"].lstrip("0123456789&")
        if found["descriptor"]:
            return found.end()
        begin = _match_end(_BLANKS, self._script, found.end())
        end = _match_end(_WORD, self._script, begin)
        target = self._script[begin:end]
        if operator in {"<<", "<<-"}:
            is_quoted = re.search(r"['\"\\]", target) is not None
            self._pending.append(_PendingDocument(_unquoted(target)[0], operator == "<<-", is_quoted))
        elif operator == "<<<":
            text, is_literal = _unquoted(target)
            self._inline_document = HereDocument(f"{text}\n", is_literal)
        elif target:
            self._redirects.append(Redirect(operator.rstrip("&|"), *_unquoted(target)))
        return end

    def _finish(self, place: int, operator: str) -> None:
        """End the current command before an operator."""
        if self._words or self._redirects:
            command = self._command(self._script[self._start : place])
            command.piped = operator in {"|", "|&"}
            command.here_document = self._inline_document
            for document in self._pending:
                document.owner = document.owner or command
            self._commands.append(command)
            self._operator = ";" if operator in {"\n", ";;", "(", ")"} else operator.rstrip("&") or operator
        self._words, self._redirects, self._inline_document = [], [], None

    def _read_documents(self, place: int) -> int:
        """Read the texts of the here-documents of the line before; return where the last one ends."""
        for document in self._pending:
            lines = []
            while place < len(self._script):
                end = self._script.find("\n", place)
                end = len(self._script) if end < 0 else end
                line = self._script[place:end]
                line = line.lstrip("\t") if document.strips_tabs else line
                place = end + 1
                if line.rstrip() == document.delimiter:
                    break
                lines.append(f"{line}\n")
            text = "".join(lines)
            if document.owner:
                is_literal = document.is_quoted or not re.search(r"[$`\\]", text)
                document.owner.here_document = HereDocument(text, is_literal)
        self._pending.clear()
        return place

    def _command(self, source: str) -> Command:
        texts = [text for text, _ in self._words]
        is_nested = self._depth > 0
        while texts and (texts[0] in _KEYWORDS or _ASSIGNMENT.match(texts[0])):
            word = texts.pop(0)
            if word in _OPENING:
                self._depth += 1
            elif word in _CLOSING:
                self._depth = max(0, self._depth - 1)
            is_nested |= word in _KEYWORDS
        if texts and texts[0] in _OPENING:
            self._depth += 1
        return Command(
            words=tuple(without_wrappers(texts)),
            source=source.strip(),
            operator=self._operator,
            is_literal=all(is_literal for _, is_literal in self._words),
            is_nested=is_nested,
            redirects=tuple(self._redirects),
        )


def without_wrappers(words: Sequence[str]) -> list[str]:
    """Return the words without programs that only start another one: `sudo`, `timeout 5`, `env A=1`."""
    rest = list(words)
    while len(rest) > 1 and rest[0] in _WRAPPERS:
        place = 1
        while place < len(rest) and _WRAPPER_ARGUMENT.fullmatch(rest[place]):
            place += 2 if rest[place] in _OPTION_WITH_VALUE else 1
        if place >= len(rest):
            break
        rest = rest[place:]
    return rest


def _match_end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


def _unquoted(word: str) -> tuple[str, bool]:
    """Return a word without its quotes, and whether the shell leaves it as it is: no variable, substitution or pattern."""
    text, is_literal = "", True
    for found in _PIECE.finditer(word):
        kind = found.lastgroup or "plain"
        piece = found.group(kind)
        if (kind == "double" and _EXPANDS.search(piece)) or (kind == "plain" and _EXPANDS_BARE.search(piece)):
            is_literal = False
        text += re.sub(r"\\([$`\"\\\n])", r"\1", piece) if kind == "double" else piece
    return text, is_literal
