"""`paredown serve` for encoders: vectors, scores and labels."""

import argparse
from collections.abc import Mapping

from paredown.cli.options.encoder import add_task_argument, encoder_run_options
from paredown.cli.options.served_names import other_names
from paredown.cli.printed import tell
from paredown.cli.tables.notes import tell_notes
from paredown.cli.verbs.serve_until_stopped import Example, freeze, served_name
from paredown.cli.verbs.serve_verified import tell_verified
from paredown.engine.encode.batch_config import BatchConfig
from paredown.engine.encode.encoder_model import EncoderModel, as_encoder, encoder_model
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.evaluate.verify.verification_file import read_verification
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.load import load_encoder
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.encoder_state import EncoderState
from paredown.serve.model_report import ModelReport
from paredown.spec.head import HeadKind

_RANKING: Example = (
    "/v1/rerank",
    {"query": "What is a lane?", "documents": ["a narrow road", "a wide river"]},
)
_EXAMPLES: Mapping[HeadKind, Example] = {
    "embedding": ("/v1/embeddings", {"input": "Once upon a time"}),
    "token_vectors": _RANKING,
    "sparse": _RANKING,
    "classification": ("/v1/classify", {"input": "a wonderful evening"}),
}


def add_encoder_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("encoders (docs/guide/encoders.md)")
    add_task_argument(group)
    for option, default, text in (
        ("--max-batch-tokens", BatchConfig.max_batch_tokens, "tokens of texts encoded at once"),
        ("--max-waiting-texts", BatchConfig.max_waiting_texts, "texts that may wait"),
    ):
        group.add_argument(
            option, type=int, default=default, help=f"{text} (default: {default})", metavar="N"
        )
    group.add_argument(
        "--any-dimensions",
        action="store_true",
        help="cut vectors to sizes that the model was not made for, too",
    )


def prepare_encoder(
    args: argparse.Namespace, checkpoint: Checkpoint
) -> tuple[EncoderState, Example]:
    """Returns the state of a server of the checkpoint as an encoder, and how to ask it. Raises
    ConfigError and CheckpointError."""
    config = BatchConfig(
        max_batch_tokens=args.max_batch_tokens, max_waiting_texts=args.max_waiting_texts
    )
    options = encoder_run_options(args)
    model = encoder_model(
        checkpoint, Tokenizer.open(checkpoint.path), cuts_anywhere=args.any_dimensions
    )
    tell_notes(checkpoint.notes)

    proof = None if args.no_verify else read_verification(checkpoint.path)
    report = ModelReport(checkpoint, None if proof is None else proof[0])

    def load() -> EncoderExecutor:
        encoder = as_encoder(checkpoint)
        executor = load_encoder(encoder, options)
        if not args.no_verify:
            report.check = tell_verified(
                encoder,
                executor,
                None if proof is None else proof[1],
                results="vectors",
                check=lambda known: known.check_vectors(encoder, executor),
            )
        report.note_encoder(executor)
        tell(f"texts of at most {model.settings.max_tokens} tokens")
        tell(f"threads: {executor.threads.explained()}")
        freeze()
        return executor

    name = served_name(args.name, checkpoint.path)
    state = EncoderState(
        model_name=name,
        model=model,
        worker=EncoderWorker(load, config),
        report=report,
        shows_exact_metrics=args.exact_metrics or args.isolate_prefixes,
        other_names=other_names(args, name),
    )
    return state, _example(model)


def _example(model: EncoderModel) -> Example:
    is_scorer = model.answers is not None or (model.kind == "classification" and model.size == 1)
    return _RANKING if is_scorer else _EXAMPLES[model.kind]
