"""llama.cpp answering many requests as its server does: slots, and one batch for all of them.

llama-cpp-python brings the library, not llama-server; this is the server's loop over llama_decode:
each turn computes the next token of every slot that generates, and fills the batch with prompts of
the others. It is spared what the server does besides: nothing is sampled (the next token is any
token), nothing is turned into text, nothing goes over HTTP.

The number of slots, where their keys and values lie (unified or a stream each), flash attention and
repacked weights are tried on shorter requests, and the fastest are kept.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import llama_cpp

from benchmarks.checkpoints.cache import Variant, gguf_file
from benchmarks.peers.llama_cpp import Context, load_model
from benchmarks.peers.offline import Job
from benchmarks.peers.peer import LoadOptions
from benchmarks.peers.slots import BATCH_TOKENS, serve
from benchmarks.peers.trials import try_settings

SLOTS = (16, 32, 64)
WARM_UP_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    repack: bool
    flash_attention: bool
    unified: bool
    num_slots: int

    @property
    def name(self) -> str:
        return (
            f"{self.num_slots} slots, {'unified' if self.unified else 'a stream each'}, "
            f"flash attention {'on' if self.flash_attention else 'off'}, weights "
            f"{'repacked' if self.repack else 'as in the file'}"
        )


class OfflineLlamaCpp:
    """Implements OfflinePeer."""

    def __init__(self) -> None:
        llama_cpp.llama_backend_init()
        self._models: dict[bool, Any] = {}
        self._options = LoadOptions(num_threads=1, num_tokens=1)
        self._chosen: ServerSettings | None = None
        self._tried: dict[str, str] = {}

    def load(self, root: Path, variant: Variant, options: LoadOptions, trial: list[Job]) -> None:
        self.close()
        path = gguf_file(root, variant)
        self._models = {repack: load_model(path, repack=repack) for repack in (True, False)}
        self._options = options
        first = ServerSettings(repack=True, flash_attention=True, unified=False, num_slots=32)
        computing = [
            replace(first, repack=repack, flash_attention=flash_attention)
            for repack in (True, False)
            for flash_attention in (True, False)
        ]
        best = self._fastest("computing", computing, trial)
        serving = [
            replace(best, unified=unified, num_slots=num_slots)
            for unified in (False, True)
            for num_slots in SLOTS
        ]
        self._chosen = self._fastest("serving", serving, trial)

    def answer(self, jobs: list[Job]) -> float:
        assert self._chosen is not None, "no model is loaded"
        return self._answer(self._chosen, jobs)

    def settings(self) -> dict[str, str]:
        assert self._chosen is not None, "no model is loaded"
        return {"chosen": self._chosen.name, **self._tried}

    def close(self) -> None:
        for model in self._models.values():
            llama_cpp.llama_model_free(model)
        self._models, self._chosen, self._tried = {}, None, {}

    def _fastest(
        self, what: str, settings: Sequence[ServerSettings], trial: list[Job]
    ) -> ServerSettings:
        seconds = try_settings(settings, lambda one: self._answer(one, trial))
        self._tried[f"{what}, seconds tried"] = "; ".join(
            f"{one:.2f} {setting.name}" for setting, one in seconds.items()
        )
        return min(seconds, key=lambda setting: seconds[setting])

    def _answer(self, settings: ServerSettings, jobs: list[Job]) -> float:
        """In a context of its own, which is made and warmed before the clock starts."""
        options = replace(self._options, num_sequences=settings.num_slots)
        context = Context(
            self._models[settings.repack],
            options,
            settings.flash_attention,
            unified=settings.unified,
            batch_tokens=BATCH_TOKENS,
        )
        try:
            context.prefill(jobs[0][0][:WARM_UP_TOKENS])
            context.forget(0)
            start_s = time.perf_counter()
            num_tokens = serve(context, jobs, settings.num_slots)
            seconds = time.perf_counter() - start_s
        finally:
            context.close()
        assert num_tokens == sum(len(prompt) + number - 1 for prompt, number in jobs)
        return seconds
