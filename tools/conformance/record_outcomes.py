"""The pytest plugin in a suite's process: puts stand-ins in place of the suite's own modules,
leaves out what its table names, and writes each test's outcome as a line of JSON."""

import importlib
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tools.conformance.named_tests import named_tests
from tools.conformance.outcome import Kind, Outcome, Rule
from tools.conformance.served import ServerPool
from tools.conformance.suite import StandIns, Suite
from tools.conformance.suites import SUITES
from tools.conformance.work import Work

_MAX_REASON_CHARS = 300


class Recorder:
    """Writes the outcomes of one run of a suite."""

    def __init__(self, work: Work, suite: Suite, run: int, selected: str) -> None:
        self._work, self._suite, self._selected = work, suite, selected
        self._pool = ServerPool(work)
        self._kinds: dict[str, tuple[Kind, str]] = {}
        service = suite.runs[run].service
        if service is not None:
            os.environ[suite.runs[run].variable] = self._pool.url(service) + "/v1"
        if suite.stand_ins:
            stand_ins: StandIns = importlib.import_module(suite.stand_ins).stand_ins
            sys.modules.update(stand_ins(self._pool))

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leaves files out before they are imported: they may need what is not installed."""
        name = os.path.relpath(collection_path, self._root(config))
        reason = self._suite.left_out.find(name) if collection_path.suffix == ".py" else None
        if reason is None:
            return None
        for test in named_tests(collection_path):
            if self._selected in f"{name}::{test}":
                self._write(f"{name}::{test}", "left_out", str(reason))
        return True

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        self._work.outcomes.touch()
        kept = []
        for item in items:
            name = self._name(item)
            if self._selected not in name:
                continue
            reason = self._suite.left_out.find(name)
            if reason is None:
                kept.append(item)
            else:
                self._write(name, "left_out", str(reason))
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        name = self._name(item)
        kind, reason = self._judged(report, call)
        before = self._kinds.get(name, ("passed", ""))
        if before[0] == "passed":
            self._kinds[name] = (kind, reason)
        if report.when == "teardown":
            self._write(name, *self._kinds.pop(name))
        return report

    def _judged(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> tuple[Kind, str]:
        if report.passed:
            return "passed", ""
        assert call.excinfo is not None
        error = call.excinfo.value
        if report.skipped:
            return "left_out", f"{Rule.SUITE}: {error}"
        refused = self._suite.refusal(error) if self._suite.refusal is not None else None
        if refused is not None:
            return "refused", refused
        return "failed", " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON_CHARS]

    def _name(self, item: pytest.Item) -> str:
        path = os.path.relpath(item.path, self._root(item.config))
        return "::".join([path, *item.nodeid.split("::")[1:]])

    def _root(self, config: pytest.Config) -> Path:
        """The suite's folder: names of tests are relative to it."""
        depth = len([part for part in Path(self._suite.working_folder).parts if part != "."])
        folder = config.invocation_params.dir
        return folder.parents[depth - 1] if depth else folder

    def _write(self, test: str, kind: Kind, reason: str) -> None:
        outcome = Outcome(suite=self._suite.name, test=test, kind=kind, reason=reason)
        with self._work.outcomes.open("a", encoding="utf-8") as file:
            file.write(outcome.line())

    def close(self) -> None:
        self._pool.close()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Comes before any file of the suite is imported."""
    work = Work.found()
    suite = SUITES[work.suite]
    run = int(os.environ["PAREDOWN_CONFORMANCE_RUN"])
    recorder = Recorder(work, suite, run, os.environ["PAREDOWN_CONFORMANCE_SELECTED"])
    early_config.pluginmanager.register(recorder, "paredown-recorder")
    early_config.add_cleanup(recorder.close)
