"""Measures what outlier channels cost in 8 bits, and how much SmoothQuant and LLM.int8() recover.

    python -m benchmarks.outliers [--channels 4] [--factor 256] [--tokens 16384] [--samples 128]
        [--json OUT]

The built-in model gets outlier channels that change nothing it computes (checkpoints/outliers.py).
Then it is quantized to 8-bit weights and inputs. Perplexity is that of the classic books' held-out
split; the gap closed is (naive - X) / (naive - original), with `naive` the plain rounding to the
same form. Rows run on the native executor or, for what it does not know (O2, integer attention,
LLM.int8()'s mixed product), on the PyTorch decoder.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.checkpoints.outliers import write_outliers
from benchmarks.int8_attention import use_int8_attention
from paredown.compress.activations import round_input
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.quantize.llm_int8 import LLMInt8, use_llm_int8
from paredown.compress.quantize.method import Quantizer
from paredown.compress.quantize.rtn import RTN
from paredown.compress.quantize.smoothquant import SmoothQuant
from paredown.compress.recipe import Recipe
from paredown.compress.steps import QuantizeStep, TransformStep
from paredown.evaluate.quality.perplexity import Predictions, negative_log_likelihoods, perplexity
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.calibration_text import CalibrationConfig, choose_calibration
from paredown.evaluate.texts.text import EvalText, choose_text
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.resolve import resolve_model
from paredown.models.roles import linear_roles
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.weight import ActivationDType, WeightSpec

# The last is dynamic with one scale for the whole window; no stored form uses it.
Inputs = Literal["int8_row", "int8_static", "int8_tensor"]
Runner = Literal["native", "PyTorch"]
LEVELS: dict[str, Inputs] = {"O1": "int8_row", "O2": "int8_tensor", "O3": "int8_static"}
W8A8 = WeightSpec(dtype="int8", activations="int8_row")
W8A8_STATIC = WeightSpec(dtype="int8", activations="int8_static")
PER_TENSOR = RTN(per_tensor=True)
# Calibration windows for the scales of queries, keys and values.
NUM_ATTENTION_WINDOWS = 8
SQ_BAR, LLM_INT8_BAR = 0.70, 0.95


@dataclass(frozen=True, kw_only=True)
class Row:
    """`closed` is the share of the gap to the row `baseline` that is closed; `bar` is its
    target."""

    name: str
    runs_on: Runner
    perplexity: float
    baseline: str | None = None
    closed: float | None = None
    bar: float | None = None


class Bench:
    """The model with outliers, its evaluation text, and the rows so far."""

    def __init__(
        self, model: Checkpoint, text: EvalText, calibration: Calibration, folder: Path
    ) -> None:
        self._model = model
        self._text = text
        self._calibration = calibration
        self._folder = folder
        self.rows: dict[str, Row] = {}

    def make(self, name: str, recipe: Recipe) -> Checkpoint:
        path = self._folder / name.replace(" ", "-")
        result = compress(self._model, path, recipe, calibration=self._calibration)
        for note in result.notes:
            print(f"{name}: {note}", file=sys.stderr)
        return Checkpoint.open(path)

    def native(self, checkpoint: Checkpoint, activations: ActivationDType | None = None) -> float:
        pages = num_pages_for(self._text)
        executor = load_executor(checkpoint, RunOptions(num_pages=pages, activations=activations))
        qualities, _ = measure_quality([executor], self._text)
        return qualities[0].perplexity

    def pytorch(self, checkpoint: Checkpoint, *changes: Callable[[Decoder], None]) -> float:
        decoder = Decoder.from_checkpoint(checkpoint)
        for change in changes:
            change(decoder)
        nll = 0.0
        with torch.inference_mode():
            for window in self._text.windows:
                found = Predictions.of(decoder(torch.tensor([window.inputs]))[0].numpy())
                nll += float(negative_log_likelihoods(found, window.targets).sum())
        return perplexity(nll, self._text.num_tokens)

    def add(self, row: Row) -> None:
        self.rows[row.name] = row
        print(row, file=sys.stderr)

    def compare(self, name: str, runs_on: Runner, baseline: str, bar: float, value: float) -> None:
        naive, original = self.rows[baseline].perplexity, self.rows["original"].perplexity
        closed = (naive - value) / (naive - original)
        self.add(
            Row(
                name=name,
                runs_on=runs_on,
                perplexity=value,
                baseline=baseline,
                closed=closed,
                bar=bar,
            )
        )

    def measure_smoothquant(self, spec: WeightSpec) -> None:
        """On the native executor, as `paredown compress` writes it: weights per row."""
        naive, name = f"naive {spec.name}", f"SmoothQuant {spec.name}"
        value = self.native(self.make(naive, _recipe(spec)))
        self.add(Row(name=naive, runs_on="native", perplexity=value))
        made = self.make(name, _recipe(spec, smooth=SmoothQuant()))
        self.compare(name, "native", naive, SQ_BAR, self.native(made))

    def measure_llm_int8(self) -> None:
        """The mixed product, with outliers' weights in 16 bits and from the codes; then what the
        native executor makes of the codes, inputs not rounded."""
        for name, from_codes in (
            ("LLM.int8()", False),
            ("LLM.int8(), outliers' weights from codes", True),
        ):
            change = partial(use_llm_int8, outliers_from_codes=from_codes)
            value = self.pytorch(self._model, change)
            self.compare(name, "PyTorch", f"naive {W8A8.name}", LLM_INT8_BAR, value)
        spec = WeightSpec(dtype="int8", activations="fp32")
        name = "LLM.int8() weights, inputs in fp32"
        made = self.make(name, _recipe(spec, quantizer=LLMInt8()))
        value = self.native(made, "fp32")
        self.compare(name, "native", f"naive {W8A8.name}", LLM_INT8_BAR, value)

    def measure_levels(self) -> None:
        """O1 to O3 of SmoothQuant: weights per tensor; inputs dynamic per token, dynamic per
        tensor, static per tensor; then with the attention in int8."""
        windows_NT = self._calibration.windows_NT[:NUM_ATTENTION_WINDOWS]
        attentions = {
            "int8 attention": partial(use_int8_attention, windows_NT=windows_NT),
            "int8 attention, static": partial(
                use_int8_attention, windows_NT=windows_NT, static_probabilities=True
            ),
        }
        for level, inputs in LEVELS.items():
            spec = W8A8 if inputs == "int8_row" else W8A8_STATIC
            naive, name = f"naive {level}", f"SmoothQuant-{level}"
            plain = self.make(naive, _recipe(spec, quantizer=PER_TENSOR))
            value = self.pytorch(plain, partial(round_inputs, plain, inputs))
            self.add(Row(name=naive, runs_on="PyTorch", perplexity=value))
            smooth = SmoothQuant(per_tensor=True)
            made = self.make(name, _recipe(spec, quantizer=PER_TENSOR, smooth=smooth))
            rounded = partial(round_inputs, made, inputs)
            self.compare(name, "PyTorch", naive, SQ_BAR, self.pytorch(made, rounded))
            for how, attention in attentions.items():
                value = self.pytorch(made, rounded, attention)
                self.compare(f"{name} + {how}", "PyTorch", naive, SQ_BAR, value)


def round_inputs(checkpoint: Checkpoint, inputs: Inputs, decoder: Decoder) -> None:
    """Rounds the inputs of every linear layer inside the layers; static scales are the stored
    ones."""
    for number, layer in enumerate(decoder.layers):
        for role in linear_roles(decoder.spec, number):
            scale = checkpoint.linear(role, number).input_scale

            def hook(
                module: nn.Module, values: tuple[Tensor, ...], scale: float | None = scale
            ) -> tuple[Tensor, ...]:
                return (round_input(values[0], inputs, scale),)

            layer.get_submodule(role).register_forward_pre_hook(hook)


def _recipe(
    spec: WeightSpec, quantizer: Quantizer | None = None, smooth: SmoothQuant | None = None
) -> Recipe:
    transforms = () if smooth is None else (TransformStep(transform=smooth),)
    steps = (*transforms, QuantizeStep(quantizer=quantizer or RTN(), spec=spec))
    return Recipe(name=spec.name, steps=steps)


def measure(channels: int, factor: float, num_tokens: int, num_samples: int) -> Iterator[Row]:
    source = Checkpoint.open(resolve_model(None))
    tokenizer = Tokenizer.open(source.path)
    text = choose_text(None, tokenizer, num_tokens, _refuse, source.spec.max_positions)
    calibration = choose_calibration(
        CalibrationConfig(num_samples=num_samples), tokenizer, _refuse, source.spec.max_positions
    )
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        model = Path(folder) / "outliers"
        write_outliers(source, model, num_channels=channels, factor=factor)
        bench = Bench(Checkpoint.open(model), text, calibration, Path(folder))
        value = bench.pytorch(source)
        bench.add(Row(name="original", runs_on="PyTorch", perplexity=value))
        value = bench.pytorch(Checkpoint.open(model))
        bench.add(Row(name="with outliers", runs_on="PyTorch", perplexity=value))
        bench.measure_smoothquant(W8A8)
        bench.measure_smoothquant(W8A8_STATIC)
        bench.measure_llm_int8()
        bench.measure_levels()
        yield from bench.rows.values()


def _refuse() -> LoadedExecutor:
    raise SystemExit("Set PAREDOWN_DATA: the figures are of the classic books.")


def show(rows: list[Row], title: str) -> None:
    table = Table("", "runs on", "perplexity", "against", "gap closed", "bar", title=title)
    for row in rows:
        closed = "" if row.closed is None else f"{row.closed:.1%}"
        bar = "" if row.bar is None else f"{row.bar:.0%}"
        value = f"{row.perplexity:.2f}"
        table.add_row(row.name, row.runs_on, value, row.baseline or "", closed, bar)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=4, help="of each norm (default 4)")
    parser.add_argument("--factor", type=float, default=256, help="a power of two (default 256)")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--samples", type=int, default=128, help="of calibration (default 128)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = list(measure(args.channels, args.factor, args.tokens, args.samples))
    show(rows, f"{args.channels} channels of each norm times {args.factor:g}")
    if args.json is not None:
        result = {"machine": processor_name(), "rows": [asdict(row) for row in rows]}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
