"""The fields of what verbs print with --json, and of the files that they write."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from paredown.cli import main
from paredown.cli.verbs import (
    bench,
    bench_predicted,
    chat,
    doctor,
    eval,
    eval_glue,
    eval_task,
    generate,
    inspect,
    mixed,
    plan,
    serve_until_stopped,
    simulate,
)
from paredown.compress.compress_result import CompressResult
from paredown.compress.convert.convert import ConvertResult
from paredown.compress.schemes import SchemeRow
from paredown.cost.inspection import Inspection
from paredown.distill.black_box.diversity import Diversity
from paredown.distill.black_box.synthesize import SynthesisResult
from paredown.distill.judge import Judgement
from paredown.evaluate.load.summary import LoadSummary, Percentiles
from paredown.evaluate.quality.layer_error import LayerError
from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.task_quality import TaskQuality
from paredown.evaluate.tasks.measure_glue import GlueResult
from paredown.evaluate.tasks.self_instruct import SelfInstructResult
from paredown.evaluate.verify.carried_verification import CarriedVerification
from paredown.evaluate.verify.fingerprint import Fingerprint
from paredown.evaluate.verify.golden import GoldenLogits
from paredown.evaluate.verify.verification import Verification
from paredown.evaluate.verify.verification_file import write_verification
from paredown.jobs.compress import CompressedCheckpoint
from paredown.jobs.convert import ConvertedCheckpoint
from paredown.jobs.distill import DistilledCheckpoint
from paredown.optimize.bounds import Bounds, Gap
from paredown.optimize.candidates import Skipped
from paredown.optimize.optimize_result import OptimizeResult
from paredown.optimize.sensitivity import Sensitivity, SensitivityResult, SensitivityTable
from paredown.optimize.text_choice import TextChoice
from paredown.plan.plan import Plan
from paredown.plan.simulation import Moment, Simulation
from paredown.spec.machine import Machine
from tools.reference.page import docstring, table
from tools.reference.python_names import type_text
from tools.reference.source import literal_keys


@dataclass(frozen=True, kw_only=True)
class Document:
    """A JSON object: all fields of `whole`, then the keys that `functions` write out. Types are
    those that `holds` has, else those of the fields of `types` with the same names."""

    whole: type | None = None
    functions: tuple[Callable[..., object], ...] = ()
    types: tuple[type, ...] = ()
    without: tuple[str, ...] = ()
    holds: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, str]]:
        types = {
            one.name: json_type(one.type)
            for kind in (*self.types, self.whole)
            if kind is not None
            for one in dataclasses.fields(kind)
        }
        names = [one.name for one in dataclasses.fields(self.whole)] if self.whole else []
        for function in self.functions:
            names += literal_keys(function)
        for name in dict.fromkeys(names):
            if name not in self.without:
                yield f"`{name}`", self.holds.get(name) or types.get(name, "")


def json_type(annotation: object) -> str:
    """A Python type in the words of JSON."""
    text = re.sub(r"Literal\[[^]]*\]", "text", type_text(annotation))
    for pattern, word in (
        (r"\b(?:str|Path)\b", "text"),
        (r"\bint\b", "integer"),
        (r"\bfloat\b", "number"),
        (r"\bbool\b", "true or false"),
        (r"\bNone\b", "null"),
        (r" \| ", " or "),
        (r", \.\.\.\]", "]"),
    ):
        text = re.sub(pattern, word, text)
    nested = r"(\w+)\[((?:text, )?)([^\[\]]*)\]"
    words = {"list": "list of ", "tuple": "list of ", "dict": "object of ", "Mapping": "object of "}
    while re.search(nested, text):
        text = re.sub(nested, lambda found: words.get(found[1], "") + found[3], text)
    return text


PRINTED = {
    "optimize": Document(
        functions=(OptimizeResult.as_json,),
        types=(OptimizeResult,),
        holds={
            "verification": "object or null: as verification.json, without `fingerprint`",
            "text_choice_words": "text or null",
            "serve": "text or null: the command that serves what was written",
        },
    ),
    "compress": Document(
        whole=CompressResult,
        functions=(CompressedCheckpoint.as_json,),
        types=(CompressedCheckpoint,),
        holds={"verification": "object or null: as verification.json, without `fingerprint`"},
    ),
    "distill": Document(
        functions=(DistilledCheckpoint.as_json,),
        types=(DistilledCheckpoint,),
        holds={
            "path": "text",
            "num_tokens": "integer: the tokens that were trained on",
            "num_targets": "integer: those of them that were learned",
            "elapsed_s": "number: seconds of training",
            "tokens_per_s": "number",
            "first_loss": "number: of the first step",
            "final_loss": "number: the mean of the last tenth",
            "held_out": "list of Judgement: the looks at held-out text",
            "stopped_early": "true or false",
            "predicted_bytes": "integer: memory at the peak",
            "verification": "object or null: as verification.json, without `fingerprint`",
        },
    ),
    "synthesize": Document(whole=SynthesisResult),
    "convert": Document(
        functions=(ConvertedCheckpoint.as_json,), types=(ConvertResult, ConvertedCheckpoint)
    ),
    "`paredown eval --task selfinst --json`": Document(
        functions=(eval_task._as_json,),
        holds={
            "task": "text",
            "model": "SelfInstructResult",
            "reference": "SelfInstructResult or null",
        },
    ),
    "`paredown eval --task glue-... --json`": Document(
        functions=(eval_glue._as_json,),
        holds={"task": "text", "sets": "list of GlueResult"},
    ),
    "eval": Document(
        whole=Measurement,
        functions=(eval.run,),
        holds={
            "format": "text: what the linear layers are stored as",
            "protocol": "text: the text, and how it was cut",
            "notes": "list of text",
        },
    ),
    "sensitivity": Document(whole=SensitivityResult),
    "mixed": Document(
        functions=(mixed._as_json,),
        holds={
            "output": "text: the recipe file",
            "average_bits": "number",
            "stored_bytes": "integer",
            "predicted_kl": "number, nats per token",
            "formats": "object of text, by linear layer",
        },
    ),
    "generate": Document(
        functions=(generate._as_json, generate._speculation),
        holds={
            "completions": "list of objects: prompt, text, num_prompt_tokens, token_ids, "
            "finish_reason, error",
            "num_tokens": "integer",
            "wall_s": "number",
            "tokens_per_s": "number",
            "speculation": "object, with `--speculate`",
        },
    ),
    "chat": Document(
        functions=(chat.run,),
        without=("role", "content"),
        holds={"messages": "list of objects: role, content"},
    ),
    "serve": Document(
        functions=(serve_until_stopped._announce,),
        without=("prompt", "max_tokens"),
        holds={"url": "text", "model": "text"},
    ),
    "bench": Document(
        whole=Measurement,
        functions=(bench._print_json, bench_predicted.compared_json, bench._Bench.batches),
        without=("gain", "spread"),
        holds={
            "machine": "Machine",
            "predicted": "object, where `doctor --sweep` measured this machine",
            "missing": "text or null: why nothing is predicted",
            "loads": "list of LoadSummary, each with its batch, or the name of its load",
            "speculation": "list of objects, with `--speculate`",
        },
    ),
    "inspect": Document(
        functions=(Inspection.as_json, inspect._as_json),
        types=(Inspection,),
        without=("basis", "model_bandwidth_bytes_per_s"),
        holds={
            "model": "object",
            "formats": "object",
            "workload": "object",
            "machine": "object",
            "operations": "object of lists of objects, by phase",
            "memory_bytes": "object of integers",
            "flops": "object",
            "predicted": "object: seconds and rates",
            "int4_g32_break_even_batch": "integer or null",
            "speculation": "list of objects",
            "chat": "list of texts: how it writes calls of tools and reasoning",
        },
    ),
    "plan": Document(
        functions=(plan.run, Plan.as_json),
        types=(Plan,),
        holds={
            "model": "text",
            "machine": "object: name, basis",
            "requests_per_s": "number",
            "computed_per_s": "number, without what the response cache answers",
            "limits": "object: e2e_s, ttft_s, tpot_s",
            "options": "list of objects, one for each pair of formats",
            "best": "object",
            "price_per_million_tokens": "number or null",
            "simulation": "object, as `simulate` prints, without `basis` and `moments`",
        },
    ),
    "simulate": Document(
        functions=(simulate.run, Simulation.summary),
        types=(Simulation,),
        holds={
            "basis": "text: where seconds of a step are from",
            "moments": "list of Moment",
            "ttft": "object: mean_s, p50_s, p95_s, p99_s",
            "tpot": "object: the same",
            "e2e": "object: the same",
            "goodput": "number or null: share within the limits",
            "utilization": "number",
            "prefix_hit_rate": "number",
        },
    ),
    "doctor": Document(
        functions=(doctor.run,),
        holds={
            "machine": "Machine",
            "threads": "object: prefill, decode",
            "supported_isas": "list of text",
            "unavailable_isas": "object of text: why",
            "isa_reason": "text",
            "kernels": "list of objects",
            "calibration": "object, with `--sweep`",
        },
    ),
    "an error of any verb": Document(
        functions=(main._report,),
        holds={"error": "object: type, message, what, seen, remedy, all text"},
        without=("type", "message", "what", "seen", "remedy"),
    ),
}
FILES = {
    "verification.json": Document(
        functions=(write_verification, Verification.figures),
        types=(Verification,),
        holds={"format": "integer", "versions": "object of text", "hub": "object or null"},
    ),
    "fingerprint of it": Document(functions=(Fingerprint.as_json,), types=(Fingerprint,)),
    "carried by `convert`": Document(
        functions=(CarriedVerification.as_json,),
        types=(CarriedVerification,),
        holds={"hub": "object or null"},
    ),
}
PARTS = (
    Measurement,
    Quality,
    LayerError,
    GoldenLogits,
    Machine,
    Bounds,
    Gap,
    Skipped,
    TextChoice,
    LoadSummary,
    Percentiles,
    Sensitivity,
    SensitivityTable,
    SchemeRow,
    Moment,
    Judgement,
    Diversity,
    SelfInstructResult,
    GlueResult,
    TaskQuality,
)


def blocks() -> dict[str, str]:
    return {
        "printed": "\n\n".join(_section(name, one) for name, one in PRINTED.items()),
        "files": "\n\n".join(_section(name, one) for name, one in FILES.items()),
        "parts": "\n\n".join(_part(one) for one in PARTS),
    }


def _section(name: str, document: Document) -> str:
    title = f"`paredown {name} --json`" if name in main.VERBS else name
    return f"### {title}\n" + table(("field", "type"), document.rows())


def _part(kind: type) -> str:
    rows = [(f"`{one.name}`", json_type(one.type)) for one in dataclasses.fields(kind)]
    parts = [f"### {kind.__name__}", *docstring(kind), table(("field", "type"), rows)]
    return "\n\n".join(parts)
