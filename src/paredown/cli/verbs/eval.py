"""`paredown eval`: how well a model predicts a text, and how far it is from a reference."""

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.options.activations import add_activations_argument
from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.notes import tell_notes
from paredown.cli.verbs.eval_task import add_task_arguments, run_task
from paredown.errors import ConfigError
from paredown.evaluate.quality.gptq_protocol import DATASETS, gptq_text
from paredown.evaluate.quality.measurement import Measurement, linear_format_name, make_measurement
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.continued_text import choose_continued_text
from paredown.evaluate.texts.text import EvalText, choose_text, sampling_pages
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.hub.hub_source import model_name
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes

EXAMPLES = """examples:
  paredown eval
  paredown eval my-model-int4 --reference my-model
  paredown eval my-model --text novel.txt --tokens 8192 --json
  paredown eval my-model-int4 --reference my-model --activations bf16   # what int8 inputs cost
  paredown eval my-model --kv-dtype int8 --reference my-model
  paredown eval my-model --protocol gptq --text wiki.test.raw           # as papers measure
  paredown eval my-student --task selfinst --reference my-model         # ROUGE-L of answers
  paredown eval my-classifier-int8 --task glue-sst2 --reference my-classifier
"""
DEFAULT_TOKENS = 16384
PROTOCOLS = ("windows", "gptq")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--reference",
        help="model to compare with: KL divergence and top-1 agreement",
        metavar="MODEL",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="UTF-8 text to predict (default: from $PAREDOWN_DATA, else sampled from the model)",
        metavar="FILE",
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=PROTOCOLS[0],
        help="windows: each starts anew and every token is predicted; gptq: the perplexity of "
        "quantization papers (docs/internals/evaluation.md; default: %(default)s)",
    )
    parser.add_argument(
        "--dataset",
        choices=list(DATASETS),
        help="data set of --protocol gptq, and how its --text is read (default: wikitext2)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        help=f"tokens of the text to predict (default {DEFAULT_TOKENS}; gptq: all)",
        metavar="N",
    )
    add_task_arguments(parser)
    add_activations_argument(parser)
    add_kv_dtype_argument(parser)
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.task is not None:
        return run_task(args)
    folder = resolve_model(args.model)
    checkpoint = Checkpoint.open(folder)
    tell_notes(checkpoint.notes)
    tokenizer = Tokenizer.open(folder)
    reference = None if args.reference is None else Checkpoint.open(resolve_model(args.reference))
    if reference is not None:
        tell_notes(reference.notes)

    def sampler() -> LoadedExecutor:
        source = checkpoint if reference is None else reference
        return load_executor(
            source,
            RunOptions(
                num_pages=sampling_pages(source.spec),
                threads=ThreadPlan.resolve(args.threads),
                cache=CacheConfig.from_environment(),
            ),
        )

    text = _choose_text(args, tokenizer, sampler, checkpoint.spec)
    result = _measure(checkpoint, reference, text, args)
    if args.json:
        more = {
            "format": linear_format_name(checkpoint),
            "protocol": text.protocol,
            "notes": list(checkpoint.notes),
        }
        say_json(result.as_json() | more)
        return 0
    _print(result, text, linear_format_name(checkpoint))
    return 0


def _choose_text(
    args: argparse.Namespace,
    tokenizer: Tokenizer,
    sampler: Callable[[], LoadedExecutor],
    spec: ModelSpec,
) -> EvalText:
    if args.protocol == "gptq":
        if spec.encoder is not None:
            raise ConfigError(
                "the protocol of quantization papers is about decoders",
                seen=f"--protocol gptq, family {spec.family}",
                remedy="Leave --protocol out: the decoder then predicts how a text goes on.",
            )
        name = args.dataset or "wikitext2"
        most = spec.max_positions
        return gptq_text(name, tokenizer, most, path=args.text, num_tokens=args.tokens)
    if args.dataset is not None:
        raise ConfigError(
            "--dataset belongs to --protocol gptq",
            seen=f"--protocol {args.protocol}",
            remedy="Give both, or name a text with --text.",
        )
    num_tokens = DEFAULT_TOKENS if args.tokens is None else args.tokens
    if spec.encoder is not None:
        return choose_continued_text(args.text, tokenizer, num_tokens, sampler, spec)
    return choose_text(args.text, tokenizer, num_tokens, sampler, spec.max_positions)


def _measure(
    checkpoint: Checkpoint, reference: Checkpoint | None, text: EvalText, args: argparse.Namespace
) -> Measurement:
    """Measures the model. The reference always keeps its keys and values in bf16."""
    pages = num_pages_for(text)
    cache = CacheConfig.from_environment()
    model = load_executor(
        checkpoint,
        RunOptions(
            num_pages=pages,
            threads=ThreadPlan.resolve(args.threads),
            kv_dtype=args.kv_dtype,
            activations=args.activations,
            # A checkpoint has room for one such file: the one that other runs use.
            cache=cache if args.activations is None else None,
        ),
    )
    other = None
    if reference is not None:
        other = load_executor(
            reference,
            RunOptions(
                num_pages=pages,
                threads=ThreadPlan.resolve(args.threads),
                kv_dtype="bf16",
                cache=cache,
            ),
        )
    with progress_bar("predicting") as progress:
        qualities, own = measure_quality([model], text, other, progress.show_count)
    qualities[0].require_numbers(str(checkpoint.path))
    if own is not None and reference is not None:
        own.require_numbers(str(reference.path))
    return make_measurement(
        model_name(checkpoint.path), checkpoint, quality=qualities[0], original=reference
    )


def _print(result: Measurement, text: EvalText, format_name: str) -> None:
    table = Table(title=result.name, show_header=False)
    table.add_row("format", f"{format_name}, {result.bits_per_weight:.2f} bits per weight")
    table.add_row("size", format_bytes(result.file_bytes))
    table.add_row("perplexity", f"{result.perplexity:.3f}")
    table.add_row("bits per byte", f"{result.bits_per_byte:.4f}")
    if result.kl_divergence is not None and result.top1_agreement is not None:
        table.add_row("KL divergence", f"{result.kl_divergence:.5f} nats per token")
        table.add_row("top-1 agreement", f"{result.top1_agreement:.2%}")
    console = make_console()
    console.print(table)
    console.print(f"Protocol: {text.protocol}.", style="dim")
