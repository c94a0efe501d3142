"""The settings of a run, which the processes of its suites find in their environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "PAREDOWN_CONFORMANCE_"


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run's own folder for models and logs, the file of outcomes, and the suite that runs."""

    folder: Path
    outcomes: Path
    suite: str

    def environment(self) -> Mapping[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in vars(self).items()}

    @classmethod
    def found(cls) -> "Work":
        """Returns the settings of the run that started this process."""

        def value(name: str) -> str:
            return os.environ[_PREFIX + name.upper()]

        return cls(
            folder=Path(value("folder")),
            outcomes=Path(value("outcomes")),
            suite=value("suite"),
        )
