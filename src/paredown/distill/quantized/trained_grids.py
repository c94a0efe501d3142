"""TrainedGrids: what is trained of quantized weights."""

from dataclasses import dataclass

from paredown.compress.steps import StepSizeRule


@dataclass(frozen=True, kw_only=True)
class TrainedGrids:
    """`rule` says how scales are found (quantized_linear.py). Without `trains_codes` the codes
    stay and scales alone are trained, so that `rule` must be "learned"."""

    rule: StepSizeRule = "learned"
    trains_codes: bool = True

    def __post_init__(self) -> None:
        assert self.trains_codes or self.rule == "learned", self
