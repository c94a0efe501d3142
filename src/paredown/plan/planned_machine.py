"""PlannedMachine: the machine of a plan, with its step times and its room for pages."""

from dataclasses import dataclass, replace

from paredown.cost.machine_profile import MachineProfile
from paredown.cost.memory import MEMORY_SHARE, model_memory
from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import Roofs
from paredown.cost.step_cost import StepCost, StepLoad
from paredown.errors import CapacityError, UnsupportedError
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Factors by which properties of the machine are faster or larger."""

    bandwidth: float = 1.0
    arithmetic: float = 1.0
    memory: float = 1.0
    everything: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PlannedMachine:
    """A machine, with a speedup if there is one. Where its steps were measured they speed up as a
    whole; where only its roofs are known, each of them can."""

    profile: MachineProfile
    speedup: Speedup = Speedup()

    @property
    def name(self) -> str:
        return self.profile.key

    def can_be_faster(self, formats: ModelFormats) -> tuple[str, ...]:
        """Returns the fields of Speedup that apply."""
        if self.profile.knows(formats):
            return ("memory", "everything")
        return ("bandwidth", "arithmetic", "memory", "everything")

    def faster(self, speedup: Speedup) -> "PlannedMachine":
        return replace(self, speedup=speedup)

    def cost(self, spec: ModelSpec, formats: ModelFormats) -> StepCost:
        profile = replace(self.profile, roofs=self._faster_roofs())
        cost = profile.step_cost(spec, formats)
        factor = self.speedup.everything
        return cost if factor == 1 else _Faster(cost, factor)

    def num_pages(
        self, spec: ModelSpec, formats: ModelFormats, *, max_running: int, max_step_tokens: int
    ) -> int:
        """Returns the pages that fit beside the weights and the working memory. Raises
        CapacityError, with the missing bytes, if one full context does not fit, and
        UnsupportedError for an encoder-decoder."""
        if spec.encoder is not None:
            raise UnsupportedError(
                "loads on encoder-decoders are not simulated",
                seen=spec.family,
                remedy="`paredown inspect` has the times of one prompt and of a step.",
            )
        memory = model_memory(
            spec, formats, batch=max_running, context=1, step_tokens=max_step_tokens
        )
        fixed = memory.total - memory.kv
        page_bytes = KVSpec(num_pages=1, dtype=formats.kv_dtype).page_bytes(spec)
        available = int(self.profile.roofs.memory_bytes * self.speedup.memory * MEMORY_SHARE)
        # The useful minimum: one prompt of a page, and its answer.
        needed = fixed + 2 * page_bytes
        if available < needed:
            raise CapacityError(
                f"the model in {formats.name} does not fit on {self.name}",
                seen=f"weights {format_bytes(memory.weights + memory.embedding)} + a step "
                f"{format_bytes(fixed - memory.weights - memory.embedding)} + two pages "
                f"{format_bytes(2 * page_bytes)} = {format_bytes(needed)}; "
                f"{MEMORY_SHARE:.0%} of {format_bytes(self.profile.roofs.memory_bytes)} = "
                f"{format_bytes(available)}: {format_bytes(needed - available)} too much",
                remedy="Use a machine with more memory, a smaller format or a smaller model.",
            )
        # No more than the whole context of every running request is ever held.
        most = max_running * -(-spec.max_positions // PAGE_SIZE)
        return min((available - fixed) // page_bytes, most)

    def _faster_roofs(self) -> Roofs:
        roofs, speedup = self.profile.roofs, self.speedup
        return replace(
            roofs,
            bandwidth_bytes_per_s=roofs.bandwidth_bytes_per_s * speedup.bandwidth,
            int8_ops_per_s=roofs.int8_ops_per_s * speedup.arithmetic,
            bf16_flops_per_s=roofs.bf16_flops_per_s * speedup.arithmetic,
            fp32_flops_per_s=roofs.fp32_flops_per_s * speedup.arithmetic,
        )


@dataclass(frozen=True)
class _Faster:
    cost: StepCost
    factor: float

    def step_s(self, step: StepLoad) -> float:
        return self.cost.step_s(step) / self.factor
