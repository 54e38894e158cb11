"""Fetch weights from the Hugging Face Hub at a pinned commit, into the hub's own cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vidrestore.errors import CheckpointError

DEFAULT_FILE = "model.safetensors"
_PARTS = re.compile(
    r"(hf:)?(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?(/(?P<file>[\w./-]+\.safetensors))?"
)
_COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True)
class HubAddress:
    """One file at one commit of one repository."""

    repository: str
    revision: str
    file: str = DEFAULT_FILE

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """Parse "hf:owner/repo@commit[/file.safetensors]", no branch or tag. Raises CheckpointError."""
        match = (
            _PARTS.fullmatch(text)
            if text.startswith("hf:") and ".." not in text
            else None
        )
        if not match or not _COMMIT.fullmatch(match["revision"] or ""):
            raise CheckpointError(
                f"{text!r} is not a hub address; expected hf:owner/repo@commit[/file.safetensors] with all "
                "40 digits of the commit"
            )
        return cls(
            match["repository"], match["revision"], match["file"] or DEFAULT_FILE
        )

    def __str__(self) -> str:
        return f"hf:{self.repository}@{self.revision}/{self.file}"


def resolve(text: str) -> HubAddress:
    """Return the address of [hf:]owner/repo[@revision][/file] by its commit. Raises CheckpointError."""
    match = _PARTS.fullmatch(text)
    if not match or ".." in text:
        raise CheckpointError(
            f"{text!r} is not a hub address; expected owner/repo[@revision][/file.safetensors]; "
            "bundled weights need not be fetched"
        )
    repository, revision = match["repository"], match["revision"] or "main"
    if not _COMMIT.fullmatch(revision):
        import huggingface_hub

        try:
            revision = str(
                huggingface_hub.HfApi().model_info(repository, revision=revision).sha
            )
        # depends on the HTTP library of the installed hub client
        except Exception as error:
            raise CheckpointError(
                _failure(text, "can't be resolved to a commit", error)
            ) from error
    return HubAddress(repository, revision, match["file"] or DEFAULT_FILE)


def _failure(subject: object, failed: str, error: Exception) -> str:
    import huggingface_hub

    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    advice = "HF_HUB_OFFLINE is set" if offline else "check the address and the network"
    reason = (
        str(error).strip().splitlines()[0]
        if str(error).strip()
        else type(error).__name__
    )
    return f"{subject}: {failed}; {advice} ({type(error).__name__}: {reason})"


def fetch(address: HubAddress) -> Path:
    """Return the hub's cached file, downloaded if missing. Raises CheckpointError."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(
            hf_hub_download(address.repository, address.file, revision=address.revision)
        )
    # depends on the HTTP library of the installed hub client
    except Exception as error:
        raise CheckpointError(_failure(address, "can't be fetched", error)) from error
