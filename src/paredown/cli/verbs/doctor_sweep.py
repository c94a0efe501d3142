"""`paredown doctor --sweep`: measures this machine's kernels, fits the times and keeps the fit."""

from rich.table import Table

from paredown.cli.printed import tell
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.columns import add_columns
from paredown.cost.machine_file import save_step_fit
from paredown.cost.step_fit import StepFit, interpolate
from paredown.evaluate.speed.step_sweep import sweep_machine
from paredown.spec.machine import Machine


def keep_sweep(machine: Machine) -> StepFit:
    """Measures, fits and keeps the result."""
    with progress_bar("measuring") as bar:
        found = sweep_machine(machine, on_progress=bar.show_count)
    path = save_step_fit(found)
    tell(f"kept in {path}")
    return found


def sweep_table(fit: StepFit) -> Table:
    """Returns a table of the sweep's result for a few numbers of tokens."""
    table = Table(title="Products with weights in the caches, Gop/s, by tokens")
    sizes = (1, 8, 32, 128, 512)
    add_columns(table, ("weights", *map(str, sizes), "of bandwidth"), left=("weights",))
    for name, rates in fit.linear.items():
        speeds = (2e-9 / interpolate(rates.num_tokens, rates.seconds_per_mac, n) for n in sizes)
        table.add_row(name, *(f"{one:,.0f}" for one in speeds), f"{rates.memory_efficiency:.0%}")
    return table
