"""A tokenizer is a program of whoever made the model: its size is bounded before it is loaded, what
the library raises is an error of ours, and one text that it cannot take ends that request alone."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.running_server import NUM_PAGES, running_server
from drivers.shared_data import data_folder, needs_data
from fakes.small_tokenizers import NAMES
from fakes.toy_executor import ToyExecutor, ToyTokenizer
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import CheckpointError, ParedownError, RequestError
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import Value
from paredown.models.gguf.tokenizer import MERGES, MODEL, PRE, SCORES, TOKENS
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text.tokenizer_library import TokenizerLibrary

SOON_S = 15.0
# With a letter at the end that it does not match, it tries all ways through the letters before.
BACKTRACKING = "([a-z]+)*$"
BAD = "a" * 40 + "!"
Json = dict[str, Any]
BYTE_LEVEL = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
}  # fmt: skip


def description(**parts: object) -> Json:
    vocabulary = {chr(97 + i): i for i in range(26)} | {"!": 26, BAD: 27, "fine": 28}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return {"version": "1.0", "added_tokens": [], "model": model, **parts}


def write(folder: Path, **parts: object) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(description(**parts)))
    for name in ("tokenizer_config", "config"):
        (folder / f"{name}.json").write_text(json.dumps(NAMES if "_" in name else {}))
    return folder


def split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replaced(pattern: str, content: str = "x") -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def in_texts(pattern: str) -> Json:
    return {"type": "Sequence", "decoders": [{"type": "Fuse"}, replaced(pattern)]}


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAA"}},
        {"normalizer": {"type": "Prepend", "prepend": ""}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"pre_tokenizer": split("(" * 5_000)},
        {"pre_tokenizer": split("a{99999999999999}")},
        {"normalizer": {"type": "Sequence", "normalizers": [replaced("a", "x" * 100)] * 9}},
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}]
                * 40,
            },
            "added_tokens": [
                {
                    "id": 29, "content": "a", "single_word": False, "lstrip": False,
                    "rstrip": False, "normalized": True, "special": False,
                }
            ],
        },
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}},
        {"model": {"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}},
    ],
)  # fmt: skip
def test_what_the_library_panics_at_is_an_error_of_ours(parts: Json, tmp_path: Path) -> None:
    start_s = time.monotonic()
    with pytest.raises(CheckpointError, match="tokenizer"):
        Tokenizer.open(write(tmp_path, **parts))
    assert time.monotonic() - start_s < SOON_S


def test_growth_is_found_behind_escapes_and_in_older_forms() -> None:
    grown = [{"pattern": {"String": "a"}, "content": "a" * 99}]
    for old, new in (("", ""), ("normalizer", "normaliz\\u0065r"), ("content", "c\\u006fntent")):
        data = json.dumps(description(normalizer={"normalizers": grown})).replace(old, new)
        with pytest.raises(CheckpointError, match="99 times as long"):
            TokenizerLibrary.parse(data.encode(), "t")


@pytest.mark.parametrize(
    "parts", [{"pre_tokenizer": split(BACKTRACKING)}, {"normalizer": replaced(BACKTRACKING)}]
)
def test_a_text_that_takes_too_long_is_refused_and_the_next_is_not(
    parts: Json, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.open(write(tmp_path, **parts))
    start_s = time.monotonic()
    with pytest.raises(RequestError, match="tokenizer"):
        tokenizer.encode(BAD)
    with pytest.raises(RequestError, match="tokenizer"):
        tokenizer.encode(BAD * 200)
    assert tokenizer.encode("ab!")
    assert time.monotonic() - start_s < SOON_S


def test_a_pattern_that_takes_the_square_of_a_text_comes_to_a_limit(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write(tmp_path, pre_tokenizer=split("[ab]+!?c")))
    assert tokenizer.encode("abc" * 3) == [0, 1, 2] * 3
    start_s = time.monotonic()
    with pytest.raises(RequestError, match="processor time"):
        tokenizer.encode("ab" * 50_000 + "c!" + "ab" * 50_000)
    assert time.monotonic() - start_s < SOON_S


@pytest.mark.parametrize(
    "model",
    [
        {
            "type": "WordPiece", "unk_token": "!", "continuing_subword_prefix": "",
            "max_input_chars_per_word": 1 << 20, "vocab": {"a": 0, "!": 1},
        },
        {"type": "Unigram", "unk_id": 0, "vocab": [["a" * i, -float(i)] for i in range(1, 1500)]},
    ],
)  # fmt: skip
def test_a_long_word_comes_to_a_limit(model: Json, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write(tmp_path, model=model))
    assert tokenizer.encode("aa")
    start_s = time.monotonic()
    with pytest.raises(RequestError, match="tokenizer was stopped"):
        tokenizer.encode("a" * 100_000)
    assert time.monotonic() - start_s < SOON_S


@pytest.mark.parametrize(
    "decoder", [in_texts(BACKTRACKING), replaced(BACKTRACKING), in_texts("(?:a|a|b)*$")]
)
def test_a_failing_decode_is_an_error_of_ours(decoder: Json, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write(tmp_path, decoder=decoder))
    start_s = time.monotonic()
    for _ in range(2):
        with pytest.raises(RequestError, match="tokenizer"):
            tokenizer.decode([27])
        assert tokenizer.decode([26])
    assert time.monotonic() - start_s < SOON_S


def test_a_reply_that_cannot_become_text_ends_alone(tmp_path: Path) -> None:
    """Pages are released, and another answer of the same steps goes on."""
    tokenizer = Tokenizer.open(write(tmp_path, decoder=in_texts(BACKTRACKING)))
    engine = Engine(ToyExecutor(num_pages=NUM_PAGES), tokenizer)
    bad, good = (
        engine.submit([26], SamplingParams(max_tokens=6, allowed_token_ids=(token_id,)))
        for token_id in (27, 26)
    )
    last = {}
    while engine.has_work:
        for output in engine.step():
            if output.finish_reason is not None:
                last[output.request.id] = output
        engine.check_integrity()
    assert last[bad.id].finish_reason == "error"
    assert "tokenizer" in str(last[bad.id].error)
    assert last[good.id].finish_reason == "length"
    assert engine.scheduler.pool.num_free == NUM_PAGES


class FailingTokenizer(ToyTokenizer):
    """Fails at one token, as a library may that nobody has wrapped, and at the end of a text."""

    def __init__(self, *, fails_at_end: bool = False) -> None:
        super().__init__()
        self._fails_at_end = fails_at_end

    def decode(self, token_ids: list[int]) -> str:
        text = super().decode(token_ids)
        if "\x00" in text or (self._fails_at_end and text.endswith("\ufffd")):
            raise ValueError("no such text")
        return text


@pytest.mark.parametrize("fails_at_end", [False, True])
def test_a_server_outlives_a_tokenizer_that_fails(fails_at_end: bool) -> None:
    bad = 1 if not fails_at_end else ToyTokenizer.PIECES.index(b"\xc3") + 264
    body = {"model": "toy", "prompt": "x", "max_tokens": 3, "temperature": 0}
    with running_server(tokenizer=FailingTokenizer(fails_at_end=fails_at_end)) as server:
        for stream in (False, True):
            asked = {**body, "allowed_token_ids": [bad], "stream": stream}
            reply = server.client.post("/v1/completions", json=asked)
            assert "no such text" in reply.text
            assert reply.status_code == 500 or stream
        refused = server.client.post("/v1/completions", json={**body, "prompt": [5, bad, bad]})
        assert refused.status_code == 400
        reply = server.client.post("/v1/completions", json={**body, "allowed_token_ids": [66]})
        assert reply.json()["choices"][0]["text"] == "AAA"
        assert server.client.get("/health").status_code == 200
        server.wait_until(lambda: server.is_empty)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_parts_are_taken_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    """No panic passes, at load, at a text, or at tokens."""
    value = st.one_of(
        st.none(), st.booleans(), st.integers(-2, 3), st.integers(), st.text(max_size=3),
        st.just({"String": ""}), st.just({"Regex": "a*"}), st.just({"Regex": "(a|b)+$"}),
    )  # fmt: skip
    fields = (
        "prepend", "content", "pattern", "length", "left", "right", "replacement", "behavior",
        "start", "stop", "prefix", "suffix", "cleanup", "individual_digits", "delimiter",
        "prepend_scheme", "split", "invert", "pad_token", "word_delimiter_token",
    )  # fmt: skip
    kinds = {
        "normalizer": ("Replace", "Prepend", "Strip", "NFKC", "Nmt", "BertNormalizer", "ByteLevel"),
        "pre_tokenizer": ("Split", "FixedLength", "Metaspace", "Digits", "CharDelimiterSplit"),
        "decoder": ("Strip", "Replace", "CTC", "WordPiece", "Metaspace", "BPEDecoder", "Fuse"),
    }
    parts = {}
    for name, known in kinds.items():
        values = data.draw(st.dictionaries(st.sampled_from(fields), value, max_size=4))
        parts[name] = data.draw(
            st.one_of(st.none(), st.just({"type": data.draw(st.sampled_from(known)), **values}))
        )
    try:
        tokenizer = Tokenizer.open(write(tmp_path, **parts))
        tokenizer.decode(tokenizer.encode("ab! é"))
        tokenizer.decode([26, 27, 28, 999])
    except ParedownError:
        return


def gguf(path: Path, **metadata: Value) -> Path:
    names = {"tokens": TOKENS, "scores": SCORES, "model": MODEL, "merges": MERGES, "pre": PRE}
    ids = {"tokenizer.ggml.unknown_token_id": np.uint32(0)}
    write_gguf_file(path, ids | {names[key]: value for key, value in metadata.items()}, [], [])
    return path


def test_gguf_vocabularies_are_bounded_before_the_library_is_asked(tmp_path: Path) -> None:
    nested = ["a" * i for i in range(1, 1_500)]
    start_s = time.monotonic()
    for tokens, problem in (
        (nested, "too many ways to cut"),
        (["<unk>", "x" * 200_000], "longer than that of any tokenizer"),
    ):
        path = gguf(
            tmp_path / "t.gguf",
            model="llama",
            tokens=tokens,
            scores=np.zeros(len(tokens), np.float32),
        )
        with pytest.raises(CheckpointError, match=problem):
            Tokenizer.open(path)
    assert time.monotonic() - start_s < SOON_S


def test_a_long_token_of_a_tokenizer_json_is_refused(tmp_path: Path) -> None:
    vocabulary = {"a": 0, "b" * 200_000: 1}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    tokenizer = Tokenizer.open(write(tmp_path, model=model, decoder=BYTE_LEVEL))
    assert tokenizer.token_texts is not None
    with pytest.raises(CheckpointError, match="200,000 characters"):
        tokenizer.token_texts.cover(2)


@needs_data("tokenizers")
@pytest.mark.parametrize("between", [" ", r"\s", r" ?", r"[\s\S]"])
def test_spaces_are_not_read_again_at_each(between: str, tmp_path: Path) -> None:
    """The time grew with the square of the spaces, with Python's lock held."""
    pattern = rf"\s*[\r\n]+|{between}|\s+"
    path = write(tmp_path, pre_tokenizer=split(pattern))
    assert not Tokenizer.open(path).encodes_here


