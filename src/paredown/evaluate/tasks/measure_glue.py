"""Measures an encoder on a GLUE task through the executor that serves it."""

from dataclasses import dataclass

import numpy as np

from paredown.engine.build_encoder import BuiltEncoder
from paredown.engine.encode.run_batch import batches_by_length
from paredown.evaluate.quality.task_quality import Outputs, TaskQuality, TaskTexts, task_quality
from paredown.evaluate.tasks.glue_file import GlueExamples
from paredown.evaluate.tasks.glue_texts import glue_texts
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.progress import OnCount

# Tokens that are encoded at once. A text's outputs have the same bits in any batch.
_BATCH_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class GlueResult:
    """The answers to one set of a task ("matched"; empty where there is one). Cosines are those to
    the outputs of the reference, where there is one."""

    set_name: str
    protocol: str
    model: TaskQuality
    reference: TaskQuality | None


def measure_glue(
    encoder: BuiltEncoder,
    examples: GlueExamples,
    reference: BuiltEncoder | None = None,
    on_progress: OnCount | None = None,
) -> GlueResult:
    """Scores an encoder, and the reference beside it. Raises ConfigError for one that cannot do the
    task."""
    task = glue_texts(encoder.model, examples)
    expected = None
    if reference is not None:
        read = glue_texts(reference.model, examples)
        expected = _outputs(reference.executor, read, on_progress)
    found = _outputs(encoder.executor, task, on_progress)
    return GlueResult(
        set_name=examples.set_name,
        protocol=task.protocol,
        model=task_quality(task, found, found if expected is None else expected),
        reference=None if expected is None else task_quality(read, expected, expected),
    )


def _outputs(executor: EncoderExecutor, task: TaskTexts, on_progress: OnCount | None) -> Outputs:
    rows: dict[int, Outputs] = {}
    lengths = [len(text.token_ids) for text in task.texts]
    for batch in batches_by_length(lengths, _BATCH_TOKENS):
        outputs = executor.encode([task.texts[number] for number in batch])
        rows |= dict(zip(batch, outputs, strict=True))
        if on_progress is not None:
            on_progress(len(rows), len(lengths))
    return np.stack([rows[number] for number in range(len(lengths))])
