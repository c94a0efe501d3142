"""Finishes one linear module: prunes it, then quantizes what stays."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.prune.held_zeros import held_zeros
from paredown.compress.prune.joint_sparsegpt import JointSparseGPT
from paredown.compress.prune.method import Gradients, Pruned, Seen
from paredown.compress.prune.sparsegpt import SparseGPT
from paredown.compress.prunings import Pruning
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import LayerTarget, Moments
from paredown.compress.schemes import Scheme
from paredown.errors import naming
from paredown.formats.weight import Weight


@dataclass(frozen=True, kw_only=True)
class ModuleWork:
    """The work on one module [O, I], by the name of its tensor. `scheme` is None where it
    stays in floats, `pruning` where nothing is removed; `was_pruned` says that the source's record
    names it as pruned."""

    name: str
    target: LayerTarget
    scheme: Scheme | None = None
    pruning: Pruning | None = None
    was_pruned: bool = False


@dataclass(frozen=True, kw_only=True)
class Finished:
    """`weight` is None where the module stays in floats, with `values_OI`."""

    weight: Weight | None
    values_OI: Tensor
    notes: tuple[str, ...] = ()


def finish_module(
    work: ModuleWork,
    weight_OI: Tensor,
    seen: InputStatistics | None = None,
    gradients: Mapping[str, Gradients] | None = None,
) -> Finished:
    """Prunes and quantizes the module. `seen` has the statistics of its inputs and `gradients`
    those of all modules, where a method asks for them. Raises CheckpointError, with the module's
    name, for values that are not finite."""
    with naming(work.name):
        moments = None if seen is None else seen.moments()
        done = _joint(work, weight_OI, moments)
        if done is None:
            done = _one_by_one(work, weight_OI, moments, (gradients or {}).get(work.name))
    weight = done.weight
    if weight is not None and work.target.spec.activations == "int8_static":
        assert seen is not None
        weight = weight.with_input_scale(seen.static_scale(work.target.scale_dtype))
    notes = tuple(f"{work.name}: {note}" for note in done.notes)
    return replace(done, weight=weight, notes=notes)


def _joint(work: ModuleWork, weight_OI: Tensor, moments: Moments | None) -> Finished | None:
    """Prunes and rounds in one loop, where both methods can share it."""
    pruning, scheme = work.pruning, work.scheme
    if pruning is None or scheme is None or pruning.step.refinements:
        return None
    pruner, quantizer = pruning.step.pruner, scheme.quantizer
    if not (isinstance(pruner, SparseGPT) and isinstance(quantizer, GPTQ)):
        return None
    assert moments is not None
    method = JointSparseGPT(pruner=pruner, quantizer=quantizer)
    done = method.compress(weight_OI, pruning.pattern, work.target, moments).quantized
    return Finished(weight=done.weight, values_OI=done.values(), notes=done.notes)


def _one_by_one(
    work: ModuleWork, weight_OI: Tensor, moments: Moments | None, gradients: Gradients | None
) -> Finished:
    notes: tuple[str, ...] = ()
    if work.pruning is not None:
        seen = Seen(module=work.name, moments=moments, gradients=gradients)
        pruned = _prune(work.pruning, weight_OI, seen)
        mask_OI: Tensor | None = pruned.mask_OI
        weight_OI, notes = pruned.values_OI.to(weight_OI.dtype), pruned.notes
    else:
        mask_OI = held_zeros(weight_OI, recorded=work.was_pruned)
    if work.scheme is None:
        return Finished(weight=None, values_OI=weight_OI, notes=notes)
    target = replace(work.target, mask_OI=mask_OI)
    done = work.scheme.quantizer.quantize(weight_OI, target, moments)
    values_OI = done.values()
    if mask_OI is not None:
        assert not bool(torch.any(values_OI[~mask_OI] != 0)), "a quantizer moved weights off zero"
    return Finished(weight=done.weight, values_OI=values_OI, notes=(*notes, *done.notes))


def _prune(pruning: Pruning, weight_OI: Tensor, seen: Seen) -> Pruned:
    step = pruning.step
    pruned = step.pruner.prune(weight_OI, pruning.pattern, seen)
    for refinement in step.refinements:
        assert seen.moments is not None
        pruned = refinement.refine(weight_OI, pruned, pruning.pattern, seen.moments)
    return pruned
