"""The functions that generated projects are made of: how each is written, how it can be wrong, how it can be extended."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from quintain.environments.sandbox.domains import Domain

Arguments = list[Any]


class Extension(NamedTuple):
    """An option that a function can be given."""

    option: str
    """Its name and default."""
    told: str
    """What it does."""
    edits: tuple[tuple[str, str], ...]
    """What changes in the source."""
    values: tuple[Any, ...]
    """Some of its values, other than the default."""


class Specimen(NamedTuple):
    """A function; all texts are templates for the words of a domain."""

    module: str
    name: str
    renamed: str
    """Another name for it."""
    source: str
    bugs: tuple[tuple[str, str], ...]
    """What can be wrong in the source; every second one is for tasks that are held out."""
    extension: Extension
    arguments: Callable[[Random, Domain], Arguments]


class Written(NamedTuple):
    """A function in the words of a domain."""

    specimen: Specimen
    domain: Domain

    @property
    def name(self) -> str:
        """What it is called."""
        return self.domain.fill(self.specimen.name)

    @property
    def renamed(self) -> str:
        """What it can be called instead."""
        return self.domain.fill(self.specimen.renamed)

    @property
    def path(self) -> str:
        """The file that it stands in."""
        return f"{self.domain.package}/{self.specimen.module}.py"

    @property
    def source(self) -> str:
        """As it should be."""
        return self.domain.fill(self.specimen.source)

    def changed(self, *edits: tuple[str, str]) -> str:
        """With other pieces of source; each old piece stands in it once."""
        text = self.specimen.source
        for old, new in edits:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {self.specimen.name}"
            text = text.replace(old, new)
        return self.domain.fill(text)

    @property
    def extended(self) -> str:
        """With its option."""
        return self.changed(*self.specimen.extension.edits)

    @property
    def stub(self) -> str:
        """Its head and what it is for, without its body: what a task of type `implement` gives to the agent to write."""
        head, quotes, rest = self.source.partition('"""')
        doc, _, _ = rest.partition('"""')
        return f"{head}{quotes}{doc}{quotes}\n    raise NotImplementedError\n"

    @property
    def summary(self) -> str:
        """The first line of what it is for."""
        return self.source.partition('"""')[2].partition('"""')[0].splitlines()[0]

    def bugs(self, split: str) -> tuple[str, ...]:
        """The source with each of the bugs of a split."""
        return tuple(self.changed(edit) for edit in self.specimen.bugs[split == "held_out" :: 2])
