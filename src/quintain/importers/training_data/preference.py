"""Preference data: pairs of a better and a worse answer, and answers labelled good or bad.

Both runs of a pair belong to the group of their prompt and are tagged by their side. Only a score in the row gives a
value. Covers TRL's explicit and implicit prompts, LLaMA-Factory's v0 (`conversations`, or instruction rows) and v1
(`chosen_messages`), OpenAI's `preferred_output`, UltraFeedback's scores, annotations of two numbered or lettered answers
(AlpacaEval, Chatbot Arena, HelpSteer, SHP), ms-swift's `rejected_response`, and KTO's labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import SYSTEM, build_chat_run, first_name, is_sentence, matching_share, row_importer
from quintain.importers.training_data.alpaca import ASKED, instruction_messages
from quintain.importers.training_data.prompt_answers import (
    fingerprint,
    parse_messages,
    split_shared_prompt,
    with_completion,
)
from quintain.importers.values import as_dict, as_list, as_number, as_text, nonblank, parse_json_text
from quintain.records.trajectory import DESIRABLE, PAIR_MARK, AgentInfo, Outcome
from quintain.records.wording import clip

_FORMS = ("{0}_{1}", "{1}_{0}")


def _names_of_sides(*stems: str) -> tuple[tuple[str, str], ...]:
    """Return the columns that state something of both sides: `score_chosen` or `chosen_score`, ..."""
    before, after = (
        [(form.format(stem, "chosen"), form.format(stem, "rejected")) for stem in stems] for form in _FORMS
    )
    return (*before, *after)


_PAIRS = (
    ("chosen", "rejected"),
    ("chosen_messages", "rejected_messages"),
    ("preferred_output", "non_preferred_output"),
    *_names_of_sides("response", "text", "answer", "completion", "output"),
)
_SCORES = _names_of_sides("score", "rating", "reward")
_MODELS = _names_of_sides("model")
_MARGINS = ("margin", "score_margin", "reward_margin")
_RIVALS = (("1", "2"), ("a", "b"), ("A", "B"), ("0", "1"))
"""Ends of the names of two answers, of which the better one is stated."""
_RATINGS = ("score", "rating", "reward", "winner_model")
"""Names of columns, without the end, that rate both answers: the higher value is that of the better one."""
_LEANINGS = ("overall_preference", "preference_strength")
"""Columns with a number below 0 for the first answer, and above 0 for the second (HelpSteer)."""
_REJECTED = "rejected_response"
VERDICTS = ("preference", "winner", "preferred", "better", "choice", "better_response_id", "label")
"""Columns that name the better one of two answers."""
_UNMARKED = "some rows have no label: their runs are neither good nor bad"
_WRITERS = ("model", "generator")
"""Names of columns, without the end, that state the models of both answers."""
_LABELS = ("label", "kto_tag", "is_good")
_SAID = {name for names in (*_PAIRS, *_SCORES, *_MODELS, _MARGINS, _LABELS) for name in names} | {
    *("prompt", "prompt_id", "question", "instruction", "query", "history", "input", "messages", "conversations"),
    *("trajectory", "context"),
    *("completion", "response", "output", "reward", "score"),
}
"""Columns that the runs of a row state otherwise; the others are kept with them."""


def _detect(probe: Probe) -> float:
    """Match rows with two sides, or with an answer and a boolean label."""
    chosen = (side for side, _ in _PAIRS)
    return max(
        0.9 * matching_share(probe, _is_pair, *chosen),
        0.95 * matching_share(probe, _is_judged, *probe.fields),
        0.95 * matching_share(probe, _has_rejected, _REJECTED),
        0.9 * matching_share(probe, _is_labelled, *_LABELS),
    )


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    row = _with_rejected(row) if _has_rejected(row) else row
    sides = _sides(row)
    if sides is None and (rivals := _rivals(row)) is not None and _is_stated(row, rivals):
        row = _with_sides(row, rivals)
        sides = _PAIRS[0]
    if sides is None:
        yield from _labelled(row, line, report)
        return
    row = _with_turns(row, sides)
    chosen, rejected = (parse_messages("assistant", row[side], report) for side in sides)
    prompt = _prompt(row, report)
    if not prompt:
        prompt, chosen, rejected = split_shared_prompt(chosen, rejected)
    if not chosen or not rejected:
        side = sides[0] if not chosen else sides[1]
        raise InvalidInput(
            f"expected text or messages in {side}, got {_described(row[side])}; a pair needs two answers"
        )
    pair = fingerprint(prompt, chosen, rejected)
    for place, answer in enumerate((chosen, rejected)):
        side = ("chosen", "rejected")[place]
        runs = build_chat_run(
            with_completion(prompt, answer),
            _columns(row),
            line,
            report,
            outcome=Outcome(scores=_scores(row, place)),
            agent=AgentInfo(model=_model_of_side(row, place)),
            group_id=f"preference-{fingerprint(prompt)}",
            tags=(f"preference:{side}",),
            extra={PAIR_MARK: {"pair": f"pair-{pair}", "side": side}},
        )
        yield from runs


def _labelled(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    label = next((row[key] for key in _LABELS if isinstance(row.get(key), bool)), None)
    prompt = _prompt(row, report)
    answer = parse_messages("assistant", row.get("completion", row.get("response", row.get("output"))), report)
    if not answer:  # a user may have the last word
        last = max((n for n, message in enumerate(prompt) if message.get("role") == "assistant"), default=len(prompt))
        prompt, answer = prompt[:last], prompt[last:]
    if not answer:
        raise InvalidInput(
            "expected two sides (chosen, rejected), or an answer with or without a label (true or false)"
        )
    if label is None:
        report.note(_UNMARKED)
        yield from build_chat_run(with_completion(prompt, answer), _columns(row), line, report)
        return
    yield from build_chat_run(
        with_completion(prompt, answer),
        _columns(row),
        line,
        report,
        outcome=Outcome(scores=_scores(row, 0)),
        group_id=f"preference-{fingerprint(prompt)}",
        tags=("preference:desirable" if label else "preference:undesirable",),
        extra={DESIRABLE: label},
    )


IMPORTER = row_importer("preference", "Preference pairs and labels", _detect, _row)


def _sides(row: dict[str, Any]) -> tuple[str, str] | None:
    return next((pair for pair in _PAIRS if row.get(pair[0]) is not None and row.get(pair[1]) is not None), None)


def _prompt(row: dict[str, Any], report: Report) -> list[Any]:
    """Return the prompt of both answers; empty if the sides only share it as a common beginning."""
    if _sides(row) == _PAIRS[1]:
        return []  # LLaMA-Factory v1 repeats the prompt in both sides
    request = as_dict(row.get("input"))
    asked = row.get("question")
    chats = (row.get("conversations"), row.get("messages"), row.get("trajectory"), as_list(row.get("context")))
    for value in (row.get("prompt"), request.get("messages"), *chats, None if isinstance(asked, str) else asked):
        if value and (prompt := parse_messages("user", value, report)):
            # UltraFeedback repeats the prompt in its sides: there the two chats show where the prompt ends.
            whole = _sides(row) == _PAIRS[0] and any(
                len(parse_messages("assistant", row[s], Report())) > 1 for s in _PAIRS[0]
            )
            return [] if whole and _repeated(row, prompt) else prompt
    if any(nonblank(row.get(name)) for name in ASKED):
        return instruction_messages(row)
    text = _only_text(row) or nonblank(row.get("history"))
    return [] if text is None else parse_messages("user", text, report)


def _only_text(row: dict[str, Any]) -> str | None:
    """Return the only text before two sides that are texts: it is what they answer."""
    sides = _sides(row) or ()
    if any(len(parse_messages("assistant", row[side], Report())) != 1 for side in sides) or not sides:
        return None
    before = takewhile(lambda name: name not in sides, row)
    texts = [row[name] for name in before if name not in {*_SAID, *SYSTEM} and is_sentence(row[name])]
    return texts[0] if len(texts) == 1 else None


def _repeated(row: dict[str, Any], prompt: list[Any]) -> bool:
    """Whether both sides begin with the prompt."""
    sides = [parse_messages("assistant", row[side], Report()) for side in _PAIRS[0]]
    contents = [[m.get("content") for m in side] for side in sides]
    return all(content and prompt[-1].get("content") in content for content in contents)


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    tools = row.get("tools", as_dict(row.get("input")).get("tools"))
    others = {key: value for key, value in row.items() if key not in _SAID}
    # A row's own id is not a task: rows of one prompt are answers to be compared.
    return {**others, "tools": tools, "task_id": first_name(row, ("task_id", "prompt_id"))}


def _model_of_side(row: dict[str, Any], place: int) -> str | None:
    """Return the model of the chosen answer (0) or of the rejected one (1), else that of the row."""
    metadata = as_dict(row.get("metadata"))
    columns = [pair[place] for pair in _MODELS]
    return nonblank(*(held.get(column) for column in columns for held in (row, metadata)), row.get("model"))


def _scores(row: dict[str, Any], place: int) -> dict[str, float]:
    scores = [score for pair in _SCORES if (score := as_number(row.get(pair[place]))) is not None]
    margins = [margin for key in _MARGINS if (margin := as_number(row.get(key))) is not None]
    named = (("score", scores), ("margin", margins))
    return {name: values[0] for name, values in named if values}


def _is_pair(row: dict[str, Any]) -> bool:
    sides = _sides(row)
    held = [row[side] for side in sides] if sides else []
    return bool(held) and all(
        isinstance(side, str | list) or (isinstance(side, dict) and "steps" not in side) for side in held
    )


def _described(value: Any) -> str:
    """Describe a value that is not an answer."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(clip(str(key)) for key in list(value)[:5])}"
    return "nothing" if not value else f"a {type(value).__name__} of something else"


