"""Recipes on a real encoder: vectors beside the original's, Spearman on STS-B, and bytes.

    python -m benchmarks.encoder_quality MODEL --data $PAREDOWN_DATA --work FOLDER
        [--recipes int8 w8a8] [--peer PYTHON] [--json]

The score is that of sentence-transformers: Spearman's correlation of the cosine of each pair of the
test set with what people gave it, times 100. Cosine to the original and rank agreement are those of
the proof (evaluate/quality/vector_agreement.py), over the sentences of the same set. Vectors come
from the executor that serves. `--peer` is a Python with sentence-transformers, which scores the
original beside us. Compressed folders stay in FOLDER and are not made twice.
"""

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.steps import QuantizeStep
from paredown.evaluate.metrics.spearman import spearman
from paredown.evaluate.quality.vector_agreement import compare_vectors, unit
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import GlueExamples, read_glue_sets
from paredown.evaluate.verify.encoder_verification import encode_texts
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.formats.table import FORMATS
from paredown.jobs.compress import compress_and_verify
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.models.text.whole_text import WholeText

Vectors = npt.NDArray[np.float32]
TASK = "stsb"
# W8A8 whose v alone reads its inputs in groups: most of what rounded inputs cost is there.
FINER_V = Recipe(
    name="w8a8-v-int8",
    steps=(
        QuantizeStep(quantizer=RTN(), spec=FORMATS["w8a8"]),
        QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=("v",)),
    ),
)
MADE = {FINER_V.name: FINER_V}
RECIPES = (
    "bf16",
    "int8",
    "int8-embedding-int8",
    "gptq-int8",
    "w8a8",
    FINER_V.name,
    "smoothquant-w8a8",
    "qad-rtn-w8a8-60000",
    "w8a8-static",
    "smoothquant-w8a8-static",
    "smoothquant-o3",
    "int4-g32",
    "gptq-int4-g32",
    "awq-int4-g32",
    "awq-gptq-int4-g32",
    "hqq-int4-g32",
    "gptq-int4-g128",
)
_PEER = """
import sys, json
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
sides = json.load(sys.stdin)
found = [model.encode(side, normalize_embeddings=True).tolist() for side in sides]
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """`score` is Spearman times 100; cosines and ranks compare with the original here."""

    name: str
    num_bytes: int
    score: float
    cosine_mean: float | None = None
    cosine_least: float | None = None
    rank_agreement: float | None = None


class Pairs:
    """The pairs of the test set, as tokens of the model."""

    def __init__(self, checkpoint: Checkpoint, data: Path) -> None:
        task = find_task(TASK)
        (self.examples,) = read_glue_sets(task, data / "tasks" / "glue" / task.name)
        settings = checkpoint.encoder_settings
        most = checkpoint.spec.max_positions if settings is None else settings.max_tokens
        whole = WholeText(tokenizer=Tokenizer.open(checkpoint.path), max_tokens=most)
        self.texts = [TokenText(token_ids=whole.encode(text)) for text in sides(self.examples)]

    def vectors(self, checkpoint: Checkpoint, executor: str) -> Vectors:
        """Returns those of all first sentences, then those of all second ones."""
        options = RunOptions(executor=executor)  # type: ignore[arg-type]
        return encode_texts(load_encoder(checkpoint, options), self.texts)

    def score(self, vectors_ND: Vectors) -> float:
        first_ND, second_ND = np.split(unit(vectors_ND), 2)
        return 100 * spearman((first_ND * second_ND).sum(1), self.examples.labels.astype(float))


def sides(examples: GlueExamples) -> list[str]:
    """Returns all first sentences, then all second ones."""
    return [pair[side] for side in (0, 1) for pair in examples.texts]


def peer_vectors(python: str, model: Path, texts: Sequence[str]) -> Vectors:
    """Returns the vectors that sentence-transformers makes."""
    half = len(texts) // 2
    done = subprocess.run(
        [python, "-c", _PEER, str(model)],
        input=json.dumps([texts[:half], texts[half:]]),
        capture_output=True,
        text=True,
        check=True,
    )
    return np.array(json.loads(done.stdout), np.float32).reshape(len(texts), -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="what $PAREDOWN_DATA names")
    parser.add_argument("--work", type=Path, required=True, help="where compressed folders stay")
    parser.add_argument("--recipes", nargs="*", default=RECIPES)
    parser.add_argument("--peer", help="a Python with sentence-transformers")
    parser.add_argument("--executor", default="auto", choices=("auto", "native", "torch"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    original = Checkpoint.open(args.model)
    pairs = Pairs(original, args.data)
    rows: list[Row] = []
    expected_ND = pairs.vectors(original, args.executor)

    def add(name: str, num_bytes: int, vectors_ND: Vectors) -> None:
        agreement = asdict(compare_vectors(vectors_ND, expected_ND))
        agreement.pop("label_agreement")
        rows.append(Row(name=name, num_bytes=num_bytes, score=pairs.score(vectors_ND), **agreement))
        if not args.json:
            print(_line(rows[-1]), flush=True)

    if not args.json:
        print("| recipe | MB | Spearman | cosine, mean | cosine, least | ranks |")
        print("| --- | --: | --: | --: | --: | --: |")
    if args.peer is not None:
        texts = sides(pairs.examples)
        add(
            "sentence-transformers", original.file_bytes, peer_vectors(args.peer, args.model, texts)
        )
    add("original", original.file_bytes, expected_ND)
    for recipe in args.recipes:
        folder = args.work / recipe
        if not folder.exists():
            compress_and_verify(original, folder, MADE.get(recipe, recipe), verify=None)
        made = Checkpoint.open(folder)
        add(recipe, made.file_bytes, pairs.vectors(made, args.executor))
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))


def _line(row: Row) -> str:
    return (
        f"| {row.name} | {row.num_bytes / 1e6:.1f} | {row.score:.2f} | {row.cosine_mean:.5f} | "
        f"{row.cosine_least:.5f} | {row.rank_agreement:.5f} |"
    )


if __name__ == "__main__":
    main()
