"""`paredown serve`: an OpenAI-compatible server for models that generate, and for encoders."""

import argparse
import signal
from dataclasses import replace

from paredown.cli.options.answers import (
    add_answer_arguments,
    response_cache,
    sampling_defaults,
)
from paredown.cli.options.attention_sinks import add_attention_sinks_arguments
from paredown.cli.options.chat_format import add_chat_format_arguments, prepare_chat
from paredown.cli.options.doors import add_doors_arguments, listen_options
from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.cli.options.kv_pages import add_kv_pages_arguments
from paredown.cli.options.run import add_executor_arguments, run_keywords
from paredown.cli.options.schedule import add_schedule_arguments, keeping_target, schedule_config
from paredown.cli.options.served_names import add_names_arguments, other_names
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.options.speculation import add_speculation_arguments, speculation_config
from paredown.cli.options.strangers import add_strangers_arguments
from paredown.cli.printed import tell
from paredown.cli.tables.notes import tell_notes
from paredown.cli.verbs.serve_encoder import add_encoder_arguments, prepare_encoder
from paredown.cli.verbs.serve_roofs import known_roofs
from paredown.cli.verbs.serve_until_stopped import (
    Example,
    freeze,
    serve_until_stopped,
    served_name,
)
from paredown.cli.verbs.serve_verified import tell_verified
from paredown.engine.build import build
from paredown.engine.detokenize import prepare_texts
from paredown.engine.encode.encoder_model import encodes
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.worker import Worker
from paredown.errors import ParedownError
from paredown.evaluate.verify.verification_file import read_verification
from paredown.executors.page_memory import page_arithmetic
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.intake.token_bound import TokenBound
from paredown.serve.model_report import ModelReport
from paredown.serve.server import Listen
from paredown.serve.state import ServerState
from paredown.spec.context import Context

EXAMPLES = """examples:
  paredown serve
  paredown serve my-model --port 8080 --max-waiting 100
  paredown serve HuggingFaceTB/SmolLM2-135M-Instruct@main
  paredown serve my-model --kv-dtype int8 --kv-memory 2GB
  paredown serve my-model --kv-dtype int4,first2=bf16,last2=bf16 --decode-threads 4
  paredown serve my-model --policy priority --fair-shares --target-itl-ms 50
  paredown serve --speculate draft
  paredown serve --attention-sinks 4 --attention-window 1020
  paredown serve my-model --host 0.0.0.0 --api-key-file keys.txt \\
      --tls-cert chain.pem --tls-key key.pem --allowed-host models.example.org
  paredown serve my-model --alias gpt-4o-mini --cors-origin https://app.example.org
  paredown serve sentence-transformers/all-MiniLM-L6-v2
  paredown serve Qwen/Qwen3-Embedding-0.6B --task embed
  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
       -d '{"prompt": "Once upon a time", "max_tokens": 40}'

A checkpoint with a verification.json is checked against it before the first answer, and refused
where it is not what was verified (docs/guide/verification.md).
SIGTERM and Ctrl-C let the answers under way come to their end (--drain-s) and exit; a second one
ends at once.
"""
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
_EXAMPLE = ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 40})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--host", default=Listen.host, help=f"address to listen on (default: {Listen.host})"
    )
    parser.add_argument(
        "--port", type=int, default=Listen.port, help=f"0: any free one (default: {Listen.port})"
    )
    add_names_arguments(parser)
    parser.add_argument(
        "--drain-s",
        type=int,
        default=Listen.drain_s,
        help=f"seconds that answers may take after a stop signal (default: {Listen.drain_s})",
        metavar="N",
    )
    add_encoder_arguments(parser)
    add_executor_arguments(parser)
    add_kv_pages_arguments(parser)
    add_kv_dtype_argument(parser)
    add_attention_sinks_arguments(parser)
    add_schedule_arguments(parser)
    add_speculation_arguments(parser)
    add_doors_arguments(parser)
    add_chat_format_arguments(parser)
    add_strangers_arguments(parser)
    add_answer_arguments(parser)
    parser.add_argument(
        "--log-requests",
        choices=("json", "text", "off"),
        help="write a line to standard error for each request, without what it asks and what is "
        "answered (default: text on a terminal, else json)",
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="do not check the model's verification.json"
    )
    parser.add_argument("--no-page", action="store_true", help="no web page at /")
    add_common_arguments(
        parser, decode_threads=True, printed="the address, when the server is ready,"
    )