def _rivals(row: dict[str, Any]) -> tuple[str, str] | None:
    """Return the columns of two answers whose names differ in their end; None where no or several columns do."""
    for ends in _RIVALS:
        stems = [name.removesuffix(ends[0]) for name in row if name.endswith(ends[0])]
        both = [(stem + ends[0], stem + ends[1]) for stem in stems if stem.rstrip("_") not in _WRITERS]
        answers = [pair for pair in both if all(isinstance(row.get(name), str | list) for name in pair)]
        if len(answers) > 1:  # ids stand beside them, too
            answers = [pair for pair in answers if all(map(is_sentence, map(row.get, pair)))]
        if len(answers) == 1:
            return answers[0]
    return None


def _better(row: dict[str, Any], rivals: tuple[str, str]) -> int | None:
    """Return which answer a verdict, a leaning or their ratings say is better; None for a tie, or where nothing says so.

    A verdict is the end of a name, alone, in a name, or on the open side of `>`. A number between two numbered answers,
    as AlpacaEval writes it, names the nearer one.
    """
    ends = [name[-1] for name in rivals]
    for value in (row[key] for key in VERDICTS if key in row):
        number = as_number(value)
        if number is not None and ends[0].isdigit():
            place = number - int(ends[0])
            return int(place > 0.5) if 0 <= place <= 1 and place != 0.5 else None
        stated = as_text(value).strip().lower().rpartition("_")[2]
        named = stated.rpartition("<")[2] if "<" in stated else stated.partition(">")[0]
        if named in (ends[0].lower(), ends[1].lower()):
            return int(named == ends[1].lower())
    marks = [(0.0, number) for name in _LEANINGS if (number := as_number(row.get(name))) is not None]
    for stem in _RATINGS:
        first, second = (as_number(row.get(f"{stem}_{end}")) for end in ends)
        marks += [(first, second)] if first is not None and second is not None else []
    return next((int(after > before) for before, after in marks if before != after), None)


