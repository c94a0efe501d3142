"""MachineProfile: the known speed of a machine, and the step cost that follows from it."""

from dataclasses import dataclass, replace

from paredown.cost.efficiency import EFFICIENCIES, FITTED_DTYPES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.roofline import Roofs
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.step_fit import StepFit
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class MachineProfile:
    """The roofs of a machine and, where our kernels were measured on it, its step fit."""

    key: str
    roofs: Roofs
    fit: StepFit | None = None

    def knows(self, formats: ModelFormats) -> bool:
        """Returns whether steps with these formats were measured on the machine."""
        return self.fit is not None and self.fit.knows(formats)

    def running(self, formats: ModelFormats) -> ModelFormats:
        """Returns the formats as the machine runs them."""
        return replace(
            formats,
            activation_bytes=self.roofs.activation_bytes,
            short_bf16=self.fit is not None and self.fit.has_short_bf16,
        )

    def step_cost(self, spec: ModelSpec, formats: ModelFormats) -> PredictedStep | RooflineStep:
        """Returns the best known step cost; `basis` says what it rests on.

        Its `roofs` are the machine's. Where the bandwidth of a buffer as large as the model was
        measured, it replaces that of memory, since a small model fits the caches.
        """
        roofs = self.roofs
        if self.fit is not None:
            predicted = PredictedStep(spec=spec, formats=formats, fit=self.fit)
            if self.fit.knows(formats):
                return predicted
            roofs = roofs.with_bandwidth(self.fit.bandwidth(predicted.weight_bytes))
        efficiency = EFFICIENCIES.get(self.key)
        return RooflineStep(spec=spec, formats=formats, roofs=roofs, efficiency=efficiency)

    def basis(self, *formats: ModelFormats) -> str:
        """Returns in words what predicted times of models in these formats rest on."""
        if all(self.knows(one) for one in formats):
            return "fitted to steps measured on this machine (`paredown doctor --sweep`)"
        if self.key in EFFICIENCIES:
            linear = [one.linear for one in formats]
            others = dict.fromkeys(one.name for one in linear if one.dtype not in FITTED_DTYPES)
            found = f"shares of the roofs fitted to fp16 products ({EFFICIENCIES[self.key].source})"
            if not others:
                return found
            return f"{found}, taken over to {', '.join(others)} (not measured there)"
        return "at best, by the roofs alone: no steps were measured there with such weights"
