"""The reference page of formats equals the registries."""

from __future__ import annotations

from scripts import log_formats


def test_the_formats_page_is_generated_from_the_registries() -> None:
    assert log_formats.PAGE.read_text(encoding="utf-8") == log_formats.page(), "run python -m scripts.log_formats"
