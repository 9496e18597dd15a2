"""What TRL's own loss code gives on small fixed arrays, written down for the parity tests.

Run as `python -m benchmarks.trainers.loss_values` where TRL 1.16 is installed; writes tests/trainers/trl_values.json. The tests
need the file, not TRL. Each value comes from a method of TRL's trainer, called on a stand-in that holds what the method
reads, with a stand-in model whose log-probs are the arrays; no formula is written down here a second time.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import trl.experimental.cpo.cpo_trainer as cpo
import trl.experimental.orpo.orpo_trainer as orpo
from trl.trainer import dpo_trainer, grpo_trainer, kto_trainer

OUTPUT = Path(__file__).parents[2] / "tests" / "trainers" / "trl_values.json"
LENGTHS = (4, 6, 7, 3, 5, 5)
"""Supervised tokens of the six runs; runs 0, 2, 4 are chosen or desirable, 1, 3, 5 rejected or undesirable."""
ADVANTAGES = (1.2, -0.7, 0.4, -1.5, 0.9, -0.2)
MISMATCHED = (5, 4, 3)
"""Supervised tokens of the mismatched runs of KTO's KL estimate."""
Rows = list[list[float]]
Case = dict[str, Any]


def main() -> None:
    """Compute all values and write the file."""
    torch.manual_seed(20)
    policy = drawn(LENGTHS, 2.0)
    reference, old = near(policy, 0.6), near(policy, 0.35)
    mismatched = drawn(MISMATCHED, 2.0)
    mismatched_reference = near(mismatched, 0.5, shift=-0.1)
    inputs = {
        "policy": policy,
        "reference": reference,
        "old": old,
        "advantages": list(ADVANTAGES),
        "mismatched": mismatched,
        "mismatched_reference": mismatched_reference,
    }
    inputs["collision"] = collision = drawn(LENGTHS, 1.5)
    inputs["importance"] = importance = [[round(-x, 6) for x in row] for row in drawn(LENGTHS, 1.8)]
    values = {
        "dpo": dpo_cases(policy, reference, collision),
        "kto": kto_cases(policy, reference, mismatched, mismatched_reference),
        "orpo": orpo_cases(policy),
        "simpo": simpo_cases(policy),
        "grpo": grpo_cases(policy, reference, old, importance),
    }
    versions = {name: version(name) for name in ("trl", "torch", "transformers")}
    OUTPUT.write_text(readable({"versions": versions, "inputs": inputs, "values": values}) + "\n", "utf-8")
    print(json.dumps({"written": OUTPUT.name, **{name: len(cases) for name, cases in values.items()}}))


def readable(content: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each array and each case."""

    def block(value: Any) -> str:
        if not isinstance(value, list) or not isinstance(value[0], (list, dict)):
            return json.dumps(value)
        return "[\n" + ",\n".join("   " + json.dumps(entry) for entry in value) + "\n  ]"

    parts = (
        f' "{part}": {{\n' + ",\n".join(f'  "{name}": {block(value)}' for name, value in entries.items()) + "\n }"
        for part, entries in content.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}"


def drawn(lengths: Sequence[int], scale: float) -> Rows:
    return [[round(-scale * float(x) - 0.05, 6) for x in torch.rand(n)] for n in lengths]


def near(rows: Rows, spread: float, shift: float = 0.0) -> Rows:
    """The rows moved by up to `spread` nats a token, kept below 0."""
    return [[round(min(-0.01, x + shift + spread * (2 * float(torch.rand(())) - 1)), 6) for x in row] for row in rows]


def padded(rows: Rows) -> torch.Tensor:
    """float64 [runs, longest], 0 behind the end."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(r, dtype=torch.float64) for r in rows], batch_first=True)


def mask_of(rows: Rows) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.ones(len(r), dtype=torch.long) for r in rows], batch_first=True)


def case(options: Case, rows: Rows, loss_of: Callable[..., torch.Tensor], *more: Any, **settings: Any) -> Case:
    """The loss of the rows' log-probs and its gradient, beside the options that gave it. The rest goes to `loss_of`."""
    logprobs = padded(rows).requires_grad_()
    loss = loss_of(logprobs, *more, **settings)
    (gradient,) = torch.autograd.grad(loss, logprobs)
    kept = [[float(f"{g:.10g}") for g in line[: len(row)].tolist()] for line, row in zip(gradient, rows, strict=True)]
    return {"options": options, "loss": float(loss.detach()), "gradient": kept}


