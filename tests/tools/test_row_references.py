"""A dataset's name may be that of a file of rows; whatever else is named is refused with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.errors import NotFound, Refused
from quintain.settings import Settings
from quintain.tools.data.row_references import find_rows, named_dataset
from quintain.tools.services import open_services
from tools.stored_records import write_rows


@pytest.mark.parametrize("trusted", [False, True])
def test_names_that_no_file_can_have_are_not_found_and_private_paths_are_refused(
    settings: Settings, trusted: bool
) -> None:
    services = open_services(settings, trusted=trusted)
    for name in ("x" * 300, "x" * 6000, "a\0b", "~nobody9/x", "", ".", "nope"):
        with pytest.raises(NotFound, match="name a file of rows"):
            named_dataset(services, name, "sft")
    if not trusted:
        with pytest.raises(Refused, match="outside the allowed roots"):
            named_dataset(services, "../quintain.db", "sft")
    services.close()


def test_a_file_of_the_inbox_is_found_without_its_ending_and_frozen_once(settings: Settings, home: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    write_rows(settings.inbox_dir / "mine.jsonl", {"messages": turns})
    services = open_services(settings, trusted=False)
    assert find_rows(services, "mine") == (settings.inbox_dir / "mine.jsonl").resolve()
    assert named_dataset(services, "mine", "sft", make=False) is None
    made = named_dataset(services, "mine", "sft")
    assert made == named_dataset(services, "mine.jsonl", "sft") == named_dataset(services, made or "", "sft")
    services.close()
