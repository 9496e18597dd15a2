"""A scripted expert: it reads the prompt and the files, and knows how each function of the generated projects should be written.

It gives demonstrations, and an upper bound to test the environment against.
"""

from __future__ import annotations

import ast
import re
from functools import cache, partial

from quintain.environments.sandbox.domains import DOMAINS
from quintain.environments.sandbox.projects import SPECIMENS
from quintain.environments.sandbox.specimens import Written
from quintain.environments.scripts import Move, Script, ScriptedExpert
from quintain.errors import InvalidInput

_RENAME = re.compile(r"Rename the function `(\w+)` to `(\w+)`")
_EXTEND = re.compile(r"`(\w+)` in \S+ gets an option")


def _script(prompt: str) -> Script:
    if "package `" not in prompt:
        raise InvalidInput(f"the expert knows the generated tasks of quintain/sandbox only, not {prompt[:80]!r}")
    listed = yield Move("See what there is.", "list_files", {})
    if renamed := _RENAME.findall(prompt):
        yield from _rename(renamed)
    else:
        extended = set(_EXTEND.findall(prompt))
        for path in listed.splitlines():
            if path.endswith(".py") and not path.startswith("tests/") and not path.endswith(("__init__.py", "app.py")):
                yield from _mend(path, extended)
    yield Move("Run the tests.", "run_tests", {})
    yield Move("It is done.", "submit", {})


def _rename(renamed: list[tuple[str, str]]) -> Script:
    for old, new in renamed:
        yield Move(f"Where does {old} stand?", "grep", {"pattern": rf"\b{old}\b"})
        command = f"grep -rlw --exclude-dir=.git {old} . | xargs sed -i 's/\\b{old}\\b/{new}/g'"
        yield Move(f"Write {new} there.", "bash", {"command": command})


def _mend(path: str, extended: set[str]) -> Script:
    text = yield Move(f"Read {path}.", "read_file", {"path": path})
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        found = ast.get_source_segment(text, node) or ""
        function = _functions()[node.name]
        right = (function.extended if node.name in extended else function.source).rstrip("\n")
        if found != right:
            args = {"path": path, "old_string": found, "new_string": right}
            yield Move(f"{node.name} is not as it should be.", "edit_file", args)


@cache
def _functions() -> dict[str, Written]:
    every = (Written(one, domain) for domains in DOMAINS.values() for domain in domains for one in SPECIMENS)
    return {function.name: function for function in every}


Expert = partial(ScriptedExpert, _script)
"""A `Policy` for `quintain/sandbox` that needs no model."""
