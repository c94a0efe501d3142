"""Paredown: compress a language model, prove what it cost, serve it.

    from paredown import LLM, SamplingParams
    LLM().generate("Once upon a time", SamplingParams(max_tokens=50))[0].text

The names below are imported when they are first used, so that `import paredown` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from paredown.compress.calibrate.calibration import Calibration
    from paredown.compress.quantize.aqlm import AQLM
    from paredown.compress.quantize.awq import AWQ
    from paredown.compress.quantize.gptq import GPTQ
    from paredown.compress.quantize.hqq import HQQ
    from paredown.compress.quantize.llm_int8 import LLMInt8
    from paredown.compress.quantize.rtn import RTN
    from paredown.compress.quantize.smoothquant import SmoothQuant
    from paredown.compress.recipe import QuantizeStep, Recipe, TransformStep
    from paredown.engine.async_llm import AsyncLLM
    from paredown.engine.llm import LLM, BeamCompletion, Completion
    from paredown.engine.request_output import RequestOutput
    from paredown.engine.sampling.beam_search import BeamSearchParams
    from paredown.engine.sampling.sampling_params import SamplingParams
    from paredown.engine.schedule.schedule_config import ScheduleConfig
    from paredown.engine.schedule.scheduler import QueueFullError
    from paredown.engine.score import Score
    from paredown.engine.speculate.speculation_config import SpeculationConfig
    from paredown.engine.worker import UnavailableError
    from paredown.errors import (
        CapacityError,
        CheckpointError,
        ConfigError,
        HubError,
        InstallationError,
        OutputError,
        ParedownError,
        RequestError,
        TrainingError,
        UnsupportedError,
    )
    from paredown.evaluate.texts.calibration_text import CalibrationConfig
    from paredown.executors.cache_config import CacheConfig
    from paredown.executors.load import load_executor
    from paredown.executors.run_options import RunOptions
    from paredown.formats.table import FORMATS
    from paredown.jobs.compress import CompressedCheckpoint
    from paredown.jobs.compress import compress_and_verify as compress_checkpoint
    from paredown.jobs.convert import ConvertedCheckpoint
    from paredown.jobs.convert import convert_and_carry as convert_checkpoint
    from paredown.jobs.float_source import FromQuantized
    from paredown.jobs.importance import ImportanceConfig
    from paredown.jobs.verify_config import VerifyConfig
    from paredown.kernels.thread_plan import ThreadPlan
    from paredown.models.checkpoint import Checkpoint
    from paredown.optimize.bounds import Bounds
    from paredown.optimize.optimize import OptimizeConfig
    from paredown.optimize.optimize import optimize as optimize_checkpoint
    from paredown.optimize.optimize_result import OptimizeResult
    from paredown.spec.attention_sinks import AttentionSinks
    from paredown.spec.weight import WeightSpec
else:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'paredown' has no attribute {name!r}")
        installation = importlib.import_module("paredown.installation")
        installation.check_python()
        try:
            module = importlib.import_module(_MODULES[name])
        except ImportError as error:
            installation.raise_explained(error)
        return getattr(module, _RENAMED.get(name, name))


# Where each name is defined. The type-checker imports above must match (tests/test_exports.py).
_MODULES = {
    "AQLM": "paredown.compress.quantize.aqlm",
    "AWQ": "paredown.compress.quantize.awq",
    "AsyncLLM": "paredown.engine.async_llm",
    "AttentionSinks": "paredown.spec.attention_sinks",
    "BeamCompletion": "paredown.engine.llm",
    "BeamSearchParams": "paredown.engine.sampling.beam_search",
    "CacheConfig": "paredown.executors.cache_config",
    "Calibration": "paredown.compress.calibrate.calibration",
    "CalibrationConfig": "paredown.evaluate.texts.calibration_text",
    "CapacityError": "paredown.errors",
    "Checkpoint": "paredown.models.checkpoint",
    "CheckpointError": "paredown.errors",
    "Completion": "paredown.engine.llm",
    "CompressedCheckpoint": "paredown.jobs.compress",
    "ConfigError": "paredown.errors",
    "ConvertedCheckpoint": "paredown.jobs.convert",
    "FORMATS": "paredown.formats.table",
    "FromQuantized": "paredown.jobs.float_source",
    "GPTQ": "paredown.compress.quantize.gptq",
    "HQQ": "paredown.compress.quantize.hqq",
    "HubError": "paredown.errors",
    "ImportanceConfig": "paredown.jobs.importance",
    "InstallationError": "paredown.errors",
    "LLM": "paredown.engine.llm",
    "LLMInt8": "paredown.compress.quantize.llm_int8",
    "Bounds": "paredown.optimize.bounds",
    "OptimizeConfig": "paredown.optimize.optimize",
    "OptimizeResult": "paredown.optimize.optimize_result",
    "OutputError": "paredown.errors",
    "ParedownError": "paredown.errors",
    "QuantizeStep": "paredown.compress.recipe",
    "QueueFullError": "paredown.engine.schedule.scheduler",
    "RTN": "paredown.compress.quantize.rtn",
    "Recipe": "paredown.compress.recipe",
    "RequestError": "paredown.errors",
    "RequestOutput": "paredown.engine.request_output",
    "RunOptions": "paredown.executors.run_options",
    "SamplingParams": "paredown.engine.sampling.sampling_params",
    "ScheduleConfig": "paredown.engine.schedule.schedule_config",
    "Score": "paredown.engine.score",
    "SmoothQuant": "paredown.compress.quantize.smoothquant",
    "SpeculationConfig": "paredown.engine.speculate.speculation_config",
    "ThreadPlan": "paredown.kernels.thread_plan",
    "TrainingError": "paredown.errors",
    "TransformStep": "paredown.compress.recipe",
    "UnavailableError": "paredown.engine.worker",
    "UnsupportedError": "paredown.errors",
    "VerifyConfig": "paredown.jobs.verify_config",
    "WeightSpec": "paredown.spec.weight",
    "compress_checkpoint": "paredown.jobs.compress",
    "convert_checkpoint": "paredown.jobs.convert",
    "load_executor": "paredown.executors.load",
    "optimize_checkpoint": "paredown.optimize.optimize",
}
# Renamed because the rooms `compress` and `optimize` have the short names.
_RENAMED = {
    "compress_checkpoint": "compress_and_verify",
    "convert_checkpoint": "convert_and_carry",
    "optimize_checkpoint": "optimize",
}
__all__ = [
    "AQLM",
    "AWQ",
    "FORMATS",
    "GPTQ",
    "HQQ",
    "LLM",
    "RTN",
    "AsyncLLM",
    "AttentionSinks",
    "BeamCompletion",
    "BeamSearchParams",
    "Bounds",
    "CacheConfig",
    "Calibration",
    "CalibrationConfig",
    "CapacityError",
    "Checkpoint",
    "CheckpointError",
    "Completion",
    "CompressedCheckpoint",
    "ConfigError",
    "ConvertedCheckpoint",
    "FromQuantized",
    "HubError",
    "ImportanceConfig",
    "InstallationError",
    "LLMInt8",
    "OptimizeConfig",
    "OptimizeResult",
    "OutputError",
    "ParedownError",
    "QuantizeStep",
    "QueueFullError",
    "Recipe",
    "RequestError",
    "RequestOutput",
    "RunOptions",
    "SamplingParams",
    "ScheduleConfig",
    "Score",
    "SmoothQuant",
    "SpeculationConfig",
    "ThreadPlan",
    "TrainingError",
    "TransformStep",
    "UnavailableError",
    "UnsupportedError",
    "VerifyConfig",
    "WeightSpec",
    "compress_checkpoint",
    "convert_checkpoint",
    "load_executor",
    "optimize_checkpoint",
]


def __dir__() -> list[str]:
    return sorted(__all__)
