"""Turns errors of the hub and of the network into messages for the user."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from paredown.errors import HubError
from paredown.models.hub.hub_name import HubName

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOGIN = "set HF_TOKEN or run `hf auth login`"


class HubAwayError(HubError):
    """The hub does not answer, or something else answers for it. The cached model may be used
    instead."""


@contextmanager
def telling(name: HubName, file: str | None = None) -> Iterator[None]:
    """Turns any failure inside into a HubError that names the repository and the file."""
    try:
        yield
    except HubError:
        raise
    except HfHubHTTPError as error:
        raise _refused(error, name, file) from error
    except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
        began = "does not answer" if file is None else "stopped in the middle, or does not answer"
        raise HubAwayError(
            f"{_place(name, file)}: the hub {began}",
            seen=f"{type(error).__name__} {error} of {constants.ENDPOINT}",
            remedy="Check the network and try again; what was fetched so far is kept.",
        ) from error
    except OSError as error:
        raise _disk_or_size(error, name, file) from error
    except (ValueError, KeyError, TypeError) as error:
        raise HubAwayError(
            f"{_place(name, file)}: the answer is not a hub's",
            seen=f"{type(error).__name__} {error} of {constants.ENDPOINT}",
            remedy="Check HF_ENDPOINT, and proxies on the way.",
        ) from error


def _refused(error: HfHubHTTPError, name: HubName, file: str | None) -> HubError:
    status = error.response.status_code
    place, seen = _place(name, file), f"status {status} of {constants.ENDPOINT}"
    page = f"{constants.ENDPOINT}/{name.repository}"
    if isinstance(error, GatedRepoError):
        what = f"{place} is gated: its owner gives access"
        return HubError(what, seen=seen, remedy=f"Ask for access at {page}, then {_LOGIN}.")
    if isinstance(error, RevisionNotFoundError):
        what = f"{name.repository} has no revision {name.wanted_revision!r}"
        return HubError(what, seen=seen, remedy=f"Name a branch, tag or commit of {page}.")
    if isinstance(error, RepositoryNotFoundError) and file is None:
        return HubError(
            "there is no checkpoint folder or GGUF file of that name, and no such model on the "
            f"hub: {name.repository}",
            seen=seen,
            remedy=f"Check the spelling; for a private model {_LOGIN}.",
        )
    if isinstance(error, DisabledRepoError):
        return HubError(f"{place} is disabled", seen=seen, remedy="Name another repository.")
    if status in (401, 403):
        return HubError(f"the hub refuses {place}", seen=seen, remedy=f"To be known, {_LOGIN}.")
    if status == 404:
        remedy = f"Look at {page} for what it holds."
        return HubError(f"{place} is not on the hub", seen=seen, remedy=remedy)
    if status == 429:
        remedy = f"Wait some minutes; to be allowed more, {_LOGIN}."
        return HubAwayError(f"{place}: the hub has had too many requests", seen=seen, remedy=remedy)
    if status >= 500:
        remedy = "Try again later; what was fetched so far is kept."
        return HubAwayError(f"{place}: the hub is out of order", seen=seen, remedy=remedy)
    return HubError(f"{place}: the hub refuses", seen=seen, remedy=f"Look at {page}.")


def _disk_or_size(error: OSError, name: HubName, file: str | None) -> HubError:
    place = _place(name, file)
    if error.errno in _FULL:
        return disk_full(place, f"{error.strerror}: {constants.HF_HUB_CACHE}")
    if error.errno is None:
        return HubError(
            f"{place}: the hub sent another number of bytes than it announced",
            seen=str(error).splitlines()[0],
            remedy="Try again; nothing of it is used.",
        )
    return HubError(
        f"{place} cannot be kept in the cache",
        seen=f"{error.strerror}: {error.filename or constants.HF_HUB_CACHE}",
        remedy="Check that you may write there, or name another place with HF_HOME.",
    )


def disk_full(place: str, seen: str) -> HubError:
    """Returns the error for a cache without enough room."""
    return HubError(
        f"{place} does not fit on the disk of the cache",
        seen=seen,
        remedy="Make room, or name another place with HF_HOME.",
    )


def _place(name: HubName, file: str | None) -> str:
    return name.repository if file is None else f"{name.repository}: {file}"
