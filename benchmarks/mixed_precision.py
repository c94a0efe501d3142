"""Searched widths against one width for all, and against the search turned round.

    python -m benchmarks.mixed_precision --data $PAREDOWN_DATA [--average-bits 3 4] [--json]

Losses of each part and width are measured on the beginning of valid.txt; the assignments are then
measured on the beginning of test.txt, which the search has not seen, as `paredown eval` does (its
windows, its sums), through the PyTorch decoder with float inputs.
"""

import argparse
import json
import sys
from pathlib import Path

from paredown.compress.quantize.rtn import RTN
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.simulated import Values, Variant, measure_variants
from paredown.evaluate.texts.text import DATA_TEXT, EvalText, choose_text
from paredown.executors.protocol import LoadedExecutor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.optimize.mixed_precision import (
    WIDTHS,
    Assignment,
    PartChoices,
    assign_average_bits,
    formats_of_widths,
    measure_choices,
    reverse_assignment,
    rounded_when_needed,
)
from paredown.optimize.sensitivity import WINDOW_TOKENS, scale_dtype_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data", type=Path, required=True, help="what $PAREDOWN_DATA names")
    parser.add_argument("--average-bits", type=int, nargs="+", default=[4])
    parser.add_argument("--group-size", type=int, default=128)
    parser.add_argument("--search-tokens", type=int, default=4096)
    parser.add_argument("--test-tokens", type=int, default=16384)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = resolve_model(args.model)
    checkpoint = Checkpoint.open(folder)
    decoder = Decoder.from_checkpoint(checkpoint)
    tokenizer = Tokenizer.open(folder)
    test = args.data / DATA_TEXT

    def text(path: Path, num_tokens: int, window: int) -> EvalText:
        return choose_text(path, tokenizer, num_tokens, _no_executor, window)

    found = measure_choices(
        checkpoint,
        text(test.with_name("valid.txt"), args.search_tokens, WINDOW_TOKENS),
        formats_of_widths(args.group_size),
        RTN(),
        _show,
    )
    assignments: dict[str, Assignment] = {}
    for bits in args.average_bits:
        assignments |= {
            f"uniform {bits}": _uniform(found, bits),
            f"searched {bits}": assign_average_bits(found, bits),
            f"reversed {bits}": reverse_assignment(found, bits),
        }
    variants = [_variant(checkpoint, decoder, one) for one in assignments.values()]
    whole = text(test, args.test_tokens, checkpoint.spec.max_positions)
    qualities, plain = measure_variants(decoder, variants, whole, on_progress=_show)
    rows = [_row("original", None, plain)]
    for (name, one), quality in zip(assignments.items(), qualities, strict=True):
        rows.append(_row(name, one, quality))
    widths = {
        name: {
            part.name: choice.spec.bits for part, choice in zip(one.parts, one.chosen, strict=True)
        }
        for name, one in assignments.items()
        if name.startswith("searched")
    }
    if args.json:
        print(json.dumps({"rows": rows, "widths": widths, "protocol": whole.protocol}, indent=2))
        return
    print("  ".join(f"{name:>14}" for name in rows[0]))
    for row in rows:
        cells = (f"{one:.5g}" if isinstance(one, float) else str(one) for one in row.values())
        print("  ".join(f"{cell:>14}" for cell in cells))
    for name, by_part in widths.items():
        print(name, "; ".join(f"{part}: {bits}" for part, bits in by_part.items()), sep=": ")
    print(whole.protocol)


def _uniform(found: list[PartChoices], bits: int) -> Assignment:
    return Assignment(
        parts=tuple(one.part for one in found),
        chosen=tuple(one.choices[WIDTHS.index(bits)] for one in found),
    )


def _variant(checkpoint: Checkpoint, decoder: Decoder, assignment: Assignment) -> Variant:
    weights: dict[str, Values] = {}
    scale_dtype = scale_dtype_of(checkpoint)
    for part, choice in zip(assignment.parts, assignment.chosen, strict=True):
        weights |= rounded_when_needed(decoder, part, RTN(), choice.spec, scale_dtype)
    return Variant(weights=weights)


def _row(name: str, assignment: Assignment | None, quality: Quality) -> dict[str, object]:
    return {
        "name": name,
        "bits": None if assignment is None else assignment.average_bits,
        "linear_bytes": None if assignment is None else assignment.stored_bytes,
        "predicted_kl": None if assignment is None else assignment.predicted_loss,
        "kl": quality.kl_divergence,
        "top1": quality.top1_agreement,
        "perplexity": quality.perplexity,
    }


def _show(done: int, total: int) -> None:
    print(f"\r{done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def _no_executor() -> LoadedExecutor:
    raise AssertionError("the texts are files")


if __name__ == "__main__":
    main()
