"""Builds a speculator from its configuration, and loads and checks what its proposer needs."""

from paredown.engine.prompt import encode_prompt
from paredown.engine.speculate.draft_model import DraftModelProposer
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.proposer import Proposer
from paredown.engine.speculate.reference_text import ReferenceTextProposer
from paredown.engine.speculate.rounded_checkpoint import RoundedCheckpoint
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.engine.speculate.suffix_cache import SuffixCacheProposer
from paredown.errors import ConfigError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import Executor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.model import ModelSpec

DEFAULT_DRAFT_MODEL = "draft"


def make_speculator(
    config: SpeculationConfig,
    executor: Executor,
    tokenizer: Tokenizer,
    options: RunOptions | None = None,
) -> Speculator:
    """Returns a speculator for an engine over `executor`. A draft model runs on the executor,
    device and threads of `options`, with as many pages as the model; its float weights are rounded
    to int8.

    Raises ConfigError for drafts that do not fit the context, references with tokens outside the
    vocabulary, and a draft model with another vocabulary. Raises UnsupportedError for an
    encoder-decoder, and what loading a draft model raises.
    """
    _check_one_stack(executor.spec)
    config.check_context(executor.spec.max_positions)
    options = RunOptions() if options is None else options
    return Speculator(_make_proposer(config, executor, tokenizer, options), config)


def _check_one_stack(spec: ModelSpec) -> None:
    if spec.encoder is not None:
        raise UnsupportedError(
            "encoder-decoders neither write nor check draft tokens",
            seen=spec.family,
            remedy="Run this model without speculation.",
        )


def _make_proposer(
    config: SpeculationConfig,
    executor: Executor,
    tokenizer: Tokenizer,
    options: RunOptions,
) -> Proposer:
    match config.kind:
        case "ngram":
            return NgramProposer(min_match=config.min_match)
        case "reference":
            vocab_size = executor.spec.vocab_size
            texts = [_tokens(one, tokenizer, vocab_size) for one in config.references]
            return ReferenceTextProposer(texts, min_match=config.min_match)
        case "suffix":
            return SuffixCacheProposer(
                min_match=config.min_match, max_cached_tokens=config.max_cached_tokens
            )
        case "draft":
            return _load_draft(config, executor, tokenizer, options)


def _tokens(reference: str | tuple[int, ...], tokenizer: Tokenizer, vocab_size: int) -> list[int]:
    token_ids = encode_prompt(tokenizer, reference) if isinstance(reference, str) else reference
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise ConfigError(
                "a reference holds a token id that the model does not have",
                seen=token_id,
                remedy=f"Token ids go from 0 to {vocab_size - 1}.",
            )
    return list(token_ids)


def _load_draft(
    config: SpeculationConfig,
    executor: Executor,
    tokenizer: Tokenizer,
    options: RunOptions,
) -> DraftModelProposer:
    path = resolve_model(str(config.draft_model or DEFAULT_DRAFT_MODEL))
    checkpoint = Checkpoint.open(path)
    _check_one_stack(checkpoint.spec)
    if Tokenizer.open(path).vocabulary != tokenizer.vocabulary:
        raise ConfigError(
            "the draft model has another vocabulary than the model",
            seen=path,
            remedy="Use a draft model with the model's tokenizer (--draft-model).",
        )
    draft_options = RunOptions(
        executor=options.executor,
        device=options.device,
        threads=options.threads,
        num_pages=executor.num_pages,
    )
    return DraftModelProposer(load_executor(RoundedCheckpoint.of(checkpoint), draft_options))
