"""Drawn tokens are those of a plain loop without a cache, and all that is told about them is so."""

import math
from dataclasses import replace

import pytest
import torch

from drivers.tiny_sampling import (
    load_student,
    load_teacher,
    log_probabilities,
    prompts_of,
    sampling_of,
    write_llama,
)
from paredown.distill.on_policy.sample import sample
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.teacher import DecoderTeacher
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.decoder.decoder import Decoder
from references.policy_gradient import drawn_token

PROMPTS = prompts_of([5, 1, 3, 9])
# A third of the vocabulary, so that answers end at different places.
STOPS = frozenset(range(0, 300, 3))


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_student(write_llama(tmp_path_factory.mktemp("student"), 4))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> DecoderTeacher:
    """Its vocabulary has padding after the student's."""
    return load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9, vocab_size=320))


def plain_answers(
    student: Decoder, teacher: Decoder, sampling: Sampling, step: int, share: float
) -> list[list[int]]:
    """Each answer by itself, with the models run over the whole text for each token."""
    answers = []
    for row, prompt in enumerate(sampling.step_prompts(step)):
        text, answer = list(prompt), list[int]()
        for draw in sampling.draws(step)[row]:
            logits = [one(torch.tensor([text]))[0, -1, :300].double() for one in (student, teacher)]
            q, p = ((one / sampling.temperature).softmax(-1) for one in logits)
            answer.append(drawn_token((share * p + (1 - share) * q).tolist(), draw))
            text.append(answer[-1])
            if answer[-1] in sampling.stop_ids:
                break
        answers.append(answer)
    return answers


@pytest.mark.parametrize(
    ("share", "temperature", "stops"),
    [(0.0, 1.0, STOPS), (0.0, 0.5, frozenset()), (0.3, 1.0, STOPS), (1.0, 2.0, STOPS)],
)
def test_answers_are_those_of_a_plain_loop(
    student: Decoder,
    teacher: DecoderTeacher,
    share: float,
    temperature: float,
    stops: frozenset[int],
) -> None:
    sampling = sampling_of(PROMPTS, 7, stop_ids=stops, temperature=temperature, num_each=3)
    for step in (0, 1):
        drawn = sample(student, sampling, step, teacher, share)
        expected = plain_answers(student, teacher.decoder, sampling, step, share)
        assert drawn.answers() == expected
        assert drawn.lengths_B.tolist() == [
            len(prompt) + len(answer)
            for prompt, answer in zip(sampling.step_prompts(step), expected, strict=True)
        ]


def test_probabilities_are_those_of_the_models(student: Decoder, teacher: DecoderTeacher) -> None:
    sampling = sampling_of(PROMPTS, 7, stop_ids=STOPS, num_each=2)
    drawn = sample(student, sampling, 0, teacher, 0.3)
    places_BT = drawn.drawn_places()
    assert drawn.log_p_BT is not None
    for found_BT, decoder in ((drawn.log_q_BT, student), (drawn.log_p_BT, teacher.decoder)):
        expected_BT = log_probabilities(decoder, drawn, 300)
        torch.testing.assert_close(
            found_BT[places_BT], expected_BT[places_BT], rtol=1e-4, atol=1e-4
        )
        assert (found_BT[~places_BT] == 0).all()


def test_a_step_is_drawn_again_alike_and_others_are_not(student: Decoder) -> None:
    sampling = sampling_of(prompts_of([4] * 6), 5, num_prompts=3)
    answers = [sample(student, sampling, step).answers() for step in (0, 1, 2, 0)]
    assert answers[0] == answers[3]
    assert len({str(one) for one in answers}) == 3
    other = sampling_of(prompts_of([4] * 6), 5, num_prompts=3, seed=1)
    assert sample(student, other, 0).answers() != answers[0]
    draws = [sampling.draws(step) for step in (0, 1, 0)]
    assert (draws[0] == draws[2]).all()
    assert not (draws[0] == draws[1]).any()
    read = [ids for step in (0, 1) for ids in sampling.step_prompts(step)]
    assert sorted(read) == sorted(sampling.prompts.token_ids)


def test_targets_are_what_was_drawn_with_its_end_and_no_padding(student: Decoder) -> None:
    """The padding is token 0, which ends answers, too."""
    sampling = sampling_of(PROMPTS, 7, stop_ids=STOPS, num_each=3)
    drawn = sample(student, sampling, 0)
    batch = drawn.batch()
    assert batch.targets().tolist() == [token for ids in drawn.answers() for token in ids]
    ended = [ids for ids in drawn.answers() if len(ids) < 7]
    assert ended
    assert all(ids[-1] in STOPS and not STOPS & set(ids[:-1]) for ids in ended)
    padding_BT = torch.arange(drawn.tokens_BT.shape[1]) >= drawn.lengths_B[:, None]
    assert padding_BT.any()
    assert (drawn.tokens_BT[padding_BT] == 0).all()


def test_tokens_come_as_often_as_the_distribution_says(student: Decoder) -> None:
    prompts = prompts_of([3])
    sampling = sampling_of(prompts, 1, num_each=4000)
    found = torch.tensor(sample(student, sampling, 0).answers())[:, 0].bincount(minlength=300)
    q_V = student(torch.tensor([prompts.token_ids[0]]))[0, -1].softmax(-1)
    error_V = (found / 4000 - q_V).abs() / (q_V * (1 - q_V) / 4000).sqrt()
    assert error_V[q_V > 0.005].max() < 4


def test_texts_beyond_the_context_are_refused(student: Decoder) -> None:
    sampling = sampling_of(PROMPTS, student.spec.max_positions)
    with pytest.raises(ConfigError, match="longer than the model's context"):
        sample(student, sampling, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_prompts": 0},
        {"num_each": 0},
        {"seed": -1},
        {"temperature": 0.0},
        {"temperature": math.nan},
    ],
)
def test_numbers_out_of_range_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        sampling_of(PROMPTS, **changes)
    with pytest.raises(ConfigError, match="out of range"):
        sampling_of(PROMPTS, 0)


def test_a_model_whose_tokens_see_later_ones_is_refused(student: Decoder) -> None:
    spec = student.spec
    layers = tuple(
        replace(layer, attention=replace(layer.attention, is_causal=False)) for layer in spec.layers
    )
    with pytest.raises(UnsupportedError, match="see later ones"):
        sample(Decoder(replace(spec, layers=layers)), sampling_of(PROMPTS), 0)
