"""Finds the roofs of the machine that `paredown serve` runs on."""

from dataclasses import replace

from paredown.cost.machine_file import find_step_fit
from paredown.cost.step_sums import RoofTimes
from paredown.executors.protocol import LoadedExecutor
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.run_forms import model_formats


def known_roofs(checkpoint: Checkpoint, executor: LoadedExecutor) -> RoofTimes | None:
    """Returns what the machine's roofs ask for; None where `paredown doctor --sweep` has not
    measured it with as many threads, and for models with an encoder."""
    spec, threads = executor.spec, executor.threads.prefill
    fit = find_step_fit(processor_name(), executor.arithmetic.get("isa", ""), threads)
    if fit is None or spec.encoder is not None:
        return None
    formats = replace(model_formats(checkpoint), kv_dtype=executor.kv.dtype)
    roofs = fit.roofs.with_bandwidth(fit.bandwidth(executor.weight_bytes))
    return RoofTimes.of(spec, formats, roofs)
