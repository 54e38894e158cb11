"""Weights that are not bundled: fetched from the Hugging Face Hub at a pinned commit, into the hub's own
cache, and only when asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vidrestore.errors import CheckpointError
from vidrestore.weights.manifest import Card, check_file

DEFAULT_FILE = "model.safetensors"
_ADDRESS = re.compile(
    r"hf:(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})(/(?P<file>[\w./-]+\.safetensors))?"
)


@dataclass(frozen=True)
class HubAddress:
    """One file at one commit of one repository."""

    repository: str
    revision: str
    file: str = DEFAULT_FILE

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """From "hf:owner/repo@commit[/file.safetensors]"; a branch or a tag is refused, for it may point
        elsewhere tomorrow.
        """
        match = _ADDRESS.fullmatch(text)
        if not match or ".." in text:
            raise CheckpointError(
                f"{text!r} is no hub address; expected hf:owner/repo@commit[/file.safetensors] with all 40 "
                "digits of the commit"
            )
        return cls(match["repository"], match["revision"], match["file"] or DEFAULT_FILE)

    def __str__(self) -> str:
        return f"hf:{self.repository}@{self.revision}/{self.file}"


def cached_file(address: HubAddress) -> Path | None:
    """The file of `address` where it was fetched before, else None; asks no network."""
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(
        address.repository, address.file, revision=address.revision
    )
    return Path(found) if isinstance(found, str) else None


def fetch(address: HubAddress, *, again: bool = False) -> Path:
    """Path of the file in the hub's cache, downloaded where it isn't there yet (or `again`). CheckpointError
    says why it can't be had.
    """
    import huggingface_hub

    try:
        return Path(
            huggingface_hub.hf_hub_download(
                address.repository, address.file, revision=address.revision, force_download=again
            )
        )
    except Exception as error:  # the errors are those of whichever HTTP library the installed hub client uses
        offline = (
            "HF_HUB_OFFLINE is set"
            if huggingface_hub.constants.HF_HUB_OFFLINE
            else "check the address and the network"
        )
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{address}: can't be fetched; {offline} ({type(error).__name__}: {reason})"
        ) from error


def hide_progress() -> None:
    """No progress bars of the hub's client, in this process."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()


def pull(card: Card) -> Path:
    """The checked file of a manifest entry with a hub address, fetched where needed; a damaged copy is
    fetched once more, then refused.
    """
    address = HubAddress.parse(card.hub or "")
    path = fetch(address)
    try:
        check_file(path, card)
    except CheckpointError:
        path = fetch(address, again=True)
        _check_or_remove(path, card)
    return path


def _check_or_remove(path: Path, card: Card) -> None:
    """A file that isn't what the manifest says must not stay where the next command would find it."""
    try:
        check_file(path, card)
    except CheckpointError:
        stored = path.resolve()  # in REPOSITORY/blobs, behind a link in REPOSITORY/snapshots/COMMIT
        repository = next((each.parent for each in path.parents if each.name == "snapshots"), path.parent)
        if stored.is_relative_to(repository.resolve()):  # else a link that the hub's client did not make
            stored.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
