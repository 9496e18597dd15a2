"""Domain profiles: the built-in ones, the choice for a run, and profiles from users' files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.records.documents import read_document
from quintain.records.profiles import DomainProfile, OutcomeRule, ToolCategory, ToolProfile
from quintain.records.record import explain, nearest, shown
from quintain.records.trajectory import Trajectory

_PATHS = ("file_path", "path", "filePath", "target_file", "absolute_path", "notebook_path", "filename", "file", "uri")


def _tool(
    name: str,
    category: ToolCategory,
    aliases: str = "",
    target: tuple[str, ...] = (),
    *,
    modes: dict[str, ToolCategory] | None = None,
    repeatable: bool = False,
) -> ToolProfile:
    return ToolProfile(
        name=name,
        category=category,
        target=target,
        aliases=tuple(aliases.split()),
        modes=modes or {},
        repeatable=repeatable,
    )


_READ = _tool(
    "read_file",
    "read",
    "Read file_read cat view_file open_file open view ReadFile read_many_files NotebookRead read_text_file "
    "get_file_contents read_multiple_files read_media_file view_image",
    _PATHS,
)
_WRITE = _tool("write_file", "write", "Write file_write create_file create save_file write_to_file WriteFile", _PATHS)
_EDIT = _tool(
    "edit_file",
    "write",
    "Edit MultiEdit edit replace str_replace sed NotebookEdit search_replace replace_in_file insert "
    "multi_edit edit_notebook EditFile",
    _PATHS,
)
_PATCH = _tool("apply_patch", "write", "apply_diff patch", _PATHS)
_EDITOR = _tool(
    "str_replace_editor",
    "write",
    "str_replace_based_edit_tool file_editor text_editor str_replace_based_edit",
    _PATHS,
    modes={"view": "read"},
)
_FILES = _tool("move_file", "write", "delete_file create_directory rename_file copy_file mkdir remove_file", _PATHS)
_SHELL = _tool(
    "bash",
    "execute",
    "shell run run_shell_command execute_bash terminal exec_command local_shell shell_command execute_command "
    "run_command bash_command run_terminal_cmd container_exec exec cmd run_bash unified_exec local_shell_call run_tests",
)
_PYTHON = _tool(
    "ipython",
    "execute",
    "python run_ipython execute_ipython_cell code_interpreter execute_python jupyter python_interpreter run_python",
)
_GIT = _tool("git", "execute")
_FIND = _tool(
    "grep",
    "search",
    "Glob find ls search search_file_content grep_search list_directory list_dir find_file search_dir search_file "
    "codebase_search file_search list_files rg tool_search file_glob_search search_files directory_tree",
    ("path", "dir_path", "directory", "include"),
)
_SUBMIT = _tool("submit", "submit", "finish exit attempt_completion mark_task_complete complete_task task_complete")
_THINK = _tool(
    "think",
    "think",
    "TodoWrite TodoRead write_todos update_plan task_tracker todowrite_tool plan sequentialthinking exit_plan_mode "
    "ExitPlanMode EnterPlanMode AskUserQuestion",
)
_WEB_SEARCH = _tool("web_search", "search", "WebSearch google_web_search web_search_exa search_web", ())
_WEB_FETCH = _tool("web_fetch", "read", "WebFetch browse_url fetch fetch_url read_url", ("url", "prompt"))
_WAIT = _tool("bash_output", "read", "BashOutput write_stdin read_output TaskOutput", repeatable=True)
_DELEGATE = _tool("delegate", "execute", "Task Agent delegate_to_agent dispatch_agent subagent spawn_agent Skill")
_SCROLL = _tool("scroll_file", "read", "scroll_up scroll_down goto", repeatable=True)

_RESPOND = _tool("respond", "submit", "reply answer_user", repeatable=True)
_MESSAGE = _tool("send_message", "execute", "send_email notify")
_NOTE = _tool("create_note", "write", "save_note", ("title", "note_id"))
_KNOWLEDGE = _tool("knowledge_base", "search", "search_knowledge_base kb_search retrieve")
_ELEMENT = ("element_id", "selector", "ref", "id", "element")

_CODING = DomainProfile(
    name="coding",
    description="Work on files of a repository: read, search, edit, run.",
    tools=(
        *(_READ, _WRITE, _EDIT, _PATCH, _EDITOR, _FILES, _SHELL, _PYTHON, _GIT, _FIND, _SUBMIT, _THINK),
        *(_WEB_SEARCH, _WEB_FETCH, _WAIT, _DELEGATE, _SCROLL),
    ),
    outcome=OutcomeRule(partial_credit="partial_credit", score="tests_passed", total="tests_total"),
    rubric="coding",
)

_BROWSER = DomainProfile(
    name="browser",
    description="Work on web pages: go to, look, click, type.",
    tools=(
        _tool("click", "navigate", "browser_click click_element double_click tap", _ELEMENT),
        _tool("type_text", "write", "type browser_type fill input_text browser_fill_form set_value", _ELEMENT),
        _tool("navigate", "navigate", "goto goto_url browser_navigate open_url visit go_to_url", ("url",)),
        _tool("go_back", "navigate", "browser_navigate_back back go_forward", repeatable=True),
        _tool("press", "navigate", "press_key browser_press_key keypress", repeatable=True),
        _tool("screenshot", "read", "take_screenshot browser_take_screenshot browser_snapshot snapshot"),
        _tool("scroll", "navigate", "scroll_down scroll_up browser_scroll", repeatable=True),
        _tool("wait", "navigate", "browser_wait_for sleep noop", repeatable=True),
        _tool("extract_text", "read", "get_text extract extract_content read_page get_page", ("url", *_ELEMENT)),
        _tool("select", "write", "select_option browser_select_option choose", _ELEMENT),
        _tool("hover", "navigate", "browser_hover", _ELEMENT),
        _tool("tab", "navigate", "new_tab tab_focus close_tab switch_tab page_focus browser_tabs", repeatable=True),
        _tool("submit", "submit", "finish stop done send_msg_to_user"),
        *(_THINK, _WEB_SEARCH),
    ),
    rubric="browser",
)

_CONVERSATION = DomainProfile(
    name="conversation",
    description="Talk with a person, with tools where they help; a turn needs no call.",
    tools=(
        *(_RESPOND, _tool("query_stats", "read", "get_stats"), _MESSAGE, _DELEGATE, _WEB_SEARCH, _NOTE, _THINK),
        _tool("calculate", "read", "calculator"),
        _tool("transfer_to_human_agents", "submit"),
    ),
    calls="optional",
    rules={"information_use": 0.0, "timing": 0.0},
    rubric="conversation",
)

_ENGINEERING = DomainProfile(
    name="engineering",
    description="Answer questions about systems and code from sources.",
    tools=(_RESPOND, _READ, _FIND, _GIT, _KNOWLEDGE, _SHELL, _THINK, _SUBMIT),
    calls="optional",
    rubric="engineering",
)

_ADVISORY = DomainProfile(
    name="advisory",
    description="Advise: gather evidence, weigh it, recommend.",
    tools=(_RESPOND, _KNOWLEDGE, _WEB_SEARCH, _NOTE, _THINK, _SUBMIT),
    calls="optional",
    rules={"information_use": 0.0, "timing": 0.0},
    rubric="advisory",
)

_DISCUSSION = DomainProfile(
    name="discussion",
    description="Take part in a discussion.",
    tools=(_RESPOND, _KNOWLEDGE, _THINK, _SUBMIT),
    calls="optional",
    rules={"information_use": 0.0, "timing": 0.0},
    rubric="discussion",
)

_CREW = DomainProfile(
    name="crew",
    description="An employee of a crew of agents: notes, web, shell, delegation.",
    tools=(
        *(_RESPOND, _tool("read_notes", "read", "", ("note_id", "title"))),
        *(_tool("write_notes", "write", "create_note", ("note_id", "title")), _WEB_SEARCH, _WEB_FETCH),
        *(_SHELL, _DELEGATE, _THINK, _SUBMIT),
    ),
    calls="optional",
    rubric="crew",
)

_INVENTORY = DomainProfile(
    name="inventory",
    description="The built-in environment quintain/inventory: one call a turn until submit.",
    tools=(
        _tool("search", "search"),
        _tool("open", "read", "", ("item_id",)),
        _tool("compare", "read"),
        _tool("submit", "submit"),
    ),
    calls="due",
)

_GENERIC = DomainProfile(
    name="generic",
    description="Any other work: tools are known by their names alone.",
    tools=(_SUBMIT, _THINK),
)

BUILT_IN = (
    *(_CODING, _BROWSER, _CONVERSATION, _ENGINEERING, _ADVISORY, _DISCUSSION, _CREW, _GENERIC),
    _INVENTORY,
)
"""Knowlyr's eight, the generic one included, and the built-in environment's."""


GENERIC = "generic"
"""The profile of a run that no other one fits: it knows tools by their names alone."""

PROFILES: Mapping[str, DomainProfile] = MappingProxyType({profile.name: profile for profile in BUILT_IN})
"""The built-in profiles by name."""

_TYPES = {
    **dict.fromkeys(("bug_fix", "bugfix", "swe", "swe-bench", "swebench", "software_engineering", "code"), "coding"),
    **dict.fromkeys(("web", "web_navigation", "webarena", "webshop", "miniwob", "mind2web"), "browser"),
    **dict.fromkeys(("chat", "dialogue", "customer_service", "airline", "retail", "telecom"), "conversation"),
}
"""Other words for a domain, as tasks and environments use them."""

_COMMON = frozenset({"bash", "web_search"})
"""Tools of many domains, which do not show which one it is."""


def profile(name_or_path: str) -> DomainProfile:
    """A built-in profile by name, or the one in a JSON or YAML file.

    A file with `"extends": "coding"` changes only the fields that it gives; its tools take precedence.

    Raises:
        NotFound: neither a name nor a file; lists the names.
        InvalidInput: the file is not a profile; names the field.
    """
    if name_or_path in PROFILES:
        return PROFILES[name_or_path]
    if Path(name_or_path).suffix.lower() not in {".json", ".yaml", ".yml"}:
        near = nearest(name_or_path, PROFILES)
        raise NotFound(
            f"no profile {shown(name_or_path)}{near}; built in: {', '.join(sorted(PROFILES))}; or name a JSON file of your own",
            code="profile_not_found",
        )
    document = read_document(Path(name_or_path))
    extended = document.pop("extends", None)
    if extended is not None:
        if not isinstance(extended, str) or extended not in PROFILES:
            raise InvalidInput(
                f"expected profile.extends to be one of {', '.join(sorted(PROFILES))}, got {shown(extended)}",
                code="bad_config",
            )
        parent = PROFILES[extended]
        if isinstance(document.get("rules"), dict):
            document["rules"] = parent.rules | document["rules"]
        document = parent.model_dump(exclude={"tools", "description"}) | document
    try:
        own = DomainProfile.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(
            f"cannot read the profile in {name_or_path}: {explain(error, 'profile', DomainProfile.model_fields)}",
            code="bad_config",
        ) from None
    if extended is None:
        return own
    return own.model_copy(update={"tools": _over(own.tools, PROFILES[extended].tools)})


def _over(own: tuple[ToolProfile, ...], extended: tuple[ToolProfile, ...]) -> tuple[ToolProfile, ...]:
    """One's own tools, and those of the extended profile under the names that are left to them."""
    taken = {name.casefold() for tool in own for name in (tool.name, *tool.aliases)}
    kept = []
    for tool in extended:
        names = [name for name in (tool.name, *tool.aliases) if name.casefold() not in taken]
        if names:
            kept.append(tool.model_copy(update={"name": names[0], "aliases": tuple(names[1:])}))
    return own + tuple(kept)


