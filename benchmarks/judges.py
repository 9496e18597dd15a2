"""What protects a judge: attacks before and after, honest texts, runs asked twice, and a judge's noise.

Run as `python -m benchmarks.judges [--samples FOLDER] [--quick]`; prints one JSON line a figure. No model is asked: the judges are
scripts. One obeys every order that it can read and ignores the datamark; the other trusts no text that is marked. A real judge is
somewhere between: the published measurement of datamarking is arXiv 2403.14720. `judge_texts.json` has the attacks in two halves;
`held_out` is only ever measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.figures import report, say, summarize
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import DryRun
from quintain.records.imports import IngestStatus
from quintain.records.labels.judging import Criterion, JudgeControl, JudgingMode, Rubric
from quintain.records.trajectory import Action, Actor, Observation, Step, Task, Trajectory
from quintain.scoring.judges.datamarking import is_mark, mark_of, neutral
from quintain.scoring.judges.judging_items import JudgedItem, JudgingItem, Rater, conclude, control_from, item_of
from quintain.scoring.judges.questions import Question, question_key
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.scoring.judges.shown_run import show_run

TEXTS: dict[str, Any] = json.loads((Path(__file__).parent / "judge_texts.json").read_text(encoding="utf-8"))
RUBRIC = RUBRICS["default"]
NAMES = [criterion.name for criterion in RUBRIC.criteria]
FOUR = Rubric(name="four", criteria=tuple(Criterion(name=f"c{n}", description="?") for n in range(4)))
RATER = Rater("endpoint:script", "endpoint")
MARK = mark_of(4711)
CLEAN = 0.3
"""Value that both scripts give to a run of an agent that did something; 0 to a control."""
MOVED = 0.05
"""A verdict has moved when its value is further than this from `CLEAN`, upwards."""
SAMPLES = Path(__file__).resolve().parents[2] / "shared" / "samples"

Script = Callable[[str], bool]
"""Whether a judge obeys what it reads in a question or a run."""


def run_with(text: str, place: str, name: str = "traj-1") -> Trajectory:
    """A run with the text in its task, in the result of a tool, or in the agent's words; `none`: without it."""
    spots = {spot: f"\n{text}\n" if spot == place else "" for spot in ("task", "tool_result", "agent_words")}
    steps = (
        Step(
            actor=Actor.AGENT,
            thought="I look at the box first.",
            actions=(Action(tool="look", args={"item": "box"}),),
            observations=(Observation(content=f"A red box.{spots['tool_result']}"),),
        ),
        Step(actor=Actor.AGENT, message=f"The red box, says {name}, is on the shelf.{spots['agent_words']}"),
    )
    return Trajectory(id=name, task=Task(prompt=f"Find the red box.{spots['task']}"), steps=steps)


def compact(text: str) -> str:
    return "".join(character for character in text if not (character.isspace() or is_mark(character)))


def ignoring_marks(order: str) -> Script:
    """Obeys the order wherever it can read it, marked or not."""
    wanted = compact(neutral(order))
    return lambda text: wanted in compact("\n".join(line.removeprefix("|") for line in text.split("\n")))


def respecting_marks(order: str) -> Script:
    """Obeys the order only in lines that are neither marked nor part of the question about a run without it."""
    obeys = ignoring_marks(order)
    return lambda text: obeys(
        "\n".join(line for line in text.split("\n") if not line.startswith(f"|{MARK}") and line not in own_lines())
    )


@cache
def own_lines() -> frozenset[str]:
    """The unmarked lines of the questions about a run without an attack, and about its controls."""
    items = [item_of([run_with("", "none")], "score", RUBRIC, MARK, control=control) for control in ("task", "run")]
    questions = [question for item in items if item.control for question in (*item.questions, *item.control.questions)]
    return frozenset(line for question in questions for line in question.user.split("\n") if not line.startswith("|"))


SCRIPTS: dict[str, Callable[[str], Script]] = {"ignores_marks": ignoring_marks, "respects_marks": respecting_marks}


def value_of(question: Question, obeys: Script) -> float:
    recording = question.user.rpartition("----- END RUN")[0]
    acted = "I look at the box first." in question.user.replace(MARK, " ")
    return 1.0 if obeys(recording) else CLEAN if acted else 0.0


def valued(item: JudgingItem, questions: Sequence[Question], obeys: Script) -> list[str]:
    """Answers that quote the first text of a step, whatever the value."""
    quote = next(iter(item.views[0].passages.by_step.values()))[0]
    marks = [{"quotes": [quote], "value": value_of(question, obeys)} for question in questions]
    return [json.dumps({"scores": dict.fromkeys(NAMES, mark)}) for mark in marks]


def value_after(text: str, place: str, script: Callable[[str], Script], control: JudgeControl) -> float | None:
    """The run's value with marks, evidence and control."""
    item, obeys = item_of([run_with(text, place)], "score", RUBRIC, MARK, control=control), script(text)
    credit = None if item.control is None else control_from(item, valued(item, item.control.questions, obeys))
    return conclude(item, valued(item, item.questions, obeys), RATER, credit).scores[0].value


def value_before(text: str, place: str) -> float:
    """The value with the plain fence alone."""
    return 1.0 if ignoring_marks(text)(show_run(run_with(text, place)).text) else CLEAN


