"""Starts and watches fuzzer processes of both languages, and reports their results."""

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.fuzz.targets import TARGETS
from tools.fuzz.watch import MAX_MEMORY_MB, MAX_SECONDS, failing_path

ROOT = Path(__file__).parent.parent.parent
BINARIES = ROOT / "build" / "fuzz"
CORPUS = Path(__file__).parent / "corpus"
NATIVE = ("packed_model", "packing")
# An input that runs longer counts as a hang.
_HANG_S = 30.0


@dataclass(kw_only=True)
class Report:
    """The result for one reader. `failures` are inputs and what happened with them."""

    reader: str
    inputs: int = 0
    seconds: float = 0.0
    worst_s: float = 0.0
    worst_mb: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def inputs_per_s(self) -> float:
        return self.inputs / self.seconds if self.seconds else 0.0


def replay_command(reader: str, path: str) -> str:
    """Returns the command that reruns a failing input."""
    if reader in NATIVE:
        return f"{BINARIES.relative_to(ROOT)}/fuzz_{reader} {path}"
    return f"{Path(sys.executable).name} -m tools.fuzz --target {reader} --replay {path}"


def fuzz(reader: str, seconds: float, seed: int, failures: Path) -> Report:
    """Fuzzes one reader for `seconds`; a process that ends early is restarted with another seed."""
    failures.mkdir(parents=True, exist_ok=True)
    report = Report(reader=reader)
    start = time.monotonic()
    while (left := seconds - (time.monotonic() - start)) > 0.5 and len(report.failures) < 5:
        if reader in NATIVE:
            _native(report, left, seed, failures)
        else:
            _python(report, left, seed, failures)
        seed += 1
    report.seconds = time.monotonic() - start
    return report


def replay(reader: str, path: Path, failures: Path) -> subprocess.CompletedProcess[str]:
    """Runs one input in a separate process."""
    failures.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        command = [*_child(reader, Path(folder), failures), "--replay", str(path)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def _child(reader: str, folder: Path, failures: Path) -> list[str]:
    return [
        sys.executable, "-m", "tools.fuzz.child", reader, "--folder", str(folder),
        "--failures", str(failures),
    ]  # fmt: skip


def _python(report: Report, seconds: float, seed: int, failures: Path) -> None:
    with TemporaryDirectory() as folder:
        command = _child(report.reader, Path(folder), failures)
        command += ["--seconds", f"{seconds:.1f}", "--seed", str(seed)]
        current = Path(folder) / TARGETS[report.reader].file_name
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            ended = _wait(process, current)
            output = process.stdout.read() if process.stdout is not None else ""
        if ended == 0 and output:
            _add(report, json.loads(output.splitlines()[-1]))
            return
        what = "it hangs" if ended is None else f"the process ended with {ended}"
        if not current.exists():
            raise RuntimeError(f"the fuzzer of {report.reader} does not start: {what}")
        data = current.read_bytes()
        path = failing_path(failures, report.reader, data)
        path.write_bytes(data)
        report.failures[str(path)] = what


def _wait(process: subprocess.Popen[str], current: Path) -> int | None:
    """Returns the exit code, or None if an input hung and the process was killed."""
    last, since = 0, time.monotonic()
    while True:
        try:
            return process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            changed = current.stat().st_mtime_ns if current.exists() else 0
            if changed != last:
                last, since = changed, time.monotonic()
            elif time.monotonic() - since > _HANG_S:
                process.kill()
                process.wait()
                return None


def _add(report: Report, tally: dict[str, object]) -> None:
    assert isinstance(tally["failures"], dict)
    report.inputs += int(str(tally["inputs"]))
    report.worst_s = max(report.worst_s, float(str(tally["worst_s"])))
    report.worst_mb = max(report.worst_mb, float(str(tally["worst_mb"])))
    report.failures |= tally["failures"]


def _native(report: Report, seconds: float, seed: int, failures: Path) -> None:
    """Runs a native fuzzer with libFuzzer's flags and last lines, which csrc/fuzz/driver.cpp also
    supports."""
    binary = BINARIES / f"fuzz_{report.reader}"
    corpus = CORPUS / report.reader
    with TemporaryDirectory() as found:
        command = [
            str(binary), f"-max_total_time={max(1, round(seconds))}", f"-seed={seed}",
            f"-timeout={round(MAX_SECONDS)}", f"-rss_limit_mb={MAX_MEMORY_MB}",
            "-print_final_stats=1", f"-artifact_prefix={failures}/{report.reader}-", found,
            *([str(corpus)] if corpus.is_dir() else []),
        ]  # fmt: skip
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", cwd=ROOT, check=False
        )
    stats = dict(re.findall(r"stat::(\w+):\s+([\d.]+)", ended.stderr))
    report.inputs += int(stats.get("number_of_executed_units", 0))
    report.worst_s = max(report.worst_s, float(stats.get("slowest_unit_time_sec", 0.0)))
    report.worst_mb = max(report.worst_mb, float(stats.get("peak_rss_mb", 0.0)))
    if ended.returncode == 0:
        return
    said = re.search(r"(ERROR: .*|runtime error: .*|refused: .*)", ended.stderr)
    unit = re.search(r"Test unit written to (\S+)", ended.stderr)
    what = said[1][:200] if said else f"the process ended with {ended.returncode}"
    report.failures[unit[1] if unit else str(binary)] = what
