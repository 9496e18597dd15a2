"""Warnings of a preview, each with its remedy, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from quintain.datasets.near_duplicates import KINDS
from quintain.datasets.split_leaks import split_leak_remedy
from quintain.records.hyperparameters.methods import BCConfig, KTOConfig, SFTConfig
from quintain.records.wording import counted, shown
from quintain.trainers.data.example_batch import REMEDIES, reasons
from quintain.trainers.preview.faults import Finding
from quintain.trainers.preview.survey import Survey

_BLOCKING_SHARE = 0.05
"""Share of cut, dropped or repeated rows from which on a warning blocks training."""

_BY_DESIGN = frozenset({"below_min_reward", "reward_unknown", "zero_weight"})
"""Drop reasons that follow from the user's own settings or weights."""


class Remark(NamedTuple):
    """A warning, its remedy, and whether it blocks training."""

    code: str
    text: str
    fix: str
    blocks: bool = False


class Conclusion(NamedTuple):
    """Warnings and verdict of a preview."""

    warnings: tuple[str, ...]
    verdict: str


def conclude(survey: Survey) -> Conclusion:
    """Return all warnings, blocking ones first, and the verdict."""
    found = [
        *_blanks(survey),
        *_weights(survey),
        *_cuts(survey),
        *_content(survey),
        *_repeats(survey),
        *_notes(survey),
    ]
    found.sort(key=lambda warning: not warning.blocks)
    blocking = [warning for warning in found if warning.blocks]
    warnings = tuple(f"[{w.code}] {w.text}{'; ' * bool(w.fix)}{w.fix}" for w in found)
    if blocking:
        first, more = blocking[0], len(blocking) - 1
        others = f" Then fix {more} more: {', '.join(w.code for w in blocking[1:])}." if more else ""
        if codes := [warning.code for warning in found if not warning.blocks]:
            others += f" {counted(len(codes), 'note')}: {', '.join(codes)}."
        return Conclusion(warnings, f"Fix first: {first.text}; {first.fix}.{others}")
    train, longest, length = survey.train, survey.longest, survey.maker.max_length
    cut = "nothing is cut"
    if train.truncated_rows:
        cut = f"{counted(train.truncated_rows, 'row')} {_verb(train.truncated_rows, 'is', 'are')} cut"
    size = f"the longest {longest} of {length} tokens"
    if survey.chunks and longest > length:
        size = f"the longest run of {longest} tokens in chunks of at most {length}"
    notes = f" {counted(len(found), 'note')}." if found else ""
    return Conclusion(
        warnings,
        f"Ready: {counted(train.rows, 'row')}, {train.trained_tokens} of {train.total_tokens} tokens trained "
        f"({_percent(train.trained_tokens, train.total_tokens)}), {size}, {cut}.{notes}",
    )


