"""Chats of an application whose messages name the message before them: trees, of which one branch was shown."""

from __future__ import annotations

from typing import Any

from quintain.importers.protocol import Report

_OTHER_BRANCHES = "only the current branch of a conversation is imported: other branches are alternatives and left out"


def branch_of(tree: dict[str, dict[str, Any]], leaf: Any, parent: str) -> dict[str, dict[str, Any]]:
    """Return the messages from the first one to a leaf, or to the last message where the leaf is unknown.

    Args:
        tree: Messages by their names.
        leaf: Name of the current message.
        parent: Field with the name of the message before.
    """
    leaf = leaf if isinstance(leaf, str) and leaf in tree else next(reversed(tree), None)
    branch: dict[str, dict[str, Any]] = {}
    while isinstance(leaf, str) and leaf in tree and leaf not in branch:
        branch[leaf] = tree[leaf]
        leaf = tree[leaf].get(parent)
    return dict(reversed(branch.items()))


def note_others(n: int, report: Report) -> None:
    """Count the messages of other branches."""
    if n:
        report.note(_OTHER_BRANCHES)
        report.skip("message of another branch", n)
