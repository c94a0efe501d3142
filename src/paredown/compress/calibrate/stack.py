"""Stack: the layers that a walk goes through one after another; an encoder-decoder has two.

Shapes: N windows of T tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import batch_size
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.walk_plan import WalkPlan
from paredown.compress.calibrate.workspace import Workspace
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.read import embed_tokens
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Stack:
    """`plan` is the walk's, with the stack as its source. The stack's layers are number `first` and
    the following ones of the walk. `encodings` has the vectors that its cross-attention reads."""

    plan: WalkPlan
    windows_NT: npt.NDArray[np.int64]
    first: int = 0
    encodings: ActivationFile | None = None

    @property
    def source(self) -> Checkpoint:
        return self.plan.checked.source

    @property
    def spec(self) -> ModelSpec:
        return self.source.spec

    @property
    def end(self) -> int:
        """The number after that of the last layer."""
        return self.first + self.spec.num_layers

    @property
    def batch_size(self) -> int:
        """The windows that pass through a layer together."""
        num_encoded = 0 if self.encodings is None else self.encodings.num_tokens
        return batch_size(self.spec, self.windows_NT.shape[1], num_encoded)

    def inputs(self, workspace: Workspace, number: int) -> ActivationFile:
        """Returns the file with the inputs of layer `number` of the walk, or of what follows the
        last one."""
        return workspace.inputs(number, (*self.windows_NT.shape, self.spec.hidden_size))

    def embedded(self) -> Iterator[Tensor]:
        """Yields the inputs of the first layer."""
        for start in range(0, len(self.windows_NT), self.batch_size):
            yield embed_tokens(self.source, self.windows_NT[start : start + self.batch_size])


def check_texts(spec: ModelSpec, calibration: Calibration) -> None:
    """Raises ConfigError for an encoder-decoder whose calibration has no texts for the decoder, or
    another number of them."""
    num_windows, answers_NT = calibration.num_sequences, calibration.answers_NT
    if spec.encoder is None or (answers_NT is not None and len(answers_NT) == num_windows):
        return
    num_answers = 0 if answers_NT is None else len(answers_NT)
    raise ConfigError(
        "an encoder-decoder is calibrated on texts of its encoder and as many of its decoder",
        seen=f"{num_windows} windows for the encoder, {num_answers} for the decoder",
        remedy="Give both (Calibration.answers_NT).",
    )


def walk_stacks(plan: WalkPlan, workspace: Workspace) -> list[Stack]:
    """Returns the stacks of the plan's model, the encoder first. Raises as `check_texts` does."""
    source, calibration = plan.checked.source, plan.calibration
    check_texts(source.spec, calibration)
    if source.spec.encoder is None:
        return [Stack(plan=plan, windows_NT=calibration.windows_NT)]
    assert calibration.answers_NT is not None
    encoder = Stack(
        plan=replace(plan, checked=replace(plan.checked, source=source.encoder), stack="encoder"),
        windows_NT=calibration.windows_NT,
    )
    shape = (*calibration.windows_NT.shape, source.spec.hidden_size)
    decoder = Stack(
        plan=replace(plan, stack="decoder"),
        windows_NT=calibration.answers_NT,
        first=encoder.end,
        encodings=workspace.inside(encoder.end, "encoded", shape),
    )
    return [encoder, decoder]
