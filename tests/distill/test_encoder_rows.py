"""Texts packed in rows are learned from as if each were alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.encoder_folder import classifier, embedder
from fakes.tiny_encoders import VOCAB_SIZE
from paredown.distill.encoder_rows import NO_LABEL, EncoderRows, LabelledText
from paredown.distill.forward import fuse_attention, run_layers
from paredown.distill.losses.kl import KL
from paredown.distill.losses.squared_error import SquaredError
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.text_objective import objective_for
from paredown.distill.text_outputs import every_token, text_outputs, text_spans, token_weights
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

LENGTHS = (5, 9, 3, 16, 7, 2)


def texts(lengths: tuple[int, ...] = LENGTHS) -> list[LabelledText]:
    rng = np.random.default_rng(4)
    return [
        LabelledText(
            token_ids=rng.integers(2, VOCAB_SIZE, length).tolist(),
            type_ids=[0] * (length // 2) + [1] * (length - length // 2),
            label=number % 3 if number % 2 else None,
        )
        for number, length in enumerate(lengths)
    ]


def rows_of(found: list[LabelledText], num_tokens: int = 16) -> EncoderRows:
    return EncoderRows.pack(found, num_tokens)


def batch_of(rows: EncoderRows):
    return rows.batch(np.arange(rows.num_rows))


@given(st.lists(st.integers(1, 16), min_size=1, max_size=12).map(tuple))
def test_packing_keeps_every_text(lengths: tuple[int, ...]) -> None:
    found = texts(lengths)
    rows = rows_of(found)
    batch = batch_of(rows)
    assert rows.num_texts == batch.num_targets == len(lengths)
    for text, span in zip(found, text_spans(batch), strict=True):
        here = slice(span.start, span.stop)
        assert batch.inputs_BT[span.row, here].tolist() == text.token_ids
        assert batch.types_BT[span.row, here].tolist() == text.type_ids
    labels = [NO_LABEL if text.label is None else text.label for text in found]
    assert rows.labels.tolist() == batch.targets().tolist() == labels
    weights = token_weights(batch)
    assert len(weights) == every_token(batch).num_targets == sum(lengths)
    assert float(weights.sum()) == pytest.approx(len(lengths))


def test_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="no text to train on"):
        EncoderRows.pack([], 8)


def test_the_digest_knows_labels_and_segments() -> None:
    one = texts()[1]
    digests = {
        rows_of([changed]).digest
        for changed in (
            one,
            LabelledText(token_ids=one.token_ids, type_ids=one.type_ids),
            LabelledText(token_ids=one.token_ids, label=one.label),
        )
    }
    assert len(digests) == 3


@pytest.mark.parametrize("kind", ["embedder", "classifier"])
def test_packed_texts_give_what_they_give_alone(kind: str, tmp_path: Path) -> None:
    folder = embedder(tmp_path) if kind == "embedder" else classifier(tmp_path)
    decoder = Decoder.from_checkpoint(Checkpoint.open(folder))
    fuse_attention(decoder)
    batch = batch_of(rows_of(texts()))
    with torch.no_grad():
        packed = text_outputs(decoder, run_layers(decoder, batch), batch)
        alone = [
            decoder.apply_head(
                decoder.encode(torch.tensor([text.token_ids]), torch.tensor([text.type_ids]))
            )
            for text in texts()
        ]
    torch.testing.assert_close(packed.values_RE, torch.cat(alone), rtol=1e-4, atol=1e-5)
    assert packed.weights_R.tolist() == [1.0] * len(LENGTHS)


@pytest.mark.parametrize("num_labels", [3, 1])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(
    num_labels: int, tmp_path: Path
) -> None:
    source = Checkpoint.open(classifier(tmp_path, num_labels))
    teacher = DecoderTeacher.load(source, "fp32")
    student = Decoder.from_checkpoint(source)
    fuse_attention(student)
    objective = objective_for(source.spec, KL(), teacher)
    if num_labels == 1:
        assert objective.loss == SquaredError()
    batch = batch_of(rows_of(texts()))
    total = objective.total(student, batch, "fp32", recomputes=False)
    assert float(total) == pytest.approx(0, abs=1e-4)
    student.layers[1].up.weight.data *= 1.5
    assert float(objective.total(student, batch, "fp32", recomputes=False)) > 1e-3


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 3))
def test_the_loss_does_not_depend_on_the_parts(part_rows: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source = Checkpoint.open(embedder(Path(folder) / "in"))
        teacher = DecoderTeacher.load(source, "fp32")
        student = Decoder.from_checkpoint(source)
    fuse_attention(student)
    student.layers[0].down.weight.data *= 1.3
    objective = objective_for(source.spec, KL(), teacher)
    batch = batch_of(rows_of(texts()))
    whole = float(objective.total(student, batch, "fp32", recomputes=False))
    parts = [
        float(objective.total(student, part, "fp32", recomputes=True))
        for part in batch.split(part_rows)
    ]
    assert sum(parts) == pytest.approx(whole, rel=1e-4)
