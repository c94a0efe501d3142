"""StoredText: the rows whose distributions are kept, and the header that belongs to them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from paredown.compress.calibrate.source_digest import source_digest
from paredown.distill.arithmetic import Arithmetic
from paredown.distill.rows import Rows
from paredown.distill.teacher_logits.header import Header
from paredown.distill.teacher_logits.keep import Keep
from paredown.distill.teacher_logits.row_keys import distinct_rows, keys_digest
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class StoredText:
    """`rows` are those of the training and those held out; a row that comes twice is stored once.
    `places` has each distinct row, by its key, in the order of the file."""

    teacher: Checkpoint
    rows: Sequence[Rows]
    places: dict[bytes, tuple[int, int]]
    keep: Keep
    header: Header

    @classmethod
    def of(
        cls,
        teacher: Checkpoint,
        rows: Sequence[Rows],
        keep: Keep,
        arithmetic: Arithmetic,
        seed: int = 0,
    ) -> "StoredText":
        """Reads the whole teacher for its digest; it will run in that arithmetic. `seed` is that of
        draws. Raises ConfigError for what cannot be kept of its vocabulary."""
        keep.check(teacher.spec.vocab_size)
        places = distinct_rows(rows)
        header = Header(
            keep=keep.name,
            missing_mass=keep.rule,
            vocab_size=teacher.spec.vocab_size,
            num_rows=len(places),
            seed=seed,
            teacher=source_digest(teacher),
            tokenizer=_tokenizer_digest(teacher),
            rows=keys_digest(places),
            arithmetic=arithmetic,
        )
        return cls(
            teacher=teacher,
            rows=rows,
            places=places,
            keep=keep,
            header=header,
        )


def _tokenizer_digest(teacher: Checkpoint) -> str:
    """Returns the SHA-256 of all tokens by their numbers."""
    vocabulary = Tokenizer.open(teacher.path).vocabulary
    digest = hashlib.sha256()
    for text, number in sorted(vocabulary.items(), key=lambda item: (item[1], item[0])):
        digest.update(f"{number} {text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
