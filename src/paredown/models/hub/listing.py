"""The files of a repository at a revision, as the hub lists them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from huggingface_hub import HfApi, constants

from paredown.models.hub.failures import telling
from paredown.models.hub.hub_name import HubName
from paredown.models.hub.hub_source import COMMIT

_DIGEST = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)
_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file. `digest` is the SHA-256 of large files (64 digits) or git's SHA-1 of others (40).
    The cache stores the file under this name."""

    name: str
    num_bytes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of one commit, by name."""

    commit: str
    files: Mapping[str, RemoteFile]


def list_files(name: HubName) -> Listing:
    """Asks the hub for the commit of a revision and its files. Raises HubError."""
    with telling(name):
        api = HfApi(endpoint=constants.ENDPOINT, library_name="paredown")
        info = api.model_info(
            name.repository, revision=name.wanted_revision, files_metadata=True, timeout=_TIMEOUT_S
        )
        if info.sha is None or COMMIT.fullmatch(info.sha) is None:
            raise ValueError(f"no commit: {info.sha!r}")
        files = {}
        for one in info.siblings or []:
            path = PurePosixPath(one.rfilename)
            digest = one.blob_id if one.lfs is None else one.lfs.sha256
            if path.is_absolute() or ".." in path.parts or "\\" in one.rfilename:
                raise ValueError(f"a file beyond the repository: {one.rfilename!r}")
            if type(one.size) is not int or digest is None or not _DIGEST.fullmatch(digest):
                raise ValueError(f"no size or digest of {one.rfilename!r}")
            files[one.rfilename] = RemoteFile(name=one.rfilename, num_bytes=one.size, digest=digest)
        return Listing(commit=info.sha, files=files)
