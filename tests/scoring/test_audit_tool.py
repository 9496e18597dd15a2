"""The audit through the real tool: a file is imported, scored and audited, whatever the scorer can say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_client import call
from quintain.server.app import create_server
from quintain.settings import Settings


@pytest.mark.parametrize("kind", ["hacked", "clean"])
def test_a_client_gets_the_audit_whichever_scorer_it_asks(settings: Settings, samples: Path, kind: str) -> None:
    """`test_audit_samples` covers the other samples without a server."""
    settings = settings.model_copy(update={"roots": (samples,)})
    path = samples / "reward_hacking" / f"answer_leakage_echo_{kind}.jsonl"

    async def main() -> dict[str, Any]:
        with anyio.fail_after(100):
            async with Client(create_server(settings)) as client:
                assert (await call(client, "import_trajectories", path=str(path)))["imported"]
                return {
                    scorer: await call(
                        client, "score_trajectories", scorer=scorer, filter={"since": "2000-01-01"}, audit=True
                    )
                    for scorer in ("outcome", "rules", "answer", "composite")
                }

    for scorer, result in anyio.run(main).items():
        audit = result["audit"]
        flags = {found["check"] for found in audit["findings"] if found["severity"] == "flag"}
        assert audit["verdict"] == ("suspicious" if kind == "hacked" else "clean"), scorer
        assert flags == ({"answer_echo"} if kind == "hacked" else set()), scorer
        assert all("recorded" in found["rewards"] for found in audit["findings"]), scorer
