"""The built-in domain profiles as data: tools under the names that today's agents call them by, and what they do.

The seven kinds of work and their first tools are knowlyr's (`knowlyrcore/domain.py`); its own sandbox's `file_read` and
`file_write`, which its coding profile did not know, and the tools of Claude Code, Codex, OpenHands, SWE-agent, Gemini CLI,
OpenCode and terminal agents are added. `inventory` is this project's own environment.
"""

from __future__ import annotations

from quintain.records.profiles import DomainProfile, OutcomeRule, ToolCategory, ToolProfile

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
