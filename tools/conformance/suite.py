"""What a peer's suite of pytest tests needs in order to run against this server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

from tools.conformance.left_out_table import LeftOutTable
from tools.conformance.served import ServerPool, Service

# Tells from the error of a failed test whether the server rightly refused what it does not serve;
# returns the reason, or None for a failure.
Refusal = Callable[[BaseException], str | None]
# The function `stand_ins` of a suite's module of that name: returns what stands in for modules of
# the suite, by the names that its tests import.
StandIns = Callable[[ServerPool], Mapping[str, ModuleType]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Tests of a suite that run in one process: files and folders of tests, relative to the
    suite's folder, and the server whose address they find in `variable`, if they start none."""

    roots: tuple[str, ...]
    service: Service | None = None
    variable: str = ""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite of pytest tests.

    `folder` is its place in the folder of suites, `working_folder` the one in it that its tests are
    started in. `arguments` go to pytest. `paths`, relative to `folder`, are put on the import path.
    `stand_ins` names a module, which is imported where its tests run: what it needs, they need. At
    least `least_counted` tests have to count, and `least_share` of them have to pass.
    """

    name: str
    folder: str
    working_folder: str
    runs: tuple[Run, ...]
    left_out: LeftOutTable
    least_counted: int
    least_share: float
    stand_ins: str = ""
    refusal: Refusal | None = None
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
