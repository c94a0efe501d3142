"""Trains classifiers of an encoder on GLUE tasks, and measures them in 8 bits.

    python -m benchmarks.glue --model MINILM --folder OUT [--task sst2 mrpc stsb] [--json FILE]

SST-2 and MRPC train the encoder with a new head, from a fixed seed; STS-B is done by the cosines of
the encoder's own vectors. Files are those of PAREDOWN_DATA (tasks/glue). OUT keeps the classifiers
and their compressed forms, and later runs go on from them. With `--students` the classifiers teach
students of half their layers instead, with `--pruned` they lose a quarter of their neurons or heads
and recover.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.glue.pruned import measure_pruned
from benchmarks.glue.rows import Setting, recipe_rows, simulated_rows
from benchmarks.glue.students import measure_students
from benchmarks.glue.train import RECIPES, train_classifier
from benchmarks.kept_models import KeptModels
from paredown.compress.calibrate.activation_range import ACTIVATION_ESTIMATORS
from paredown.evaluate.quality.task_quality import BATCH_TEXTS, TaskQuality
from paredown.evaluate.tasks.glue import find_task
from paredown.evaluate.tasks.glue_file import DATA_FOLDER
from paredown.evaluate.texts.text import DATA_VARIABLE
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.sensitivity_texts import TaskConfig

TASKS = (*RECIPES, "stsb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of a BERT encoder")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ranges", choices=ACTIVATION_ESTIMATORS, default="running")
    parser.add_argument("--batch", type=int, default=BATCH_TEXTS)
    parser.add_argument("--limit", type=int, help="so many rows alone")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--students", action="store_true", help="of half the layers, for a table")
    parser.add_argument("--pruned", action="store_true", help="cut and recovered, for a table")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {"machine": processor_name()}
    for name in args.task:
        found[name] = _measured(name, args)
        if args.json is not None:
            args.json.write_text(json.dumps(found, indent=2) + "\n")


def _measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    folder = args.model
    if name in RECIPES:
        kept = KeptModels(path=args.folder)
        folder = kept.model(name)
        training_file = Path(os.environ[DATA_VARIABLE]) / DATA_FOLDER / find_task(name).name

        def make(output: Path) -> dict[str, Any]:
            return train_classifier(
                args.model, name, training_file / "train.tsv", output, _show_training
            )

        found["training"] = kept.figures(name, make)
        print(found["training"])
        for asked, what, measure in (
            (args.students, "students", measure_students),
            (args.pruned, "pruned", measure_pruned),
        ):
            if asked:
                file = training_file / "train.tsv"
                found[what] = measure(folder, name, file, kept, _show_training)
                Console().print(_derived_table(name, found[what]))
        if args.students or args.pruned:
            return found
    if args.train_only:
        return found
    task = TaskConfig(name=f"glue-{name}", num_rows=args.limit, batch_texts=args.batch)
    setting = Setting(checkpoint=Checkpoint.open(folder), task=task, estimator=args.ranges)
    rows, protocol = simulated_rows(setting, _show)
    rows |= recipe_rows(setting, args.folder)
    Console().print(_table(name, rows))
    print(protocol)
    return found | {
        "protocol": protocol,
        "rows": {row: asdict(quality) for row, quality in rows.items()},
    }


def _table(name: str, rows: dict[str, TaskQuality]) -> Table:
    metrics = list(rows["FP32"].scores)
    table = Table(name, *metrics, "cosine, mean", "least")
    for row, quality in rows.items():
        table.add_row(
            row,
            *(f"{quality.scores[metric]:.2%}" for metric in metrics),
            f"{quality.cosine_mean:.5f}",
            f"{quality.cosine_least:.4f}",
        )
    return table


def _derived_table(name: str, found: dict[str, dict[str, Any]]) -> Table:
    """Returns the table of models made from the first one."""
    first, *_ = found.values()
    table = Table(name, *first["scores"], "kept", "weights", "processor s")
    for row, own in found.items():
        kept = [score / first["scores"][metric] for metric, score in own["scores"].items()]
        table.add_row(
            row,
            *(f"{score:.2%}" for score in own["scores"].values()),
            f"{kept[0]:.1%}",
            f"{own['share']:.1%}" if "share" in own else "",
            f"{own['processor_s']:.0f}" if "processor_s" in own else "",
        )
    return table


def _show_training(what: str, share: float) -> None:
    print(f"\r{share:.1%} {what}", end="", file=sys.stderr, flush=True)


def _show(done: int, total: int) -> None:
    print(f"\r{done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
