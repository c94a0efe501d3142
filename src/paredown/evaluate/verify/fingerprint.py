"""Fingerprint: identifies a verified checkpoint, and checks that it still computes the same.

It holds golden logits, or the golden vectors of an encoder, and a digest of each file that the
figures depend on. Digests reveal a single changed bit; logits and vectors reveal a machine that
computes differently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from paredown.errors import CheckpointError
from paredown.evaluate.quality.rows import Logits
from paredown.evaluate.verify.golden import (
    TOLERANCE,
    GoldenLogits,
    golden_kv,
    hash_output,
    log_probabilities,
    make_golden,
    run_golden,
)
from paredown.evaluate.verify.golden_vectors import (
    GoldenVectors,
    make_golden_vectors,
    run_golden_texts,
)
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.protocol import LoadedExecutor
from paredown.files.model_file import read_model_file
from paredown.kernels.packed_file import hash_bytes
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.json_file import MAX_TOKENIZER_BYTES, read_optional_json_object
from paredown.models.files.module_files import SETTINGS, module_files
from paredown.models.files.whole_file import is_there, unreadable
from paredown.models.fingerprints import file_digests, joint_digest
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.text.tokenizer_files import CONFIG as TOKENIZER_CONFIG
from paredown.models.text.tokenizer_files import read_tokenizer_files, tokenizer_file
from paredown.spec.weight import ActivationDType

# Predictions depend on these files besides the weights. Others (chat template, generation defaults)
# may be edited.
SMALL_FILES = ("config.json", "tokenizer.json")
# What the files beside tokenizer.json say of tokens changes what a text becomes, too. Older proofs
# do not have it.
TOKENS_BESIDE = "tokenizer_config.json (tokens)"
REMEDY = "Download or compress the checkpoint again, or go on all the same with --no-verify."


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Digests by file name, of config.json and the tokenizer and of the safetensors files or the
    GGUF file."""

    small_files: dict[str, str]
    weight_files: dict[str, str]
    golden: GoldenLogits | GoldenVectors

    def as_json(self) -> dict[str, object]:
        return {
            "small_files": self.small_files,
            "weight_files": self.weight_files,
            "golden": self.golden.as_json(),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "Fingerprint":
        """Parses what `as_json` made. Raises KeyError, TypeError or ValueError for anything
        else."""
        golden = fields["golden"]
        if not isinstance(golden, dict):
            raise TypeError("golden is not an object")
        return cls(
            small_files=_digests(fields["small_files"]),
            weight_files=_digests(fields["weight_files"]),
            golden=_golden(golden),
        )

    @property
    def activations(self) -> ActivationDType | None:
        """Returns the dtype that inputs of linear layers were rounded to; None is that of their
        formats."""
        return cast("ActivationDType | None", self.golden.arithmetic.get("activations"))

    def other_inputs(self, executor: LoadedExecutor | EncoderExecutor) -> str | None:
        """Describes how `executor` reads the inputs of linear layers, if that differs from the
        verification and its results must therefore differ too; else None."""
        there, here = self.activations, executor.arithmetic.get("activations")
        if here == there:
            return None
        formats = "as the formats say"
        return f"inputs are read {here or formats}, and were verified {there or formats}"

    def check_files(
        self, checkpoint: Checkpoint, executor: LoadedExecutor | EncoderExecutor
    ) -> None:
        """Raises CheckpointError for a file that is not the one that was verified. The weights are
        read only where loading did not have to know their digest."""
        small = _digest_small_files(checkpoint)
        if TOKENS_BESIDE not in self.small_files:
            small.pop(TOKENS_BESIDE, None)
        _compare(checkpoint, self.small_files, small)
        verified = self.weight_files
        if is_gguf(checkpoint.path):
            # The file or its parts may have been renamed.
            names = [file.path.name for file in checkpoint.files]
            verified = dict(zip(names, verified.values(), strict=False))
        if executor.known_content != joint_digest(verified):
            _compare(checkpoint, verified, file_digests(checkpoint, executor.threads.prefill))

    def check_logits(self, checkpoint: Checkpoint, executor: LoadedExecutor) -> str:
        """Describes briefly how the logits agree. Raises CheckpointError with the difference."""
        if not isinstance(self.golden, GoldenLogits):
            raise _other_kind(checkpoint, "an encoder")
        golden, logits_TV = self.golden, golden_logits(executor)
        found = _Output(
            what="logits",
            measured="log-probabilities",
            sha256=hash_output(logits_TV),
            arithmetic=executor.arithmetic,
            difference=lambda: _difference(golden, logits_TV),
        )
        return self._agreement(checkpoint, found)

    def check_vectors(self, checkpoint: Checkpoint, encoder: EncoderExecutor) -> str:
        """Describes briefly how an encoder's vectors agree. Raises CheckpointError with the
        difference."""
        if not isinstance(self.golden, GoldenVectors):
            raise _other_kind(checkpoint, "a decoder")
        golden, vectors_ND = self.golden, run_golden_texts(encoder)
        found = _Output(
            what="vectors",
            measured="numbers",
            sha256=hash_output(vectors_ND),
            arithmetic=encoder.arithmetic,
            difference=lambda: golden.difference(vectors_ND),
        )
        return self._agreement(checkpoint, found)

    def _agreement(self, checkpoint: Checkpoint, found: "_Output") -> str:
        if found.sha256 == self.golden.sha256:
            return "bit for bit"
        difference = found.difference()
        there, here = self.golden.arithmetic, found.arithmetic
        others = ", ".join(name for name in here if here[name] != there.get(name))
        if others and difference <= TOLERANCE:
            return f"within {difference:.1g} of their size (verified with another {others})"
        allowed = f"{TOLERANCE}, with another {others}" if others else "not one bit on this machine"
        raise CheckpointError(
            f"{checkpoint.path} does not compute the {found.what} that it was verified with",
            seen=f"{found.measured} differ by {difference:.2g} of their size; allowed: {allowed}",
            remedy=REMEDY,
        )


@dataclass(frozen=True, kw_only=True)
class _Output:
    """The output of a model now: `difference` tells how far from the golden one, `measured` in
    what."""

    what: str
    measured: str
    sha256: str
    arithmetic: Mapping[str, str]
    difference: Callable[[], float]


def _golden(fields: Mapping[str, object]) -> GoldenLogits | GoldenVectors:
    if "sample_NK" in fields:
        return GoldenVectors.from_json(fields)
    return GoldenLogits.from_json(fields)


def _difference(golden: GoldenLogits, logits_TV: Logits) -> float:
    sampled_TK = np.array(golden.sampled_TK)
    fits = len(sampled_TK) == len(logits_TV) and sampled_TK.max() < logits_TV.shape[1]
    if not fits or sampled_TK.min() < 0:
        return np.inf
    return golden.difference(log_probabilities(logits_TV, sampled_TK))


def _other_kind(checkpoint: Checkpoint, kind: str) -> CheckpointError:
    return CheckpointError(
        f"the verification of {checkpoint.path} is that of another model",
        seen=f"figures of {kind}",
        remedy=REMEDY,
    )


def make_fingerprint(checkpoint: Checkpoint, executor: LoadedExecutor) -> Fingerprint:
    """Returns the fingerprint of a checkpoint that was loaded with its serving defaults. Raises
    CheckpointError for NaN or infinite logits."""
    logits_TV = golden_logits(executor)
    _require_numbers(checkpoint, logits_TV, "predictions", "golden logits")
    return Fingerprint(
        small_files=_digest_small_files(checkpoint),
        weight_files=file_digests(checkpoint, executor.threads.prefill),
        golden=make_golden(logits_TV, executor.arithmetic),
    )


def make_encoder_fingerprint(checkpoint: Checkpoint, encoder: EncoderExecutor) -> Fingerprint:
    """Returns the fingerprint of an encoder that was loaded with its serving defaults. Raises
    CheckpointError for NaN or infinite vectors."""
    vectors_ND = run_golden_texts(encoder)
    _require_numbers(checkpoint, vectors_ND, "vectors", "numbers of golden vectors")
    return Fingerprint(
        small_files=_digest_small_files(checkpoint),
        weight_files=file_digests(checkpoint, encoder.threads.prefill),
        golden=make_golden_vectors(vectors_ND, encoder.arithmetic),
    )


def _require_numbers(checkpoint: Checkpoint, values: Logits, what: str, kind: str) -> None:
    if np.isfinite(values).all():
        return
    raise CheckpointError(
        f"the {what} of {checkpoint.path} are not numbers",
        seen=f"{np.count_nonzero(~np.isfinite(values))} of {values.size} {kind}",
        remedy="Use another checkpoint: its weights are damaged, or it needs a wider range "
        "than its format has.",
    )


def golden_logits(executor: LoadedExecutor) -> Logits:
    """Returns [T, V], computed in separate pages, whatever the executor's KV format and number of
    pages."""
    return run_golden(executor.sharing_weights(golden_kv(executor.spec), keeps_sinks=False))


def _digest_small_files(checkpoint: Checkpoint) -> dict[str, str]:
    digests = {}
    for name in _small_files(checkpoint):
        path = checkpoint.path / name
        if is_there(path):
            try:
                data = read_model_file(path, MAX_TOKENIZER_BYTES)
            except OSError as error:
                raise unreadable(path, error) from error
            digests[name] = hash_bytes(np.frombuffer(data, np.uint8), num_threads=1)
    if not is_gguf(checkpoint.path):
        said = read_tokenizer_files(checkpoint.path).tokens_said().encode()
        digests[TOKENS_BESIDE] = hash_bytes(np.frombuffer(said, np.uint8), num_threads=1)
    return digests


def _small_files(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Returns the small files to check; the tokenizer may be in another file than
    tokenizer.json."""
    if is_gguf(checkpoint.path):
        return ()
    config = read_optional_json_object(checkpoint.path / TOKENIZER_CONFIG)
    read = tokenizer_file(checkpoint.path, config).name
    others: tuple[str, ...] = () if read in SMALL_FILES else (read,)
    if checkpoint.encoder_settings is not None:
        others += (*SETTINGS, *module_files(checkpoint.path))
    return (*SMALL_FILES, *others)


def _digests(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise TypeError("digests of files are not an object of texts")
    return value


def _compare(checkpoint: Checkpoint, verified: Mapping[str, str], found: Mapping[str, str]) -> None:
    for name in sorted({*verified, *found}):
        if verified.get(name) != found.get(name):
            then, now = (one.get(name, "no such file")[:16] for one in (verified, found))
            raise CheckpointError(
                f"{checkpoint.path / name} is not the file that was verified",
                seen=f"digest {now}, when it was verified {then}",
                remedy=REMEDY,
            )
