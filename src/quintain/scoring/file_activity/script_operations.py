"""Shell scripts and Python code as operations on files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from quintain.scoring.file_activity.operations import Operation, OperationKind, patch_operations
from quintain.scoring.file_activity.programs import Purpose, purpose_of
from quintain.scoring.file_activity.python_code import python_operations
from quintain.scoring.file_activity.shell import Command, HereDocument, parse_script

_READERS = frozenset(
    {"cat", "less", "more", "head", "tail", "nl", "xxd", "strings", "vi", "vim", "nano", "base64", "od", "tac"}
)
_LISTERS = frozenset({"grep", "rg", "ls", "wc", "file", "stat", "echo"})
_REMOVERS = frozenset({"rm", "unlink", "shred", "del", "erase", "rd", "Remove-Item"})
_GIT_PROGRAMS = {"apply": "patch", "am": "patch", "rm": "rm", "mv": "mv"}
"""Subcommand of git -> the program that does the same to files."""
_SURE = frozenset({"cd", "mkdir", "cat", "echo", "export", "set", "true", "rm", "mv", "cp", "apply_patch", "tee"})
"""Programs that can be taken to have succeeded where a later command follows `&&`."""
_SUBSTITUTION = re.compile(r"s([/|#@,!])(.*?)(?<!\\)\1(.*?)(?<!\\)\1", re.DOTALL)
_DELETED_LINES = re.compile(r"/(.+?)/d\b")
_ADDED_LINES = re.compile(r"\b[\d$]*\s*[aic]\\?\s*(.+)")
_PERL_DROPS = re.compile(r"unless\s+/(.+?)/")
_PYTHON = re.compile(r"python[\d.]*|ipython3?")
_FLAGS = re.compile(r"-[bBdEiIOqsSuvx]+")


def script_operations(script: str, folder: str = "") -> Iterator[Operation]:
    """Yield what a shell script does to files, in its order; paths are joined with the folder where it runs."""
    earlier = ""
    listed: list[str] = []
    for command in parse_script(script):
        is_sure = not command.is_nested and (command.operator == ";" or (command.operator == "&&" and earlier in _SURE))
        earlier = command.program
        if command.program == "cd":
            target = command.arguments[0] if len(command.arguments) == 1 else ""
            if not target or target.startswith("-") or not command.is_literal:
                yield Operation("unknown", note="cd to an unknown folder", is_exact=False)
            else:
                folder = posixpath.normpath(posixpath.join(folder, target))
            continue
        operations = list(_command_operations(command, is_sure=is_sure))
        if command.program == "xargs" and command.operator == "|":
            operations = list(_on_listed_files(command, listed))
        listed = [operation.path for operation in operations if operation.kind == "search"]
        for operation in operations:
            yield _placed(operation, folder)


def _placed(operation: Operation, folder: str) -> Operation:
    if not folder or folder == ".":
        return operation
    path, target = (posixpath.join(folder, name) if name else "" for name in (operation.path, operation.target))
    change = operation.change
    if change is not None:
        moved = posixpath.join(folder, change.target) if change.target else None
        change = change._replace(path=posixpath.join(folder, change.path), target=moved)
    return replace(operation, path=path, target=target, change=change)


def _command_operations(command: Command, *, is_sure: bool) -> Iterator[Operation]:
    program, document = command.program, command.here_document
    writes = program == "tee" or (program == "cat" and command.outputs)
    if document is not None and writes and not command.piped:
        yield from _written_document(command, document, is_sure=is_sure)
    elif command.outputs:
        yield from _output(command)
    else:
        yield from _program_operations(command, is_sure=is_sure)
    yield from (Operation("read", one.target) for one in command.redirects if one.operator == "<")


def _program_operations(command: Command, *, is_sure: bool) -> Iterator[Operation]:
    program = name = command.program
    paths = [word for word in command.arguments if not word.startswith("-")]
    if program == "git" and command.arguments and command.arguments[0] in _GIT_PROGRAMS:
        name, paths = _GIT_PROGRAMS[command.arguments[0]], paths[1:]
    exact = is_sure and command.is_literal and program != "git"
    if name == "tee":
        yield from (Operation("write", path, is_exact=False, note=f"tee writes {path[:40]!r}") for path in paths)
    elif name in {"apply_patch", "patch"}:
        yield from _patched(command, is_sure=is_sure)
    elif name in _REMOVERS:
        names = [path.replace("\\", "/") for path in paths]
        yield from (Operation("delete", path, is_exact=exact and name == "rm", note=program) for path in names)
    elif name in {"mv", "cp"}:
        yield from _moved(program, paths, exact=exact)
    elif name == "truncate":
        yield from (Operation("write", path, is_whole=True, is_exact=False) for path in paths[-1:])
    elif name in {"sed", "perl", "gsed"}:
        yield from _stream_edits(command)
    elif name == "find":
        yield from _found(command)
    elif _PYTHON.fullmatch(name):
        yield from _python(command)
    elif name in _READERS:
        yield from (Operation("read", path) for path in paths)
    elif purpose_of(command) in {Purpose.OTHER, Purpose.UNDO}:
        yield Operation("run", new=command.source, is_exact=False, note=program)


def _patched(command: Command, *, is_sure: bool) -> Iterator[Operation]:
    document, text, is_own = command.here_document, "", command.program == "apply_patch"
    if document is not None:
        text = document.text
    elif is_own and len(command.arguments) == 1:
        text = command.arguments[0]
    yield from patch_operations(text, is_exact=is_own and is_sure and (document is None or document.is_literal))


def _written_document(command: Command, document: HereDocument, *, is_sure: bool) -> Iterator[Operation]:
    targets = [one.target for one in command.outputs] or [word for word in command.arguments if word[0] != "-"]
    appends = "-a" in command.arguments or any(one.operator == ">>" for one in command.outputs)
    exact = is_sure and document.is_literal and len(targets) == 1 and command.is_literal
    for path in targets:
        kind: OperationKind = "append" if appends else "write"
        yield Operation(kind, path, new=document.text, is_whole=not appends, is_exact=exact, note="a here-document")


def _output(command: Command) -> Iterator[Operation]:
    """The output of a command in a file; known to the letter only for `:` and `true`, and roughly for `echo`."""
    text = ""
    if command.program in {"echo", "printf"}:
        text = " ".join(word for word in command.arguments if not re.fullmatch(r"-\w+", word))
    is_whole = command.program in {"", ":", "true", "echo", "printf", "cat"}
    for redirect in command.outputs:
        kind: OperationKind = "append" if redirect.operator == ">>" else "write"
        whole = is_whole and kind == "write"
        yield Operation(
            kind, redirect.target, new=text, is_whole=whole, is_exact=False, note=f"writes {redirect.target[:40]!r}"
        )


def _moved(program: str, paths: Sequence[str], *, exact: bool) -> Iterator[Operation]:
    if len(paths) < 2:
        return
    *sources, target = paths
    for source in sources:
        if program == "cp" and source == "/dev/null":
            yield Operation("write", target, is_whole=True, is_exact=False)
        else:
            kind: OperationKind = "copy" if program == "cp" else "move"
            yield Operation(kind, source, target=target, is_exact=exact and len(sources) == 1, note=program)


def _stream_edits(command: Command) -> Iterator[Operation]:
    """`sed -i PROGRAM FILE...` and `perl -pi -e PROGRAM FILE...`."""
    options = [word for word in command.arguments if word.startswith("-")]
    paths = [word for word in command.arguments if not word.startswith("-")]
    is_perl = command.program == "perl"
    in_place = any(re.match(r"-\w*i" if is_perl else r"-[a-zA-Z]*i|--in-place", word) for word in options)
    if not paths:
        return
    program, *files = paths
    if not in_place:
        if is_perl:
            yield Operation("run", new=command.source, is_exact=False, note="perl")
        elif purpose_of(command) is Purpose.OTHER:
            yield Operation("run", new=command.source, is_exact=False, note="sed")
        else:
            yield from (Operation("read", path) for path in files)
        return
    removed, added = _substituted(program)
    for path in files:
        yield Operation("edit", path, removed, added, is_exact=False, note=f"{command.program} in place")


def _substituted(program: str) -> tuple[str, str]:
    """Return what a program of sed or perl takes out and puts in."""
    pairs = [(found.group(2), found.group(3)) for found in _SUBSTITUTION.finditer(program)]
    removed = [old for old, _ in pairs]
    added = [new for _, new in pairs]
    rest = _SUBSTITUTION.sub("", program)
    removed += [found.group(1) for pattern in (_DELETED_LINES, _PERL_DROPS) for found in pattern.finditer(rest)]
    if not removed:
        added += [found.group(1) for found in _ADDED_LINES.finditer(program)]
    return "\n".join(removed), "\n".join(added)


def _found(command: Command) -> Iterator[Operation]:
    """`find FOLDER ... -delete`, `-exec rm`, `-exec cat`: the files as one pattern."""
    arguments = list(command.arguments)
    before_options = takewhile(lambda word: not word.startswith(("-", "(")), arguments)
    folders = [word for word in before_options if word] or ["."]
    names = [arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word in {"-name", "-iname"}]
    patterns = [f"{folder.rstrip('/')}/{names[0] if names else '*'}" for folder in folders]
    started = next(
        (arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word in {"-exec", "-execdir", "-ok"}), ""
    )
    program = started.rpartition("/")[2]
    if "-delete" in arguments or program in _REMOVERS:
        yield from (Operation("delete", path, is_exact=False, note="find") for path in patterns)
    elif program in _READERS:
        yield from (Operation("read", path) for path in patterns)
    elif program and program not in _LISTERS:
        yield Operation("run", new=command.source, is_exact=False, note="find")
    else:
        yield from (Operation("search", path) for path in patterns)


def _on_listed_files(command: Command, listed: Sequence[str]) -> Iterator[Operation]:
    """`find ... | xargs rm` and the like, on the files that `find` listed."""
    words = [word for word in command.arguments if not word.startswith("-")]
    program = words[0].rpartition("/")[2] if words else ""
    if program in _REMOVERS:
        yield from (Operation("delete", path, is_exact=False, note="xargs") for path in listed)
    elif program in _READERS:
        yield from (Operation("read", path) for path in listed)
    elif program not in _LISTERS:
        yield Operation("run", new=command.source, is_exact=False, note="xargs")


def _python(command: Command) -> Iterator[Operation]:
    code = inline_python(command)
    if code is not None:
        yield from python_operations(code)
    elif purpose_of(command) is Purpose.OTHER:
        yield Operation("run", _python_file(command), new=command.source, is_exact=False, note="python")


def _python_file(command: Command) -> str:
    """Return the file that `python FILE` or `python -m MODULE` runs; empty for an interpreter that only starts."""
    arguments = [word for word in command.arguments if not _FLAGS.fullmatch(word)]
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        return f"{arguments[1].replace('.', '/')}.py"
    return arguments[0] if arguments else ""


def inline_python(command: Command) -> str | None:
    """Return the code of `python -c CODE` and `python <<EOF`; None for other commands."""
    arguments = list(command.arguments)
    while arguments and _FLAGS.fullmatch(arguments[0]):
        arguments.pop(0)
    if arguments[:1] == ["-c"] and len(arguments) > 1:
        return arguments[1]
    if not arguments or arguments[0] == "-":
        return command.here_document.text if command.here_document else None
    return None
