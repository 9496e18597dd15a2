"""Local stores: a server that speaks S3, and a Hub."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from hub_endpoint import TOKEN, Hub, local_hub

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYofThisTest"


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The URL of an empty bucket of a local server, which the environment names."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    s3fs = pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHISTESTALONE1")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem().mkdir("agents")
        yield "s3://agents"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub that `huggingface_hub` in this process takes for the one of its environment."""
    from huggingface_hub import constants

    with local_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        files = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served
