"""The next step after a job, by its state and kind."""

from __future__ import annotations

from quintain.next_step import Hint, ToolCall, call
from quintain.records.imports import ImportReport
from quintain.records.jobs.job import (
    TERMINAL,
    UNFINISHED,
    CompareSpec,
    EvaluateSpec,
    EvolveSpec,
    ImportSpec,
    Job,
    JobResult,
    JobSpec,
    JobStatus,
    PreviewSpec,
    RecipeSpec,
    RolloutSpec,
    StepLabelSpec,
    TrainSpec,
)
from quintain.records.jobs.run_jobs import InfluenceSpec, JudgeSpec, ReplaySpec, ScoreSpec
from quintain.records.wording import counted
from quintain.tools.jobs.after_training import after_training
from quintain.tools.services import Services


def next_step(services: Services, job: Job, stalled: str | None = None) -> Hint:
    """Return what to call after a look at a job; `stalled` is why it seems to stand still."""
    if job.status in UNFINISHED:
        follow, stop = call("get_job", job_id=job.id, until="done", wait_s=50), call("cancel_job", job_id=job.id)
        if job.cancel_requested:
            return Hint("The job was asked to stop and ends at its next step. Wait for its end with ", follow, ".")
        if stalled:
            log = call("get_job", job_id=job.id, detail="log", wait_s=10)  # a busy machine may go on meanwhile
            again = call("resume_job", job_id=job.id)
            what = f"{stalled[0].upper()}{stalled[1:]}. Read its log with "
            return Hint(
                what, log, "; stop it with ", stop, ", and continue from its newest checkpoint with ", again, "."
            )
        return Hint("Wait for its end with ", follow, "; stop it with ", stop, ".")
    resume = call("resume_job", job_id=job.id)
    folder = services.settings.jobs_dir / job.id
    has_checkpoint = any(any(folder.glob(place)) for place in ("checkpoints/*", "stages/*/checkpoints/*"))
    if job.status is JobStatus.INTERRUPTED:
        return Hint(f"Continue it{' from its newest checkpoint' * has_checkpoint} with ", resume, ".")
    if job.status in TERMINAL - {JobStatus.SUCCEEDED}:
        way = "continues from its newest checkpoint" if has_checkpoint else "begins again"
        if isinstance(job.spec, RolloutSpec | EvaluateSpec | CompareSpec):
            way = "plays the episodes that are left"
        if isinstance(job.spec, JudgeSpec):
            way = "asks the questions that are left"
        return Hint(_cause(job), "; ", resume, f" {way} with the same settings.")
    return _after_success(services, job, job.result) if job.result is not None else Hint("Done.")


def _cause(job: Job) -> Hint:
    """Return what to do about the end of a job that did not succeed."""
    if job.status is not JobStatus.FAILED:
        return Hint("It was cancelled")
    environment = getattr(job.spec, "environment", None)
    if job.error is None or job.error.code != "no_verdict" or environment is None:
        return Hint("Fix the cause of its error, then start again")
    agent = job.spec.agent.id if isinstance(job.spec, TrainSpec | EvolveSpec) else None
    play = call("collect_rollouts", agent=agent or ..., environment=environment, n_tasks=1)
    return Hint("Try the environment with ", play, " and read why its episodes end without a verdict")


