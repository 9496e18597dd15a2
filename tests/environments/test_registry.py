from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from quintain import extensions
from quintain.environments import registry
from quintain.environments.data_files import read_data
from quintain.environments.inventory import Inventory
from quintain.errors import InvalidInput, NotFound, Unavailable


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch):
    """Lets a test announce entry points as an installed package would."""

    def announce(*entries: tuple[str, str]) -> None:
        found = [EntryPoint(name, value, registry.GROUP) for name, value in entries]
        monkeypatch.setattr(extensions, "entry_points", lambda group: found)
        extensions.extensions_of.cache_clear()

    yield announce
    monkeypatch.undo()
    extensions.extensions_of.cache_clear()


def test_the_built_in_environments_are_known_and_described_without_any_entry_point(announced) -> None:
    announced()
    built_in = {name for name in registry.environment_ids() if name.startswith("quintain/")}
    names = [
        "inventory",
        "math",
        "sandbox",
        "tasks",
        "tools-1k",
        "conversation",
        "engineering",
        "advisory",
        "discussion",
    ]
    assert built_in >= {f"quintain/{name}" for name in names}
    assert set(read_data("data/descriptions.yaml", dict[str, str])) == built_in
    assert all(registry.describe(name).endswith(".") for name in built_in)
    assert registry.task_source("quintain/inventory").id == "quintain/inventory"


def test_an_unknown_environment_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"'quintain/nope'.*quintain/inventory"):
        registry.task_source("quintain/nope")
    with pytest.raises(NotFound, match=r"'inventory' \(did you mean 'quintain/inventory'\?\)"):
        registry.task_source("inventory")
    with pytest.raises(
        NotFound, match=r"'Customer_service' \(the description of 'quintain/conversation' has the word\)"
    ):
        registry.task_source("Customer_service")
    for name in ("agen", "-"):
        with pytest.raises(NotFound, match=f"'{name}'; known here"):
            registry.task_source(name)


def test_another_package_can_bring_an_environment_but_not_replace_a_built_in_one(announced) -> None:
    announced(("acme/shop", "quintain.environments.inventory:Inventory"), ("quintain/inventory", "acme:Fake"))
    assert {"acme/shop", "quintain/inventory"} <= set(registry.environment_ids())
    assert registry.task_source("acme/shop").version
    assert type(registry.task_source("quintain/inventory")).__name__ == "Inventory"


def test_a_package_that_cannot_be_imported_is_named_with_its_fault(announced) -> None:
    announced(("acme/broken", "acme_that_is_not_installed:Shop"))
    with pytest.raises(Unavailable, match=r"acme/broken.*acme_that_is_not_installed"):
        registry.task_source("acme/broken")


def test_an_option_that_is_a_list_or_an_object_is_read_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def shop(names: list[str], prices: dict[str, int] | None = None, label: str | None = None) -> Inventory:
        source = Inventory()
        source.version = f"{names} {prices} {label}"
        return source

    monkeypatch.setitem(registry._registered, "acme/shop", shop)
    opened = registry.task_source('acme/shop?names=["a","b"]&prices={"a": 3}&label=[1]')
    assert opened.version == "['a', 'b'] {'a': 3} [1]"
    with pytest.raises(InvalidInput, match=r"acme/shop.names: expected a list, got '\[a'"):
        registry.task_source("acme/shop?names=[a")
