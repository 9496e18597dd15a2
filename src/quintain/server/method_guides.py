"""`guide://methods/{method}`: when to take a method, what it learns from, which settings matter, and all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADVICE = {
    "sft": """\
Take it first: it teaches the form of good runs (tool calls, order of steps) faster than any other method. Data: the successful
runs of this agent or of a better one, export_dataset(kind='sft'). Rather few good runs than many doubtful ones.
- `step_weighting: reward` learns more from the better steps of a run, where steps carry rewards.
- `chunk` keeps runs whole that are longer than the model's context; without it they are cut, and the report counts it.
- `curriculum`, `coreset` and `replay` order, choose and mix the data.""",
    "bc": """\
Take it where runs have graded rewards and you do not want to choose a bound when you export: `min_reward` keeps the good ones,
`temperature` weighs the better ones more. Data: export_dataset(kind='sft') with all outcomes. Every setting of sft works too.""",
    "pretrain": """\
Take it before sft, where the field has a language of its own. Data: plain text; every token but the first of a text is learnt.
It can blur what the model knew: keep it short, and mix with `sft` after it (a recipe does both in one job).""",
    "distill": """\
Take it where a better model with the same tokenizer is at hand. `teacher` is an agent, a model folder, or endpoint:NAME of a server that
scores token ids (vLLM's prompt_logprobs; its profile names the folder of its tokenizer). Other tokenizers are refused: use sft on its runs.
- On a dataset (export_dataset(kind='sft')) the student matches the teacher's `teacher_top_k` likeliest tokens at each place (forward
  KL, metric `forward_kl`); teacher null takes the log-probs that the runs recorded.
- Online (`environment`) the agent plays, and the teacher scores each of its tokens (reverse KL, metric `reverse_kl`): it learns from
  its own errors, and no reward is needed to compare runs. Begin with sft, so that its runs are ones that the teacher can judge.""",
    "dpo": """\
Take it after sft, where good and bad runs of the same task are at hand. Data: export_dataset(kind='dpo') mines the pairs.
- `beta` keeps the model near its start: 0.05 lets it go, 0.5 keeps it close.
- `step_level` masks what the two runs share before they part: cheaper. In `sigmoid` and `hinge` it cancels anyway;
  `ipo` and `sft_weight` change.
