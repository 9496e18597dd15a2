"""Second tries after a reflection, with an agent that ticks only where it has been told to."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.test_episodes import Counting, tick
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.evaluation import EpisodeResult
from quintain.records.protocols import Reply, Stop, Turn
from quintain.records.trajectory import AgentInfo, OutcomeStatus, SampledTokens, Trajectory
from quintain.worker.evolution.reflection import failed_runs, retry_plans, without_reflection, write_notes

SETTINGS = EpisodeSettings(seed=1, max_turns=3, concurrency=8, agent=AgentInfo(name="a"), job_id="job-1")
SAMPLED = SampledTokens(token_ids=(5, 2), logprobs=(-0.1, -0.2), tokenizer="tok")


class Learner:
    """Says nothing of use until its prompt holds a note that says to tick; asked for a note it writes that, or nothing."""

    def __init__(self, note: str = "I did not tick. I should tick.", stop: Stop = Stop.END) -> None:
        self.note, self.stop = note, stop
        self.asked: list[str] = []
        self.told: set[str] = set()
        self.closed: list[str] = []

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [self._answer(turn) for turn in turns]

    def _answer(self, turn: Turn) -> Reply:
        words = " ".join(str(message.content) for message in turn.messages)
        self.asked.append(words)
        if "Where did the run go wrong?" in words:
            return Reply(text=self.note, stop=self.stop)
        if "should tick" in words:
            self.told.add(turn.episode_id)
        return tick(sampled=SAMPLED) if turn.episode_id in self.told else Reply(text="Hm.", sampled=SAMPLED)

    def close(self, episode_id: str) -> None:
        self.closed.append(episode_id)
        self.told.discard(episode_id)


def play(policy: Learner, plans: Sequence[EpisodePlan]) -> list[Episode]:
    return list(run_episodes(Counting(), policy, plans, SETTINGS))


def test_a_second_try_that_succeeds_is_kept_under_the_tasks_own_prompt_without_log_probs() -> None:
    policy = Learner()
    first = play(policy, [EpisodePlan(task) for task in Counting().tasks("train", 2, 0)])
    assert [episode.result.success for episode in first] == [False, False]
    failed = failed_runs((episode.trajectory, episode.result) for episode in first)
    notes = write_notes(policy, failed, seed=0)
    asked = policy.asked[-1]
    assert "count 1" in asked
    assert "| Hm." in asked, "the run is quoted line by line, as data"
    assert set(policy.closed) >= {"reflection-000000", "reflection-000001"}

    again = play(policy, retry_plans(notes, tries=2, first=1))
    assert [(e.result.task_id, e.result.repeat, e.result.success) for e in again] == [
        ("t0", 1, True),
        ("t1", 1, True),
        ("t0", 2, True),
        ("t1", 2, True),
    ]
    assert "Your notes on that:\nI did not tick. I should tick.\nNow solve it." in policy.asked[-5] + policy.asked[-6]
    run = without_reflection(again[0].trajectory, notes[0])
    assert run.identity == again[0].trajectory.identity
    assert [step.message for step in run.steps[:2]] == ["Count.", "count 0"], "the note is no part of what is learnt"
    assert "should tick" not in run.model_copy(update={"extra": {}}).model_dump_json()
    assert {step.sampled for step in run.steps} == {None}, "ids and log-probs belong to another prompt"
    assert run.tags == ("reflection",)
    assert run.extra["reflection"] == {"after": failed[0].id, "text": "I did not tick. I should tick."}


def test_nothing_is_tried_again_where_the_agent_has_nothing_to_say() -> None:
    runs = [
        episode.trajectory for episode in play(Learner(), [EpisodePlan(t) for t in Counting().tasks("train", 1, 0)])
    ]
    assert write_notes(Learner("  "), runs, seed=0) == []
    assert write_notes(Learner(stop=Stop.CONTEXT), runs, seed=0) == []
    assert write_notes(Learner(), [], seed=0) == []


def result(
    task: str, repeat: int, status: OutcomeStatus, reward: float | None = None
) -> tuple[Trajectory, EpisodeResult]:
    (episode,) = play(
        Learner(), [EpisodePlan(Counting().tasks("train", 1, 0)[0].model_copy(update={"id": task}), repeat)]
    )
    return episode.trajectory, EpisodeResult(task_id=task, repeat=repeat, status=status, reward=reward)


def test_reflected_on_is_the_best_failed_run_of_each_task_that_was_never_solved() -> None:
    success, failure, error = OutcomeStatus.SUCCESS, OutcomeStatus.FAILURE, OutcomeStatus.ERROR
    runs = [
        result("solved", 0, failure, 0.9),
        result("solved", 1, success, 1.0),
        result("hard", 0, failure, 0.1),
        result("hard", 1, failure, 0.4),
        result("hard", 2, failure, 0.4),
        result("broken", 0, error),
    ]
    assert failed_runs(runs) == [runs[3][0]]
