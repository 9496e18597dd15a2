"""Reports on evaluations and comparisons, as headings, sentences and tables, and as Markdown or one self-contained HTML page.

Stored text is untrusted, and escaped where it is rendered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from quintain.environments.references import short_reference
from quintain.evaluation.reports.figures import Figure
from quintain.evaluation.reports.standalone_page import standalone_page
from quintain.records.evaluation import (
    AtK,
    Comparison,
    Estimate,
    Evaluation,
    HeldOut,
    Means,
    PairedComparison,
    Rate,
)
from quintain.records.text import printable
from quintain.records.wording import counted

_FLIPS = 200
"""Flips listed in a report. Further ones are only counted."""


class Table(NamedTuple):
    """Rows of text under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Section(NamedTuple):
    """A part of a report."""

    heading: str
    lines: tuple[str, ...] = ()
    table: Table | None = None
    shown: int = 10
    """Rows of the table that the terminal shows."""


class Report(NamedTuple):
    """A report. Its text may be untrusted; rendering escapes it."""

    title: str
    sections: tuple[Section, ...]


def evaluation_report(evaluation: Evaluation) -> Report:
    """Build the report of an evaluation."""
    found = evaluation.held_out
    sections = [_result_section(evaluation), *([] if found is None else [_dataset_section(found)])]
    sections += _group_sections("By environment", evaluation.by_environment, {})
    sections += _group_sections("By task type", evaluation.by_type, evaluation.means_by_type)
    sections += _group_sections("By difficulty", evaluation.by_difficulty, evaluation.means_by_difficulty)
    sections += _attempt_sections(evaluation.pass_at_k, evaluation.pass_hat_k)
    if evaluation.failures:
        kinds = tuple((str(kind), str(f.n), ", ".join(f.examples)) for kind, f in evaluation.failures.items())
        sections.append(Section("Failures", table=Table(("why", "episodes", "examples"), kinds)))
    if evaluation.forbidden is not None:
        part = evaluation.forbidden
        line = (
            f"{part.forbidden_calls} of {part.calls} calls were forbidden, in {_rate(part.episodes)} of the episodes."
        )
        sections.append(Section("Forbidden actions", (line,)))
    if evaluation.metrics:
        means = tuple((name, _estimate(mean), str(mean.n)) for name, mean in evaluation.metrics.items())
        unit = "tasks" if found is None else "rows"
        lines = () if found is None else ("Each row counts once, however many tokens it has.",)
        sections.append(Section("Metrics", lines, Table(("metric", f"mean over {unit}, 95 % interval", unit), means)))
    return Report(f"{evaluation.agent_id} in {short_reference(evaluation.environment)}", tuple(sections))


def comparison_report(comparison: Comparison) -> Report:
    """Build the report of a comparison: leaderboard, pairs, flips, learning curves and lineage."""
    lines = ("Agents that share a letter of their group do not differ significantly.", *comparison.notes)
    sections = [Section("Leaderboard", lines, _leaderboard_table(comparison)), _pair_section(comparison)]
    if comparison.flips:
        flips = tuple(
            (f.task_id, f.solved_by, f.failed_by, f.trajectory_solved or "", f.trajectory_failed or "")
            for f in comparison.flips[:_FLIPS]
        )
        more = len(comparison.flips) - len(flips)
        lines = (f"{more} more are in the JSON.",) if more > 0 else ()
        table = Table(("task", "solved by", "failed by", "run that solved it", "run that failed"), flips)
        sections.append(Section(f"Flips ({len(comparison.flips)})", lines, table, shown=3))
    if comparison.curves:
        sections.append(_curve_section(comparison))
    if comparison.lineage:
        origins = tuple(
            (o.agent, o.agent_id, " <- ".join(o.ancestors), o.dataset_id or "", o.job_id or "")
            for o in comparison.lineage
        )
        table = Table(("agent", "id", "trained from", "dataset", "job"), origins)
        sections.append(Section("Lineage", table=table))
    return Report(f"Comparison {comparison.id} in {short_reference(comparison.environment)}", tuple(sections))


