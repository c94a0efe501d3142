"""The walk: calibrates one transformer layer at a time, each with the outputs of the compressed
layers before it.

Each layer is compressed by layer_work.py. Then the walk computes the next layer's inputs with the
layer as it will be stored. Only this file walks a model.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import batch_size, load_block
from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.calibrate.layer_work import LayerWork, named_tensors
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.walk_plan import WalkPlan
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.finish_module import finish_module
from paredown.errors import naming
from paredown.formats.floating import cast
from paredown.formats.tensor import StoredTensor
from paredown.models.decoder.norms import make_norm
from paredown.models.decoder.read import embed_tokens, present
from paredown.progress import OnProgress


def walk(plan: WalkPlan, workspace: Workspace, on_progress: OnProgress) -> None:
    """Finishes every layer that `workspace` has not finished, and the output layer last. Raises
    CheckpointError, with the module's name, for weights or inputs that are not finite."""
    with torch.inference_mode():
        _walk(plan, workspace, on_progress)


def _walk(plan: WalkPlan, workspace: Workspace, on_progress: OnProgress) -> None:
    spec = plan.checked.source.spec
    shape = (plan.calibration.num_sequences, plan.calibration.num_tokens, spec.hidden_size)
    num_steps = spec.num_layers + 1
    output = plan.checked.source.names.output
    if workspace.num_finished == 0:
        on_progress("looking up embeddings", 0.0)
        workspace.inputs(0, shape).write(_embed(plan))
    for index in range(workspace.num_finished, spec.num_layers):
        what = f"layer {index + 1} of {spec.num_layers}"

        def report(doing: str, share: float, index: int = index, what: str = what) -> None:
            on_progress(f"{what}: {doing}", (index + share) / num_steps)

        block = load_block(plan.checked.source, index, workspace.inputs(index, shape))
        plan.checked.source.release()
        passes = Passes(block, workspace)
        tensors, notes = LayerWork(plan, block, passes, report).run()
        if index + 1 < spec.num_layers or plan.checked.needs_inputs(output):
            report("passing on", 0.85)
            workspace.inputs(index + 1, shape).write(passes.outputs())
        passes.close()
        workspace.finish(tensors, notes)
    if workspace.num_finished == spec.num_layers:
        on_progress("the output layer", spec.num_layers / num_steps)
        inputs = workspace.inputs(spec.num_layers, shape)
        tensors, notes = _finish_output(plan, inputs)
        workspace.finish(tensors, notes)


def _embed(plan: WalkPlan) -> Iterator[Tensor]:
    """Yields the inputs of the first layer."""
    calibration = plan.calibration
    size = batch_size(plan.checked.source.spec, calibration.num_tokens)
    for start in range(0, calibration.num_sequences, size):
        yield embed_tokens(plan.checked.source, calibration.windows_NT[start : start + size])


def _finish_output(
    plan: WalkPlan, inputs: ActivationFile
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Prunes and quantizes the output layer, if the recipe does so."""
    source, name = plan.checked.source, plan.checked.source.names.output
    if not plan.checked.changes(name):
        return {}, []
    seen = None
    if plan.checked.needs_inputs(name):
        seen = InputStatistics(source.spec.hidden_size)
        seen.wants_hessian = plan.checked.needs_hessian(name)
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
    done = finish_module(plan.checked.work(name), weight_OI, seen, plan.gradients)
    if done.weight is not None:
        return named_tensors(name, done.weight), list(done.notes)
    stored = cast(done.values_OI.float().numpy(), plan.checked.float_dtype).tensor
    return {f"{name}.weight": stored}, list(done.notes)
