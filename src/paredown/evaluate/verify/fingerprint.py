"""Fingerprint: identifies a verified checkpoint, and checks that it still computes the same.

It holds golden logits and a digest of each file that the figures depend on. Digests reveal a single
changed bit; logits reveal a machine that computes differently.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from paredown.errors import CheckpointError
from paredown.evaluate.quality.rows import Logits
from paredown.evaluate.verify.golden import (
    GOLDEN_KV,
    TOLERANCE,
    GoldenLogits,
    hash_logits,
    log_probabilities,
    make_golden,
    run_golden,
)
from paredown.executors.protocol import LoadedExecutor
from paredown.files.model_file import read_model_file
from paredown.kernels.packed_file import hash_bytes
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.json_file import MAX_TOKENIZER_BYTES, read_optional_json_object
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
    golden: GoldenLogits

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
            golden=GoldenLogits.from_json(golden),
        )

    @property
    def activations(self) -> ActivationDType | None:
        """Returns the dtype that inputs of linear layers were rounded to; None is that of their
        formats."""
        return cast("ActivationDType | None", self.golden.arithmetic.get("activations"))

    def other_inputs(self, executor: LoadedExecutor) -> str | None:
        """Describes how `executor` reads the inputs of linear layers, if that differs from the
        verification and its logits must therefore differ too; else None."""
        there, here = self.activations, executor.arithmetic.get("activations")
        if here == there:
            return None
        formats = "as the formats say"
        return f"inputs are read {here or formats}, and were verified {there or formats}"

    def check_files(self, checkpoint: Checkpoint, executor: LoadedExecutor) -> None:
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
        logits_TV = golden_logits(executor)
        if hash_logits(logits_TV) == self.golden.sha256:
            return "bit for bit"
        difference = self._difference(logits_TV)
        there, here = self.golden.arithmetic, executor.arithmetic
        others = ", ".join(name for name in here if here[name] != there.get(name))
        if others and difference <= TOLERANCE:
            return f"within {difference:.1g} of their size (verified with another {others})"
        allowed = f"{TOLERANCE}, with another {others}" if others else "not one bit on this machine"
        raise CheckpointError(
            f"{checkpoint.path} does not compute the logits that it was verified with",
            seen=f"log-probabilities differ by {difference:.2g} of their size; allowed: {allowed}",
            remedy=REMEDY,
        )

    def _difference(self, logits_TV: Logits) -> float:
        sampled_TK = np.array(self.golden.sampled_TK)
        fits = len(sampled_TK) == len(logits_TV) and sampled_TK.max() < logits_TV.shape[1]
        if not fits or sampled_TK.min() < 0:
            return np.inf
        return self.golden.difference(log_probabilities(logits_TV, sampled_TK))


def make_fingerprint(checkpoint: Checkpoint, executor: LoadedExecutor) -> Fingerprint:
    """Returns the fingerprint of a checkpoint that was loaded with its serving defaults. Raises
    CheckpointError for NaN or infinite logits."""
    logits_TV = golden_logits(executor)
    if not np.isfinite(logits_TV).all():
        raise CheckpointError(
            f"the predictions of {checkpoint.path} are not numbers",
            seen=f"{np.count_nonzero(~np.isfinite(logits_TV))} of {logits_TV.size} golden logits",
            remedy="Use another checkpoint: its weights are damaged, or it needs a wider range "
            "than its format has.",
        )
    return Fingerprint(
        small_files=_digest_small_files(checkpoint),
        weight_files=file_digests(checkpoint, executor.threads.prefill),
        golden=make_golden(logits_TV, executor.arithmetic),
    )


def golden_logits(executor: LoadedExecutor) -> Logits:
    """Returns [T, V], computed in separate pages, whatever the executor's KV format and number of
    pages."""
    return run_golden(executor.sharing_weights(GOLDEN_KV, keeps_sinks=False))


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
    return SMALL_FILES if read in SMALL_FILES else (*SMALL_FILES, read)


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
