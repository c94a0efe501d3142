"""llama.cpp on GGUF files that we write.

It runs with the settings that are the fastest here: the first batch of each size tries the files of
a kind, weights repacked for the processor or as they lie in the file, flash attention on or off,
and how many texts go through one call. A call computes the attention of all its tokens to all of
them and masks those of other texts, so more texts are not always faster.
"""

from pathlib import Path

import llama_cpp
import numpy as np

from benchmarks.clock import Clock
from benchmarks.encoders.cases import EncoderKind
from benchmarks.encoders.peers.llama_cpp_choices import (
    Choice,
    Settings,
    call_texts_of,
    settings_of,
)
from benchmarks.encoders.peers.llama_cpp_context import Context, Vectors
from benchmarks.encoders.peers.timed import timed
from benchmarks.peers.llama_cpp import load_model
from benchmarks.peers.trials import try_settings
from paredown import convert_checkpoint


class LlamaCppEncoder:
    """Takes texts, returns normalized vectors."""

    def __init__(self) -> None:
        llama_cpp.llama_backend_init()
        self._contexts: dict[Settings, Context] = {}
        self._clock: Clock = "wall"
        # By number of texts.
        self._chosen: dict[int, Choice] = {}

    def load(self, model: str, kind: EncoderKind, num_threads: int, folder: str) -> None:
        self._clock = "cpu" if num_threads == 1 else "wall"
        for settings in settings_of(kind):
            path = Path(folder) / f"{settings.target}.gguf"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                convert_checkpoint(Path(model), path, settings.target)
            loaded = load_model(path, repack=settings.repack)
            self._contexts[settings] = Context(loaded, num_threads, settings.flash_attention)

    def vectors(self, texts: list[str]) -> Vectors:
        if len(texts) not in self._chosen:
            self._chosen[len(texts)] = self._fastest(texts)
        return self._vectors(self._chosen[len(texts)], texts)

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)

    def _vectors(self, choice: Choice, texts: list[str]) -> Vectors:
        context, step = self._contexts[choice.settings], choice.call_texts
        token_ids = [context.token_ids(text) for text in texts]
        starts = range(0, len(texts), step)
        found = np.concatenate([context.vectors(token_ids[i : i + step]) for i in starts])
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))

    def _fastest(self, texts: list[str]) -> Choice:
        """Returns the choice that is the fastest for so many texts; the log has the others too."""
        some = next(iter(self._contexts.values()))
        longest = max(len(some.token_ids(text)) for text in texts)
        choices = [
            Choice(settings=settings, call_texts=call_texts)
            for settings in self._contexts
            for call_texts in call_texts_of(len(texts), longest)
        ]
        for choice in choices:
            self._vectors(choice, texts)
        seconds = try_settings(choices, lambda choice: self._seconds(choice, texts))
        for choice in sorted(choices, key=seconds.__getitem__):
            print(f"{len(texts)} texts: {seconds[choice]:.5f} s, {choice.name}", flush=True)
        return min(choices, key=seconds.__getitem__)

    def _seconds(self, choice: Choice, texts: list[str]) -> float:
        (found,) = timed(lambda some: self._vectors(choice, some), texts, 1, self._clock)
        return found
