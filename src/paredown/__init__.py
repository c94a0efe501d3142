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
    from paredown.compress.cut.experts import CutExperts
    from paredown.compress.cut.ffn import CutNeurons
    from paredown.compress.cut.heads import CutHeads
    from paredown.compress.cut.layers import CutLayers
    from paredown.compress.prune.given_mask import GivenMask
    from paredown.compress.prune.low_gradient import LowGradient
    from paredown.compress.prune.magnitude import Magnitude
    from paredown.compress.prune.obd import OBD
    from paredown.compress.prune.obs import OBS
    from paredown.compress.prune.pattern import NOfM, Share
    from paredown.compress.prune.refit import Refit
    from paredown.compress.prune.sparse_swaps import SparseSwaps
    from paredown.compress.prune.sparsegpt import SparseGPT
    from paredown.compress.prune.taylor import Taylor
    from paredown.compress.prune.wanda import Wanda
    from paredown.compress.quantize.aqlm import AQLM
    from paredown.compress.quantize.awq import AWQ
    from paredown.compress.quantize.gptq import GPTQ
    from paredown.compress.quantize.hqq import HQQ
    from paredown.compress.quantize.llm_int8 import LLMInt8
    from paredown.compress.quantize.rtn import RTN
    from paredown.compress.quantize.smoothquant import SmoothQuant
    from paredown.compress.recipe import Recipe
    from paredown.compress.steps import (
        CutStep,
        PruneStep,
        QuantizeStep,
        RecoverStep,
        TrainStep,
        TransformStep,
    )
    from paredown.distill.adamw import AdamWConfig
    from paredown.distill.black_box.asker import AskLimits
    from paredown.distill.black_box.synthesize import SynthesisConfig, SynthesisResult, synthesize
    from paredown.distill.black_box.teacher import TeacherConfig
    from paredown.distill.data.training_data import TrainingDataConfig
    from paredown.distill.distill import DistillConfig
    from paredown.distill.methods import MethodOptions
    from paredown.distill.teacher_logits.teacher_logits import TeacherLogits
    from paredown.distill.train_config import TrainConfig
    from paredown.engine.async_encoder import AsyncEncoder
    from paredown.engine.async_llm import AsyncLLM
    from paredown.engine.encode.batch_config import BatchConfig
    from paredown.engine.encoder import Encoder
    from paredown.engine.grammar.grammar import Grammar, GrammarError
    from paredown.engine.llm import LLM, BeamCompletion, Completion
    from paredown.engine.model_thread import UnavailableError
    from paredown.engine.request_output import RequestOutput
    from paredown.engine.sampling.beam_search import BeamSearchParams
    from paredown.engine.sampling.sampling_params import SamplingParams
    from paredown.engine.schedule.schedule_config import ScheduleConfig
    from paredown.engine.schedule.scheduler import QueueFullError
    from paredown.engine.score import Score
    from paredown.engine.speculate.speculation_config import SpeculationConfig
    from paredown.errors import (
        CapacityError,
        CheckpointError,
        ConfigError,
        HubError,
        InstallationError,
        OutputError,
        ParedownError,
        RequestError,
        RetrievalError,
        TeacherError,
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
    from paredown.jobs.distill import DistilledCheckpoint
    from paredown.jobs.distill import distill_and_verify as distill_checkpoint
    from paredown.jobs.float_source import FromQuantized
    from paredown.jobs.importance import ImportanceConfig
    from paredown.jobs.verify_config import VerifyConfig
    from paredown.kernels.thread_plan import ThreadPlan
    from paredown.models.checkpoint import Checkpoint
    from paredown.optimize.bounds import Bounds
    from paredown.optimize.optimize import optimize as optimize_checkpoint
    from paredown.optimize.optimize_config import OptimizeConfig
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
    "AdamWConfig": "paredown.distill.adamw",
    "AskLimits": "paredown.distill.black_box.asker",
    "AsyncEncoder": "paredown.engine.async_encoder",
    "AsyncLLM": "paredown.engine.async_llm",
    "AttentionSinks": "paredown.spec.attention_sinks",
    "BatchConfig": "paredown.engine.encode.batch_config",
    "BeamCompletion": "paredown.engine.llm",
    "BeamSearchParams": "paredown.engine.sampling.beam_search",
    "Bounds": "paredown.optimize.bounds",
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
    "CutExperts": "paredown.compress.cut.experts",
    "CutHeads": "paredown.compress.cut.heads",
    "CutLayers": "paredown.compress.cut.layers",
    "CutNeurons": "paredown.compress.cut.ffn",
    "CutStep": "paredown.compress.steps",
    "DistillConfig": "paredown.distill.distill",
    "DistilledCheckpoint": "paredown.jobs.distill",
    "Encoder": "paredown.engine.encoder",
    "FORMATS": "paredown.formats.table",
    "FromQuantized": "paredown.jobs.float_source",
    "GPTQ": "paredown.compress.quantize.gptq",
    "GivenMask": "paredown.compress.prune.given_mask",
    "Grammar": "paredown.engine.grammar.grammar",
    "GrammarError": "paredown.engine.grammar.grammar",
    "HQQ": "paredown.compress.quantize.hqq",
    "HubError": "paredown.errors",
    "ImportanceConfig": "paredown.jobs.importance",
    "InstallationError": "paredown.errors",
    "LLM": "paredown.engine.llm",
    "LLMInt8": "paredown.compress.quantize.llm_int8",
    "LowGradient": "paredown.compress.prune.low_gradient",
    "Magnitude": "paredown.compress.prune.magnitude",
    "MethodOptions": "paredown.distill.methods",
    "NOfM": "paredown.compress.prune.pattern",
    "OBD": "paredown.compress.prune.obd",
    "OBS": "paredown.compress.prune.obs",
    "OptimizeConfig": "paredown.optimize.optimize_config",
    "OptimizeResult": "paredown.optimize.optimize_result",
    "OutputError": "paredown.errors",
    "ParedownError": "paredown.errors",
    "PruneStep": "paredown.compress.steps",
    "QuantizeStep": "paredown.compress.steps",
    "QueueFullError": "paredown.engine.schedule.scheduler",
    "RTN": "paredown.compress.quantize.rtn",
    "Recipe": "paredown.compress.recipe",
    "RecoverStep": "paredown.compress.steps",
    "Refit": "paredown.compress.prune.refit",
    "RequestError": "paredown.errors",
    "RequestOutput": "paredown.engine.request_output",
    "RetrievalError": "paredown.errors",
    "RunOptions": "paredown.executors.run_options",
    "SamplingParams": "paredown.engine.sampling.sampling_params",
    "ScheduleConfig": "paredown.engine.schedule.schedule_config",
    "Score": "paredown.engine.score",
    "Share": "paredown.compress.prune.pattern",
    "SmoothQuant": "paredown.compress.quantize.smoothquant",
    "SparseGPT": "paredown.compress.prune.sparsegpt",
    "SparseSwaps": "paredown.compress.prune.sparse_swaps",
    "SpeculationConfig": "paredown.engine.speculate.speculation_config",
    "SynthesisConfig": "paredown.distill.black_box.synthesize",
    "SynthesisResult": "paredown.distill.black_box.synthesize",
    "Taylor": "paredown.compress.prune.taylor",
    "TeacherConfig": "paredown.distill.black_box.teacher",
    "TeacherError": "paredown.errors",
    "TeacherLogits": "paredown.distill.teacher_logits.teacher_logits",
    "ThreadPlan": "paredown.kernels.thread_plan",
    "TrainConfig": "paredown.distill.train_config",
    "TrainingDataConfig": "paredown.distill.data.training_data",
    "TrainStep": "paredown.compress.steps",
    "TrainingError": "paredown.errors",
    "TransformStep": "paredown.compress.steps",
    "UnavailableError": "paredown.engine.model_thread",
    "UnsupportedError": "paredown.errors",
    "VerifyConfig": "paredown.jobs.verify_config",
    "Wanda": "paredown.compress.prune.wanda",
    "WeightSpec": "paredown.spec.weight",
    "compress_checkpoint": "paredown.jobs.compress",
    "convert_checkpoint": "paredown.jobs.convert",
    "distill_checkpoint": "paredown.jobs.distill",
    "load_executor": "paredown.executors.load",
    "optimize_checkpoint": "paredown.optimize.optimize",
    "synthesize": "paredown.distill.black_box.synthesize",
}
# Renamed because the rooms `compress` and `optimize` have the short names.
_RENAMED = {
    "compress_checkpoint": "compress_and_verify",
    "convert_checkpoint": "convert_and_carry",
    "distill_checkpoint": "distill_and_verify",
    "optimize_checkpoint": "optimize",
}
__all__ = [
    "AQLM",
    "AWQ",
    "FORMATS",
    "GPTQ",
    "HQQ",
    "LLM",
    "OBD",
    "OBS",
    "RTN",
    "AdamWConfig",
    "AskLimits",
    "AsyncEncoder",
    "AsyncLLM",
    "AttentionSinks",
    "BatchConfig",
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
    "CutExperts",
    "CutHeads",
    "CutLayers",
    "CutNeurons",
    "CutStep",
    "DistillConfig",
    "DistilledCheckpoint",
    "Encoder",
    "FromQuantized",
    "GivenMask",
    "Grammar",
    "GrammarError",
    "HubError",
    "ImportanceConfig",
    "InstallationError",
    "LLMInt8",
    "LowGradient",
    "Magnitude",
    "MethodOptions",
    "NOfM",
    "OptimizeConfig",
    "OptimizeResult",
    "OutputError",
    "ParedownError",
    "PruneStep",
    "QuantizeStep",
    "QueueFullError",
    "Recipe",
    "RecoverStep",
    "Refit",
    "RequestError",
    "RequestOutput",
    "RetrievalError",
    "RunOptions",
    "SamplingParams",
    "ScheduleConfig",
    "Score",
    "Share",
    "SmoothQuant",
    "SparseGPT",
    "SparseSwaps",
    "SpeculationConfig",
    "SynthesisConfig",
    "SynthesisResult",
    "Taylor",
    "TeacherConfig",
    "TeacherError",
    "TeacherLogits",
    "ThreadPlan",
    "TrainConfig",
    "TrainStep",
    "TrainingDataConfig",
    "TrainingError",
    "TransformStep",
    "UnavailableError",
    "UnsupportedError",
    "VerifyConfig",
    "Wanda",
    "WeightSpec",
    "compress_checkpoint",
    "convert_checkpoint",
    "distill_checkpoint",
    "load_executor",
    "optimize_checkpoint",
    "synthesize",
]


def __dir__() -> list[str]:
    return sorted(__all__)