def _blanks(survey: Survey) -> Iterator[Remark]:
    """Yield warnings about rows that training would drop or fail at."""
    train, faults = survey.train, survey.faults.found
    if refused := faults.get("refused"):
        yield Remark("refused", f"training would stop at {refused.where()}: {refused.example}", "drop these rows", True)
    dropped = {
        reason: n for reason, n in train.dropped.items() if reason not in _BY_DESIGN and "too_long" not in reason
    }
    if not train.trained_tokens:
        text = f"no token of {counted(train.rows, 'row')} is trained ({reasons(train.dropped) or 'no row'})"
        yield Remark("nothing_trained", text, _remedy(survey, train.dropped), True)
    elif train.dropped and set(train.dropped) - {"too_long"}:
        n = sum(train.dropped.values())
        fix = _remedy(survey, dropped) if dropped else "the settings ask for this"
        blocks = survey.share(sum(dropped.values())) >= _BLOCKING_SHARE
        text = f"{n} of {counted(train.rows, 'row')} {_verb(n, 'gives', 'give')} no example ({reasons(train.dropped)})"
        yield Remark("dropped", text, fix, blocks)
    if train.left_out_members:
        fix = _remedy(survey, train.left_out_members)
        yield Remark("left_out", f"runs are left out of their groups ({reasons(train.left_out_members)})", fix)
    stopped, turns = train.turns_with_stop, train.trained_turns
    if turns and stopped < turns:
        if survey.spec.dataset_kind == "text":
            fix = "use a tokenizer that has an eos token"
        elif stopped:
            fix = "these turns were cut off when they were sampled; raise max_new_tokens, or drop them"
        else:
            fix = (
                "use a model whose chat template ends a turn with a special token (the instruct version), or give its "
                "tokenizer an eos token that the template writes"
            )
        all_of_them = counted(turns, "text" if survey.spec.dataset_kind == "text" else "trained turn")
        have = _verb(turns - stopped, "has", "have")
        text = f"{turns - stopped} of {all_of_them} {have} no stop token in the loss: the model does not learn to stop"
        yield Remark("no_stop_token", text, fix, stopped < turns / 2)
    if isinstance(survey.spec.config, KTOConfig) and len(+survey.labels) == 1:
        (label,) = +survey.labels
        yield Remark("one_label", f"all rows are {label}", "kto needs both kinds: export runs of both outcomes", True)


def _weights(survey: Survey) -> Iterator[Remark]:
    """Yield a warning about runs whose steps all weigh alike despite step weights."""
    if unweighted := survey.train.unweighted:
        runs = counted(sum(unweighted.values()), "run")
        text = f"the steps of {runs} weigh alike, because their values rank none of them ({reasons(unweighted)})"
        fix = "score steps by what tells them apart (rules, a judge with mode steps, montecarlo), or leave step weights off"
        yield Remark("unweighted_steps", text, fix)


def _cuts(survey: Survey) -> Iterator[Remark]:
    train, config, length = survey.train, survey.spec.config, survey.maker.max_length
    if (asked := config.max_length or 0) > survey.context:
        text = f"max_length {asked} is more than the model's context of {survey.context} tokens"
        yield Remark("beyond_context", text, f"rows are cut at {survey.context} tokens; lower max_length")
    if not train.truncated_rows:
        return
    would_be = train.trained_tokens + train.lost_tokens
    rows, fit = counted(train.rows, "row"), _verb(train.truncated_rows, "does", "do")
    yield Remark(
        "truncated",
        f"{train.truncated_rows} of {rows} {fit} not fit in {length} tokens (the longest has {survey.longest}): "
        f"{counted(train.lost_steps, 'agent turn')} with {_percent(train.lost_tokens, would_be)} of the tokens to learn "
        f"from {_verb(train.lost_steps, 'falls', 'fall')} off",
        _longer_rows(survey),
        train.lost_tokens >= _BLOCKING_SHARE * would_be,
    )


def _longer_rows(survey: Survey) -> str:
    """Return the remedy for cut-off turns; settings only if they help."""
    context, length, cut = survey.context, survey.maker.max_length, survey.cut_turns
    if survey.longest <= context:
        return f"set max_length to {survey.longest} (the model's context has {context} tokens)"
    opening, turn = cut.worst
    part, n = ("prompt", opening) if opening >= turn else ("turn", turn)
    shorten = f"use a model with a longer context, or shorten the runs (the longest {part} alone has {n} tokens)"
    if not isinstance(survey.spec.config, SFTConfig):
        return shorten
    wanted = [*(["chunk=true"] * (not survey.chunks)), *([f"max_length={context}"] * (cut.most > length < context))]
    if not wanted or cut.least > context:
        return shorten
    return f"set {' and '.join(wanted)}" + (
        f"; for turns that are still too long, {shorten}" if cut.most > context else ""
    )


