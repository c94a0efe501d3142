"""Its being here puts this folder on the path, so that tests of any room share its modules."""

import os
from collections.abc import Generator

import pytest

# No test asks the world's hub; those of the hub have one of their own (fakes/hub.py).
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test that is skipped for want of data although PAREDOWN_DATA names a folder of it."""
    report = yield
    wants_data = report.skipped and "$PAREDOWN_DATA" in str(report.longrepr)
    if wants_data and os.environ.get("PAREDOWN_DATA"):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}, although PAREDOWN_DATA is set"
    return report
