"""`paredown eval --task glue-...`: scores an encoder on a GLUE task."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.notes import tell_notes
from paredown.engine.build_encoder import BuiltEncoder, build_encoder
from paredown.errors import ConfigError
from paredown.evaluate.tasks.glue import GlueTask, find_task
from paredown.evaluate.tasks.glue_file import read_glue_sets
from paredown.evaluate.tasks.measure_glue import GlueResult, measure_glue
from paredown.executors.cache_config import CacheConfig
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.weight import ActivationDType


def run_glue(args: argparse.Namespace) -> int:
    task = find_task(args.task)
    if args.kv_dtype is not None:
        raise ConfigError(
            "an encoder keeps no keys and values",
            seen=args.kv_dtype,
            remedy="Leave --kv-dtype out.",
        )
    sets = [one.first(args.limit) for one in read_glue_sets(task, args.text)]
    encoder = _load(args.model, args, activations=args.activations)
    reference = None if args.reference is None else _load(args.reference, args, activations=None)
    results = []
    for examples in sets:
        with progress_bar("encoding") as bar:
            results.append(measure_glue(encoder, examples, reference, bar.show_count))
        results[-1].model.require_numbers(str(args.model))
    if args.json:
        say_json(_as_json(args.task, results))
        return 0
    _print(task, results)
    return 0


def _load(
    model: str | None, args: argparse.Namespace, *, activations: ActivationDType | None
) -> BuiltEncoder:
    checkpoint = Checkpoint.open(resolve_model(model))
    tell_notes(checkpoint.notes)
    if checkpoint.spec.generates and checkpoint.encoder_settings is None:
        raise ConfigError(
            f"{args.task} is for encoders",
            seen=f"{checkpoint.path}: {checkpoint.spec.family}, which predicts tokens",
            remedy="Name a classifier, or a model that makes vectors of texts.",
        )
    options = RunOptions(
        threads=ThreadPlan.resolve(args.threads),
        activations=activations,
        # A checkpoint has room for one such file: the one that other runs use.
        cache=CacheConfig.from_environment() if activations is None else None,
    )
    return build_encoder(checkpoint, options)


def _as_json(task: str, results: Sequence[GlueResult]) -> dict[str, object]:
    return {"task": task, "sets": [asdict(one) for one in results]}


def _print(task: GlueTask, results: Sequence[GlueResult]) -> None:
    has_reference = results[0].reference is not None
    table = Table(task.name, "model", *(["reference"] if has_reference else []))
    for one in results:
        place = f"{one.set_name} " if one.set_name else ""
        columns = [one.model, *([] if one.reference is None else [one.reference])]
        for metric in task.metrics:
            table.add_row(f"{place}{metric}", *(f"{each.scores[metric]:.2%}" for each in columns))
        if has_reference:
            table.add_row(f"{place}cosine, mean", f"{one.model.cosine_mean:.6f}")
            table.add_row(f"{place}cosine, least", f"{one.model.cosine_least:.6f}")
    console = make_console()
    console.print(table)
    for one in results:
        console.print(f"{one.protocol}.", style="dim")
