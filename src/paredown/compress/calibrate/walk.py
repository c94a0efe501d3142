"""The walk: calibrates one transformer layer at a time, each with the outputs of the compressed
layers before it.

For each layer the walk applies the transforms in the recipe's order. It then quantizes the linear
layers by shared input (q, k, v; o; gate, up; down), each group calibrated on its current inputs.
Finally it computes the next layer's inputs with the layer as it will be stored. Only this file
walks a model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from paredown.compress.activations import round_inputs
from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import LayerBlock, batch_size, load_block
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.expert_inputs import FewTokens, expert_statistics
from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.grid import Grid, fused_grid
from paredown.compress.quantize.kv_cache import KVRange
from paredown.compress.quantize.method import LayerTarget, Transform
from paredown.compress.schemes import Scheme
from paredown.errors import naming
from paredown.formats.floating import cast
from paredown.formats.stored.table import stored_tensors
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.formats.weight import Weight
from paredown.models.check_tensors import fused_vectors, vector_tensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.norms import make_norm
from paredown.models.decoder.points import INPUT_POINTS, input_point
from paredown.models.decoder.read import embed_tokens, present
from paredown.models.decoder.stored_rows import set_rows, stored_rows
from paredown.models.roles import layer_vectors, linear_roles
from paredown.progress import OnProgress
from paredown.spec.experts import expert_index, role_kind, split_role
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ScaleDType

# Activations whose rounding is part of the stored scheme, so that calibration applies it. The
# executor chooses the others.
_ROUNDED = ("int8_row", "int8_static")


@dataclass(frozen=True, kw_only=True)
class WalkPlan:
    """The task of a walk. `float_dtype` is the dtype of scales and of tensors that stay floats;
    `kv_cache` is set if keys and values get static scales."""

    source: Checkpoint
    schemes: Mapping[str, Scheme]
    transforms: tuple[Transform, ...]
    calibration: Calibration
    float_dtype: ScaleDType
    kv_cache: KVFormat | None = None

    def role_schemes(self, layer: int) -> dict[str, Scheme]:
        """Returns the schemes of one layer, by role."""
        roles = linear_roles(self.source.spec, layer)
        names = {role: self.source.linear_name(role, layer) for role in roles}
        return {role: self.schemes[name] for role, name in names.items() if name in self.schemes}

    def target(self, scheme: Scheme) -> LayerTarget:
        return LayerTarget(spec=scheme.spec, scale_dtype=self.float_dtype)

    @property
    def output(self) -> Scheme | None:
        return self.schemes.get(self.source.names.output)

    @property
    def output_needs_inputs(self) -> bool:
        return self.output is not None and self.output.needs_inputs


def walk(plan: WalkPlan, workspace: Workspace, on_progress: OnProgress) -> None:
    """Finishes every layer that `workspace` has not finished, and the output layer last. Raises
    CheckpointError, with the module's name, for weights or inputs that are not finite."""
    with torch.inference_mode():
        _walk(plan, workspace, on_progress)


def _walk(plan: WalkPlan, workspace: Workspace, on_progress: OnProgress) -> None:
    spec = plan.source.spec
    shape = (plan.calibration.num_sequences, plan.calibration.num_tokens, spec.hidden_size)
    num_steps = spec.num_layers + 1
    if workspace.num_finished == 0:
        on_progress("looking up embeddings", 0.0)
        workspace.inputs(0, shape).write(_embed(plan))
    for index in range(workspace.num_finished, spec.num_layers):
        what = f"layer {index + 1} of {spec.num_layers}"

        def report(doing: str, share: float, index: int = index, what: str = what) -> None:
            on_progress(f"{what}: {doing}", (index + share) / num_steps)

        block = load_block(plan.source, index, workspace.inputs(index, shape))
        plan.source.release()
        passes = Passes(block, workspace)
        tensors, notes = _LayerWork(plan, block, passes, report).run()
        if index + 1 < spec.num_layers or plan.output_needs_inputs:
            report("passing on", 0.85)
            workspace.inputs(index + 1, shape).write(passes.outputs())
        passes.close()
        workspace.finish(tensors, notes)
    if workspace.num_finished == spec.num_layers:
        on_progress("the output layer", spec.num_layers / num_steps)
        inputs = workspace.inputs(spec.num_layers, shape)
        tensors, notes = _finish_output(plan, inputs)
        workspace.finish(tensors, notes)