def _remedy(survey: Survey, dropped: Mapping[str, int]) -> str:
    """Return the remedy for the most frequent drop reason."""
    worst = max(dropped, key=lambda reason: dropped[reason], default="")
    worst = worst.removeprefix("chosen_").removeprefix("rejected_")
    if worst in {"too_long", "no_member_rendered"}:
        return _longer_rows(survey)
    return REMEDIES.get(worst, "look at them, or leave them out")


def _content(survey: Survey) -> Iterator[Remark]:
    found = survey.faults.found
    if nulls := found.get("null_keys"):
        text = f"{_are(nulls.times, 'argument', nulls, 'of calls')} null where the tool has no such value (first {nulls.example})"
        fix = (
            "Arrow and Parquet fill the keys of other rows in like this, and the model would learn to write them: drop keys "
            "that are null, or keep arguments as JSON text"
        )
        yield Remark("null_keys", text, fix, True)
    if nulls := found.get("null_schema"):
        text = f"{_are(nulls.times, 'key', nulls, 'of tool schemas')} null (first in {nulls.example})"
        fix = "Arrow and Parquet fill them in, and the model would read them: drop keys that are null from the schemas"
        yield Remark("null_keys_in_schemas", text, fix, True)
    if missing := found.get("missing_schema"):
        text = f"{_are(missing.times, 'call', missing)} of tools whose schema the run does not have (first {missing.example})"
        yield Remark("missing_schema", text, "record the runs with the schemas of all their tools", True)
    if missing := found.get("no_schemas"):
        text = f"{_are(missing.times, 'call', missing)} of runs without any tool schema (first {missing.example})"
        fix = "record the runs with `tools`, or the model learns calls whose tools it is not shown"
        yield Remark("missing_schema", text, fix)
    if lost := found.get("thoughts_lost"):
        text = f"the chat template leaves out thoughts or messages of {counted(lost.times, 'trained turn')} in {lost.where()}"
        fix = "register the agent with template 'react', or take a model whose template keeps them"
        yield Remark("thoughts_lost", text, fix, True)
    if wrong := found.get("unknown_arguments"):
        text = f"{_are(wrong.times, 'argument', wrong)} not in the schema of the tool (first {wrong.example})"
        yield Remark("unknown_arguments", text, "correct the schemas, or leave these runs out")
    if wrong := found.get("unreadable_arguments"):
        text = (
            f"the arguments of {counted(wrong.times, 'call')} in {wrong.where()} are not JSON (first {wrong.example})"
        )
        yield Remark("unreadable_arguments", text, "set train=false for these steps, or leave the runs out")
    if empty := found.get("empty_observations"):
        observations = counted(survey.faults.observations, "observation")
        text = f"{empty.times} of {observations} {_verb(empty.times, 'is', 'are')} empty, in {empty.where()}"
        yield Remark("empty_observations", text, "record the tool's output, or '(no output)'")


def _repeats(survey: Survey) -> Iterator[Remark]:
    found = survey.faults.found
    for name, *what in (
        ("tasks", "is of a task that is trained on", "are of a task that is trained on"),
        ("tokens", "has the exact tokens of a training row", "have the exact tokens of a training row"),
    ):
        if leaked := found.get(f"leaked_{name}"):
            text = (
                f"{leaked.where()} of {leaked.example} {_verb(leaked.rows, *what)}: validation would flatter the model"
            )
            fix = "give runs of one task one task.id, and export again: the split is by task"
            yield Remark("leak", text, fix, True)
    if n := survey.leaks.tasks:
        text = (
            f"{counted(n, 'task')} outside train {_verb(n, 'asks', 'ask')} in the same words as a task in train: validation "
            "would flatter the model"
        )
        yield Remark("leak", text, split_leak_remedy(survey.spec.dataset_kind), True)
    if held_out := found.get("held_out"):
        are = _verb(held_out.rows, "is a run on a held-out task", "are runs on held-out tasks")
        text = f"{held_out.where()} to train on {are}: an evaluation on them is no longer valid"
        yield Remark("held_out_tasks", text, "export without `include_held_out`", True)
    # The same words under two task ids or by two agents are two runs: `duplicate` of the export does not cover them.
    distinct = "give the runs of one task one task.id, and keep one of each"
    if survey.spec.dataset_kind in KINDS:
        distinct = "export again with `curation.near_duplicates=1.0`, which keeps one of each"
    if same := found.get("same_tokens"):
        text = f"{same.where()} {_verb(same.rows, 'repeats', 'repeat')} the exact tokens of an earlier row"
        yield Remark("duplicates", text, distinct, survey.share(same.rows) >= _BLOCKING_SHARE)
    if same := found.get("same_agent_text"):
        repeats = _verb(same.rows, "repeats", "repeat")
        text = f"{same.where()} {repeats} the agent text of an earlier row on the same task, in another context"
        yield Remark("repeated_text", text, f"{distinct}; or collect more varied runs")