@pytest.mark.parametrize("name", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_a_long_mark_of_a_word_is_not_copied_here(name: str, tmp_path: Path) -> None:
    model = {**description()["model"], name: "p" * 1_000_000}
    tokenizer = Tokenizer.open(write(tmp_path, model=model))
    assert not tokenizer.encodes_here
    if name == "continuing_subword_prefix":
        with pytest.raises(RequestError, match="came to a limit"):
            tokenizer.encode("a" * 100_000)


def test_a_long_token_does_not_become_a_reply() -> None:
    model = {"type": "BPE", "vocab": {"a" * 1_000_000: 0, "b": 1}, "merges": []}
    library = TokenizerLibrary.parse(json.dumps(description(model=model)).encode(), "t")
    with pytest.raises(RequestError, match="1,000,000 characters"):
        library.decode([1, 0, 0], skip_special_tokens=True)
    assert library.decode([1, 1], skip_special_tokens=True) == "b b"


def test_a_panic_of_a_decoder_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """A client could have filled the log with the library's traces."""
    decoder = {"type": "Strip", "content": "a", "start": 0, "stop": 9}
    library = TokenizerLibrary.parse(json.dumps(description(decoder=decoder)).encode(), "t")
    with pytest.raises(RequestError):
        library.decode([0], skip_special_tokens=True)
    assert "panicked" not in capfd.readouterr().err


def test_real_tokenizers_run_here() -> None:
    """None of them needs a process of its own, but for one whose words may be of any length."""
    folder = data_folder("tokenizers")
    assert folder is not None
    for path in sorted((folder / "gguf-vocab").glob("*.gguf")):
        library = Tokenizer.open(path)._library
        assert library.encodes_here == ("bert" not in path.name), path.name
        assert library._decodes_here, path.name
    data = (folder / "gpt-neox" / "20B_tokenizer.json").read_bytes()
    assert TokenizerLibrary.parse(data, "t").encodes_here
