"""Write what derives from the catalog of tools: listings, options of commands, the page of arguments, the Python client.

Run as `python -m scripts.make_tool_reference` after a change of a tool's signature, docstring or command.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from scripts.make_python_client import write as write_client

from quintain.cli import command_lines
from quintain.cli.table import COMMANDS
from quintain.cli.tool_options import options_of
from quintain.server.calls.bindings import LISTINGS_FILE, derived_listing
from quintain.tools.catalog import CATALOG, ToolSpec, tool
from quintain.tools.invocation import arguments_model

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "tool-arguments.md"
_HEAD = """\
# Arguments of the tools

Every tool with its arguments and its commands, generated from the catalog by `python -m scripts.make_tool_reference`.
Result keys are in [tools](../tools.md), their meaning in [results](tool-results.md).
"""


def listings() -> str:
    """Return the content of the server's file of listings."""
    return json.dumps({spec.name: derived_listing(spec) for spec in CATALOG}, indent=1, ensure_ascii=False) + "\n"


def forms() -> str:
    """Return the content of the terminal's file of options: for each command, a line for each option."""
    names = [one.name for one in fields(command_lines.OptionForm)]
    rows = {
        name: [[getattr(option, field) for field in names] for option in options_of(command, tool(command.tool))]
        for name, command in COMMANDS.items()
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in rows.items())
    return f"{{{lines}}}\n".replace("], [", "],\n [")


def page() -> str:
    """Return the page of all tools."""
    return "\n".join([_HEAD, *(_section(spec) for spec in CATALOG)])


def _section(spec: ToolSpec) -> str:
    listing = derived_listing(spec)
    commands = [f"`quintain {name}`" for name, command in COMMANDS.items() if command.tool == spec.name]
    about = [f"toolset `{spec.toolset}`", *(["changes nothing"] if spec.read_only else [])]
    summary = str(listing["description"]).partition("\n")[0]
    lines = [f"## `{spec.name}`", "", f"{summary} ({', '.join(about)})", "", f"Terminal: {', '.join(commands)}.", ""]
    lines += ["| argument | type | default | terminal | what |", "|---|---|---|---|---|"]
    schema = listing["input_schema"]
    options = _options(spec)
    for name, field in arguments_model(spec).model_fields.items():
        part = schema["properties"].get(name, {})
        default = "required" if field.is_required() else f"`{json.dumps(part['default'])}`" if "default" in part else ""
        what = (field.description or "").replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{name}` | {_type(part)} | {default} | {options.get(name, '')} | {what} |")
    return "\n".join([*lines, ""])


def _options(spec: ToolSpec) -> dict[str, str]:
    """Return for each argument how the terminal takes it."""
    found: dict[str, str] = {}
    for command in COMMANDS.values():
        if command.tool == spec.name:
            for option in options_of(command, spec):
                if option.member is None:
                    found.setdefault(option.argument, f"`{option.flag or option.argument.upper()}`")
    return found


def _type(part: dict[str, Any]) -> str:
    if "enum" in part:
        return ", ".join(f"`{one}`" for one in part["enum"])
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(branch) for branch in part["anyOf"]))
    kinds = part.get("type", "any")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)


if __name__ == "__main__":
    LISTINGS_FILE.write_text(listings(), encoding="utf-8")
    command_lines.FORMS_FILE.write_text(forms(), encoding="utf-8")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    write_client()
