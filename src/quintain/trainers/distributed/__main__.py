"""Entry point of ranks on other machines: `accelerate launch -m quintain.trainers.distributed HOST:PORT KEY_FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from accelerate.utils import get_int_from_env

from quintain.trainers.distributed.member import serve
from quintain.trainers.distributed.rendezvous import address, connect

if __name__ == "__main__":
    serve(connect(address(sys.argv[1], Path(sys.argv[2])), get_int_from_env(["LOCAL_RANK"], 0)))
