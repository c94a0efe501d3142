"""The option that names a machine, for the verbs that predict."""

import argparse
import sys

from paredown.cost.inspection import Target
from paredown.cost.machine_file import find_calibration
from paredown.cost.machines import MACHINES, THIS, find_machine
from paredown.cost.roofline import Roofs
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import measure_machine, processor_name, resolve_num_threads


def add_machine_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        default=THIS,
        help=f"{THIS}, as `paredown doctor` measured it, or one of the table: "
        f"{', '.join(MACHINES)} (default {THIS})",
    )


def find_target(args: argparse.Namespace) -> Target:
    """The machine that `--machine` names. This one's roofs are measured (a second) where `doctor
    --sweep` has not kept them. Raises ConfigError for a name that is not in the table."""
    if args.machine != THIS:
        return Target(key=args.machine.strip().lower(), roofs=find_machine(args.machine))
    threads = resolve_num_threads(args.threads)
    calibration = find_calibration(processor_name(), chosen_isa(), threads)
    if calibration is not None:
        return Target(key=THIS, roofs=calibration.roofs, calibration=calibration)
    print(
        "note: this machine's roofs are measured now, its kernels were not: "
        "`paredown doctor --sweep` does, and keeps both",
        file=sys.stderr,
    )
    return Target(key=THIS, roofs=Roofs.of(measure_machine(threads)))