def model_of(*outputs: torch.Tensor, collision: torch.Tensor | None = None) -> Callable[..., Any]:
    """A model that answers its calls with these log-probs, one after the other."""
    remaining = list(outputs)

    def forward(**_: Any) -> Any:
        logprobs = remaining.pop(0)
        zeros = torch.zeros_like(logprobs).detach()
        figures = {"entropy": zeros, "mean_logits": zeros, "is_top1": zeros.bool(), "log_sum_sq_probs": collision}
        return SimpleNamespace(log_probs=logprobs, **figures)

    return forward


class Accelerator(SimpleNamespace):
    """One process: gathering is doing nothing."""

    device = torch.device("cpu")
    num_processes = 1
    sync_gradients = True

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def gather_for_metrics(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def reduce(self, x: torch.Tensor, reduction: str) -> torch.Tensor:
        return x

    def unwrap_model(self, model: Any) -> Any:
        return model


def stand_in(**attributes: Any) -> Any:
    """What TRL's loss methods read of their trainer."""
    return SimpleNamespace(
        accelerator=Accelerator(),
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False),
        aux_loss_enabled=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **attributes,
    )


def prompted(rows: Rows) -> dict[str, torch.Tensor]:
    """Token ids and masks of rows behind a prompt of one token."""
    mask = torch.nn.functional.pad(mask_of(rows), (1, 0))
    attention = mask.clone()
    attention[:, 0] = 1
    return {"input_ids": torch.zeros_like(mask), "attention_mask": attention, "completion_mask": mask}