def _curve_section(comparison: Comparison) -> Section:
    header = ("curve of", "stage", "agent", "success, 95 % interval", "episodes", "suite", "evaluation")
    rows = tuple(
        (
            curve.agent,
            str(point.place),
            point.agent_id,
            f"{point.success_rate:.1%} {_interval(point.ci_low, point.ci_high)}",
            str(point.n),
            "the compared one"
            if curve.suite_hash == comparison.suite_hash
            else f"another, {counted(curve.n_tasks, 'task')}",
            point.evaluation_id,
        )
        for curve in comparison.curves
        for point in curve.points
    )
    return Section("Learning curve", table=Table(header, rows))


def _leaderboard_table(comparison: Comparison) -> Table:
    has_loss = any(row.loss is not None for row in comparison.leaderboard)
    header = (
        "rank",
        "agent",
        "success, 95 % interval",
        "mean reward",
        *["loss"] * has_loss,
        "episodes",
        "group",
        "evaluation",
    )
    rows = tuple(
        (
            str(row.rank),
            row.agent,
            "unknown" if row.success_rate is None else f"{row.success_rate:.1%} {_interval(row.ci_low, row.ci_high)}",
            _number(row.mean_reward),
            *["" if row.loss is None else _number(row.loss)] * has_loss,
            str(row.n),
            row.group,
            row.evaluation_id,
        )
        for row in comparison.leaderboard
    )
    return Table(header, rows)


def _result_section(evaluation: Evaluation) -> Section:
    sampling = evaluation.sampling
    how = "greedy" if sampling.temperature == 0 else sampling.summary
    facts = {
        "success": _rate(evaluation.rate),
        "without a verdict": f"{evaluation.n_unknown} unknown, {evaluation.n_error} errors",
        "mean reward": _number(evaluation.mean_reward),
        "mean turns": _number(evaluation.mean_turns),
        "mean output tokens": _number(evaluation.mean_output_tokens),
        "mean seconds": _number(evaluation.mean_duration_s),
        "cost (USD)": _number(evaluation.cost_usd),
        "suite": f"{counted(evaluation.n_tasks, 'task')}, {evaluation.repeats} each, {evaluation.split}, seed {evaluation.seed}",
        "sampling": how,
        "suite hash": evaluation.suite_hash,
        "evaluation": evaluation.id,
    }
    return Section("Result", table=Table(("", ""), tuple(facts.items())))


def _dataset_section(found: HeldOut) -> Section:
    facts = {
        "loss over all tokens (nats a token)": _number(found.loss),
        "perplexity": _number(found.perplexity),
        "token accuracy": "unknown" if found.token_accuracy is None else f"{found.token_accuracy:.1%}",
        "tokens": str(found.n_tokens),
        "same tools next": "unknown" if found.tool_match is None else _rate(found.tool_match),
        "same action next": "unknown" if found.action_match is None else _rate(found.action_match),
        **({} if found.answer_match is None else {"right answers": _rate(found.answer_match)}),
        "steps": str(found.n_steps),
        "turns beyond the context": str(found.truncated_turns),
        **{f"rows left out: {reason}": str(n) for reason, n in found.dropped.items()},
    }
    return Section("Against the dataset", table=Table(("", ""), tuple(facts.items())))


def _group_sections(heading: str, rates: Mapping[str, Rate], means: Mapping[str, Means]) -> Iterator[Section]:
    if not rates:
        return
    header = ("", "success, 95 % interval", "reward", "turns", "tokens", "seconds", "unknown", "errors")

    def row(name: str, rate: Rate) -> tuple[str, ...]:
        about = means.get(name)
        if about is None:
            return (name, _rate(rate), *("",) * 6)
        numbers = (about.reward, about.turns, about.output_tokens, about.duration_s)
        return (name, _rate(rate), *map(_number, numbers), str(about.n_unknown), str(about.n_error))

    yield Section(heading, table=Table(header, tuple(row(name, rate) for name, rate in rates.items())))