def _is_judged(row: dict[str, Any]) -> bool:
    rivals = _rivals(row) if _sides(row) is None else None
    return rivals is not None and _better(row, rivals) is not None


def _is_stated(row: dict[str, Any], rivals: tuple[str, str]) -> bool:
    """Whether a row has a column that may say which of two answers is better."""
    rated = {f"{stem}_{name[-1]}" for stem in _RATINGS for name in rivals}
    return not row.keys().isdisjoint({*VERDICTS, *_LEANINGS, *rated})


def _with_sides(row: dict[str, Any], rivals: tuple[str, str]) -> dict[str, Any]:
    """Return an annotation of two answers as a pair."""
    place = _better(row, rivals)
    if place is None:
        raise InvalidInput(
            f"expected a better answer of {rivals[0]} and {rivals[1]}, got a tie or no verdict; a pair needs a better side"
        )
    sides = {rivals[place]: "chosen", rivals[1 - place]: "rejected"}
    stated = {name: {f"{stem}_{name[-1]}": stem for stem in (*_WRITERS, *_RATINGS)} for name in sides}
    used = {*VERDICTS, *(column for columns in stated.values() for column in columns)}
    return {
        **{sides.get(key, key): value for key, value in row.items() if key not in used},
        **{
            f"{side}_model": nonblank(*(row.get(f"{stem}_{name[-1]}") for stem in _WRITERS))
            for name, side in sides.items()
        },
        **{f"score_{side}": row.get(f"score_{name[-1]}") for name, side in sides.items()},
    }


def _with_turns(row: dict[str, Any], sides: tuple[str, str]) -> dict[str, Any]:
    """Return a row whose prompts and answers are lists of texts, one of each a turn (Chatbot Arena), with chats as sides."""
    asked = _texts(row.get("prompt"))
    answered = {side: _texts(row[side]) for side in sides}
    if not asked or any(len(answers) != len(asked) for answers in answered.values()):
        return row
    chats = {
        side: [
            {"role": role, "content": text}
            for question, answer in zip(asked, answers, strict=True)
            for role, text in (("user", question), ("assistant", answer))
        ]
        for side, answers in answered.items()
    }
    return {key: value for key, value in row.items() if key != "prompt"} | chats


def _texts(value: Any) -> list[str]:
    """Return the texts of a list, which may be written as JSON; [] for anything else."""
    values = as_list(parse_json_text(value))
    return values if all(isinstance(text, str) for text in values) else []


def _has_rejected(row: dict[str, Any]) -> bool:
    """Whether a row of ms-swift has a worse answer beside its own, which is its response or its last message."""
    if _sides(row) is not None:
        return False
    messages = as_list(row.get("messages"))
    is_answered = (
        nonblank(row.get("response")) or as_dict(messages[-1] if messages else None).get("role") == "assistant"
    )
    return nonblank(row.get(_REJECTED)) is not None and bool(is_answered)


def _with_rejected(row: dict[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in row.items() if key not in {"response", "messages", _REJECTED}}
    messages = [*as_list(row.get("messages")), *filter(None, [nonblank(row.get("response"))])]
    prompt = {"messages": messages[:-1]} if messages[:-1] else {}
    return {**others, **prompt, "chosen": messages[-1], "rejected": row[_REJECTED]}


def _is_labelled(row: dict[str, Any]) -> bool:
    label = any(isinstance(row.get(key), bool) for key in _LABELS)
    answer = {"messages", "conversations", "completion", "response", "output"} & row.keys()
    return label and bool(answer) and "completions" not in row
