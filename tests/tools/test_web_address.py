"""The address of the web page: named while a page runs, never believed after."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.next_step import call
from quintain.tools.web_address import page_announced, page_of, page_of_call, web_address


def test_a_page_is_named_while_it_runs_and_what_a_killed_one_left_is_not_believed(tmp_path: Path) -> None:
    assert web_address(tmp_path) is None
    with page_announced(tmp_path, "http://127.0.0.1:1/"):
        assert web_address(tmp_path) == "http://127.0.0.1:1"
        with page_announced(tmp_path, "http://127.0.0.1:2"):
            assert web_address(tmp_path) == "http://127.0.0.1:2"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "web-page").write_text("http://127.0.0.1:3", encoding="utf-8")  # nobody has locked it
    assert web_address(tmp_path) is None
    with page_announced(tmp_path, "javascript:alert(1)"):
        assert web_address(tmp_path) is None


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        ({"resource_uri": "job://job-1", "job_id": "job-1"}, "/jobs/job-1"),
        ({"resource_uri": "agent://agent:clerk@2"}, "/agents/clerk@2"),
        ({"resource_uri": "comparison://cmp-1/picture"}, "/comparisons/cmp-1"),
        ({"resource_uri": "lineage://agent:clerk@2"}, "/lineage/agent%3Aclerk@2"),
        ({"trajectory": {"id": "traj-1"}}, "/runs/traj-1"),
        ({"resource_uri": None, "dataset_id": "ds-1"}, "/datasets/ds-1"),
        ({"dataset_id": "ds-/../x"}, "/datasets/ds-%2F..%2Fx"),
        ({"items": []}, None),
        ({"resource_uri": "guide://pipeline"}, None),
    ],
)
def test_an_answer_has_the_page_of_what_it_is_about(answer: dict[str, object], page: str | None) -> None:
    assert page_of(answer) == page


def test_a_call_that_names_nothing_has_no_page_of_one_thing() -> None:
    for tool in ("forget", "get_lineage"):
        assert page_of_call(call(tool)) is None
        assert page_of_call(call(tool, id="traj-1")) == "/lineage/traj-1"