def _attempt_sections(at_least_one: Sequence[AtK], all_of: Iterable[AtK]) -> Iterator[Section]:
    if at_least_one:
        rows = tuple((str(a.k), _share(a), _share(b)) for a, b in zip(at_least_one, all_of, strict=True))
        lines = (f"Over {counted(at_least_one[0].n, 'task')} whose every attempt has a verdict.",)
        yield Section("Attempts", lines, Table(("k", "pass@k: one of k", "pass^k: all of k"), rows))


def _pair_section(comparison: Comparison) -> Section:
    pairs = comparison.comparisons
    methods = sorted({f"{pair.p_method}; interval by {pair.ci_method}" for pair in pairs})
    lines = [] if comparison.sequential is None else [sequential_verdict(comparison)]
    lines.append(f"Paired by task: {' or '.join(methods)}.")
    if len(pairs) > 1:
        lines.append(
            "The first interval is not corrected for the number of pairs, the second is (Bonferroni), and so are the p-values "
            f"({comparison.correction.replace('_', '-').title()})."
        )
    if any(pair.measure == "loss" for pair in pairs):
        lines.append("Differences are of the loss in nats a token: below 0, b is better.")
    if comparison.sequential is None:
        lines += [_power_note(pair) for pair in pairs if not pair.significant]
    cells = [_pair(pair, one_of=len(pairs)) for pair in pairs]
    columns = [name for name in cells[0] if any(row[name] for row in cells)]
    return Section(
        "Differences", tuple(lines), Table(tuple(columns), tuple(tuple(row[name] for name in columns) for row in cells))
    )


def sequential_verdict(comparison: Comparison) -> str:
    """Return what a sequential comparison found, in a sentence."""
    test, pair = comparison.sequential, comparison.comparisons[0]
    assert test is not None
    after = f"after {counted(test.n_tasks, 'task')} of {test.n_planned}"
    found = f"{test.difference:+.1%} [{test.ci_low:+.1%}, {test.ci_high:+.1%}] for {pair.b}, e-value {test.e_value:.3g}"
    match test.decision:
        case "difference":
            better = pair.b if test.difference > 0 else pair.a
            meets = test.ci_low <= 0 <= test.ci_high
            note = " The interval comes from a separate test, which needs more tasks to exclude 0." if meets else ""
            return f"{better} is better, decided {after}: {found}.{note}"
        case "equivalent":
            return f"No relevant difference, decided {after}: {found} is within 5 points."
        case "hopeless":
            return (
                f"Stopped {after}: the tasks left could hardly show a difference ({found}). Ask with a larger n_tasks."
            )
        case _:
            return f"Undecided {after}: {found}. Ask with a larger n_tasks."


def _pair(pair: PairedComparison, *, one_of: int) -> dict[str, str]:
    """Return the cells of a pair by column; empty: nothing to add, as the mean reward where it is the success."""
    low, high, reward = pair.simultaneous_low, pair.simultaneous_high, pair.reward
    is_corrected = one_of > 1
    adds = reward is not None and not math.isclose(reward.difference, pair.difference, abs_tol=1e-9)
    return {
        "b - a": f"{pair.b} - {pair.a}",
        "verdict": "significant" if pair.significant else "not significant",
        "difference, 95 % interval": f"{_change(pair, pair.difference)} {_bounds(pair, pair.ci_low, pair.ci_high)}",
        "of all pairs together": _bounds(pair, low, high)
        if is_corrected and low is not None and high is not None
        else "",
        "p": f"{pair.p:.2g}",
        "p corrected": f"{pair.p_corrected:.2g}" if is_corrected else "",
        "tasks": str(pair.n_tasks) if pair.n_distinct is None else f"{pair.n_tasks}, {pair.n_distinct} different",
        "left out": str(pair.n_excluded),
        "reward": f"{reward.difference:+.3f} [{reward.ci_low:+.3f}, {reward.ci_high:+.3f}]" if reward and adds else "",
    }