def _after_success(services: Services, job: Job, result: JobResult) -> Hint:
    if job.kind in {"judge", "score", "step_labels", "influence", "replay"}:
        return _after_scoring(job.spec, result)
    if job.kind == "evolve":
        return _after_evolution(job, result)
    if job.kind == "export_agent":
        pushed = result.report.get("pushed_to")
        return Hint(
            f"The files are in {result.report.get('path')}{f', and at {pushed}' if pushed else ''}; README.md there explains how to "
            "load and serve them."
        )
    if job.kind == "talk":
        kept = call("search_trajectories", filter={"job_id": job.id})
        return (
            Hint("The conversation is stored as a run: ", kept, ".")
            if result.trajectories
            else Hint("It was not kept.")
        )
    if job.kind == "push":
        return Hint(f"The files are at {result.report.get('pushed_to')}.")
    if job.kind == "fetch":
        return Hint("Make the call again that needs it: it finds the copy.")
    if isinstance(job.spec, PreviewSpec):
        return Hint("Read the rows with ", preview_again(job.spec), ".")
    if isinstance(job.spec, CompareSpec):
        test, plot = result.report.get("sequential", {}), call("plot_job", job_id=result.comparison_id)
        better = job.spec.b if (test.get("difference") or 0) > 0 else job.spec.a
        leads = f", {better.agent.name} is better" if test.get("decision") == "difference" else ""
        decided = f"Decision after {test.get('n_tasks')} tasks: {test.get('decision')}{leads}. "
        return Hint(decided, "Draw it: ", plot, ".")
    if result.evaluation_id and not result.n and result.report.get("loss") is None:
        errors = f"; {counted(result.n_error, 'episode')} ended with an error" if result.n_error else ""
        score = call("score_trajectories", scorer=..., filter={"job_id": job.id})
        scored = (" ", score, " values its runs.") if result.n_unknown else ()
        return Hint(f"No task has a verdict, so there is nothing to compare{errors}.", *scored)
    if result.evaluation_id:
        # The agent of a recipe is the one that it began with, else the one that was measured.
        agent = getattr(job.spec, "agent", None)
        parent = job.spec.agent.id if isinstance(job.spec, RecipeSpec) else getattr(agent, "parent", None)
        note = _known_tasks(services, job, getattr(agent, "id", None) or "")
        if parent is None:
            compare = call("compare_agents", agents=[result.evaluation_id, ...])
            return Hint(f"{note}Compare it with another evaluation of the same tasks: ", compare, ".")
        compare = call("compare_agents", agents=[parent, result.evaluation_id])
        return Hint(
            f"{note}Compare it with the agent that it was made from, measured on the same tasks: ", compare, "."
        )
    if result.agent:
        return after_training(services, job.spec, result.agent)
    if isinstance(job.spec, ImportSpec) and result.report:
        return _after_import(job.spec, result)
    if result.trajectories:
        return _after_rollouts(job, result)
    return Hint("Done.")


def _known_tasks(services: Services, job: Job, agent_id: str) -> str:
    """Return a sentence if an agent has learned from tasks that a job played, else nothing."""
    from quintain.environments.references import reads_tasks

    by_prompt = reads_tasks(getattr(job.spec, "environment", None) or "")
    known, total = services.store.lineage.tasks_trained_on(agent_id, job.id, by_prompt=by_prompt)
    if not known:
        return ""
    return f"The agent has learned from {known:,} of these {total:,} tasks, so its success on those is not evidence about new ones. "


def preview_again(spec: PreviewSpec) -> ToolCall:
    """Return the call that answers with the rows of a preview job."""
    settings = spec.config.model_dump(mode="json", exclude_defaults=True, exclude={"method"})
    sample = spec.sample.model_dump(exclude_defaults=True)
    return call(
        "preview_dataset",
        dataset_id=spec.dataset_id,
        model=spec.agent.id_or_name,
        method=spec.config.method,
        hyperparameters=settings or None,
        **sample,
    )


def _after_rollouts(job: Job, result: JobResult) -> Hint:
    runs = result.trajectories.filter if result.trajectories else {}
    if live := result.report.get("scores"):
        export = call("export_dataset", kind="sft", name="good", scorer=live["scorer"], min_score=0.5, filter=runs)
        return Hint("Each run is scored; freeze the good ones with ", export, ".")
    score = call("score_trajectories", scorer="rules", filter=runs)
    if not result.success_rate:  # nothing that succeeded, or no verdict
        own = isinstance(job.spec, RolloutSpec) and result.n and job.spec.agent.model.source != "expert"
        play = call("collect_rollouts", agent="expert", environment=getattr(job.spec, "environment", None))
        shown = ("None succeeded. The environment's expert, where it has one, shows how: ", play, ". ") if own else ()
        return Hint(*shown, "Score the runs, which needs no success: ", score, ".")
    export = call("export_dataset", kind="sft", name="good", filter=runs)
    return Hint("Freeze the good ones with ", export, ", or score them by their steps: ", score, ".")


