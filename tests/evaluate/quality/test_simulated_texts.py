"""An encoder in PyTorch under variants: against texts that run alone, in any batches."""

import numpy as np
import pytest
import torch

from fakes.task_texts import random_task, random_texts
from fakes.tiny_encoders import variant
from paredown.compress.activations import parse_grid, round_activations
from paredown.errors import CheckpointError
from paredown.evaluate.quality.simulated import Variant, applied
from paredown.evaluate.quality.simulated_texts import (
    measure_text_variants,
    text_batches,
    watch_points,
)
from paredown.evaluate.quality.task_quality import TaskQuality, TaskTexts, task_quality
from paredown.executors.encoder_protocol import TokenText
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder


@pytest.fixture(scope="module", params=["labels", "plain"])
def decoder(request, tmp_path_factory) -> Decoder:
    folder = tmp_path_factory.mktemp("encoder")
    variant("bert", request.param, num_labels=3)(folder)
    return Decoder.from_checkpoint(Checkpoint.open(folder))


def alone(decoder: Decoder, text: TokenText) -> np.ndarray:
    ids_BT = torch.tensor([list(text.token_ids)])
    types_BT = None if text.type_ids is None else torch.tensor([list(text.type_ids)])
    with torch.inference_mode():
        return decoder.apply_head(decoder.encode(ids_BT, types_BT))[0].numpy()


def kept(task: TaskTexts) -> tuple[TaskTexts, list[np.ndarray]]:
    """The task, and the outputs that it is asked to score."""
    seen: list[np.ndarray] = []

    def score(outputs: np.ndarray) -> dict[str, float]:
        seen.append(outputs)
        return {"share": 0.5}

    return TaskTexts(
        name=task.name,
        texts=task.texts,
        score=score,
        protocol=task.protocol,
        batch_texts=task.batch_texts,
    ), seen


def coarse(x: torch.Tensor) -> torch.Tensor:
    return round_activations(x, parse_grid("int3-token")).values


VARIANTS = [
    Variant(taps={"layers.1.scores": coarse}),
    Variant(taps={"embedding": coarse, "layers.2.mlp_sum": coarse}),
    Variant(taps={"output_input": coarse}),
    Variant(),
]


@pytest.mark.parametrize("batch_texts", [1, 3, 100])
def test_each_text_has_the_outputs_that_it_has_alone(decoder: Decoder, batch_texts: int) -> None:
    task, seen = kept(random_task(batch_texts=batch_texts))
    qualities, plain = measure_text_variants(decoder, VARIANTS, task)
    *found, expected = seen
    for outputs, one in zip([*found, expected], [*VARIANTS, Variant()], strict=True):
        with applied(decoder, one):
            by_hand = np.stack([alone(decoder, text) for text in task.texts])
        np.testing.assert_allclose(outputs, by_hand, rtol=1e-4, atol=1e-5)
    assert (plain.cosine_mean, plain.cosine_least) == pytest.approx((1.0, 1.0))
    assert qualities[-1].cosine_least == pytest.approx(1.0)
    assert all(one.cosine_mean < 1 - 1e-7 for one in qualities[:2])


def test_texts_of_one_length_are_together_and_none_is_lost() -> None:
    texts = random_texts(40)
    batches = text_batches(texts, 4)
    assert sorted(place for batch in batches for place in batch.places) == list(range(40))
    for batch in batches:
        assert len(batch.places) <= 4
        for place, ids, types in zip(batch.places, batch.ids_BT, batch.types_BT, strict=True):
            assert ids.tolist() == list(texts[place].token_ids)
            assert types.tolist() == list(texts[place].type_ids or [0] * len(ids))


def test_watching_shows_every_token_once(decoder: Decoder) -> None:
    texts, sizes = random_texts(10), []
    watch_points(decoder, texts, {"layers.0.mlp_input": lambda x: (sizes.append(x.shape), x)[1]})
    assert sum(shape[0] * shape[1] for shape in sizes) == sum(len(one.token_ids) for one in texts)


def test_progress_reaches_its_total(decoder: Decoder) -> None:
    seen: list[tuple[int, int]] = []
    measure_text_variants(
        decoder, [], random_task(), lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == seen[-1][1] == len(seen)


def test_the_first_metric_is_the_score() -> None:
    outputs = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    task = TaskTexts(
        name="two",
        texts=(),
        score=lambda found: {"F1": float(found[0, 0]), "accuracy": 0.25},
        protocol="",
    )
    quality = task_quality(task, outputs * 0.5, outputs)
    assert (quality.metric, quality.score, quality.loss) == ("F1", 0.5, 0.5)
    assert quality.cosine_mean == quality.cosine_least == 1.0


@pytest.mark.parametrize(("score", "cosine"), [(float("nan"), 1.0), (0.5, float("nan"))])
def test_what_is_no_number_is_refused(score: float, cosine: float) -> None:
    quality = TaskQuality(scores={"Spearman": score}, cosine_mean=cosine, cosine_least=cosine)
    with pytest.raises(CheckpointError, match="outputs of my-model are not numbers"):
        quality.require_numbers("my-model")
