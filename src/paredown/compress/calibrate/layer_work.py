"""Compresses one layer of a walk (walk.py).

The transforms come first, in the recipe's order. The linear layers are then pruned and quantized by
shared input (q, k, v; o; gate, up; down; between them those of cross-attention), each group
calibrated on its current inputs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from torch import Tensor, nn

from paredown.compress.activations import round_inputs
from paredown.compress.calibrate.block import LayerBlock
from paredown.compress.calibrate.expert_inputs import FewTokens, expert_statistics
from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.walk_plan import WalkPlan
from paredown.compress.finish_module import Finished, ModuleWork, finish_module
from paredown.compress.grid import Grid, fused_grid
from paredown.compress.quantize.kv_cache import KVRange
from paredown.errors import naming
from paredown.formats.floating import cast
from paredown.formats.stored.table import stored_tensors
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.formats.weight import Weight
from paredown.models.check_tensors import fused_vectors, vector_tensor
from paredown.models.decoder.points import ROLE_POINTS, input_point
from paredown.models.decoder.stored_rows import set_rows, stored_rows
from paredown.models.roles import layer_vectors, linear_roles
from paredown.progress import OnProgress
from paredown.spec.experts import expert_index, role_kind, split_role
from paredown.spec.kv import KVFormat
from paredown.spec.weight import ScaleDType

# Activations whose rounding is part of the stored scheme, so that calibration applies it. The
# executor chooses the others.
_ROUNDED = ("int8_row", "int8_static")


class LayerWork:
    """The work on one layer."""

    def __init__(
        self, plan: WalkPlan, block: LayerBlock, passes: Passes, report: OnProgress
    ) -> None:
        self._plan = plan
        self._checked = plan.checked
        self._block = block
        self._passes = passes
        self._index = block.layer.index
        self._place = plan.place(self._index)
        self._report = report
        self._tensors: dict[str, StoredTensor] = {}
        self._notes: list[str] = []
        self._few = FewTokens()
        # The grids of the last transform: each one changes the weights that the one before used.
        self._grids: Mapping[str, Grid] = {}

    def run(self) -> tuple[dict[str, StoredTensor], list[str]]:
        """Returns the finished tensors by their names in the checkpoint, and the notes."""
        transforms, recipe = self._checked.recipe.transforms, self._checked.recipe
        for number, transform in enumerate(transforms):
            name = type(transform).__name__
            self._report(name, 0.4 * number / len(transforms))
            with naming(self._place):
                found = transform.apply(self._block, self._checked.role_targets(self._index))
            self._notes += [f"{self._place}: {name}: {note}" for note in found.notes]
            self._grids = found.grids
        if transforms:
            self._keep_floats()
        groups = list(shared_inputs(self._changed_roles(), self._plan.calibration.true_sequential))
        doing = "quantizing" if self._checked.schemes else "pruning"
        for number, roles in enumerate(groups):
            kinds = ", ".join(dict.fromkeys(map(role_kind, roles)))
            self._report(f"{doing} {kinds}", 0.4 + 0.45 * number / len(groups))
            self._finish(roles)
        if recipe.kv_cache is not None and recipe.has_static_kv:
            self._calibrate_kv(recipe.kv_cache)
        self._notes += [f"{self._place}: {note}" for note in self._few.notes()]
        return self._tensors, self._notes

    def _changed_roles(self) -> list[str]:
        roles = linear_roles(self._checked.source.spec, self._index)
        return [role for role in roles if self._checked.changes(self._name(role))]

    def _name(self, role: str) -> str:
        return self._checked.source.linear_name(role, self._index)

    def _calibrate_kv(self, form: KVFormat) -> None:
        """Finds the scales of keys and values with the layer in its current state."""
        seen = KVRange()
        with naming(self._place):
            self._block.run(seen.tap, stop_after="v")
        scales = seen.scales("fp8" if form == "fp8-static" else "int8")
        attention = self._name("k").rpartition(".")[0]
        for suffix, scale in (("k_scale", scales.k_scale), ("v_scale", scales.v_scale)):
            stored = cast(scale.numpy(), self._checked.float_dtype).tensor
            self._tensors[f"{attention}.{suffix}"] = stored

    def _finish(self, roles: tuple[str, ...]) -> None:
        """Prunes and quantizes `roles` together, from one pass over the inputs."""
        statistics = self._observe(roles)
        for name, fused in self._checked.source.names.modules(roles, self._index).items():
            seen = self._seen(fused[0], self._checked.work(name), statistics)
            parameters, num_blocks = self._parameters(f"{fused[0]}.weight")
            grids = [self._grids[one] for one in fused if one in self._grids]
            grid = fused_grid(grids, num_blocks) if len(grids) == len(fused) else None
            work = self._checked.work(name)
            work = replace(work, target=replace(work.target, grid=grid))
            weight_OI = stored_rows(parameters, num_blocks)
            done = finish_module(work, weight_OI, seen, self._plan.gradients)
            self._notes += done.notes
            if done.weight is None:
                self._keep_float(f"{name}.weight", f"{fused[0]}.weight", done)
                continue
            set_rows(parameters, done.weight.at_work(), num_blocks)
            assert work.scheme is not None
            if work.scheme.spec.activations in _ROUNDED:
                for one in fused:
                    round_inputs(self._module(one), work.scheme.spec, done.weight.input_scale)
            self._tensors |= named_tensors(name, done.weight)

    def _seen(
        self, role: str, work: ModuleWork, statistics: Mapping[str, InputStatistics]
    ) -> InputStatistics | None:
        """Returns the statistics of a role's inputs; those of an expert with few tokens are mended
        and noted."""
        seen = statistics.get(input_point(role))
        if seen is None or expert_index(role) is None:
            return seen
        seen = expert_statistics(input_point(role), statistics)
        scheme = work.scheme
        self._few.add(
            role,
            seen,
            "prune by magnitude" if scheme is None else scheme.quantizer.without_inputs,
            has_static_scale=scheme is not None and scheme.spec.activations == "int8_static",
        )
        return seen

    def _observe(self, roles: tuple[str, ...]) -> dict[str, InputStatistics]:
        """Returns the statistics of the inputs of `roles`, by point, if their methods need any."""
        watched: dict[str, InputStatistics] = {}
        for role in roles:
            name = self._name(role)
            if self._checked.needs_inputs(name):
                num_columns = self._block.spec.linear_shapes(self._index)[role][1]
                inputs = watched.setdefault(input_point(role), InputStatistics(num_columns))
                inputs.wants_hessian |= self._checked.needs_hessian(name)

        def tap(point: str, x: Tensor) -> Tensor:
            if point in watched:
                with naming(f"{self._place}, {point}"):
                    watched[point].add(x)
            return x

        if watched:
            self._passes.observe(tap, watched)
        return watched

    def _keep_floats(self) -> None:
        """Stores tensors that transforms may have changed and no quantizer stores: norms, biases,
        and linear layers that stay in floats."""
        source, dtype = self._checked.source, self._checked.float_dtype
        vectors = layer_vectors(source.spec, self._index)
        kept = {vector_tensor(source.names, role, self._index): role for role in vectors}
        for role in linear_roles(source.spec, self._index):
            if not self._checked.changes(self._name(role)):
                kept[f"{self._name(role)}.weight"] = f"{role}.weight"
        for name, role in kept.items():
            self._keep(name, role, dtype)
        for role in source.spec.router_shapes(self._index):
            name = f"{source.names.router(role, self._index)}.weight"
            # A router in another dtype would send tokens elsewhere.
            stored = STORED_DTYPES[source.tensors[name].dtype]
            self._keep(name, f"{role}.weight", stored)

    def _keep_float(self, name: str, role: str, done: Finished) -> None:
        """Stores a pruned weight in floats, and goes on with what is stored."""
        parameters, num_blocks = self._parameters(role)
        set_rows(parameters, done.values_OI.float().numpy(), num_blocks)
        self._keep(name, role, self._checked.float_dtype)

    def _keep(self, name: str, role: str, dtype: ScaleDType) -> None:
        """Stores a float tensor; `role` is a parameter's, or one of those that the tensor holds."""
        parameters, num_blocks = self._parameters(role)
        with naming(name):
            result = cast(stored_rows(parameters, num_blocks).numpy(), dtype)
        if result.num_clamped:
            self._notes.append(f"{name}: {result.num_clamped} values clamped")
        set_rows(parameters, result.tensor.to_float32(), num_blocks)
        owner = role.rsplit(".", 1)[0]
        linears = self._checked.source.names.family.linears
        is_transposed = role.endswith(".weight") and owner in linears and linears[owner].transposed
        self._tensors[name] = result.tensor.transposed() if is_transposed else result.tensor

    def _parameters(self, role: str) -> tuple[list[nn.Parameter], int]:
        """Returns the parameters that share a checkpoint tensor with that of `role` ("q.weight"),
        and the number of blocks in which their rows alternate."""
        layer, names = self._block.layer, self._checked.source.names
        owner = role.rsplit(".", 1)[0]
        num_blocks = names.num_blocks(owner, layer.spec) if owner in names.family.linears else 1
        return [layer.get_parameter(one) for one in fused_vectors(names, role)], num_blocks

    def _module(self, role: str) -> nn.Linear:
        module = self._block.layer.get_submodule(role)
        assert isinstance(module, nn.Linear)
        return module


def shared_inputs(roles: Iterable[str], true_sequential: bool) -> Iterator[tuple[str, ...]]:
    """Yields the roles that are finished together: those that share an input, or all. All experts
    of a layer are one group, from one pass over the inputs."""
    wanted = list(roles)
    by_point: dict[str, list[str]] = {}
    for own, point in ROLE_POINTS.items():
        found = [role for role in wanted if split_role(role)[1] == own]
        if found:
            by_point.setdefault(point, []).extend(found)
    if true_sequential:
        yield from map(tuple, by_point.values())
    elif by_point:
        yield tuple(role for found in by_point.values() for role in found)


def named_tensors(name: str, weight: Weight) -> dict[str, StoredTensor]:
    """Returns the tensors of a module's weight by their names in the checkpoint."""
    return {f"{name}.{suffix}": tensor for suffix, tensor in stored_tensors(weight).items()}
