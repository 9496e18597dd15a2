"""The border of every command: what it opens is closed, and a refusal becomes a red line and an exit status."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from quintain.cli.remedies import in_commands
from quintain.errors import QuintainError
from quintain.exporters.preview_page import printable
from quintain.settings import Settings
from quintain.tools.services import Services, open_services

REFUSED = 2
"""Exit status of a command whose request was refused."""


@dataclass
class Command:
    """A command at work: an error of ours ends its block, told on stderr in commands; what stands after the block returns `REFUSED`."""

    home: Path | None
    """The home folder; None: the one of the settings."""
    _opened: list[Services] = field(default_factory=list)

    def services(self, **changes: Any) -> Services:
        """Open the services until the block ends; not before the request is known to be sound, for this makes the home folder.

        Args:
            **changes: Settings that take the place of those of the environment.
        """
        settings = Settings(home=self.home.resolve()) if self.home else Settings()
        self._opened.append(open_services(settings.model_copy(update=changes), trusted=True))
        return self._opened[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for services in self._opened:
            services.close()
        if isinstance(error, QuintainError):
            Console(stderr=True, soft_wrap=True).print(printable(in_commands(str(error))), style="red", markup=False)
        return isinstance(error, QuintainError)