- `sft_weight` above 0 keeps the chosen runs likely, where both sides lose probability (watch chosen_reward).
- `loss: robust` with `label_smoothing` where labels are noisy; `apo_zero` where the chosen runs are better than the model's own.
- `ld_alpha` below 1 where longer runs win because they are longer; `policy_weighting` where others wrote the runs.
Online (`environment`): the agent plays each task `group_size` times, and each task's best run is preferred to its worst (`pairs:
all_pairs`: all of unequal reward). Every later pair is still compared with the model that the run began with.""",
    "orpo": """\
Take it instead of sft and dpo in two stages, where memory is short: it needs no reference model. Data: export_dataset(kind='dpo').
`beta` weighs the preference against the SFT loss on the chosen runs.""",
    "simpo": """\
Take it where the chosen runs are longer or shorter than the rejected ones: it compares mean log-probabilities and needs no
reference model. Data: export_dataset(kind='dpo'). `gamma` is the margin; a small learning rate matters more than elsewhere.""",
    "kto": """\
Take it where runs are good or bad and no task has both: no pairs are needed. Data: export_dataset(kind='kto').
Where one side is rarer, raise its weight until the weighted counts are within 1 to 4/3 of each other.""",
    "ranking": """\
Take it where a task has several runs with different rewards: all of their pairs are learnt at once, the shared beginning is
computed once. Data: export_dataset(kind='grpo'). Groups without any difference in reward teach nothing and are counted.""",
    "reward": """\
Take it where runs can be compared more easily than graded, and score new runs with what it learnt. Data: export_dataset(kind='reward')
mines pairs from outcomes, scores and recorded preferences; give a validation_share, so that the job reports how often the model is right.
- The result has role `reward_model`: use it as score_trajectories(scorer='agent:NAME'), or as `reward_model` of grpo. It cannot act.
- Only differences between runs of a task mean something; `centring` keeps them around 0, fit_calibration ties them to labels.
- With export_dataset(curation={"parts_of": "judge"}) the judge's criteria become heads, mixed by weights that the pairs teach.
- `margin_weight` above 0 asks for wider gaps where a pair's margin is known.
- Runs that do not fit `max_length` whole are left out and counted: a reward model judges the end.""",
    "prm": """\
Take it where single steps are to be judged. Data: export_dataset(kind='prm'): labels from people, a judge, recorded step rewards, the
outcome traced back, or Monte Carlo completions; null labels are not learnt from.
- The result has role `step_model`: its score of a run is the mean over the steps, and grpo takes it with `step_level` for credit by step.
- Labels with parts (relevance, correctness, progress) get a head each, beside `value`.
- Labels are shares in 0..1 and are met as such: a step that leads to success in 3 of 4 completions is worth 0.75.""",
    "retriever": """\
Take it where an agent has more tools than fit its prompt, and recorded runs show which tool answers which need. Data:
export_dataset(kind='sft') with runs whose `tools` have names and descriptions; give a validation_share.
- Each successful call is a pair: the latest message of the user, and the called tool. The other tools of a step's calls are
  negatives; `hard_negatives` adds tools that the same run offered and did not call. A larger `batch_size` has more negatives.
- The result has role `retriever`: `quintain/tools-1k?retriever=agent:NAME` searches with it, and export_agent writes a folder that
  sentence-transformers loads. It cannot act.
- `trunk: new` learns tokenizer and token embeddings from the calls alone, in seconds: take it where the start model is tiny. What the
  calls never mention it cannot find; for needs in wholly new words take a pretrained model that knows them.""",
    "grpo": """\
Online (`environment`): the agent plays each task `group_size` times, and what did better than its group becomes likelier. Take it
after sft, when the agent succeeds sometimes: where all runs of a group earn the same there is nothing to learn, and the report
counts it. Offline (`dataset_id`, export_dataset(kind='grpo')): the same on stored groups; recorded log-probabilities of the agent
that wrote them make it exact.
- `rollouts` x `updates_per_rollout` is the length of an online run; `epochs` does not count there.
- `kl_coefficient` above 0, or `kl_stop`, keeps the model near its start.
- `constraint` bounds the mean cost of a run, online; see ppo.
- `reward_model` adds a trained reward model: alpha x task + beta x value of the run; with a step model and `step_level` each step
  gets its own credit. If `reward_task` falls while `reward_model` rises, the policy fools the model; `refresh_every_steps` refits it.
- `loss: dapo` weighs tokens alike, `dr_grpo` takes out both known biases.
- `mask_truncated` where runs are cut off by a limit; `overlong_tokens` where they grow without earning more.
- `importance_cap` (2 to 5) for stored groups that another program or an older model sampled.""",
    "ppo": """\
As grpo, where runs are long or a task is played once: a value head on the model learns what return to expect before each turn, so
that each turn is credited by what it changed, and runs of one task need no comparison. Take it after sft, when the agent succeeds
sometimes. It learns in an `environment` only.
- `rollouts` x `updates_per_rollout` is its length. The first `critic_warmup_steps` train the value head alone: raise it where
  `explained_variance` is still below 0 when the policy starts to move.
- `action_level: token` values every token, `turn` every turn; text of the environment neither discounts nor counts as an action.
- `kl_coefficient` is part of the reward; `kl_target` adapts it so that `kl_sampled` stays near it.
- `critic: separate` keeps the values out of the policy's layers, for twice the memory.
- `constraint` bounds the mean cost of a run (forbidden calls, or any declared scorer) by a learned multiplier; watch `mean_cost`.
- `advantage: rloo` (with `group_size` 4 or more) and `reinforce_pp` need no value head: cheaper, and noisier.
- The result keeps its value head, and the next PPO of it goes on from there; every other method leaves it out.""",
    "evolve": """\
Take it where an agent succeeds sometimes and nobody has better runs: it makes its own data. Each round explores tasks of the split
train, selects runs, trains on them, and is measured on held-out tasks; the best agent of all rounds is the result, and is compared
with the start on other held-out tasks, because the best of several rounds on one suite looks better than it is.
- `tasks_per_iteration` x `attempts` is what a round explores; a higher `temperature` tries more different things.
- `select`: top_k for few, good runs; threshold for all good ones; rejection where rewards are graded.
- `train`: sft or bc repeat good runs; dpo and grpo need 2 or more attempts and runs of a task that differ. `training` contains the settings
  of that method.
- `start_from: base` trains anew on all that was selected so far (AgentEvol); best goes on from the best agent.
- `patience` ends it when rounds bring no sure gain. With few `evaluation_tasks` no gain is sure.
- `reflect` lets an agent that can write about its own runs try failed tasks again; `curriculum` goes from easy to hard environments.
- The result's `report` has a line for each round; a round that selected nothing is listed with its reasons.""",
}
"""Method -> when to take it and what to look at."""


def method_page(about: Mapping[str, Any]) -> str:
    """The guide of a method.

    Args:
        about: As `tools.methods.describe_method` gives it.
    """
    method, kind = about["method"], about["dataset_kind"]
    source = f"a dataset of kind `{kind}`" + (", or an `environment`" if about["online"] else "")
    source = source if kind else "what it explores in an `environment`; it takes no dataset"
    lines = [f"# Method `{method}`", "", about["summary"], "", f"Learns from {source}.", "", ADVICE[method], ""]
    lines += ["Settings, passed as `hyperparameters`; those with a dot stand in an object (`lora: {rank: 8}`):", ""]
    lines += [f"- `{name}` ({line.replace(': ', '): ', 1)}" for name, line in about["hyperparameters"].items()]
    lines += [
        "",
        "Names that other trainers use for these (num_train_epochs, lora_r, max_grad_norm, ...) are understood.",
    ]
    return "\n".join(lines)
