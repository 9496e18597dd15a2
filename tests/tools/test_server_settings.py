"""The reference of the server's settings."""

from __future__ import annotations

from scripts import server_settings


def test_the_reference_of_server_settings_is_up_to_date() -> None:
    page = server_settings.PAGE.read_text(encoding="utf-8")
    assert page == server_settings.page(), "run python -m scripts.server_settings"
    assert "| `QUINTAIN_RAY_ADDRESS`, `RAY_ADDRESS` | none |" in page