class _LayerWork:
    """Compresses one layer."""

    def __init__(
        self, plan: WalkPlan, block: LayerBlock, passes: Passes, report: OnProgress
    ) -> None:
        self._plan = plan
        self._block = block
        self._passes = passes
        self._index = block.layer.index
        self._report = report
        self._schemes = plan.role_schemes(self._index)
        self._tensors: dict[str, StoredTensor] = {}
        self._notes: list[str] = []
        self._few = FewTokens()
        # The grids of the last transform: each one changes the weights that the one before used.
        self._grids: Mapping[str, Grid] = {}

    def run(self) -> tuple[dict[str, StoredTensor], list[str]]:
        """Returns the finished tensors by their names in the checkpoint, and the notes."""
        for number, transform in enumerate(self._plan.transforms):
            name = type(transform).__name__
            self._report(name, 0.4 * number / len(self._plan.transforms))
            with naming(f"layer {self._index}"):
                found = transform.apply(self._block, self._targets())
            self._notes += [f"layer {self._index}: {name}: {note}" for note in found.notes]
            self._grids = found.grids
        if self._plan.transforms:
            self._keep_floats()
        groups = list(_groups(self._schemes, self._plan.calibration.true_sequential))
        for number, roles in enumerate(groups):
            kinds = ", ".join(dict.fromkeys(map(role_kind, roles)))
            self._report(f"quantizing {kinds}", 0.4 + 0.45 * number / len(groups))
            self._quantize(roles)
        if self._plan.kv_cache is not None:
            self._calibrate_kv(self._plan.kv_cache)
        self._notes += [f"layer {self._index}: {note}" for note in self._few.notes()]
        return self._tensors, self._notes

    def _calibrate_kv(self, form: KVFormat) -> None:
        """Finds the scales of keys and values with the layer in its current state."""
        seen = KVRange()
        with naming(f"layer {self._index}"):
            self._block.run(seen.tap, stop_after="v")
        scales = seen.scales("fp8" if form == "fp8-static" else "int8")
        attention = self._plan.source.linear_name("k", self._index).rpartition(".")[0]
        for suffix, scale in (("k_scale", scales.k_scale), ("v_scale", scales.v_scale)):
            stored = cast(scale.numpy(), self._plan.float_dtype).tensor
            self._tensors[f"{attention}.{suffix}"] = stored

    def _targets(self) -> dict[str, LayerTarget]:
        return {role: self._plan.target(scheme) for role, scheme in self._schemes.items()}

    def _quantize(self, roles: tuple[str, ...]) -> None:
        """Quantizes `roles` together, from one pass over the inputs."""
        statistics = self._observe(roles)
        for name, fused in self._plan.source.names.modules(roles, self._index).items():
            role, scheme = fused[0], self._schemes[fused[0]]
            seen = statistics.get(input_point(role))
            if seen is not None and expert_index(role) is not None:
                seen = expert_statistics(input_point(role), statistics)
                self._few.add(
                    role,
                    seen,
                    scheme.quantizer.without_inputs,
                    has_static_scale=scheme.spec.activations == "int8_static",
                )
            parameters, num_blocks = self._parameters(f"{role}.weight")
            grids = [self._grids[one] for one in fused if one in self._grids]
            grid = fused_grid(grids, num_blocks) if len(grids) == len(fused) else None
            target = replace(self._plan.target(scheme), grid=grid)
            weight_OI = stored_rows(parameters, num_blocks)
            weight, notes = _quantize(name, weight_OI, scheme, seen, target)
            set_rows(parameters, weight.at_work(), num_blocks)
            if scheme.spec.activations in _ROUNDED:
                for one in fused:
                    round_inputs(self._module(one), scheme.spec, weight.input_scale)
            self._notes += notes
            self._tensors |= _named(name, weight)

    def _observe(self, roles: tuple[str, ...]) -> dict[str, InputStatistics]:
        """Returns the statistics of the inputs of `roles`, by point, if their methods need any."""
        watched: dict[str, InputStatistics] = {}
        for role in roles:
            scheme = self._schemes[role]
            if scheme.needs_inputs:
                num_columns = self._block.spec.linear_shapes(self._index)[role][1]
                inputs = watched.setdefault(input_point(role), InputStatistics(num_columns))
                inputs.wants_hessian |= scheme.quantizer.needs_hessian

        def tap(point: str, x: Tensor) -> Tensor:
            if point in watched:
                with naming(f"layer {self._index}, {point}"):
                    watched[point].add(x)
            return x

        if watched:
            self._passes.observe(tap, watched)
        return watched

    def _keep_floats(self) -> None:
        """Stores tensors that transforms may have changed and no quantizer stores: norms, biases,
        and linear layers that stay in floats."""
        source, dtype = self._plan.source, self._plan.float_dtype
        vectors = layer_vectors(source.spec, self._index)
        kept = {vector_tensor(source.names, role, self._index): role for role in vectors}
        for role in linear_roles(source.spec, self._index):
            if role not in self._schemes:
                kept[f"{source.linear_name(role, self._index)}.weight"] = f"{role}.weight"
        for name, role in kept.items():
            self._keep_float(name, role, dtype)
        for role in source.spec.router_shapes(self._index):
            name = f"{source.names.router(role, self._index)}.weight"
            # A router in another dtype would send tokens elsewhere.
            stored = STORED_DTYPES[source.tensors[name].dtype]
            self._keep_float(name, f"{role}.weight", stored)

    def _keep_float(self, name: str, role: str, dtype: ScaleDType) -> None:
        """Stores a float tensor; `role` is a parameter's, or one of those that the tensor holds."""
        parameters, num_blocks = self._parameters(role)
        with naming(name):
            result = cast(stored_rows(parameters, num_blocks).numpy(), dtype)
        if result.num_clamped:
            self._notes.append(f"{name}: {result.num_clamped} values clamped")
        self._tensors[name] = result.tensor
        set_rows(parameters, result.tensor.to_float32(), num_blocks)

    def _parameters(self, role: str) -> tuple[list[nn.Parameter], int]:
        """Returns the parameters that share a checkpoint tensor with that of `role` ("q.weight"),
        and the number of blocks in which their rows alternate."""
        layer, names = self._block.layer, self._plan.source.names
        owner = role.rsplit(".", 1)[0]
        num_blocks = names.num_blocks(owner, layer.spec) if owner in names.family.linears else 1
        return [layer.get_parameter(one) for one in fused_vectors(names, role)], num_blocks

    def _module(self, role: str) -> nn.Linear:
        module = self._block.layer.get_submodule(role)
        assert isinstance(module, nn.Linear)
        return module


