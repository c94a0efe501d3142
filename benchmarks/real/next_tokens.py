"""Our next token along llama.cpp's own answers, from the same GGUF file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.peers.llama_logits import LlamaLogits, Logits
from benchmarks.real.prompts import NUM_TOKENS, PROMPTS
from benchmarks.real.row import Row, Section
from paredown.engine.prompt import encode_prompt
from paredown.evaluate.quality.divergence import kl_divergences
from paredown.evaluate.quality.perplexity import Predictions
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.weight import ActivationDType

MIN_SAME = 0.98
MAX_KL = 0.003
_MAX_TOKENS = 128
# What linear layers round their inputs to: as the formats say, and finer.
AS_STORED = "as stored"
FINE: ActivationDType = "int16_group"


@dataclass(frozen=True, kw_only=True)
class NextTokens:
    """`num_near` of the others are ties: our two best lie closer than twice the largest difference
    of logits. `num_other_prompts` were cut into other tokens, and are not compared. `our_error` and
    `their_error` are KL from the file's weights in float32, inputs not rounded at all."""

    num_tokens: int
    num_same: int
    num_near: int
    kl_divergence: float
    max_difference: float
    num_other_prompts: int
    our_error: float
    their_error: float

    @property
    def same_share(self) -> float:
        return self.num_same / max(1, self.num_tokens)

    @property
    def is_right(self) -> bool:
        """Whether every prompt was compared, and all tokens are the same or ties."""
        are_ties = self.num_same + self.num_near == self.num_tokens
        return self.num_other_prompts == 0 and are_ties

    @property
    def is_near(self) -> bool:
        """Whether nearly all are the same, and the predictions are as good as one."""
        return self.same_share >= MIN_SAME and self.kl_divergence <= MAX_KL


def compare_rows(ours_TV: Logits, theirs_TV: Logits) -> tuple[int, int, float, float]:
    """How many are the same, how many ties, the sum of KL(theirs || ours), and the largest
    difference of logits."""
    differences_T = np.abs(ours_TV - theirs_TV).max(axis=1)
    same_T = ours_TV.argmax(axis=1) == theirs_TV.argmax(axis=1)
    best_T2 = np.sort(ours_TV, axis=1)[:, -2:]
    near_T = ~same_T & (best_T2[:, 1] - best_T2[:, 0] < 2 * differences_T)
    kl_T = kl_divergences(Predictions.of(theirs_TV), Predictions.of(ours_TV))
    return int(same_T.sum()), int(near_T.sum()), float(kl_T.sum()), float(differences_T.max())


def measure(
    path: Path, num_threads: int, prompts: Sequence[str] = PROMPTS
) -> dict[str, NextTokens]:
    """By what our linear layers round their inputs to. Raises what opening the file raises."""
    theirs = LlamaLogits(path, num_threads=num_threads)
    checkpoint = Checkpoint.open(path)
    options = RunOptions(
        num_pages=_MAX_TOKENS // PAGE_SIZE,
        threads=ThreadPlan.resolve(num_threads),
        kv_dtype="fp32",
    )
    tokenizer = Tokenizer.open(path)
    executors = {
        AS_STORED: load_executor(checkpoint, options),
        FINE: load_executor(checkpoint, replace(options, activations=FINE)),
    }
    floats = load_executor(checkpoint, replace(options, executor="torch"))
    num_other = 0
    answers: dict[str, list[_Answer]] = {name: [] for name in executors}
    for prompt in prompts:
        ids = encode_prompt(tokenizer, prompt)
        if ids != theirs.encode(prompt, add_special=True):
            num_other += 1
            continue
        tokens, theirs_TV = theirs.answer(ids, NUM_TOKENS)
        truth_TV = _rows(floats, ids + tokens[:-1])
        for name, executor in executors.items():
            ours_TV = _rows(executor, ids + tokens[:-1])
            answers[name].append(_Answer.of(ours_TV, theirs_TV, truth_TV))
    theirs.close()
    return {name: _summed(own, num_other) for name, own in answers.items()}


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """One prompt: `compare_rows`, and KL from the weights in float32."""

    rows: tuple[int, int, float, float]
    our_error: float
    their_error: float

    @classmethod
    def of(cls, ours_TV: Logits, theirs_TV: Logits, truth_TV: Logits) -> "_Answer":
        truth = Predictions.of(truth_TV)
        ours, theirs = (
            float(kl_divergences(truth, Predictions.of(one)).mean()) for one in (ours_TV, theirs_TV)
        )
        rows = compare_rows(ours_TV, theirs_TV)
        return cls(rows=rows, our_error=ours, their_error=theirs)


def _summed(answers: Sequence[_Answer], num_other: int) -> NextTokens:
    num_tokens = NUM_TOKENS * len(answers)
    return NextTokens(
        num_tokens=num_tokens,
        num_same=sum(one.rows[0] for one in answers),
        num_near=sum(one.rows[1] for one in answers),
        kl_divergence=sum(one.rows[2] for one in answers) / max(1, num_tokens),
        max_difference=max((one.rows[3] for one in answers), default=0.0),
        num_other_prompts=num_other,
        our_error=float(np.mean([one.our_error for one in answers])) if answers else 0.0,
        their_error=float(np.mean([one.their_error for one in answers])) if answers else 0.0,
    )


def section(files: dict[str, Path], num_threads: int) -> Section:
    rows = []
    for name, path in files.items():
        for inputs, found in measure(path, num_threads).items():
            rows += rows_of(name if inputs == AS_STORED else f"{name}, inputs in {inputs}", found)
    return Section(
        title="Next tokens along llama.cpp's answers",
        protocol=f"{len(PROMPTS)} prompts, {NUM_TOKENS} tokens each, from the same GGUF file; keys "
        "and values in fp32 on both sides; KL(llama.cpp || ours) in nats a token.",
        rows=rows,
    )


def rows_of(name: str, found: NextTokens) -> list[Row]:
    others = f", {found.num_other_prompts} prompts with other tokens"
    return [
        Row(
            name=f"{name}, right",
            asked="all the same, or tied",
            found=f"{found.num_same} of {found.num_tokens} the same, {found.num_near} tied, "
            f"largest difference {found.max_difference:.2f}"
            + (others if found.num_other_prompts else ""),
            meets=found.is_right,
            decides=True,
        ),
        Row(
            name=f"{name}, near",
            asked=f"{MIN_SAME:.0%} the same, KL {MAX_KL}",
            found=f"{found.same_share:.2%}, KL {found.kl_divergence:.5f}",
            meets=found.is_near,
        ),
        Row(
            name=f"{name}, KL from its weights in float32",
            asked="no more than llama.cpp's",
            found=f"{found.our_error:.5f} beside {found.their_error:.5f}",
            meets=found.our_error <= found.their_error,
        ),
    ]


def _rows(executor: LoadedExecutor, ids: list[int]) -> Logits:
    pages = list(range(-(-len(ids) // PAGE_SIZE)))
    asked = SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=NUM_TOKENS)
    return np.array(executor.step([asked]))
