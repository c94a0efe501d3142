"""Finding: what one check measured, and what it found wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`figures` are for people; the check holds where `faults` is empty."""

    check: str
    figures: Mapping[str, str | int | float] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        told = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        state = "FAULT" if self.faults else "ok"
        return [f"{state:5}  {self.check}: {told}", *(f"       {one}" for one in self.faults)]


class MissingToolError(Exception):
    """A tool that a check needs is not installed. The message names its package."""
