"""The option that names a machine, for the verbs that predict."""

import argparse

from paredown.cli.printed import tell
from paredown.cost.machine_file import find_step_fit
from paredown.cost.machine_profile import MachineProfile
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


def find_machine_profile(args: argparse.Namespace) -> MachineProfile:
    """Returns the profile of the machine that `--machine` names. This machine's roofs are measured,
    which takes a second, unless `doctor --sweep` has kept them. Raises ConfigError for an unknown
    name."""
    if args.machine != THIS:
        return MachineProfile(key=args.machine.strip().lower(), roofs=find_machine(args.machine))
    threads = resolve_num_threads(args.threads)
    fit = find_step_fit(processor_name(), chosen_isa(), threads)
    if fit is not None:
        return MachineProfile(key=THIS, roofs=fit.roofs, fit=fit)
    tell(
        "note: this machine's roofs are measured now, its kernels were not: "
        "`paredown doctor --sweep` does, and keeps both",
    )
    return MachineProfile(key=THIS, roofs=Roofs.of(measure_machine(threads)))
