"""What we write, read by llama.cpp itself. `make parity` builds it (minutes) and runs this."""

from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import pytest

from fakes.gguf_tokenizers import TEXTS, write_byte_level, write_sentence_piece
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.executors.load import load_executor
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.tokenizer import JSON, PRE
from paredown.models.gguf.vocabulary import read_vocabulary
from paredown.models.gguf.words import WORD_RULES
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.weight import ActivationDType

PROMPTS = (
    "It was late in the evening when",
    '"My dear sir," said the old man,',
    "The ship had been at sea for",
    "Once upon a time there was a",
)
MORE_PROMPTS = (
    "“My dear sir,” said the old man,",
    "She opened the letter and read",
    "There is nothing so difficult as",
    "The king called his three sons and",
)
NUM_TOKENS = 32
CONTEXT = 128


@llama_cpp.llama_log_callback
def ignore(level: int, text: bytes, data: object) -> None:
    """llama.cpp's log."""


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    llama_cpp.llama_log_set(ignore, None)
    llama_cpp.llama_backend_init()


class Theirs:
    """llama.cpp with keys and values in F32, so that its rounding of inputs alone is seen, and with
    weights as they lie in the file: repacked, version 0.3.36 dies of an illegal instruction
    in some places."""

    def __init__(self, path: Path, *, vocab_only: bool = False) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = False
        parameters.vocab_only = vocab_only
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        assert self._model, path
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._context = None
        if not vocab_only:
            options = llama_cpp.llama_context_default_params()
            options.n_ctx = options.n_batch = CONTEXT
            options.n_threads = options.n_threads_batch = 1
            options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
            options.flash_attn_type = 0
            self._context = llama_cpp.llama_init_from_model(self._model, options)
            assert self._context

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        raw = text.encode()
        ids = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(
            self._vocab, raw, len(raw), ids, len(ids), add_special, True
        )
        return list(ids[:count])

    def logits(self, ids: list[int]) -> np.ndarray:
        """Of the token after `ids`."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
        assert llama_cpp.llama_decode(self._context, batch) == 0
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        size = llama_cpp.llama_vocab_n_tokens(self._vocab)
        return np.ctypeslib.as_array(pointer, shape=(size,)).copy()

    def close(self) -> None:
        if self._context:
            llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)


@pytest.fixture(scope="module", params=list(GGUF_FORMATS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged model in each format."""
    path = tmp_path_factory.mktemp("gguf") / f"{request.param}.gguf"
    write_gguf(Checkpoint.open(resolve_model(None)), path, formats=GGUF_FORMATS[request.param])
    return path


@pytest.fixture(scope="module")
def theirs(written: Path) -> Iterator[Theirs]:
    model = Theirs(written)
    yield model
    model.close()


def our_logits(executor: NativeExecutor, ids: list[int]) -> np.ndarray:
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=1)])[-1]


def executor_of(path: Path, activations: ActivationDType | None) -> NativeExecutor:
    return load_executor(
        Checkpoint.open(path),
        RunOptions(
            num_pages=CONTEXT // 16,
            threads=ThreadPlan.resolve(1),
            kv_dtype="fp32",
            activations=activations,
        ),
    )


def prompt_ids(path: Path, prompts: tuple[str, ...]) -> list[list[int]]:
    tokenizer = Tokenizer.open(path)
    assert tokenizer.bos_token_id is not None
    return [[tokenizer.bos_token_id, *tokenizer.encode(prompt)] for prompt in prompts]


def test_the_greedy_tokens_are_the_same(written: Path, theirs: Theirs) -> None:
    """Each goes on with its own tokens. Inputs of quantized layers are rounded to int8 in groups of
    32 there and here. None of these prompts runs into a tie as near as the rounding; others do."""
    executor = executor_of(written, None)
    for prompt in prompt_ids(written, PROMPTS):
        ours, found = list(prompt), list(prompt)
        for _ in range(NUM_TOKENS):
            ours.append(int(our_logits(executor, ours).argmax()))
            found.append(int(theirs.logits(found).argmax()))
        assert found == ours


@pytest.mark.parametrize("activations", [None, "fp32"])
def test_tokens_differ_only_where_the_margin_is_below_the_rounding(
    written: Path, theirs: Theirs, activations: ActivationDType | None
) -> None:
    """With "fp32" inputs are not rounded here at all: the dequantized weights as they are. Both are
    asked for the token after the same ones."""
    executor = executor_of(written, activations)
    num_same = 0
    for prompt in prompt_ids(written, PROMPTS + MORE_PROMPTS):
        ids = list(prompt)
        for _ in range(NUM_TOKENS):
            ours, found = our_logits(executor, ids), theirs.logits(ids)
            difference = float(np.abs(ours - found).max())
            assert difference < 0.25
            second, best = np.sort(ours)[-2:]
            same = bool(ours.argmax() == found.argmax())
            assert same or best - second < 2 * difference
            num_same += same
            ids.append(int(found.argmax()))
    assert num_same >= 0.98 * NUM_TOKENS * len(PROMPTS + MORE_PROMPTS)
    print(
        f"{written.stem}, inputs {activations or 'as its format says'}: {num_same} of 256 the same"
    )


def test_the_packaged_tokenizer_differs_at_numbers_alone(written: Path, theirs: Theirs) -> None:
    ours = Tokenizer.open(written)
    assert theirs.encode("The sun", add_special=True)[0] == ours.bos_token_id
    for text in TEXTS:
        expected, found = ours.encode(text), theirs.encode(text)
        assert ours.decode(found) == ours.decode(expected)
        assert found == expected or any(digit in text for digit in "0123456789½²")
    same = [theirs.encode(text) == ours.encode(text) for text in TEXTS]
    assert sum(same) >= len(TEXTS) - 3


@pytest.mark.parametrize("pre", list(WORD_RULES))
def test_byte_level_tokens_are_the_same(pre: str, tmp_path: Path) -> None:
    rule = WORD_RULES[pre]
    size = write_byte_level(tmp_path, WORD_RULES["gpt-2"].pattern, False)
    metadata = read_vocabulary(tmp_path, size).metadata | {PRE: pre}
    check_tokens(tmp_path / f"{pre}.gguf", metadata)
    assert rule.pattern


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece_tokens_are_the_same(prefix: bool, tmp_path: Path) -> None:
    size = write_sentence_piece(tmp_path, prefix)
    check_tokens(tmp_path / "spm.gguf", read_vocabulary(tmp_path, size).metadata)


def check_tokens(path: Path, metadata: dict) -> None:
    """Ours are made of the parts that llama.cpp reads."""
    parts = {key: value for key, value in metadata.items() if key != JSON}
    write_gguf_file(path, {"general.architecture": "llama", **parts}, [], [])
    ours, theirs = Tokenizer.open(path), Theirs(path, vocab_only=True)
    for text in TEXTS:
        assert theirs.encode(text) == ours.encode(text), text
    theirs.close()
