"""All readers of agent logs, and format detection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, Protocol

from quintain.errors import NotFound, Unavailable
from quintain.extensions import Extensions, extensions_of, require_single
from quintain.importers.chat_apps.chatgpt import ChatGpt
from quintain.importers.chat_apps.claude_web import ClaudeWeb
from quintain.importers.coding_agents.aider import Aider
from quintain.importers.coding_agents.amp import Amp
from quintain.importers.coding_agents.claude_code import ClaudeCode
from quintain.importers.coding_agents.cline import Cline
from quintain.importers.coding_agents.codex import Codex
from quintain.importers.coding_agents.copilot_chat import CopilotChat
from quintain.importers.coding_agents.copilot_cli import CopilotCli
from quintain.importers.coding_agents.cursor import Cursor
from quintain.importers.coding_agents.gemini_cli import GeminiCli
from quintain.importers.coding_agents.goose import Goose
from quintain.importers.coding_agents.grok_cli import GrokCli
from quintain.importers.coding_agents.kimi_cli import KimiCli
from quintain.importers.coding_agents.mini_swe_agent import MiniSweAgent
from quintain.importers.coding_agents.opencode import OpenCode
from quintain.importers.coding_agents.openhands_output import OpenHandsOutput
from quintain.importers.coding_agents.openhands_v0 import OpenHandsV0
from quintain.importers.coding_agents.openhands_v1 import OpenHandsV1
from quintain.importers.coding_agents.qwen_code import QwenCode
from quintain.importers.coding_agents.swe_agent import SweAgent
from quintain.importers.coding_agents.swe_agent_flat import SweAgentFlat
from quintain.importers.frameworks.agno import Agno
from quintain.importers.frameworks.ai_sdk import AiSdk
from quintain.importers.frameworks.autogen import AutoGen
from quintain.importers.frameworks.autogen_v0 import AutoGenV0
from quintain.importers.frameworks.crewai import CrewAI
from quintain.importers.frameworks.google_adk import GoogleAdk
from quintain.importers.frameworks.pydantic_ai import PydanticAI
from quintain.importers.frameworks.smolagents import Smolagents
from quintain.importers.harnesses.agentgym import AgentGym
from quintain.importers.harnesses.agentinstruct import AgentInstruct
from quintain.importers.harnesses.crew import Crew
from quintain.importers.harnesses.inspect_ai import InspectAI
from quintain.importers.harnesses.knowlyr import Knowlyr
from quintain.importers.harnesses.sage import Sage
from quintain.importers.harnesses.tau2 import Tau2
from quintain.importers.harnesses.tau_bench import TauBench
from quintain.importers.harnesses.verifiers import Verifiers
from quintain.importers.harnesses.verifiers_v1 import VerifiersV1
from quintain.importers.harnesses.web_agent import WebAgent
from quintain.importers.installed import GROUP, load_importer
from quintain.importers.interchange.adp import Adp
from quintain.importers.interchange.atif import Atif
from quintain.importers.interchange.harbor_traces import HarborTraces
from quintain.importers.interchange.hf_sts import HfSts
from quintain.importers.interchange.quintain import Quintain
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.traces.langfuse import Langfuse
from quintain.importers.traces.langsmith import LangSmith
from quintain.importers.traces.mlflow import MLflow
from quintain.importers.traces.openai_agents import OpenAIAgents
from quintain.importers.traces.otel import OTel
from quintain.importers.traces.weave import Weave
from quintain.importers.training_data.alpaca import Alpaca
from quintain.importers.training_data.anthropic_messages import AnthropicMessages
from quintain.importers.training_data.openai_chat import OpenAIChat
from quintain.importers.training_data.preference import Preference
from quintain.importers.training_data.prompt_completion import PromptCompletion
from quintain.importers.training_data.question_answer import QuestionAnswer
from quintain.importers.training_data.sharegpt import ShareGpt
from quintain.importers.training_data.stepwise import Stepwise
from quintain.importers.training_data.verl import Verl
from quintain.records.record import nearest, shown


class Importer(Protocol):
    """A reader of one format. Each reader module defines one frozen dataclass that implements it."""

    @property
    def name(self) -> str:
        """Name for `format=`, e.g. `claude_code`."""

    @property
    def title(self) -> str:
        """Name for people, e.g. `Claude Code session`."""

    def detect(self, probe: Probe) -> float:
        """Return the confidence that a file has this format, 0 to 1.

        From 0.9 on, no other format can be meant: the marks are this format's alone, and most of the rows have its
        shape. Must not raise, whatever the content.
        """

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield the runs of a file in file order.

        Tolerant: unreadable input is passed to `report`, and the rest is imported. Nothing is invented: an outcome that
        the log does not state is unknown, and a time, model or reward that it does not state is None.

        Raises:
            InvalidInput: the file as a whole cannot be read as this format.
        """


