"""Paredown: compress a language model, prove what it cost, serve it.

    from paredown import LLM, SamplingParams
    LLM().generate("Once upon a time", SamplingParams(max_tokens=50))[0].text

The names below are imported when they are first used, so that `import paredown` costs nothing.
"""

import importlib

_EXPORTS = {
    "AsyncLLM": ("paredown.engine.async_llm", "AsyncLLM"),
    "AttentionSinks": ("paredown.spec.attention_sinks", "AttentionSinks"),
    "Checkpoint": ("paredown.models.checkpoint", "Checkpoint"),
    "Completion": ("paredown.engine.llm", "Completion"),
    "LLM": ("paredown.engine.llm", "LLM"),
    "ParedownError": ("paredown.errors", "ParedownError"),
    "SamplingParams": ("paredown.engine.sampling.sampling_params", "SamplingParams"),
    # The rooms `compress` and `optimize` have the short names.
    "compress_checkpoint": ("paredown.compress.compress", "compress"),
    "optimize_checkpoint": ("paredown.optimize.optimize", "optimize"),
    "load_executor": ("paredown.executors.load", "load_executor"),
}


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'paredown' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(_EXPORTS)
