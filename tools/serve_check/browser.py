"""A real browser for the page: Debian's Chromium without a window, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tools.serve_check.finding import MissingToolError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str:
    """Returns the program's path. Raises MissingToolError."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise MissingToolError("Chromium is not installed: Debian's package is chromium")
    return found


@contextmanager
def browser() -> Iterator["Browser"]:
    """Runs the browser inside the block. Raises MissingToolError."""
    path = chromium_path()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Playwright is not installed: PyPI's package is playwright"
        ) from error
    # Chromium's own sandbox refuses to run as root, as in a container.
    is_root = os.geteuid() == 0
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, chromium_sandbox=not is_root)
        try:
            yield found
        finally:
            found.close()