IMPORTERS: tuple[Importer, ...] = (
    Adp(),
    AgentGym(),
    AgentInstruct(),
    Agno(),
    Aider(),
    AiSdk(),
    Alpaca(),
    Amp(),
    AnthropicMessages(),
    Atif(),
    AutoGen(),
    AutoGenV0(),
    ChatGpt(),
    ClaudeCode(),
    ClaudeWeb(),
    Cline(),
    Codex(),
    CopilotChat(),
    CopilotCli(),
    Crew(),
    CrewAI(),
    Cursor(),
    GeminiCli(),
    GoogleAdk(),
    Goose(),
    GrokCli(),
    HarborTraces(),
    HfSts(),
    InspectAI(),
    KimiCli(),
    Knowlyr(),
    Langfuse(),
    LangSmith(),
    MiniSweAgent(),
    MLflow(),
    OpenAIAgents(),
    OpenAIChat(),
    OpenCode(),
    OpenHandsOutput(),
    OpenHandsV0(),
    OpenHandsV1(),
    OTel(),
    Preference(),
    PromptCompletion(),
    PydanticAI(),
    QuestionAnswer(),
    Quintain(),
    QwenCode(),
    Sage(),
    ShareGpt(),
    Smolagents(),
    Stepwise(),
    SweAgent(),
    SweAgentFlat(),
    Tau2(),
    TauBench(),
    Verifiers(),
    VerifiersV1(),
    Verl(),
    Weave(),
    WebAgent(),
)
"""Every built-in reader; at equal confidence the earlier one wins, and those of other packages come last."""


FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of a reader that does not expect a value: a bug, which must not stop the import of other files."""


class Detection(NamedTuple):
    """Result of format detection."""

    importer: Importer | None
    """None if no reader accepts the file."""
    confidence: float
    runner_up: str | None
    """Reader with the second highest confidence above 0."""
    failed: tuple[str, ...] = ()
    """Readers whose detection raised an exception, which is a bug."""


def reader_names() -> list[str]:
    """Return the names of all log formats, those of other packages among them."""
    return sorted([*_built_in(), *installed_extensions().entries])


def installed_extensions() -> Extensions:
    """Return what other packages announce."""
    return extensions_of(GROUP, _built_in())


def _built_in() -> frozenset[str]:
    return frozenset(known.name for known in IMPORTERS)


def importer(name: str) -> Importer:
    """Return the reader with this name.

    Raises:
        NotFound: lists the names.
        Conflict: several packages announce it.
        Unavailable: its package is broken.
    """
    for known in IMPORTERS:
        if known.name == name:
            return known
    require_single(GROUP, name, _built_in())
    if (entry := installed_extensions().entries.get(name)) is not None:
        return load_importer(entry)
    names = reader_names()
    raise NotFound(f"expected a log format, got {shown(name)}{nearest(name, names)}; valid: auto, {', '.join(names)}")


class InstalledReaders(NamedTuple):
    """Readers of other packages."""

    importers: tuple[Importer, ...]
    faults: tuple[str, ...]
    """Why some are not used."""


@cache
def installed_readers() -> InstalledReaders:
    """Return the readers of other packages; this imports them."""
    known = installed_extensions()
    usable, faults = list[Importer](), list(known.refused.values())
    for entry in known.entries.values():
        try:
            usable.append(load_importer(entry))
        except Unavailable as error:
            faults.append(error.message)
    return InstalledReaders(tuple(usable), tuple(faults))


def detect(probe: Probe) -> Detection:
    """Return the reader with the highest confidence; readers that raise are skipped and named."""
    sure: list[tuple[float, int, Importer]] = []
    failed = []
    for place, known in enumerate((*IMPORTERS, *installed_readers().importers)):
        try:
            confidence = known.detect(probe)
        except FAULTS as error:
            failed.append(f"{known.name} ({type(error).__name__})")
        else:
            if confidence > 0:
                sure.append((-confidence, place, known))
    ranked = [(-negative, known) for negative, _, known in sorted(sure, key=lambda entry: entry[:2])]
    if not ranked:
        return Detection(None, 0.0, None, tuple(failed))
    return Detection(ranked[0][1], ranked[0][0], ranked[1][1].name if len(ranked) > 1 else None, tuple(failed))
