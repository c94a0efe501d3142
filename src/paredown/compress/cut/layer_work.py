"""LayerWork: cuts and compensates one transformer layer of a walk.

In order: the heads (and the output projection that reads them), then the neurons or experts (and
the `down` that reads them). After each, the layer computes with what will be stored.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from paredown.compress.calibrate.block import LayerBlock
from paredown.compress.calibrate.expert_inputs import shrunk
from paredown.compress.calibrate.passes import Passes
from paredown.compress.cut.aim import Aim
from paredown.compress.cut.compensation import FitSums
from paredown.compress.cut.experts import AskedExperts, CutExperts, fewer_experts
from paredown.compress.cut.ffn import NEAR_ZERO, CutNeurons, choose_neurons
from paredown.compress.cut.heads import CutHeads, choose_heads
from paredown.compress.cut.kept_units import Indices, KeptUnits
from paredown.compress.cut.method import Cut, Fit, Survey
from paredown.compress.cut.original_stream import Targets
from paredown.errors import naming
from paredown.formats.floating import cast
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.points import input_point, untouched
from paredown.spec.experts import Experts, expert_index


@dataclass
class LayerResult:
    """The kept units of a layer, its new tensors by their names in the source, and notes."""

    kept: KeptUnits
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class LayerWork:
    """One layer. Without `targets` its weights aim at what they gave before."""

    def __init__(
        self,
        source: Checkpoint,
        cut: Cut,
        block: LayerBlock,
        passes: Passes,
        targets: Targets | None,
    ) -> None:
        self._source = source
        self._cut = cut
        self._block = block
        self._passes = passes
        self._targets = targets
        self._index = block.layer.index
        self.result = LayerResult(kept=KeptUnits(layer=self._index))

    def run(self, survey: Survey, *, is_changed: bool, aims_further: bool) -> LayerResult:
        """Cuts the layer. `is_changed` says that its inputs are no longer the original's,
        `aims_further` that its targets lie behind layers that were removed."""
        heads = self._attention(is_changed)
        # An MLP that is left whole in an unchanged stream has nothing to make up for.
        self._aims = is_changed or aims_further or heads is not None
        mlp = self._block.layer.spec.mlp
        experts, neurons = None, {}
        if isinstance(self._cut, CutExperts) and isinstance(mlp, Experts):
            experts = self._experts(self._cut, mlp)
        elif isinstance(self._cut, CutNeurons) and self._cut.share:
            neurons = self._neurons(self._cut, survey)
        elif self._targets is not None and self._aims and not isinstance(mlp, Experts):
            self._fit("down")
        self.result.kept = KeptUnits(
            layer=self._index, heads=heads, neurons=neurons, experts=experts
        )
        return self.result

    def _attention(self, is_changed: bool) -> Indices | None:
        self._aims = is_changed
        cut, attention = self._cut, self._block.layer.spec.attention
        if isinstance(cut, CutHeads) and cut.share:
            fit = self._observed("o")
            kept = choose_heads(cut, fit, attention)
            self._note_dead(fit, "no head")
            columns = KeptUnits(layer=self._index, heads=kept).columns("o", self._block.layer.spec)
            assert columns is not None
            self._replace("o", columns, fit)
            return kept
        if self._targets is not None and is_changed:
            self._fit("o")
        return None

    def _fit(self, role: str) -> None:
        """Lets a whole layer make up for what others lost."""
        fit = self._observed(role)
        self._replace(role, np.arange(fit.weight_OI.shape[1]), fit)

    def _neurons(self, cut: CutNeurons, survey: Survey) -> dict[str, Indices]:
        mlp = self._block.layer.spec.mlp
        owners = mlp.owners if isinstance(mlp, Experts) else ("",)
        roles = {owner: f"{owner}.down" if owner else "down" for owner in owners}
        fits = self._observe_downs(tuple(roles.values()), survey)
        kept = {}
        for owner, role in roles.items():
            fit = fits.pop(role)
            with naming(f"layer {self._index}, {role}"):
                chosen, merged_OK = choose_neurons(cut, fit)
            self._note_dead(fit, f"{role}: no neuron")
            if merged_OK is not None and cut.compensation is None:
                self._set(role, chosen, merged_OK)
            else:
                self._replace(role, chosen, fit)
            kept[owner] = chosen
        return kept

    def _observe_downs(self, roles: tuple[str, ...], survey: Survey) -> dict[str, Fit]:
        """Returns the fits of all `down` layers, from one pass. Experts aim at what they gave."""
        if roles == ("down",):
            return {"down": self._observed("down", survey)}
        sums = {role: FitSums(self._weight(role)) for role in roles}
        near = {role: NearZero() for role in roles}
        points = {input_point(role): role for role in roles}

        def tap(point: str, x: Tensor) -> Tensor:
            if point in points:
                with naming(f"layer {self._index}, {point}"):
                    sums[points[point]].add(x, None)
                near[points[point]].add(x)
            return x

        self._passes.observe(tap, points)
        return {role: self._expert_fit(role, sums[role], near[role], survey) for role in roles}

    def _expert_fit(self, role: str, sums: FitSums, near: "NearZero", survey: Survey) -> Fit:
        """Returns the fit of an expert, with moments that are shrunk where it saw few tokens."""
        weight_OI = self._weight(role)
        num_columns = weight_OI.shape[1]
        seen = sums.moments() if sums.num_rows else None
        if seen is None:
            self.result.notes.append(f"layer {self._index}: {role} saw no token")
        if seen is None or expert_index(role) is not None:
            seen = shrunk(seen, num_columns)
        return Fit(
            weight_OI=weight_OI,
            hessian_II=seen.hessian_II,
            cross_OI=weight_OI @ seen.hessian_II,
            has_targets=False,
            scores_I=survey.scores.get((self._index, role)),
            near_zero_I=near.active(num_columns),
        )

    def _observed(self, role: str, survey: Survey | None = None) -> Fit:
        """Passes the inputs of `o` or `down` and returns its sums."""
        weight_OI, point, aim = self._weight(role), input_point(role), self._aim(role)
        sums, near, inputs = FitSums(weight_OI), NearZero(), self._block.inputs()
        before: list[Tensor] = []

        def tap(at: str, x: Tensor) -> Tensor:
            if role == "down" and at == "attention_sum":
                before[:] = [x]
            if at == point:
                if role == "o":
                    before[:] = [next(inputs)]
                with naming(f"layer {self._index}, {point}"):
                    aim.add(sums, x, before[0])
                near.add(x)
            return x

        self._passes.observe(tap, (point,))
        scores = None if survey is None else survey.scores.get((self._index, role))
        return Fit.of(weight_OI, sums, scores_I=scores, near_zero_I=near.active(weight_OI.shape[1]))

    def _aim(self, role: str) -> Aim:
        spec, wanted = self._block.layer.spec, None
        norms = spec.norms
        follows = (norms.attention_output, norms.attention_sum)
        if role == "down":
            follows = (norms.mlp_output, norms.mlp_sum)
        is_normed = any(norm is not None for norm in follows)
        if self._targets is not None and self._aims:
            file = self._targets.attention if role == "o" else self._targets.mlp
            wanted = file.batches(self._block.batch_size)
        return Aim(self._module(role), wanted, spec.residual_multiplier, is_normed)

    def _experts(self, cut: CutExperts, experts: Experts) -> Indices | None:
        num = cut.remaining(experts)
        if num == experts.num:
            return None
        asked = AskedExperts(experts)
        self._block.layer.mix = asked
        # A pass that ends after all experts have run.
        self._passes.observe(untouched, (input_point("experts.0.down"),))
        kept = asked.most_asked(num)
        self._block.layer.mix = fewer_experts(kept)
        gone = torch.ones(experts.num, dtype=torch.bool)
        gone[torch.from_numpy(kept)] = False
        share = float(asked.num_E[gone].sum() / asked.num_E.sum().clamp(min=1))
        self.result.notes.append(
            f"layer {self._index}: {int(gone.sum())} experts go, which {share:.1%} of the choices "
            "asked for"
        )
        return kept

    def _replace(self, role: str, kept: Indices, fit: Fit) -> None:
        """Sets the weight of `role` to that of the kept columns, compensated."""
        weight_OI = self._weight(role)
        if self._cut.compensation is None or fit.is_dead:
            left_OI = torch.zeros_like(weight_OI)
            left_OI[:, kept] = weight_OI[:, kept]
            self._module(role).weight.data = left_OI
            return
        with naming(f"layer {self._index}, {role}"):
            self._set(role, kept, fit.solved(kept, self._cut.compensation.damp))

    def _set(self, role: str, kept: Indices, weight_OK: Tensor) -> None:
        """Stores the weight as the checkpoint will, and computes with it from now on."""
        name = f"{self._source.linear_name(role, self._index)}.weight"
        is_transposed = self._source.names.source(role).transposed
        values = weight_OK.float().numpy()
        dtype = STORED_DTYPES[self._source.tensors[name].dtype]
        with naming(name):
            done = cast(np.ascontiguousarray(values.T if is_transposed else values), dtype)
        if done.num_clamped:
            self.result.notes.append(f"{name}: {done.num_clamped} values clamped")
        self.result.tensors[name] = done.tensor
        stored = done.tensor.to_float32()
        left_OI = torch.zeros_like(self._weight(role))
        left_OI[:, kept] = torch.from_numpy(
            np.ascontiguousarray(stored.T if is_transposed else stored)
        )
        self._module(role).weight.data = left_OI

    def _note_dead(self, fit: Fit, what: str) -> None:
        if fit.is_dead:
            self.result.notes.append(
                f"layer {self._index}: {what} gives anything but 0 on the calibration text, so the "
                "first ones stay"
            )

    def _weight(self, role: str) -> Tensor:
        return self._module(role).weight.data

    def _module(self, role: str) -> nn.Linear:
        module = self._block.layer.get_submodule(role)
        assert isinstance(module, nn.Linear)
        return module


class NearZero:
    """Counts how often each of a layer's neurons gives more than nearly nothing."""

    def __init__(self) -> None:
        self._active_I: Tensor | None = None

    def add(self, x: Tensor) -> None:
        x_NI = x.flatten(0, -2)
        bound = NEAR_ZERO * x_NI.square().mean().sqrt()
        active_I = (x_NI.abs() > bound).sum(0)
        self._active_I = active_I if self._active_I is None else self._active_I + active_I

    def active(self, num_columns: int) -> Tensor:
        return torch.zeros(num_columns) if self._active_I is None else self._active_I