def _after_import(spec: ImportSpec, result: JobResult) -> Hint:
    from quintain.tools.jobs.after_import import after_import  # it loads the readers of logs

    runs = None if result.trajectories is None else result.trajectories.filter
    return after_import(ImportReport.model_validate(result.report), runs, dry_run=spec.dry_run)


def _after_evolution(job: Job, result: JobResult) -> Hint:
    """Name the result, and how to look at the proof."""
    final = result.report.get("final")
    evaluations = final.get("evaluations", []) if isinstance(final, dict) else []
    if not result.report.get("result_round") or len(evaluations) < 2:
        return Hint(
            f"No round was better than the start, and {result.agent} has its weights: `report` lists what each round selected. "
            "Explore more tasks or attempts, loosen `threshold`, or begin with sft on runs of a better agent."
        )
    return Hint(
        "The proof, on tasks that no round was chosen by: ",
        call("compare_agents", agents=list(evaluations), show=True),
        ". Success by round: ",
        call("plot_job", job_id=job.id),
        ". The runs that it learned from: ",
        call("get_lineage", id=result.agent),
        ".",
    )


def _after_scoring(spec: JobSpec, result: JobResult) -> Hint:
    """Return what to do with the results of a scoring job; the runs are those of the call that started it."""
    if isinstance(spec, ReplaySpec):
        return Hint(
            f"{result.report.get('reproduced', 0)} of {result.n} runs ended as recorded; `examples` shows where others "
            "diverged. ",
            call("export_dataset", kind="sft", name="verified", scorer="replay", min_score=1, filter=...),
            " exports those that were reproduced.",
        )
    retry = (
        "`failed` lists why some runs were not judged; the same request asks about these alone again. "
        if result.report.get("failed")
        else ""
    )
    if isinstance(spec, JudgeSpec | ScoreSpec) and spec.mode in {"pairwise", "group"}:
        export = call("export_dataset", kind="dpo", name="pairs", pairs="recorded", filter=...)
        return Hint(f"{retry}The preferences are stored: ", export, " makes pairs of them.")
    if isinstance(spec, InfluenceSpec):
        export = call("export_dataset", kind="sft", name="chosen", scorer="influence", min_score=0.5, filter=...)
        best = call("search_trajectories", sort="influence", filter=...)
        return Hint("The most helpful first: ", best, "; ", export, " leaves out those that would do harm.")
    if isinstance(spec, StepLabelSpec):
        labels = {"step_labels": "scores"}
        export = call("export_dataset", kind="prm", name="steps", scorer="montecarlo", curation=labels, filter=...)
        return Hint(f"{retry}The steps have values: ", export, ".")
    name = _stored_name(spec)
    return Hint(
        f"{retry}The scores are stored: ",
        call("export_dataset", kind="sft", name="good", scorer=name, min_score=0.5, filter=...),
        ", or read them with ",
        call("score_trajectories", scorer={name: 1}, filter=...),
        f", also in a mix. A calibration of {name!r} is applied wherever they are read.",
    )


def _stored_name(spec: JobSpec) -> str:
    """Return the name under which the scores of a job are read."""
    if isinstance(spec, JudgeSpec | ScoreSpec) and spec.rubric is not None:
        return f"judge:{spec.rubric.name}"
    if isinstance(spec, ScoreSpec):
        return spec.agent.id or f"agent:{spec.agent.name}"
    return spec.kind if isinstance(spec, ReplaySpec | InfluenceSpec) else "montecarlo"
