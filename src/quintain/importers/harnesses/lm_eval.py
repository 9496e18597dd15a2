"""Samples of the LM Evaluation Harness: `samples_<task>_<date>.jsonl` of `--log_samples`, beside `results_<date>.json`.

Each filter of a task has a row for every document: the rows of one document are a run with the metrics of all filters.
Tasks of choices are no runs, for the model wrote nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, build_chat_run, matching_share, object_rows, read_row
from quintain.importers.training_data.prompt_answers import parse_messages, with_completion
from quintain.importers.training_data.verl import rendered_messages
from quintain.importers.values import as_dict, as_list, as_number, as_text, nonblank
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_VERDICTS = ("exact_match", "acc", "pass@1")
"""Metrics that state whether an answer is right: 1 or 0."""


def _detect(probe: Probe) -> float:
    """Match rows of a document, the arguments of its requests and the responses."""
    share = matching_share(probe, lambda row: {"doc_id", "arguments", "resps", "target"} <= row.keys(), "resps")
    return 0.97 if share >= 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    task, _, date = log.path.stem.removeprefix("samples_").rpartition("_")
    about = as_dict(log.sibling_document(f"results_{date}.json", report))
    scores: dict[str, dict[str, float]] = {}
    for _, row in object_rows(log, Report()):
        scores.setdefault(str(row.get("doc_id")), {}).update(_scores(row))
    for line, row in object_rows(log, report):
        if (known := scores.pop(str(row.get("doc_id")), None)) is not None:
            yield from read_row(row, line, report, partial(_sample, task, nonblank(about.get("model_name")), known))


IMPORTER = Importer("lm_eval", "LM Evaluation Harness samples", _detect, _read)


def _sample(
    task: str, model: str | None, scores: dict[str, float], row: dict[str, Any], line: int, report: Report
) -> Iterator[Run]:
    responses = as_list(row.get("resps"))
    answers = [text for text in as_list(responses[0] if responses else None) or responses if isinstance(text, str)]
    if not answers:
        raise InvalidInput("expected text in resps, got log-probabilities of choices: the model wrote nothing")
    prompt = _prompt(row.get("arguments"))
    outcome = Outcome(scores=scores, status=_status(scores) if len(answers) == 1 else OutcomeStatus.UNKNOWN)
    about = Task(id=f"{task or 'sample'}-{row.get('doc_id')}"[:500], metadata={"answer": as_text(row.get("target"))})
    for place, answer in enumerate(answers):
        asked = parse_messages("user", prompt, report)
        chat = isinstance(prompt, str) and rendered_messages(prompt, answer)
        messages = chat or with_completion(asked, [{"role": "assistant", "content": answer.strip()}])
        key = str(place) if len(answers) > 1 else ""
        agent = AgentInfo(model=model)
        yield from build_chat_run(messages, {}, line, report, task=about, agent=agent, outcome=outcome, episode_key=key)


def _prompt(arguments: Any) -> Any:
    """Return the first argument of the first request: a text, or messages as JSON."""
    first = as_dict(arguments).get("gen_args_0", as_list(arguments)[:1])
    prompt = as_dict(first).get("arg_0", first)
    while isinstance(prompt, list) and len(prompt) > 0 and not isinstance(prompt[0], dict):
        prompt = prompt[0]
    return prompt


def _scores(row: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of a row, named as in the harness's results: `exact_match,strict-match`."""
    filtered = as_text(row.get("filter"))
    end = "" if filtered in ("", "none") else f",{filtered}"
    names = [name for name in as_list(row.get("metrics")) or _VERDICTS if isinstance(name, str)]
    return {f"{name}{end}": number for name in names if (number := as_number(row.get(name))) is not None}


def _status(scores: dict[str, float]) -> OutcomeStatus:
    """Return success or failure where all filters agree."""
    verdicts = {value for name, value in scores.items() if name.partition(",")[0] in _VERDICTS}
    return status_of(verdicts.pop()) if len(verdicts) == 1 else OutcomeStatus.UNKNOWN