def profile_for(run: Trajectory) -> DomainProfile:
    """Return the profile of a run: by `metadata.domain`, environment or task type, else by its tools, else `generic`."""
    task = run.task
    for field in (task.metadata.get("domain"), task.environment, task.type):
        if isinstance(field, str) and (name := _domain(field)):
            return PROFILES[name]
    called = {tool.casefold() for step in run.steps for action in step.actions if (tool := bare_name(action.tool))}
    called -= _NAMES[GENERIC]
    return PROFILES[_by_tools(called - _COMMON) or _by_tools(called) or GENERIC]


def domain_of(run: Trajectory) -> str:
    """The name of the run's profile: runs of one domain are calibrated together."""
    return profile_for(run).name


def bare_name(tool: str) -> str:
    """A tool's name without the server or namespace that offers it: `mcp__github__get_issue` is `get_issue`."""
    name = tool.rsplit("__", 1)[-1]
    return name.rsplit(".", 1)[-1] or name or tool


def tool_functions(run: Trajectory) -> list[dict[str, Any]]:
    """Return the functions that the tools of a run define, without their envelopes."""
    inner = (tool.get("function", tool) for tool in run.tools)
    return [function for function in inner if isinstance(function, dict)]


def text_tools(run: Trajectory) -> frozenset[str]:
    """Return the tools of a run whose arguments are free text instead of an object, according to their schema."""
    schemas = {str(function.get("name")): function.get("parameters") for function in tool_functions(run)}
    return frozenset(
        name for name, schema in schemas.items() if isinstance(schema, dict) and schema.get("type") == "string"
    )


def _domain(field: str) -> str | None:
    """`knowlyr/coding`, `coding` and `bug_fix` are coding."""
    word = field.casefold()
    if word in _BY_ENVIRONMENT:
        return _BY_ENVIRONMENT[word]
    last = word.rsplit("/", 1)[-1]
    if last in PROFILES:
        return last if last != GENERIC else None
    return _TYPES.get(last)


_BY_ENVIRONMENT = {"quintain/inventory": "inventory", "quintain/sandbox": "coding"}

_NAMES = {
    profile.name: frozenset(name.casefold() for tool in profile.tools for name in (tool.name, *tool.aliases))
    for profile in BUILT_IN
    if profile.name != "inventory"
}


def _by_tools(called: set[str]) -> str | None:
    """The profile that knows most of the tools, and at least half of them; the first of equals."""
    if not called:
        return None
    best = max(_NAMES, key=lambda name: len(called & _NAMES[name]))
    return best if 2 * len(called & _NAMES[best]) >= len(called) else None
