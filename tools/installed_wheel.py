"""A wheel in an environment of its own, and what a stranger does with it there."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROMPT = "Once upon a time"
TIMEOUT_S = 300
# What `serve` says once it answers.
_ADDRESS = re.compile(r"answers at (http://\S+?)/v1")
QUICK_START = f"""
from paredown import LLM, SamplingParams
print(LLM().generate({PROMPT!r}, SamplingParams(max_tokens=20))[0].text)
"""


@dataclass(frozen=True, kw_only=True)
class InstalledWheel:
    """`folder` holds the environment, and nothing of it is outside."""

    folder: Path

    @classmethod
    def install(cls, wheel: Path, folder: Path) -> "InstalledWheel":
        """Makes an environment and installs the wheel and what it needs, as wheels alone."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        # This Python's own pip, so that the environment holds what serving needs and no more.
        python = str(folder / "bin" / "python")
        words = ["install", "--quiet", "--only-binary", ":all:", "--no-compile", str(wheel)]
        command = [sys.executable, "-m", "pip", "--python", python, *words]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return cls(folder=folder)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a stranger's shell: no compiler is found, and nothing of this one."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {"PATH": str(self.folder / "bin"), "HOME": str(home), "LANG": "C.UTF-8"}

    def num_bytes(self) -> int:
        files = (path for path in self.folder.rglob("*") if not path.is_symlink())
        return sum(path.stat().st_size for path in files if path.is_file())

    def check_libraries(self) -> None:
        """Raises AssertionError where a library of the wheel needs one that is not there."""
        libraries = list(self.folder.glob("lib/python*/site-packages/paredown*/**/*.so*"))
        assert libraries, "the wheel holds no library"
        for library in libraries:
            done = subprocess.run(["ldd", library], capture_output=True, text=True, check=True)
            assert "not found" not in done.stdout, done.stdout
            assert "libstdc++" not in done.stdout, "the C++ runtime is not in the wheel"

    def run(self, *words: str) -> str:
        """Runs a command of the environment from another folder. Nothing may complain, at exit
        either."""
        command = [str(self.folder / "bin" / words[0]), *words[1:]]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=self.environment,
            cwd="/",
        )
        assert done.returncode == 0, done.stderr
        for complaint in ("Traceback", "nanobind", "Warning"):
            assert complaint not in done.stderr, done.stderr
        return done.stdout

    def first_text_s(self) -> float:
        """Seconds from the command to its first text, by `generate` of one token."""
        begin_s = time.perf_counter()
        assert self.run("paredown", "generate", PROMPT, "--max-tokens", "1")
        return time.perf_counter() - begin_s

    def run_quick_start(self) -> None:
        """Runs what the README begins with: the version, `generate`, and Python."""
        assert self.run("paredown", "--version").startswith("paredown ")
        assert self.run("paredown", "generate", PROMPT).strip()
        assert self.run("python", "-c", QUICK_START).strip()

    def serve_one(self) -> float:
        """Serves, asks for a completion by HTTP, and stops. Returns the seconds from the command to
        the answer."""
        begin_s = time.perf_counter()
        with self._server() as address:
            body = json.dumps({"prompt": PROMPT, "max_tokens": 20}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{address}/v1/completions", body, headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                found = json.load(answer)
            answered_s = time.perf_counter() - begin_s
        assert found["choices"][0]["text"], found
        return answered_s

    @contextlib.contextmanager
    def _server(self) -> Iterator[str]:
        log = self.folder / "serve.log"
        with log.open("w+") as output:
            command = [str(self.folder / "bin" / "paredown"), "serve", "--port", "0"]
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=self.environment, cwd="/"
            )
            try:
                yield _address(process, log)
            finally:
                process.send_signal(signal.SIGTERM)
                code = process.wait(TIMEOUT_S)
        text = log.read_text()
        assert code in (0, 128 + signal.SIGTERM, -signal.SIGTERM), text
        assert "nanobind" not in text, text
        assert "Traceback" not in text, text


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        found = _ADDRESS.search(log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.01)
    raise AssertionError(f"the server did not start:\n{log.read_text()}")
