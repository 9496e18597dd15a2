"""Push a folder to a URL, or to a repository of the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from quintain import __version__
from quintain.artifacts.checksums import FILE_NAME as SUMS
from quintain.artifacts.faults import brief_text, faults_explained
from quintain.artifacts.locations import HUB
from quintain.artifacts.transfers import Progress, upload
from quintain.errors import Refused, Unavailable
from quintain.records.jobs.handover import AGENT_FILE

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def push(folder: Path, destination: str, content: Literal["model", "dataset"], progress: Progress) -> str:
    """Upload a complete folder, which becomes visible as a whole: with its manifest, or with one commit.

    The destination is a URL or `hub:OWNER/NAME`, allowed by the caller; a new repository is private. Return the location, or the URL of
    the commit.

    Raises:
        Conflict: There is another artifact at the URL.
    """
    scheme, _, name = destination.partition(":")
    if scheme == HUB:
        return _push_to_hub(folder, name, content)
    upload(folder, destination, progress)
    return destination


def _push_to_hub(folder: Path, name: str, content: str) -> str:
    """Commit a folder to a repository. Token and endpoint come from the environment, by the rules of `huggingface_hub`."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    files = {path.relative_to(folder).as_posix(): str(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    api = HfApi(library_name="quintain", library_version=__version__)
    where = f"{HUB}:{name}"
    with faults_explained("write", where):
        try:
            api.create_repo(name, repo_type=content, private=True, exist_ok=True)
            present = set(api.list_repo_files(name, repo_type=content))
            stale = _listed_before(api, name, content, present) & present - files.keys()
            changes = [CommitOperationDelete(file, is_folder=False) for file in sorted(stale)]
            added = [CommitOperationAdd(file, path) for file, path in files.items()]
            # `upload_folder` makes several commits of a large folder.
            commit = api.create_commit(
                name, [*changes, *added], repo_type=content, commit_message="Upload with Quintain"
            )
        except OfflineModeIsEnabled:
            raise Unavailable(
                f"cannot write {where}: HF_HUB_OFFLINE is set; let the operator unset it for the server",
                code="hub_offline",
            ) from None
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 403):
                answer = f"HTTP {error.response.status_code}: {brief_text(error.server_message or 'without a reason')}"
                raise Unavailable(
                    f"cannot write {where} ({answer}); correct what it names, then resume the job", code="hub_refused"
                ) from None
            raise Refused(
                f"cannot write {where} (HTTP {error.response.status_code}); let the operator set HF_TOKEN to a token that may write "
                "there",
                code="artifact_forbidden",
            ) from None
    return str(commit.commit_url)


def _listed_before(api: HfApi, name: str, content: str, present: Collection[str]) -> set[str]:
    """Return the files that an earlier push has listed: left beside the new ones, they would be taken for a part of them."""
    record = AGENT_FILE if content == "model" else SUMS
    if record not in present:
        return set()
    with TemporaryDirectory() as folder:
        text = Path(api.hf_hub_download(name, record, repo_type=content, local_dir=folder)).read_text(encoding="utf-8")
    if record == SUMS:
        return {line.partition("  ")[2] for line in text.splitlines()}
    try:
        listed = json.loads(text)["files"]
    except (ValueError, KeyError, TypeError):  # somebody else's file of that name
        return set()
    return set(listed) if isinstance(listed, dict) else set()