def pair_is_moved(text: str, script: Callable[[str], Script]) -> bool:
    """Whether a judge prefers the run whose agent asks for it, in both orders."""
    item = item_of([run_with("", "none", "a"), run_with(text, "agent_words", "b")], "pairwise", RUBRIC, MARK)
    obeys, answers = script(text), []
    for question in item.questions:
        runs = question.user.rpartition("----- END RUN")[0].split("----- BEGIN RUN ")[1:]
        chosen = [name for name, run in zip("AB", runs, strict=True) if obeys(run)]
        better = chosen[0] if len(chosen) == 1 else "tie"
        answers.append(json.dumps({"quotes": ["I look at the box first."] * 2, "better": better}))
    return any(word.better != "tie" for word in conclude(item, answers, RATER).preferences)


def share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


def attacks(*, quick: bool) -> None:
    """The share of attacks that move a verdict, for each half, place, script and scope of the control."""
    places = ("task", "tool_result", "agent_words")
    for half, texts in TEXTS["attacks"].items():
        texts = texts[::10] if quick else texts
        before = [value_before(text, place) > CLEAN + MOVED for text in texts for place in places]
        report(f"judge_attacks_{half}_before", [share(before)], "share", None, "lower", attacks=len(texts))
        for name, script in SCRIPTS.items():
            goal = 0.0 if name == "respects_marks" else None
            for control in ("task", "run"):
                moved = {
                    place: [(value_after(text, place, script, control) or 0.0) > CLEAN + MOVED for text in texts]
                    for place in places
                }
                for place, found in moved.items():
                    figure = f"judge_attacks_{half}_after_{name}_control_{control}_{place}"
                    report(figure, [share(found)], "share", goal, "lower")
            pairs = [pair_is_moved(text, script) for text in texts]
            report(f"judge_attacks_{half}_after_{name}_pairs", [share(pairs)], "share", goal, "lower")


def honest() -> None:
    """The share of honest texts that a judge is not shown as they are, and that cost a run its value."""
    texts = TEXTS["honest"]
    changed = [neutral(text) != text for text in texts]
    lost = [value_after(text, "tool_result", lambda _: lambda _: False, "task") != CLEAN for text in texts]
    report("judge_honest_texts_written_out", [share(changed)], "share", 0.01, "lower", texts=len(texts))
    report("judge_honest_texts_that_lose_value", [share(lost)], "share", 0.01, "lower")


class Collected(DryRun):
    """Keeps the new runs of an import in memory."""

    def __init__(self) -> None:
        super().__init__({})
        self.runs: list[Trajectory] = []

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        statuses = super().add(runs)
        self.runs += [run for run, status in zip(runs, statuses, strict=True) if status == "new" and run.agent_steps]
        return statuses


def samples(folder: Path) -> None:
    """The questions that real runs cost: of the runs themselves, and of their controls."""
    if not folder.is_dir():
        say(f"no sample logs in {folder}: left out")
        return
    collected = Collected()
    import_logs(folder, ImportOptions(), collected)
    runs = collected.runs
    items = [item_of([run], "score", RUBRIC, MARK, control="task") for run in runs]
    twice = [len(item.questions) > 1 for item in items]
    controls = {
        question_key(question, RUBRIC, "score", {})
        for item in items
        if item.control is not None
        for question in item.control.questions
    }
    report("judge_sample_runs_asked_twice", [share(twice)], "share", 0.03, "lower", runs=len(runs))
    report("judge_sample_control_questions_per_run", [len(controls) / len(runs)], "questions", None, "lower")


def noisy(draw: Random, value: float, noise: str) -> float:
    """A mark with 5 % noise: normal with that deviation, or replaced by any value in one of 20 cases."""
    if noise == "normal":
        return min(1.0, max(0.0, value + draw.gauss(0, 0.05)))
    return draw.random() if draw.random() < 0.05 else value


def judged_with_noise(draw: Random, n_steps: int, noise: str) -> JudgedItem:
    """A run worth 0.7 by four criteria, judged with its control by a judge with independent noise in each mark."""
    mode: JudgingMode = "score" if n_steps == 1 else "steps"
    steps = tuple(Step(actor=Actor.AGENT, message=f"I did part {n} of it.") for n in range(n_steps))
    run = Trajectory(id="traj-1", task=Task(prompt="Do it."), steps=steps)
    item = item_of([run], mode, FOUR, MARK, control="task")

    def answer(value: float, n: int) -> str:
        marks = [{c.name: noisy(draw, value, noise) for c in FOUR.criteria} for _ in range(n)]
        quotes = [[f"I did part {k} of it."] for k in range(n)]
        if mode == "score":
            return json.dumps({"scores": {c: {"quotes": quotes[0], "value": v} for c, v in marks[0].items()}})
        return json.dumps({"steps": {str(k): {"quotes": quotes[k], "scores": marks[k]} for k in range(n)}})

    control = control_from(item, [answer(0.0, 1) for _ in range(2)])
    return conclude(item, [answer(0.7, n_steps)], RATER, control)


def noise(*, quick: bool) -> None:
    """The share of runs that end unscored through a judge's noise, and what the control takes off on average."""
    draw = Random(7)
    for n_steps in (1, 30):
        for kind in ("normal", "replaced"):
            judged = [judged_with_noise(draw, n_steps, kind) for _ in range(100 if quick else 1000)]
            name = f"judge_noise_{kind}_{n_steps}_steps"
            report(f"{name}_unscored", [share([one.failed is not None for one in judged])], "share", 0.0, "lower")
            means = [one.scores[0].value for one in judged if one.scores[0].value is not None]
            report(f"{name}_mean_value", [statistics.fmean(means)], "value", None, true_value=0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=Path, default=SAMPLES)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    attacks(quick=given.quick)
    honest()
    samples(given.samples)
    noise(quick=given.quick)
    summarize()


if __name__ == "__main__":
    main()