def run(args: argparse.Namespace) -> int:
    listen = listen_options(args)
    checkpoint = Checkpoint.open(resolve_model(args.model))
    prepare = prepare_encoder if encodes(checkpoint, args.task) else _prepare_generation
    state, example = prepare(args, checkpoint)
    stopped_by = serve_until_stopped(args, listen, state, example)
    return _exit_code(state.worker.failure, stopped_by)


def _prepare_generation(
    args: argparse.Namespace, checkpoint: Checkpoint
) -> tuple[ServerState, Example]:
    """Returns the state of a server of a model that generates, and how to ask it."""
    config = schedule_config(args)
    speculation = speculation_config(args)
    TokenBound(args.max_answer_tokens)
    path, options = checkpoint.path, _run_options(args)
    context = Context(spec=checkpoint.spec, sinks=options.sinks)
    tokenizer = Tokenizer.open(path)
    prepare_chat(args, tokenizer)
    proof = None if args.no_verify else read_verification(path)
    report = ModelReport(checkpoint, None if proof is None else proof[0])
    tell_notes(checkpoint.notes)

    def ready(executor: LoadedExecutor) -> ScheduleConfig:
        if not args.no_verify:
            report.check = tell_verified(
                checkpoint,
                executor,
                None if proof is None else proof[1],
                results="logits",
                check=lambda known: known.check_logits(checkpoint, executor),
            )
        report.note_decoder(executor)
        _tell(executor)
        state.utilization.roofs = known_roofs(checkpoint, executor)
        prepare_texts(tokenizer, executor.spec.vocab_size)
        return keeping_target(args, config, executor)

    def load() -> Engine:
        engine = build(
            checkpoint, options, tokenizer=tokenizer, speculation=speculation, on_loaded=ready
        ).engine
        freeze()
        return engine

    defaults = sampling_defaults(args, path)
    name = served_name(args.name, path)
    state = _state(args, context, tokenizer, Worker(load), name, defaults)
    return replace(state, report=report), _EXAMPLE


def _exit_code(failure: BaseException | None, stopped_by: int | None) -> int:
    """Returns the exit code. Raises the error that ended the model's thread, if it is one of our
    own."""
    if isinstance(failure, ParedownError):
        raise failure
    if failure is not None:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if stopped_by == signal.SIGINT else 0


def _run_options(args: argparse.Namespace) -> RunOptions:
    keywords = run_keywords(args)
    keywords["num_pages"], keywords["kv_cache_bytes"] = args.pages, args.kv_memory
    return RunOptions(**keywords)


def _state(
    args: argparse.Namespace,
    context: Context,
    tokenizer: Tokenizer,
    worker: Worker,
    name: str,
    defaults: SamplingDefaults,
) -> ServerState:
    return ServerState(
        model_name=name,
        max_positions=context.max_request_tokens,
        tokenizer=tokenizer,
        worker=worker,
        is_encoder_decoder=context.spec.encoder is not None,
        token_bound=TokenBound.of(context, args.max_answer_tokens),
        isolates_prefixes=args.isolate_prefixes,
        shows_exact_metrics=args.exact_metrics or args.isolate_prefixes,
        sampling_defaults=defaults,
        other_names=other_names(args, name),
        tells_timings=args.timings,
        response_cache=response_cache(args),
    )


def _tell(executor: LoadedExecutor) -> None:
    if executor.context.sinks is not None:
        tell(executor.context.sinks.arithmetic())
    tell(page_arithmetic(executor.context, executor.kv))
    tell(f"threads: {executor.threads.explained()}")