def _notes(survey: Survey) -> Iterator[Remark]:
    yield from (Remark("export", note.rstrip("."), "") for note in survey.spec.dataset_notes)
    faults, config = survey.faults, survey.spec.config
    if any("quintain-fallback" in warning for warning in faults.renderer.warnings):
        text = "the tokenizer has no chat template; turns are written with the template 'quintain-fallback'"
        yield Remark("fallback_template", text, "use the instruct version of the model to chat with it elsewhere")
    if stripped := faults.found.get("thoughts_stripped"):
        text = f"the chat template strips the thoughts of past turns in {stripped.where()}: each turn becomes a separate row"
        fix = "nothing is lost, since acting sees the same, but tokens are computed several times; template 'react' keeps them"
        yield Remark("thoughts_stripped", text, fix)
    if spelt := faults.found.get("control_tokens"):
        text = f"{spelt.where()} {_verb(spelt.rows, 'contains', 'contain')} text that spells a control token (first {spelt.example})"
        yield Remark(
            "control_tokens", text, "it is trained as plain text; check whether raw prompts were logged as messages"
        )
    if unknown := faults.found.get("unknown_tokens"):
        text = f"{_are(unknown.times, 'token', unknown)} unknown to the tokenizer"
        yield Remark("unknown_tokens", text, "use a model whose tokenizer knows this script")
    if unused := sorted(set(faults.defined) - set(faults.called)):
        tools, are = counted(len(faults.defined), "tool"), _verb(len(unused), "is", "are")
        text = f"{len(unused)} of {tools} {are} never called ({', '.join(map(shown, unused[:3]))})"
        yield Remark("unused_schemas", text, "add runs that use them, or leave out tools that the agent will not have")
    if isinstance(config, SFTConfig) and (config.coreset or config.replay):
        text = "coreset and replay choose examples when the training runs, with the model"
        yield Remark("selection", text, "the counts here are those of the whole dataset")
    if isinstance(config, BCConfig) and "reward_unknown" in survey.train.dropped:
        n = survey.train.dropped["reward_unknown"]
        text = f"{counted(n, 'row')} {_verb(n, 'has', 'have')} no known reward, which bc needs"
        yield Remark("reward_unknown", text, REMEDIES["reward_unknown"])
    if survey.spec.dataset_kind in {"reward", "prm"}:
        read = "each run" if survey.spec.dataset_kind == "reward" else "each step"
        text = f"the rows are shown as {config.method} would see them; {survey.spec.dataset_kind} reads one number at the end of {read}"
        yield Remark("foreign_kind", text, "look at what the agent wrote; runs that are cut here are left out there")


def _are(n: int, noun: str, found: Finding, of: str = "") -> str:
    """`2 calls in 1 row (line 3) are`."""
    return f"{counted(n, noun)}{' ' * bool(of)}{of} in {found.where()} {_verb(n, 'is', 'are')}"


def _verb(n: int, one: str, many: str) -> str:
    return one if n == 1 else many


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
