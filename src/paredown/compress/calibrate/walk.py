"""The walk: calibrates one transformer layer at a time, each with the outputs of the compressed
layers before it.

Each layer is compressed by layer_work.py. Then the walk computes the next layer's inputs with the
layer as it will be stored. An encoder is walked through before its decoder, whose layers read the
vectors of the compressed encoder. Only this file walks a model.
"""

from itertools import zip_longest

import torch

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import load_block
from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.calibrate.layer_work import LayerWork, named_tensors
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.stack import Stack, walk_stacks
from paredown.compress.calibrate.walk_plan import WalkPlan
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.finish_module import finish_module
from paredown.errors import naming
from paredown.formats.floating import cast
from paredown.formats.tensor import StoredTensor
from paredown.models.decoder.read import load_final_norm
from paredown.progress import OnProgress


def walk(plan: WalkPlan, workspace: Workspace, on_progress: OnProgress) -> None:
    """Finishes every layer that `workspace` has not finished, and the output layer last. Raises
    CheckpointError, with the module's name, for weights or inputs that are not finite."""
    with torch.inference_mode():
        _walk(plan, workspace, on_progress)


def _walk(plan: WalkPlan, workspace: Workspace, on_progress: OnProgress) -> None:
    stacks = walk_stacks(plan, workspace)
    last = stacks[-1]
    num_steps = last.end + 1
    if workspace.num_finished == 0:
        on_progress("looking up embeddings", 0.0)
        stacks[0].inputs(workspace, 0).write(stacks[0].embedded())
    for stack, after in zip_longest(stacks, stacks[1:]):
        while workspace.num_finished < stack.end:
            number = workspace.num_finished
            what = f"layer {number + 1} of {last.end}"

            def report(doing: str, share: float, number: int = number, what: str = what) -> None:
                on_progress(f"{what}: {doing}", (number + share) / num_steps)

            _finish_layer(stack, after, workspace, report)
    if workspace.num_finished == last.end:
        on_progress("the output layer", last.end / num_steps)
        tensors, notes = _finish_output(last, last.inputs(workspace, last.end))
        workspace.finish(tensors, notes)


def _finish_layer(
    stack: Stack, after: Stack | None, workspace: Workspace, report: OnProgress
) -> None:
    """Finishes the next layer of a stack; `after` is the stack that reads this one's vectors."""
    plan, number = stack.plan, workspace.num_finished
    inputs = stack.inputs(workspace, number)
    block = load_block(stack.source, number - stack.first, inputs, stack.encodings)
    stack.source.release()
    passes = Passes(block, workspace)
    tensors, notes = LayerWork(plan, block, passes, report).run()
    if number + 1 < stack.end or (
        after is None and plan.checked.needs_inputs(stack.source.names.output)
    ):
        report("passing on", 0.85)
        stack.inputs(workspace, number + 1).write(passes.outputs())
    elif after is not None:
        report("passing on", 0.85)
        assert after.encodings is not None
        after.encodings.write(map(load_final_norm(stack.source), passes.outputs()))
        after.inputs(workspace, after.first).write(after.embedded())
    passes.close()
    workspace.finish(tensors, notes)


def _finish_output(
    stack: Stack, inputs: ActivationFile
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Prunes and quantizes the output layer, if the recipe does so."""
    plan, source = stack.plan, stack.source
    name = source.names.output
    if not plan.checked.changes(name):
        return {}, []
    seen = None
    if plan.checked.needs_inputs(name):
        seen = InputStatistics(source.spec.hidden_size)
        seen.wants_hessian = plan.checked.needs_hessian(name)
        norm = load_final_norm(source)
        with naming(name):
            for batch_BTD in inputs.batches(stack.batch_size):
                seen.add(norm(batch_BTD))
    weight_OI = torch.from_numpy(source.output().dequantize())
    done = finish_module(plan.checked.work(name), weight_OI, seen, plan.gradients)
    if done.weight is not None:
        return named_tensors(name, done.weight), list(done.notes)
    stored = cast(done.values_OI.float().numpy(), plan.checked.float_dtype).tensor
    return {f"{name}.weight": stored}, list(done.notes)
