"""Encoders as folders, over HTTP, against Transformers: pooling (B01), the end token of decoders
(B07), cross-encoders, and folders that are damaged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from transformers import PreTrainedModel

from drivers.encoder_server import RunningEncoder, encoder_server
from fakes.encoder_folders import write_bert, write_byte_decoder, write_decoder, write_settings
from fakes.word_tokenizer import word_library
from paredown import Encoder, convert_checkpoint
from paredown.engine.build_encoder import build_encoder
from paredown.engine.encode.encoder_model import encodes
from paredown.errors import CheckpointError, ConfigError
from paredown.executors.run_options import ExecutorChoice, RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint

TEXTS = ["a", "a b c d e f"]
EXECUTORS: tuple[ExecutorChoice, ...] = ("native", "torch")


@contextmanager
def serving(folder: Path, executor: ExecutorChoice) -> Iterator[RunningEncoder]:
    options = RunOptions(executor=executor, threads=ThreadPlan.resolve(1), activations="fp32")
    built = build_encoder(Checkpoint.open(folder), options)
    with encoder_server(built.model, built.executor) as server:
        yield server


def token_vectors(model: PreTrainedModel, ids: list[int], **inputs: object) -> np.ndarray:
    body = getattr(model, "base_model", model)
    with torch.inference_mode():
        return body(torch.tensor([ids]), **inputs).last_hidden_state[0].numpy()


POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda rows: rows[0],
    "mean": lambda rows: rows.mean(0),
    "max": lambda rows: rows.max(0),
    "lasttoken": lambda rows: rows[-1],
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_no_say_in_a_vector(tmp_path, executor, pooling, side):
    model = write_bert(tmp_path, pooling=pooling)
    write_settings(tmp_path, "tokenizer_config", padding_side=side)
    with serving(tmp_path, executor) as server:
        together = server.embed(TEXTS)
        for text, row in zip(TEXTS, together, strict=True):
            assert (server.embed([text])[0] == row).all()
            ids = word_library().encode(text).ids
            expected = POOLINGS[pooling](token_vectors(model, ids))
            assert np.abs(row - expected / np.linalg.norm(expected)).max() < 1e-4


def test_a_text_has_the_same_bits_alone_and_in_any_batch(tmp_path):
    write_bert(tmp_path)
    texts = ["a b c d e "[: 2 * (1 + number % 5)] * (1 + number % 4) for number in range(33)]
    with serving(tmp_path, "native") as server:
        together = server.embed(texts)
        assert (server.embed(texts[::-1])[::-1] == together).all()
        for text, row in zip(texts, together, strict=True):
            assert (server.embed(text)[0] == row).all()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_decoders_vector_is_that_of_the_end_token(tmp_path, executor):
    model = write_decoder(tmp_path)
    with serving(tmp_path, executor) as server:
        for text, ids in (("a b", [7, 8, 3]), ("a b[SEP]", [7, 8, 3, 3])):
            status, found = server.post("/v1/embeddings", input=text)
            assert (status, found["usage"]["prompt_tokens"]) == (200, len(ids))
            expected = token_vectors(model, ids)[-1]
            row = np.array(found["data"][0]["embedding"], np.float32)
            assert np.abs(row - expected / np.linalg.norm(expected)).max() < 1e-4


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_gguf_file_has_the_same_end_token_and_vector(tmp_path, executor):
    folder, file = tmp_path / "folder", tmp_path / "file.gguf"
    folder.mkdir()
    model = write_byte_decoder(folder)
    convert_checkpoint(folder, file, "gguf")
    library = Library.from_file(str(folder / "tokenizer.json"))
    found = []
    for path in (folder, file):
        with serving(path, executor) as server:
            for text in ("test", "test</s>"):
                status, reply = server.post("/v1/embeddings", input=text)
                ids = library.encode(text).ids
                assert ids[-1] == 1
                assert (status, reply["usage"]["prompt_tokens"]) == (200, len(ids))
                row = np.array(reply["data"][0]["embedding"], np.float32)
                expected = token_vectors(model, ids)[-1]
                assert np.abs(row - expected / np.linalg.norm(expected)).max() < 1e-4
                found.append(row)
    assert (found[0] == found[2]).all()
    assert (found[1] == found[3]).all()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_cross_encoder_scores_as_transformers_does(tmp_path, executor):
    model = write_bert(tmp_path, "labels", num_labels=1)
    pairs = [("a b", "c"), ("a b", "d e f")]
    expected = []
    for pair in pairs:
        whole = word_library().encode(*pair)
        inputs = {"token_type_ids": torch.tensor([whole.type_ids])}
        with torch.inference_mode():
            logit = model(torch.tensor([whole.ids]), **inputs).logits[0, 0]
        expected.append(float(torch.sigmoid(logit)))
    with serving(tmp_path, executor) as server:
        found = server.post("/v1/score", text_1="a b", text_2=["c", "d e f"])[1]
        assert [one["score"] for one in found["data"]] == pytest.approx(expected, abs=1e-4)
        ranked = server.rank("a b", ["c", "d e f"])
        order = [one["index"] for one in ranked]
        assert order == sorted(range(2), key=lambda index: -expected[index])


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_labels_have_the_probabilities_of_transformers(tmp_path, kind):
    model = write_bert(tmp_path, "labels", num_labels=3, problem_type=kind)
    with torch.inference_mode():
        logits = model(torch.tensor([word_library().encode("a b").ids])).logits[0]
    alone = logits.sigmoid() if kind.startswith("multi") else logits.softmax(-1)
    with serving(tmp_path, "native") as server:
        found = server.post("/v1/classify", input="a b")[1]["data"][0]
    assert found["probs"] == pytest.approx(alone.tolist(), abs=1e-4)
    assert found["label"] == f"LABEL_{int(alone.argmax())}"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_tokens_that_none_sees_are_masked_as_in_transformers(tmp_path, executor):
    model = write_bert(tmp_path, pooling=None)
    write_settings(
        tmp_path,
        "config_sentence_transformers",
        query_prefix="[Q]",
        document_prefix="[D]",
        query_length=8,
    )
    encoder = Encoder(tmp_path, executor=executor, num_threads=1, activations="fp32")
    found = encoder.token_vectors("a b", is_query=True)
    ids = [2, 5, 7, 8, 3, 4, 4, 4]
    assert found.token_ids == [ids]
    mask = torch.tensor([[1] * 5 + [0] * 3])
    expected = token_vectors(model, ids, attention_mask=mask)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(found.vectors[0] - expected).max() < 1e-4


def test_what_a_folder_is_for_is_read_from_it(tmp_path):
    write_bert(tmp_path / "encoder")
    write_decoder(tmp_path / "decoder")
    encoder, decoder = (Checkpoint.open(tmp_path / name) for name in ("encoder", "decoder"))
    assert encodes(encoder, "auto")
    assert encodes(decoder, "auto")
    assert not encodes(decoder, "generate")
    with pytest.raises(ConfigError, match="does not generate"):
        encodes(encoder, "generate")
    (tmp_path / "decoder" / "modules.json").unlink()
    plain = Checkpoint.open(tmp_path / "decoder")
    assert not encodes(plain, "auto")
    assert encodes(plain, "embed")


def test_a_decoder_without_modules_embeds_by_its_last_token_when_asked(tmp_path):
    write_decoder(tmp_path)
    expected = Encoder(tmp_path, executor="torch", num_threads=1).embed(TEXTS).vectors
    (tmp_path / "modules.json").unlink()
    found = Encoder(tmp_path, executor="torch", num_threads=1).embed(TEXTS).vectors
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "1_Pooling/config.json"])
def test_a_damaged_folder_is_a_clear_error(tmp_path, name):
    write_bert(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError):
        Encoder(tmp_path, executor="torch", num_threads=1)
