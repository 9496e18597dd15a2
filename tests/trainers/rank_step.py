"""One idle step of a rank: imported for rank 0, run as a program for rank 1 (`python rank_step.py SETUP_FILE`)."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from quintain.trainers.distributed.collectives import leave
from quintain.trainers.distributed.member import Member, RankBatches, RankSetup
from quintain.trainers.losses.loss_output import StepTotals


def elements_held(setup: RankSetup) -> list[int]:
    """Take a step; return the elements of the whole model, then those of parameters, gradients and both moments held here."""
    member = Member(setup)
    member.join()
    try:
        member.backward(RankBatches([[]], StepTotals(1.0, 1, 1, 1.0), {}, {}, 0))
        parameters, moments = member._parameters, member._optimizer.state
        gradients = sum(p.grad.to_local().numel() for p in parameters)  # type: ignore[union-attr]
        member.clip()
        member.update(1e-3)
        held = [sum(moments[p][name].to_local().numel() for p in parameters) for name in ("exp_avg", "exp_avg_sq")]
        local = sum(p.to_local().numel() for p in parameters)  # type: ignore[attr-defined]
        return [sum(p.numel() for p in parameters), local, gradients, *held]
    finally:
        leave()


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(str, elements_held(pickle.loads(Path(sys.argv[1]).read_bytes())))))
