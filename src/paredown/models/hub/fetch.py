"""fetch_model: a model of the Hugging Face hub as a folder or a GGUF file of the hub's cache.

A cached commit needs no network. For a branch or a tag, the hub is asked for its commit; if it is
away, the cached commit is used and reported. With HF_HUB_OFFLINE nothing is asked.
"""

import logging
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import constants

from paredown.errors import HubError
from paredown.files.new_file import make_file
from paredown.models.files.shards import INDEX_NAME
from paredown.models.hub.cached import cached_commit, cached_model
from paredown.models.hub.download import download, is_cached, part_path
from paredown.models.hub.failures import HubAwayError, disk_full, telling
from paredown.models.hub.hub_name import HubName
from paredown.models.hub.hub_source import COMMIT, SNAPSHOTS, repository_folder
from paredown.models.hub.listing import Listing, RemoteFile, list_files
from paredown.models.hub.needed_files import CONFIG_NAME, gguf_files, small_files, weight_files
from paredown.units import MEBI

LOGGER = logging.getLogger(__name__)


def fetch_model(name: HubName) -> Path:
    """Downloads what is missing and returns the model's path. Raises HubError."""
    folder = repository_folder(Path(constants.HF_HUB_CACHE), name.repository)
    commit = cached_commit(folder, name)
    cached = None if commit is None else cached_model(folder, commit, name)
    if constants.is_offline_mode():
        return _offline(name, cached)
    if cached is not None and COMMIT.fullmatch(name.wanted_revision):
        return cached
    try:
        listing = list_files(name)
    except HubAwayError as error:
        if cached is None:
            raise
        LOGGER.warning("%s; commit %s of the cache is used", error.what, commit)
        return cached
    with telling(name):
        _keep_commit(folder, name, listing.commit)
    return _fetch(name, folder, listing)


def _fetch(name: HubName, folder: Path, listing: Listing) -> Path:
    snapshot = folder / SNAPSHOTS / listing.commit
    files = listing.files
    is_gguf = name.file is not None or not _is_folder(listing)
    if is_gguf:
        wanted = gguf_files(name, files)
        _download(name, folder, listing, [*_proofs(wanted, listing), *wanted])
        return snapshot / wanted[0]
    if CONFIG_NAME not in files:
        raise HubError(
            f"{name.repository} has no {CONFIG_NAME}",
            seen=", ".join(sorted(files)[:12]) or "no files",
            remedy="Name the repository of a whole model; adapters alone are none.",
        )
    _download(name, folder, listing, small_files(files))
    weights = weight_files(name, files, snapshot)
    absent = [one for one in weights if one not in files]
    if absent:
        raise HubError(
            f"{name.repository} lacks a file that its {INDEX_NAME} names",
            seen=f"no {absent[0]}",
            remedy="Name another revision of this repository.",
        )
    _download(name, folder, listing, weights)
    return snapshot


def _is_folder(listing: Listing) -> bool:
    """Returns whether to load a folder. A repository of GGUF files often has a config.json as
    well."""
    has_safetensors = any(name.endswith(".safetensors") for name in listing.files)
    has_gguf = any(name.lower().endswith(".gguf") for name in listing.files)
    return has_safetensors or not has_gguf


def _proofs(wanted: Sequence[str], listing: Listing) -> list[str]:
    names = (f"{one}.verification.json" for one in wanted)
    return [one for one in names if one in listing.files]


def _download(name: HubName, folder: Path, listing: Listing, wanted: Sequence[str]) -> None:
    missing = [
        listing.files[one]
        for one in wanted
        if not is_cached(folder, listing.commit, listing.files[one])
    ]
    _check_room(name, folder, missing)
    for file in missing:
        download(name, folder, listing.commit, file)


def _check_room(name: HubName, folder: Path, missing: Sequence[RemoteFile]) -> None:
    """Checks the free space before the download; files may already be there in part."""
    place = next(one for one in (folder, *folder.parents) if one.exists())
    parts = (part_path(folder, file) for file in missing)
    needed = sum(file.num_bytes for file in missing)
    needed -= sum(part.stat().st_size for part in parts if part.exists())
    with telling(name):
        free = shutil.disk_usage(place).free
    if needed > free:
        seen = f"{needed / MEBI:,.0f} MiB to fetch, {free / MEBI:,.0f} MiB free at {place}"
        raise disk_full(name.repository, seen)


def _offline(name: HubName, cached: Path | None) -> Path:
    if cached is None:
        raise HubError(
            "there is no checkpoint folder or GGUF file of that name, and the hub is not asked: "
            f"{name}",
            seen=f"HF_HUB_OFFLINE is set, and the model is not whole in {constants.HF_HUB_CACHE}",
            remedy="Name a folder or a .gguf file, or unset HF_HUB_OFFLINE.",
        )
    return cached


def _keep_commit(folder: Path, name: HubName, commit: str) -> None:
    """Records the commit of the revision where other tools look for it."""
    if COMMIT.fullmatch(name.wanted_revision):
        return
    ref = folder / "refs" / name.wanted_revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    written = ref.with_name(f"{ref.name}.{secrets.token_hex(4)}.paredown-new")
    with make_file(written) as file:
        file.write(commit.encode("ascii"))
    written.replace(ref)
