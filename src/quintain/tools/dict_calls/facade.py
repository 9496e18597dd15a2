"""`RLTrainingTool`: the same tools as dict calls, for Python programs.

    from quintain.tools import RLTrainingTool
    RLTrainingTool().run({"action": "train", "algorithm": "sft", "dataset": "good-runs", "num_epochs": 3})

Answers are JSON strings. `train` and `evaluate` wait and answer with the finished result unless `"wait": false`.
Nothing is printed and nothing is raised: errors come back as `{"status": "error", "code", "message"}`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput, QuintainError
from quintain.records.dataset import DatasetKind
from quintain.records.documents import read_document
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import UNFINISHED, JobStatus, TrainSpec
from quintain.records.record import Record
from quintain.records.wording import shown
from quintain.scoring.custom import RewardFunction
from quintain.scoring.registry import register, register_by_name
from quintain.settings import read_settings
from quintain.tools.catalog import CATALOG, Picture, ToolSpec
from quintain.tools.data.dataset_folders import freeze_ready_made, new_options
from quintain.tools.dict_calls.actions import count_of, create_reward, default_rows, file_of_rows, load_rows
from quintain.tools.evaluation.suites import default_suite
from quintain.tools.invocation import arguments_model, call, check, refuse_unknown
from quintain.tools.results import JobStarted, JobView
from quintain.tools.services import Services, open_services
from quintain.tools.training.config_files import start_config, stated_folder
from quintain.tools.training.methods import EVOLVE, canonical_settings, check_settings, merge_settings, require_method
from quintain.tools.training.requests import Request, Source, acting_on_questions
from quintain.tools.training.start import copy_model, output_folder, train
from quintain.tools.web_address import page_url

logger = logging.getLogger(__name__)

_TOOLS = {spec.name: spec for spec in CATALOG}
_SHORT = {spec.short: spec.name for spec in CATALOG if spec.short}
_SHARED = ("environment", "reward", "name", "seed", "hyperparameters", "request_key")
"""Arguments of `start_training` under their own names."""
_REPORTED = ("use_wandb", "use_tensorboard", "wandb_project")
_TRAIN = (
    *("algorithm", "model_name", "dataset", "max_samples", "num_epochs", "output_dir", "use_lora", "batch_size"),
    *("learning_rate", "config", "wait"),
    *_REPORTED,
)
_EVOLVE = ("model_name", "output_dir", "wait")
_EVALUATE = ("model_path", "max_samples", "wait")
"""Arguments of the actions beside those of the tool."""


class RLTrainingTool:
    """Quintain's tools as dict calls on one home folder."""

    def __init__(self, home: str | Path | None = None) -> None:
        self._settings = read_settings(Path(home) if home is not None else None)
        self._services: Services | None = None
        self._actions = {
            "train": self._train,
            "evolve": self._evolve,
            "evaluate": self._evaluate,
            "load_dataset": lambda parameters: load_rows(self._open(), parameters),
            "create_reward": create_reward,
            "wait": self._wait,
        }

    def run(self, parameters: Mapping[str, Any]) -> str:
        """Carry out `parameters["action"]` (default `train`) and answer in JSON.

        Every tool is an action, by its full name or its short one in the catalog; besides train, evolve, evaluate, load_dataset,
        create_reward and wait.
        """
        try:
            if not isinstance(parameters, Mapping):
                raise InvalidInput(f"parameters must be an object with `action`, not {type(parameters).__name__}")
            answer = self._dispatch(dict(parameters))
            if (url := page_url(self._settings.home, answer)) is not None:
                answer["ui_url"] = url
        except QuintainError as error:
            answer = {"status": "error", "code": error.code, "message": error.message}
        except Exception as error:
            logger.exception("Action failed")
            answer = {"status": "error", "code": "internal", "message": f"{type(error).__name__}: {error}"}
        return json.dumps(answer, ensure_ascii=False, allow_nan=False)

    def register_dataset(self, name: str, runs: Iterable[Mapping[str, Any]], kind: DatasetKind = "sft") -> str:
        """Record runs and freeze them as the dataset `name`.

        Args:
            name: Name of the dataset.
            runs: Canonical trajectories, or `{"messages", "task", "outcome"}`. For kind `dpo` pairs
                `{"chosen": run, "rejected": run}` will do as well, for kind `grpo` groups
                `{"runs": [run, ...], "rewards": [number, ...]}`; out of single runs they are mined by outcome.
            kind: As in `export_dataset`.

        Returns:
            The id of the dataset.

        Raises:
            InvalidInput: a run is malformed, or none is left to train on; nothing is frozen.
        """
        services, listed = self._open(), list(runs)
        if any(isinstance(run, Mapping) and run.keys() & {"chosen", "runs"} for run in listed):
            return freeze_ready_made(services, new_options(services, name, kind), listed, self._recorded).dataset.id
        arguments = {"kind": kind, "name": name, "trajectory_ids": [self._recorded(run) for run in listed]}
        kept = {"outcomes": ["success", "unknown"]} if kind == "sft" else {}
        return str(call(services, _TOOLS["export_dataset"], arguments | kept).dataset_id)

    def _recorded(self, run: Any) -> str:
        if not isinstance(run, Mapping):
            raise InvalidInput(
                f"a run is {run!r:.60}; each must be a trajectory or an object with `messages` and `task`"
            )
        arguments = dict(run) if "messages" in run or "trajectory" in run else {"trajectory": dict(run)}
        return str(call(self._open(), _TOOLS["record_trajectory"], arguments).trajectory_id)

    def register_reward_function(self, name: str, function: RewardFunction) -> None:
        """Make a function from a trajectory to a score in 0..1 (None: cannot be scored) usable as `scorer` here.

        It can be part of a `reward` of a job if it is at the top level of a module: the job imports it from the module's folder.

        Raises:
            InvalidInput: the name or the function is not valid.
            Conflict: a built-in scorer has the name.
        """
        register(name, function)

    def close(self) -> None:
        """Close the database; jobs go on."""
        if self._services is not None:
            self._services.close()
            self._services = None

    def _open(self) -> Services:
        if self._services is None:
            self._services = open_services(self._settings, trusted=True)
        return self._services

    def _dispatch(self, parameters: dict[str, Any]) -> dict[str, Any]:
        action = parameters.pop("action", "train")
        if not isinstance(action, str):
            raise InvalidInput(
                f"expected action to be the name of an action, got {shown(action)}", code="unknown_action"
            )
        if callable(function := parameters.get("reward")):
            parameters["reward"] = register_by_name(function)
        if action in self._actions:
            return self._actions[action](parameters)
        spec = _TOOLS.get(_SHORT.get(action, action))
        if spec is None:
            known = sorted({*self._actions, *_SHORT, *_TOOLS})
            raise InvalidInput(f"action {shown(action)} is not known; valid: {', '.join(known)}", code="unknown_action")
        spec = spec.for_operator
        if spec.picture:
            return self._plot(spec, parameters)
        wait = parameters.pop("wait", False)
        result = call(self._open(), spec, parameters)
        job_id = getattr(result, "job_id", None)
        if wait and job_id is not None and spec.idempotent:  # what was done within the call is the answer itself
            view = self._finish(job_id)
            if not spec.watch:
                return {**view.model_dump(mode="json"), **_finished(view)}
            result = call(self._open(), spec, parameters)
        return _answer(result)

    def _train(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if str(parameters.get("algorithm")).lower() == EVOLVE:
            return self._evolve({name: value for name, value in parameters.items() if name != "algorithm"})
        method = str(parameters.get("algorithm", "sft")).lower()
        parameters = _with_settings(method, _with_objects(parameters))
        refuse_unknown("train", parameters, dict.fromkeys(sorted({*_TRAIN, *_SHARED})))
        if "config" in parameters:
            return self._train_from_file(parameters)
        if "dataset" not in parameters and ("environment" not in parameters or "max_samples" in parameters):
            parameters["dataset"] = default_rows(self._open())
        elif isinstance(parameters.get("dataset"), list):
            parameters["dataset"] = file_of_rows(self._open(), parameters["dataset"])
        model = parameters.get("model_name", "starter")
        call: dict[str, Any] = {"method": require_method(method), "model": model}
        call |= {key: parameters[key] for key in _SHARED if key in parameters}
        if "dataset" in parameters:
            call["dataset_id"] = parameters["dataset"]
        arguments = check(_TOOLS["start_training"], call)
        reported = {name: parameters.get(name) for name in _REPORTED}
        settings = canonical_settings(method, reported | (arguments.get("hyperparameters") or {}))
        most = count_of("max_samples", parameters.get("max_samples"))
        source = Source(arguments.get("dataset_id"), arguments.get("environment"), max_samples=most)
        acts = acting_on_questions(self._open(), method, CONFIGS[method](), source)[1].environment is not None
        config = check_settings(method, merge_settings(_train_defaults(parameters, acts=acts), settings))
        request = Request(**{key: arguments[key] for key in Request.model_fields if key in arguments})
        with output_folder(parameters.get("output_dir")) as target:
            started = train(self._open(), method, config, request, source)
        about = {"algorithm": method.upper(), "model": model, "num_epochs": config.epochs}
        spec = self._open().store.jobs.get(started.job_id).spec
        assert isinstance(spec, TrainSpec)
        if spec.dataset_id is not None:
            about["dataset_size"] = self._open().store.datasets.get(spec.dataset_id).rows
        return self._trained(started, about, target, wait=parameters.get("wait", True))

    def _evolve(self, parameters: dict[str, Any]) -> dict[str, Any]:
        refuse_unknown(EVOLVE, parameters, dict.fromkeys(sorted({*_EVOLVE, *_SHARED})))
        arguments = {
            "method": EVOLVE,
            "model": parameters.get("model_name", "starter"),
            **{name: value for name, value in parameters.items() if name not in _EVOLVE},
        }
        spec = _TOOLS["start_training"]
        checked = check(spec, arguments)
        with output_folder(parameters.get("output_dir")) as target:
            started = spec.function(self._open(), **checked)
        about = {"algorithm": EVOLVE.upper(), "model": arguments["model"]}
        return self._trained(started, about, target, wait=parameters.get("wait", True))

    def _train_from_file(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Train by a config file; only the destination and waiting are arguments."""
        refuse_unknown("train with `config`", parameters, dict.fromkeys(("config", "output_dir", "wait")))
        try:
            path = Path(str(parameters["config"])).expanduser()
        except RuntimeError:
            raise InvalidInput(f"config is {shown(parameters['config'])}, of a user without a home folder") from None
        document = read_document(path)
        with output_folder(parameters.get("output_dir", stated_folder(document))) as target:
            started = start_config(self._open(), document, folder=path.absolute().parent)
        return self._trained(started, {"config": str(path)}, target, wait=parameters.get("wait", True))

    def _trained(
        self, started: JobStarted, about: Mapping[str, Any], target: Path | None, *, wait: bool
    ) -> dict[str, Any]:
        """The job as it is, or what came of it with the agent's folder."""
        if not wait:
            return {**about, **started.model_dump(mode="json")}
        view = self._finish(started.job_id)
        answer = {**about, **_finished(view)}
        if view.result is not None and view.result.agent:
            if view.kind == EVOLVE:
                answer["report"] = view.result.report
            agent = self._open().store.agents.get(view.result.agent)
            answer["agent"] = agent.id
            answer["output_dir"] = copy_model(agent.model.own_path, target)
        return answer

    def _evaluate(self, parameters: dict[str, Any]) -> dict[str, Any]:
        spec = _TOOLS["evaluate_agent"]
        refuse_unknown("evaluate", parameters, dict.fromkeys(sorted({*_EVALUATE, *arguments_model(spec).model_fields})))
        agent = parameters.pop("agent", None) or parameters.pop("model_path", None)
        if agent is None:
            raise InvalidInput(
                "evaluate needs `agent` (or `model_path`): an agent id or name, 'starter', or a model folder"
            )
        wait = parameters.pop("wait", True)
        parameters.pop("model_path", None)
        samples = parameters.pop("max_samples", None)
        arguments = {
            **({} if parameters.keys() & {"dataset_id", "environment"} else default_suite(self._open(), agent)),
            **({"n_tasks": samples} if samples is not None else {}),
            **parameters,
            "agent": agent,
        }
        started = call(self._open(), spec, arguments)
        if not wait:
            return dict(started.model_dump(mode="json"))
        view = self._finish(started.job_id)
        answer = {"model_path": agent, **_finished(view)}
        if view.result is not None and view.result.evaluation_id:
            evaluation = self._open().store.evaluations.get(view.result.evaluation_id)
            answer |= {
                "evaluation_id": evaluation.id,
                "environment": evaluation.environment,
                "num_samples": evaluation.rate.n,
                "accuracy": evaluation.rate.value,
                "ci_low": evaluation.rate.ci_low,
                "ci_high": evaluation.rate.ci_high,
                "average_reward": evaluation.mean_reward,
            }
        return answer

    def _wait(self, parameters: dict[str, Any]) -> dict[str, Any]:
        refuse_unknown("wait", parameters, dict.fromkeys(("job_id", "timeout_s")))
        if "job_id" not in parameters:
            raise InvalidInput("wait needs `job_id`; the action jobs lists them")
        view = self._finish(parameters["job_id"], parameters.get("timeout_s"))
        return view.model_dump(mode="json")

    def _plot(self, spec: ToolSpec, parameters: dict[str, Any]) -> dict[str, Any]:
        path = parameters.pop("path", None)
        picture: Picture = call(self._open(), spec, parameters)
        if path is not None and picture.png is not None:
            Path(path).write_bytes(picture.png)
        return {"status": "success", "text": picture.text, "path": path}

    def _finish(self, job_id: str, timeout_s: float | None = None) -> JobView:
        """Wait until the job has ended, or for `timeout_s` seconds."""
        end = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        while True:
            left = max(0.0, min(50.0, end - time.monotonic()))
            view: JobView = call(self._open(), _TOOLS["get_job"], {"job_id": job_id, "wait_s": left})
            if view.status not in UNFINISHED or time.monotonic() >= end:
                return view


def _answer(result: Record) -> dict[str, Any]:
    """Return a result with its `status`: `success` where it is finished, the status of the job where there is one."""
    answer = result.model_dump(mode="json")
    state = answer.pop("status", None)
    if state is None or (state == JobStatus.SUCCEEDED and not isinstance(result, JobView)):
        return {"status": "success", **answer}
    return {"status": state, **answer}


def _with_objects(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with HelloAgents' `custom_dataset` as rows, and its `custom_reward` as the name of a registered function."""
    result = {name: value for name, value in parameters.items() if name not in ("custom_dataset", "custom_reward")}
    if (rows := parameters.get("custom_dataset")) is not None:
        result["dataset"] = list(rows)
    if (function := parameters.get("custom_reward")) is not None:
        result["reward"] = register_by_name(function) if callable(function) else function
    return result


def _with_settings(method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with the settings of the method among them, under anybody's names, in `hyperparameters`."""
    model = CONFIGS.get(method)
    inner = parameters.get("hyperparameters") or {}
    if model is None or "config" in parameters or not isinstance(inner, Mapping):
        return dict(parameters)

    def is_setting(name: str) -> bool:
        try:
            return canonical_settings(method, {name: parameters[name]}).keys() <= model.model_fields.keys()
        except InvalidInput:  # another trainer's setting, refused with the field that means it
            return True

    settings = {name: parameters[name] for name in parameters if name not in {*_TRAIN, *_SHARED} and is_setting(name)}
    rest = {name: value for name, value in parameters.items() if name not in settings}
    if "gradient_accumulation_steps" in settings and "batch_size" in parameters:  # which it multiplies
        settings["batch_size"] = parameters["batch_size"]
    return {**rest, "hyperparameters": {**settings, **inner}} if settings else rest


def _train_defaults(parameters: Mapping[str, Any], *, acts: bool) -> dict[str, Any]:
    """The settings that `train` takes without `hyperparameters`, which go before them. Who acts has no batches of rows."""
    settings: dict[str, Any] = {"epochs": parameters.get("num_epochs", 3), **({} if acts else {"batch_size": 4})}
    settings |= {name: parameters[name] for name in ("batch_size", "learning_rate") if name in parameters}
    return {**settings, "lora": {} if parameters.get("use_lora", True) else None}


def _finished(view: JobView) -> dict[str, Any]:
    """The end of a job in the facade's words: `success` with its result, or `error` with its reason."""
    common: dict[str, Any] = {"job_id": view.job_id, "job_status": view.status}
    if view.warnings:
        common["warnings"] = [str(warning) for warning in view.warnings]
    if view.status != "succeeded" or view.result is None:
        error = view.error
        message = f"{error.message} {error.hint}".strip() if error else f"the job is {view.status}; {view.next_step}"
        return {"status": "error", "code": error.code if error else view.status, "message": message, **common}
    return {
        "status": "success",
        **common,
        "final_loss": view.result.final_loss,
        "success_rate": view.result.success_rate,
    }
