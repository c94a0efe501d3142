"""The examples of the page on encoders run as they are pasted, on tiny models of these names."""

import json
import re
from pathlib import Path

import pytest

from drivers.encoder_server import NAME, encoder_server
from fakes.encoder_folders import write_bert, write_settings, write_splade
from paredown.engine.build_encoder import build_encoder
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint

PAGE = Path(__file__).parent.parent.parent / "docs" / "guide" / "encoders.md"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [code for name, code in FENCED.findall(PAGE.read_text("utf-8")) if name == language]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the models that the page names."""
    monkeypatch.chdir(tmp_path)
    names = ("all-MiniLM-L6-v2", "my-classifier", "colbertv2.0", "splade-v3")
    embedder, classifier, colbert, splade = (tmp_path / name for name in names)
    for folder in (embedder, classifier, colbert, splade):
        folder.mkdir()
    write_bert(embedder)
    write_bert(classifier, "labels", num_labels=3)
    write_bert(colbert, pooling=None)
    write_settings(
        colbert, "config_sentence_transformers", query_prefix="[Q]", document_prefix="[D]"
    )
    write_splade(splade)
    return tmp_path


def test_the_examples_of_python_run(folders: Path) -> None:
    found: dict[str, object] = {}
    exec(compile("\n".join(blocks("python")), PAGE.name, "exec"), found)
    assert found["query"].shape == (32, 64)  # type: ignore[attr-defined]


def test_the_openai_client_of_the_page_gets_an_answer(folders: Path) -> None:
    (example,) = blocks("py")
    checkpoint = Checkpoint.open(folders / "all-MiniLM-L6-v2")
    built = build_encoder(checkpoint, RunOptions(threads=ThreadPlan.resolve(1)))
    with encoder_server(built.model, built.executor) as server:
        code = example.replace("http://127.0.0.1:8000", server.url)
        exec(compile(code.replace("all-MiniLM-L6-v2", NAME), PAGE.name, "exec"), {})
        assert server.worker.stats.num_requests == 1
        for path, body in re.findall(r"8000(/\S+) .*?-d '(.*?)'", PAGE.read_text(), re.DOTALL):
            assert server.post(path, **json.loads(body))[0] == 200