def dpo_cases(policy: Rows, reference: Rows, collision: Rows) -> list[Case]:
    def loss_of(logprobs: torch.Tensor, pairs: Sequence[int], name: str, options: Case) -> torch.Tensor:
        """TRL's loss of some of the pairs; it wants all chosen runs first."""
        rows = [2 * i for i in pairs] + [2 * i + 1 for i in pairs]
        trainer = stand_in(
            beta=options["beta"],
            label_smoothing=options.get("label_smoothing", 0.0),
            loss_types=[name],
            loss_weights=[1.0],
            ld_alpha=options.get("ld_alpha"),
            precompute_ref_logps=True,
            f_divergence_type="reverse_kl",
            use_weighting=options.get("policy_weighting", False),
            args=SimpleNamespace(discopop_tau=options.get("discopop_tau", 0.05)),
        )
        scored = torch.zeros(len(policy)) if options.get("reference_free") else reference_sums(options)
        chosen, rejected = scored[rows].chunk(2)
        inputs = {name: x[rows] for name, x in prompted(policy).items()}
        inputs |= {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
        model = model_of(logprobs[rows], collision=padded(collision)[rows])
        return dpo_trainer.DPOTrainer._compute_loss(trainer, model, inputs, False)

    def reference_sums(options: Case) -> torch.Tensor:
        """The reference's log-probs as `compute_ref_log_probs` of TRL sums them."""
        trainer = stand_in(ld_alpha=options.get("ld_alpha"))
        trainer.accelerator.autocast = nullcontext
        trainer.ref_model = trainer.model
        trainer.args = SimpleNamespace(gradient_checkpointing_kwargs=None)
        order = [0, 2, 4, 1, 3, 5]
        inputs = {name: x[order] for name, x in prompted(policy).items()}
        model = model_of(padded(reference)[order])
        sums = torch.cat(dpo_trainer.DPOTrainer.compute_ref_log_probs(trainer, model, inputs))
        return sums[torch.tensor(order).argsort()]

    def together(options: Case) -> Case:
        renamed: dict[str, str] = {"exo": "exo_pair", "nca": "nca_pair", "bco": "bco_pair", "sppo": "sppo_hard"}
        name = renamed.get(options["loss"], options["loss"])
        return case(options, policy, loss_of, range(3), name, options)

    def one_by_one(options: Case, terms: Sequence[tuple[float, str]]) -> Case:
        """The mean over pairs of a weighted sum of TRL's losses, one pair a call."""
        calls = [(weight, name, i) for weight, name in terms for i in range(3)]

        def mean(logprobs: torch.Tensor) -> torch.Tensor:
            return torch.stack([w * loss_of(logprobs, [i], name, options) for w, name, i in calls]).sum() / 3

        return case(options, policy, mean)

    plain: Case = {"loss": "sigmoid", "beta": 0.7}
    return [
        *(
            together({"loss": name, "beta": beta})
            for name in ("sigmoid", "hinge", "ipo", "sigmoid_norm")
            for beta in (0.1, 0.7)
        ),
        together(plain | {"reference_free": True}),
        *(together(plain | {"loss": name}) for name in ("nca", "bco", "sppo", "apo_zero", "apo_down", "discopop")),
        together(plain | {"loss": "discopop", "discopop_tau": 0.8}),
        together(plain | {"loss": "robust", "label_smoothing": 0.1}),
        together(plain | {"loss": "exo", "label_smoothing": 0.001}),
        *(together(plain | {"loss": name, "ld_alpha": 0.3}) for name in ("sigmoid", "ipo")),
        *(together(plain | {"loss": name, "policy_weighting": True}) for name in ("sigmoid", "apo_zero")),
        # TRL's DPO has no conservative label smoothing but in "aot", which is it where a batch holds one pair.
        one_by_one(plain | {"label_smoothing": 0.2}, [(1.0, "aot")]),
        # TRL's "sft" is a mean over the tokens of its batch, ours over those of each run.
        one_by_one(plain | {"sft_weight": 0.3}, [(1.0, "sigmoid"), (0.3, "sft")]),
    ]


def kto_cases(policy: Rows, reference: Rows, mismatched: Rows, mismatched_reference: Rows) -> list[Case]:
    labels = torch.tensor([True, False] * 3)

    def loss_of(logprobs: torch.Tensor, kl_sign: int, **attributes: Any) -> torch.Tensor:
        trainer = stand_in(loss_type="kto", calculate_KL=True, precompute_ref_logps=True, **attributes)
        trainer._compute_kl_logps = lambda model, batch: kto_trainer.KTOTrainer._compute_kl_logps(trainer, model, batch)
        scored = [padded(mismatched), padded(mismatched_reference)][::kl_sign]
        inputs = {"label": labels, "ref_logps": padded(reference).sum(1), "ref_KL_logps": scored[1].sum(1)}
        inputs |= prompted(policy) | {f"KL_{name}": x for name, x in prompted(mismatched).items()}
        loss = kto_trainer.KTOTrainer._compute_loss(trainer, model_of(scored[0], logprobs), inputs, False)
        seen["kl"] = trainer._metrics["train"]["kl"][0]
        return loss

    cases: list[Case] = []
    seen: dict[str, float] = {}
    for weights in ((1.0, 1.0), (1.3, 0.8)):
        for kl_sign in (1, -1):
            options = {"beta": 0.4, "desirable_weight": weights[0], "undesirable_weight": weights[1]}
            found = case(options, policy, loss_of, kl_sign, **options)
            cases.append(found | {"kl": seen["kl"], "swapped": kl_sign < 0})
    return cases


def logits_of(logprobs: torch.Tensor) -> torch.Tensor:
    """Logits over two tokens at which token 0 has these log-probs, shifted as a model gives them."""
    pair = torch.stack([logprobs, torch.log(-torch.expm1(logprobs.clamp(max=-1e-9)))], -1)
    return torch.cat([pair, torch.zeros_like(pair[:, :1])], 1)


def two_sided(logprobs: torch.Tensor, rows: Rows, chosen: int) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """A model and a batch of one pair, as ORPOTrainer wants them."""
    batch: dict[str, torch.Tensor] = {}
    for side, i in (("chosen", chosen), ("rejected", chosen + 1)):
        one = prompted([rows[i]])
        labels = one["input_ids"].masked_fill(one["completion_mask"] == 0, -100)
        batch |= {f"{side}_input_ids": one["input_ids"], f"{side}_attention_mask": one["attention_mask"]}
        batch[f"{side}_labels"] = labels
    longest = max(len(rows[chosen]), len(rows[chosen + 1]))
    logits = logits_of(logprobs[chosen : chosen + 2, :longest])
    return lambda *_, **__: SimpleNamespace(logits=logits), batch


def orpo_cases(policy: Rows) -> list[Case]:
    def loss_of(logprobs: torch.Tensor, beta: float) -> torch.Tensor:
        """One pair a call: TRL's NLL is a mean over the tokens of its batch, the paper's over those of each run."""
        trainer = stand_in(beta=beta, is_encoder_decoder=False, padding_value=0)
        trainer.concatenated_inputs = orpo.ORPOTrainer.concatenated_inputs
        trainer.get_batch_logps = orpo.ORPOTrainer.get_batch_logps
        trainer.concatenated_forward = lambda m, b: orpo.ORPOTrainer.concatenated_forward(trainer, m, b)
        trainer.odds_ratio_loss = lambda c, r: orpo.ORPOTrainer.odds_ratio_loss(trainer, c, r)
        pairs = [two_sided(logprobs, policy, i) for i in (0, 2, 4)]
        return sum(orpo.ORPOTrainer.get_batch_loss_metrics(trainer, m, b)[0] for m, b in pairs) / 3

    return [case({"beta": beta}, policy, loss_of, beta) for beta in (0.1, 1.0)]


def simpo_cases(policy: Rows) -> list[Case]:
    labels = prompted(policy)["completion_mask"]
    labels = torch.zeros_like(labels).masked_fill(labels == 0, -100)

    def loss_of(logprobs: torch.Tensor, beta: float, gamma: float) -> torch.Tensor:
        trainer = stand_in(beta=beta, simpo_gamma=gamma, loss_type="simpo", label_smoothing=0.0, alpha=0.0)
        means = cpo.CPOTrainer.get_batch_logps(logits_of(logprobs), labels, average_log_prob=True)
        return cpo.CPOTrainer.cpo_loss(trainer, means[0::2], means[1::2])[0].mean()

    options = ({"beta": 2.0, "gamma": 1.0}, {"beta": 2.5, "gamma": 0.0}, {"beta": 0.5, "gamma": 1.4})
    return [case(dict(o), policy, loss_of, **o) for o in options]


def grpo_cases(policy: Rows, reference: Rows, old: Rows, importance: Rows) -> list[Case]:
    mask, zeros = mask_of(policy), torch.zeros(len(policy), 1, dtype=torch.long)

    def loss_of(
        logprobs: torch.Tensor,
        name: str,
        kl_coefficient: float,
        on_policy: bool,
        delta: float | None = None,
        is_corrected: bool = False,
    ) -> torch.Tensor:
        trainer = stand_in(
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            importance_sampling_level="sequence" if name in ("gspo", "luspo") else "token",
            beta=kl_coefficient,
            loss_type="grpo" if name == "gspo" else name,
            epsilon_low=0.2,
            epsilon_high=1.25
            if name == "cispo"
            else 0.25,  # TRL's cispo takes the bound itself, not its distance from 1
            use_vllm=is_corrected,
            vllm_importance_sampling_correction=is_corrected,
            _entropy_bonus_enabled=False,
            current_gradient_accumulation_steps=1,
            max_completion_length=11,
            args=SimpleNamespace(
                use_bias_correction_kl=False,
                delta=delta,
                steps_per_generation=1,
                sapo_temperature_pos=1.0,
                sapo_temperature_neg=1.05,
                vespo_k_pos=2.0,
                vespo_lambda_pos=3.0,
                vespo_k_neg=3.0,
                vespo_lambda_neg=2.0,
            ),
        )
        trainer.get_gamma_weights = grpo_trainer.GRPOTrainer.get_gamma_weights
        trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None)
        inputs = {
            "prompt_ids": zeros,
            "prompt_mask": zeros + 1,
            "completion_ids": torch.zeros_like(mask),
            "completion_mask": mask,
            "advantages": torch.tensor(ADVANTAGES, dtype=torch.float64),
            "num_items_in_batch": mask.sum(),
            "ref_per_token_logps": padded(reference),
            **({} if on_policy else {"old_per_token_logps": padded(old)}),
            **({"importance_sampling_ratio": padded(importance)} if is_corrected else {}),
        }
        return grpo_trainer.GRPOTrainer._compute_loss(trainer, None, inputs)

    return [
        case(
            {"loss": name, "kl_coefficient": kl, "on_policy": on_policy},
            policy,
            loss_of,
            name,
            kl,
            on_policy,
        )
        for name in ("grpo", "dapo", "dr_grpo", "gspo", "cispo", "sapo", "luspo", "vespo")
        for kl, on_policy in ((0.0, False), (0.3, False), (0.0, True))
    ] + [
        case(
            {"loss": name, "kl_coefficient": 0.3, "on_policy": False, **extra},
            policy,
            loss_of,
            name,
            0.3,
            False,
            **extra,
        )
        for name in ("grpo", "dapo")
        for extra in ({"delta": 1.3}, {"is_corrected": True})
    ]


if __name__ == "__main__":
    main()
