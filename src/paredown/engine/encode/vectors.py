"""Vectors of texts: their pooling, where the prompt does not count, and how they are made shorter.

Letters: N texts, T tokens, D dimensions.
"""

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.encode_job import EncodeJob, Row
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.read_texts import ReadTexts, encode_text
from paredown.engine.sampling.field_rules import MAX_SEEN_CHARS, ParameterError
from paredown.errors import UnsupportedError
from paredown.shown import quoted

Vectors = npt.NDArray[np.float32]


def check_dimensions(model: EncoderModel, dimensions: int | None) -> None:
    """Raises ParameterError for a size that the model's vectors cannot be cut to."""
    if dimensions is None:
        return
    sizes, most = model.settings.dimensions, model.size
    if type(dimensions) is not int or not 1 <= dimensions <= most:
        raise ParameterError(
            "dimensions",
            seen=quoted(dimensions, MAX_SEEN_CHARS),
            remedy=f"Use an integer from 1 to {most}, the size of this model's vectors.",
        )
    if dimensions != most and dimensions not in sizes and not model.cuts_anywhere:
        known = f"made for {', '.join(map(str, sizes))}" if sizes else "not made to be cut"
        raise ParameterError(
            "dimensions",
            seen=dimensions,
            remedy=f"This model's vectors are {known} (matryoshka_dimensions of config.json): use "
            f"one of these sizes or {most}. With any_dimensions they are cut all the same.",
        )


def shorten(vectors_ND: Vectors, dimensions: int | None) -> Vectors:
    """Returns the first `dimensions` of each vector, brought to length 1 (Matryoshka, arXiv
    2205.13147); None returns the vectors as they are. A vector of zeros stays one."""
    if dimensions is None:
        return vectors_ND
    cut_ND = vectors_ND[:, :dimensions]
    lengths_N1: Vectors = np.linalg.norm(cut_ND, axis=1, keepdims=True)
    lengths_N1[lengths_N1 == 0] = 1
    shortened: Vectors = cut_ND / lengths_N1
    return shortened


def vector_rows(model: EncoderModel, read: ReadTexts, prompt: str) -> EncodeJob[list[Row]]:
    """Returns the job whose rows are the vectors of texts that begin with `prompt`. Where the
    prompt's tokens do not count (INSTRUCTOR, arXiv 2212.09741), the mean is taken of the others.
    Raises UnsupportedError where the model has another pooling then."""
    if model.settings.pools_prompt:
        return EncodeJob(texts=read.texts, counts=read.counts, finish=list)
    head = model.present_head
    if head.pooling != ("mean",) or head.steps or head.token_steps:
        raise UnsupportedError(
            "only the mean can leave a prompt out",
            seen=f"pooling {', '.join(head.pooling)}, {len(head.steps)} layers behind it",
            remedy="Set include_prompt to true in the config of the pooling, or use another model.",
        )
    num_left_out = 0
    if prompt:
        num_left_out = len(model.tokenizer.prompt_prefix) + len(encode_text(model, prompt))

    def keep(number: int, tokens_TD: Row) -> Row:
        of_text = tokens_TD[min(num_left_out, len(tokens_TD) - 1) :].astype(np.float64)
        mean_D = of_text.mean(axis=0)
        length = float(np.linalg.norm(mean_D)) if head.is_normalized else 1.0
        return np.asarray(mean_D / (length or 1.0), np.float32)

    return EncodeJob(texts=read.texts, counts=read.counts, finish=list, keep=keep, output="tokens")