def _bounds(pair: PairedComparison, low: float, high: float) -> str:
    return f"[{_change(pair, low)}, {_change(pair, high)}]"


def _change(pair: PairedComparison, value: float) -> str:
    return f"{value:+.1%}" if pair.measure == "success" else f"{value:+.4g}"


def _power_note(pair: PairedComparison) -> str:
    text = f"{pair.b} - {pair.a} is not significant"
    if pair.tasks_for_5_points is None:
        return f"{text}."
    return f"{text}: {pair.tasks_for_5_points} tasks would show 5 points with 80 % power; these are {pair.n_tasks}."


def _rate(rate: Rate) -> str:
    if rate.value is None:
        return "unknown (0 with a verdict)"
    distinct = "" if rate.n_distinct is None else f", {rate.n_distinct} different runs"
    return f"{rate.value:.1%} {_interval(rate.ci_low, rate.ci_high)} ({rate.successes} of {rate.n}{distinct})"


def _share(found: Estimate) -> str:
    return f"{found.value:.1%} {_interval(found.ci_low, found.ci_high)}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.1%}, {high:.1%}]"


def _estimate(found: Estimate) -> str:
    bounds = "" if found.ci_low is None or found.ci_high is None else f" [{found.ci_low:.4g}, {found.ci_high:.4g}]"
    return f"{found.value:.4g}{bounds}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&$]|^[-+=])")

_MOST_OPEN_ROWS = 30
"""Rows of a table above which a page shows it on request."""


def as_markdown(report: Report) -> str:
    """Render the report as Markdown with markup and HTML in its texts escaped."""
    blocks = [f"# {_markdown(report.title)}"]
    for section in report.sections:
        blocks.append(f"## {_markdown(section.heading)}")
        blocks += [_markdown(line) for line in section.lines]
        if section.table is not None:
            blocks.append("\n".join(_markdown_rows(section.table)))
    return "\n\n".join(blocks) + "\n"


def as_html(report: Report, figure: Figure | None = None, *, below: str = "") -> str:
    """Render the report as one page that needs no network.

    Args:
        report: The report.
        figure: Drawn above the sections by the page's own script, or None.
        below: HTML below the sections, whose stored text is escaped already.
    """
    parts = [f'<main><div class="view"><h1>{_html(report.title)}</h1>']
    if figure is not None:
        parts.append('<section class="card" id="figure"></section>')
    for section in report.sections:
        parts.append(f'<section class="card"><h2>{_html(section.heading)}</h2>')
        parts += [f"<p>{_html(line)}</p>" for line in section.lines]
        if section.table is not None:
            rows = [*_html_rows(section.table)]
            is_long = len(section.table.rows) > _MOST_OPEN_ROWS
            parts += ["<details><summary>Show all</summary>", *rows, "</details>"] if is_long else rows
        parts.append("</section>")
    entry = None if figure is None else "report.js"
    return standalone_page(
        entry, "\n".join([*parts, below, "</div></main>"]), title=printable(report.title), data=figure
    )


def _markdown_rows(table: Table) -> Iterator[str]:
    header, *rows = ([*map(_markdown, row)] for row in (table.header, *table.rows))
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cells)} |"


def _html_rows(table: Table) -> Iterator[str]:
    yield '<div class="scroll-x"><table class="plain">'
    if any(table.header):
        yield f"<tr>{''.join(f'<th>{_html(cell)}</th>' for cell in table.header)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>"
    yield "</table></div>"


def _markdown(text: str) -> str:
    """Escape text for one line of Markdown."""
    return _MARKUP.sub(r"\\\1", " ".join(printable(text).split()))


def _html(text: str) -> str:
    return escape(printable(text))
