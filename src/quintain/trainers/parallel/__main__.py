"""A process of another machine: `accelerate launch -m quintain.trainers.parallel HOST:PORT KEY_FILE`, or `torchrun`."""

from __future__ import annotations

import sys
from pathlib import Path

from accelerate.utils import get_int_from_env

from quintain.trainers.parallel.member import serve
from quintain.trainers.parallel.rendezvous import address, knock

if __name__ == "__main__":
    serve(knock(address(sys.argv[1], Path(sys.argv[2])), get_int_from_env(["LOCAL_RANK"], 0)))
