"""What a reader of agent logs is, all of them, and which of them a file belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from quintain.errors import NotFound
from quintain.importers.coding_agents.claude_code import ClaudeCode
from quintain.importers.coding_agents.codex import Codex
from quintain.importers.coding_agents.gemini_cli import GeminiCli
from quintain.importers.coding_agents.mini_swe_agent import MiniSweAgent
from quintain.importers.coding_agents.opencode import OpenCode
from quintain.importers.coding_agents.openhands_output import OpenHandsOutput
from quintain.importers.coding_agents.openhands_v0 import OpenHandsV0
from quintain.importers.coding_agents.openhands_v1 import OpenHandsV1
from quintain.importers.coding_agents.swe_agent import SweAgent
from quintain.importers.coding_agents.swe_agent_flat import SweAgentFlat
from quintain.importers.harnesses.adp import Adp
from quintain.importers.harnesses.agentgym import AgentGym
from quintain.importers.harnesses.agentinstruct import AgentInstruct
from quintain.importers.harnesses.atif import Atif
from quintain.importers.harnesses.crew import Crew
from quintain.importers.harnesses.harbor_traces import HarborTraces
from quintain.importers.harnesses.hf_sts import HfSts
from quintain.importers.harnesses.inspect_ai import InspectAI
from quintain.importers.harnesses.knowlyr import Knowlyr
from quintain.importers.harnesses.quintain import Quintain
from quintain.importers.harnesses.sage import Sage
from quintain.importers.harnesses.tau2 import Tau2
from quintain.importers.harnesses.tau_bench import TauBench
from quintain.importers.harnesses.verifiers import Verifiers
from quintain.importers.harnesses.verifiers_v1 import VerifiersV1
from quintain.importers.harnesses.verl import Verl
from quintain.importers.harnesses.web_agent import WebAgent
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.traces.langfuse import Langfuse
from quintain.importers.traces.langsmith import LangSmith
from quintain.importers.traces.otel import OTel
from quintain.importers.training_data.alpaca import Alpaca
from quintain.importers.training_data.anthropic_messages import AnthropicMessages
from quintain.importers.training_data.openai_chat import OpenAIChat
from quintain.importers.training_data.preference import Preference
from quintain.importers.training_data.prompt_completion import PromptCompletion
from quintain.importers.training_data.question_answer import QuestionAnswer
from quintain.importers.training_data.sharegpt import ShareGpt
from quintain.importers.training_data.stepwise import Stepwise
from quintain.records.record import nearest, shown


class Importer(Protocol):
    """A reader of one format. Modules of this folder each hold one frozen dataclass that is one."""

    @property
    def name(self) -> str:
        """As `format=` names it, e.g. `claude_code`."""

    @property
    def title(self) -> str:
        """As people call it, e.g. `Claude Code session`."""

    def detect(self, probe: Probe) -> float:
        """How surely this is a file of the format: 0 no, 1 beyond doubt; two readers should not both say over 0.9.

        Must not raise, whatever the probe holds.
        """

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """The runs of a file, one at a time, in the order of the file.

        Tolerant: what cannot be read is told to `report`, and the rest comes in. Nothing is invented: an outcome that
        the log does not state is unknown, and a time, model or reward that it does not state is None.

        Raises:
            InvalidInput: the file as a whole cannot be read as this format.
        """


IMPORTERS: tuple[Importer, ...] = (
    Adp(),
    AgentGym(),
    AgentInstruct(),
    Alpaca(),
    AnthropicMessages(),
    Atif(),
    ClaudeCode(),
    Codex(),
    Crew(),
    GeminiCli(),
    HarborTraces(),
    HfSts(),
    InspectAI(),
    Knowlyr(),
    Langfuse(),
    LangSmith(),
    MiniSweAgent(),
    OpenAIChat(),
    OpenCode(),
    OpenHandsOutput(),
    OpenHandsV0(),
    OpenHandsV1(),
    OTel(),
    Preference(),
    PromptCompletion(),
    QuestionAnswer(),
    Quintain(),
    Sage(),
    ShareGpt(),
    Stepwise(),
    SweAgent(),
    SweAgentFlat(),
    Tau2(),
    TauBench(),
    Verifiers(),
    VerifiersV1(),
    Verl(),
    WebAgent(),
)
"""Every reader; where two are equally sure, the earlier one wins."""


_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Detection(NamedTuple):
    """Which reader takes a file."""

    importer: Importer | None
    """None: no reader knows this file."""
    confidence: float
    runner_up: str | None
    """The reader that was second most sure, where it was sure at all."""
    failed: tuple[str, ...] = ()
    """Readers that could not look at it, which is a fault of theirs."""


def reader_names() -> list[str]:
    """Return the names of all log formats."""
    return sorted(known.name for known in IMPORTERS)


def importer(name: str) -> Importer:
    """The reader of this name.

    Raises:
        NotFound: lists the names.
    """
    for known in IMPORTERS:
        if known.name == name:
            return known
    names = reader_names()
    raise NotFound(f"no log format is called {shown(name)}{nearest(name, names)}; valid: auto, {', '.join(names)}")


def detect(probe: Probe) -> Detection:
    """Which reader is the surest of this file; one that fails to look at it is passed over, and named."""
    sure: list[tuple[float, int, Importer]] = []
    failed = []
    for place, known in enumerate(IMPORTERS):
        try:
            confidence = confidence_of(known, probe)
        except _FAULTS as error:
            failed.append(f"{known.name} ({type(error).__name__})")
        else:
            if confidence > 0:
                sure.append((-confidence, place, known))
    ranked = [(-negative, known) for negative, _, known in sorted(sure, key=lambda entry: entry[:2])]
    if not ranked:
        return Detection(None, 0.0, None, tuple(failed))
    return Detection(ranked[0][1], ranked[0][0], ranked[1][1].name if len(ranked) > 1 else None, tuple(failed))


def confidence_of(known: Importer, probe: Probe) -> float:
    """How surely a reader takes a file, from 0 to 1."""
    confidence = known.detect(probe)
    return min(confidence, 1.0) if confidence > 0 else 0.0