def _groups(schemes: Mapping[str, Scheme], true_sequential: bool) -> Iterator[tuple[str, ...]]:
    """Yields the roles that are quantized together: those that share an input, or all. All experts
    of a layer are one group, from one pass over the inputs."""
    by_point: dict[str, list[str]] = {}
    for own, point in INPUT_POINTS.items():
        roles = [role for role in schemes if split_role(role)[1] == own]
        if roles:
            by_point.setdefault(point, []).extend(roles)
    if true_sequential:
        yield from map(tuple, by_point.values())
    elif by_point:
        yield tuple(role for roles in by_point.values() for role in roles)


def _quantize(
    name: str, weight_OI: Tensor, scheme: Scheme, seen: InputStatistics | None, target: LayerTarget
) -> tuple[Weight, list[str]]:
    with naming(name):
        moments = None if seen is None else seen.moments()
        done = scheme.quantizer.quantize(weight_OI, target, moments)
    weight = done.weight
    if scheme.spec.activations == "int8_static":
        assert seen is not None
        weight = weight.with_input_scale(seen.static_scale(target.scale_dtype))
    return weight, [f"{name}: {note}" for note in done.notes]


def _named(name: str, weight: Weight) -> dict[str, StoredTensor]:
    return {f"{name}.{suffix}": tensor for suffix, tensor in stored_tensors(weight).items()}


def _embed(plan: WalkPlan) -> Iterator[Tensor]:
    """Yields the inputs of the first layer."""
    calibration = plan.calibration
    size = batch_size(plan.source.spec, calibration.num_tokens)
    for start in range(0, calibration.num_sequences, size):
        yield embed_tokens(plan.source, calibration.windows_NT[start : start + size])


def _finish_output(
    plan: WalkPlan, inputs: ActivationFile
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Quantizes the output layer, if the recipe does so."""
    if plan.output is None:
        return {}, []
    source, name = plan.source, plan.source.names.output
    seen = None
    if plan.output.needs_inputs:
        seen = InputStatistics(source.spec.hidden_size)
        seen.wants_hessian = plan.output.quantizer.needs_hessian
        norm = make_norm(source.spec.final_norm, source.spec.hidden_size)
        norm.load_state_dict(
            {
                key: torch.from_numpy(present(source.vector(f"final_norm.{key}")).copy())
                for key in norm.state_dict()
            }
        )
        with naming(name):
            for batch_BTD in inputs.batches(batch_size(source.spec, inputs.num_tokens)):
                seen.add(norm(batch_BTD))
    weight_OI = torch.from_numpy(source.output().dequantize())
    weight, notes = _quantize(name, weight_OI, plan.output, seen, plan.target(plan.output))
    return _named(name, weight), notes
