"""Models of a hub: what is fetched, what is kept, and what can go wrong on the way."""

import errno
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants, try_to_load_from_cache

from fakes.hub import COMMIT, OTHER_COMMIT, FakeHub, Fault, Repository, running_hub
from paredown.errors import CheckpointError, HubError
from paredown.models.hub import fetch
from paredown.models.hub.hub_name import HubName
from paredown.models.hub.hub_source import HubSource, model_name
from paredown.models.resolve import resolve_model

FOLDER = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": b"w" * 5000,
    "pytorch_model.bin": b"b" * 5000,
    "consolidated.safetensors": b"c" * 5000,
    "README.md": b"#",
    "onnx/model.json": b"{}",
    "modeling.py": b"exit()",
}
NEEDED = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}
SHARDS = {
    "config.json": b"{}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-2.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": b"1" * 3000,
    "model-2.safetensors": b"2" * 3000,
    "other.safetensors": b"3" * 3000,
}
GGUFS = {
    "config.json": b"{}",
    "tiny-Q4_K_M.gguf": b"m" * 2000,
    "tiny-Q4_K_S.gguf": b"s" * 2000,
    "tiny.Q8_0.gguf": b"8" * 2000,
    "tiny.Q8_0.gguf.verification.json": b"{}",
    "mmproj-Q8_0.gguf": b"p" * 2000,
    "big/big-F16-00001-of-00002.gguf": b"x" * 2000,
    "big/big-F16-00002-of-00002.gguf": b"y" * 2000,
    "half-IQ4_XS-00001-of-00002.gguf": b"h" * 2000,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with running_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        monkeypatch.chdir(tmp_path)
        hub.repositories["org/tiny"] = Repository(files=dict(FOLDER))
        hub.repositories["org/shards"] = Repository(files=dict(SHARDS))
        hub.repositories["org/ggufs"] = Repository(files=dict(GGUFS))
        yield hub


def names_in(folder: Path) -> set[str]:
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}


def parts_in(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob("*.paredown-part"))


def test_what_a_folder_needs_is_fetched_and_nothing_else(hub: FakeHub) -> None:
    path = resolve_model("org/tiny")
    assert names_in(path) == NEEDED
    assert all((path / name).read_bytes() == FOLDER[name] for name in NEEDED)
    assert HubSource.of(path) == HubSource(repository="org/tiny", commit=COMMIT)
    assert model_name(path) == "tiny"
    # Where the hub's own client looks for it.
    assert try_to_load_from_cache("org/tiny", "config.json", constants.HF_HUB_CACHE) == str(
        path / "config.json"
    )


def test_shards_are_those_that_the_index_names(hub: FakeHub) -> None:
    assert names_in(resolve_model("org/shards")) == set(SHARDS) - {"other.safetensors"}


def test_a_path_here_goes_before_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    assert resolve_model("org/tiny") == Path("org/tiny")
    assert hub.requests == []


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        ("tiny-Q4_K_M.gguf", ["tiny-Q4_K_M.gguf"]),
        ("Q4_K_M", ["tiny-Q4_K_M.gguf"]),
        ("q4_k_s", ["tiny-Q4_K_S.gguf"]),
        ("Q8_0", ["tiny.Q8_0.gguf", "tiny.Q8_0.gguf.verification.json"]),
        ("mmproj-Q8_0.gguf", ["mmproj-Q8_0.gguf"]),
        ("F16", [f"big/big-F16-0000{number}-of-00002.gguf" for number in (1, 2)]),
        (
            "big/big-F16-00002-of-00002.gguf",
            [f"big/big-F16-0000{number}-of-00002.gguf" for number in (1, 2)],
        ),
    ],
)
def test_gguf_files_alone_are_fetched_with_all_their_parts(
    asked: str, files: list[str], hub: FakeHub
) -> None:
    path = resolve_model(f"org/ggufs:{asked}")
    source = HubSource.of(path)
    assert source is not None
    assert source.file == files[0]
    assert path.read_bytes() == GGUFS[files[0]]
    snapshot = Path(str(path).removesuffix(files[0]))
    assert names_in(snapshot) == set(files)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("org/ggufs", "several GGUF files"),
        ("org/ggufs:Q4_K", "no GGUF file that 'Q4_K' names"),
        ("org/ggufs:tiny", "several GGUF files that 'tiny' names"),
        ("org/ggufs:missing.gguf", "no GGUF file that 'missing.gguf' names"),
        ("org/ggufs:IQ4_XS", "lacks parts .*half-IQ4_XS-00002"),
        ("org/tiny:Q4_K_M", "no GGUF file"),
    ],
)
def test_files_that_are_not_one_are_listed(asked: str, words: str, hub: FakeHub) -> None:
    with pytest.raises(HubError, match=words):
        resolve_model(asked)


def test_a_commit_that_is_cached_needs_no_network(hub: FakeHub) -> None:
    path = resolve_model("org/tiny")
    hub.requests.clear()
    assert resolve_model(f"org/tiny@{COMMIT}") == path
    assert hub.requests == []
    # A branch costs one question, and no file comes twice.
    assert resolve_model("org/tiny@main") == path
    assert [path for path, _ in hub.requests] == ["/api/models/org/tiny/revision/main"]


def test_a_branch_that_moved_is_followed_and_shares_files(hub: FakeHub) -> None:
    old = resolve_model("org/tiny")
    hub.repositories["org/tiny"].revisions["main"] = OTHER_COMMIT
    hub.repositories["org/tiny"].files["config.json"] = b'{"new": 1}'
    hub.requests.clear()
    new = resolve_model("org/tiny")
    assert new.name == OTHER_COMMIT
    assert (new / "config.json").read_bytes() == b'{"new": 1}'
    assert (old / "config.json").read_bytes() == b"{}"
    assert len(hub.requests) == 2


def test_offline_takes_what_is_cached_and_nothing_else(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [resolve_model(name) for name in ("org/tiny", "org/shards", "org/ggufs:Q8_0")]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert [resolve_model(name) for name in ("org/tiny", "org/shards", "org/ggufs:Q8_0")] == paths
    (paths[1] / "model-2.safetensors").unlink()
    for name in ("org/shards", "org/ggufs:Q4_K_M", "org/tiny@dev", "org/none"):
        with pytest.raises(HubError, match=f"hub is not asked: {name}.*HF_HUB_OFFLINE"):
            resolve_model(name)
    assert hub.requests == []


@pytest.mark.parametrize("status", [429, 500, 503, None])
def test_a_hub_that_is_away_leaves_the_cached_commit(
    status: int | None, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    path = resolve_model("org/tiny")
    if status is None:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    hub.faults.append(Fault(path="/api/", status=status or 500))
    with caplog.at_level(logging.WARNING):
        assert resolve_model("org/tiny") == path
    assert COMMIT in caplog.text
    with pytest.raises(HubError, match="org/shards"):
        resolve_model("org/shards")


REFUSALS = [
    (Fault(path="/api/", status=401, code="GatedRepo"), "org/tiny is gated", "HF_TOKEN"),
    (Fault(path="/api/", status=403, code="GatedRepo"), "org/tiny is gated", "Ask for access"),
    (Fault(path="/api/", status=401, code="RepoNotFound"), "no such model on the", "HF_TOKEN"),
    (Fault(path="/api/", status=401), "refuses org/tiny", "HF_TOKEN"),
    (Fault(path="/api/", status=403), "refuses org/tiny", "HF_TOKEN"),
    (Fault(path="/api/", status=429), "too many requests", "Wait"),
    (Fault(path="/api/", status=503), "out of order", "later"),
    (Fault(path="/api/", status=418), "refuses", "Look at"),
    (Fault(path="/api/", body=b"<html>"), "not a hub's", "HF_ENDPOINT"),
    (Fault(path="/api/", body=b'{"id": "org/tiny"}'), "not a hub's", "HF_ENDPOINT"),
    (
        Fault(path="/api/", body=b'{"id": "a/b", "sha": "../../x", "siblings": []}'),
        "not a hub's",
        "HF_ENDPOINT",
    ),
    (
        Fault(
            path="/api/",
            body=json.dumps(
                {"id": "a", "sha": COMMIT, "siblings": [{"rfilename": "../x.json", "size": 1}]}
            ).encode(),
        ),
        "not a hub's .*beyond the repository",
        "HF_ENDPOINT",
    ),
    (Fault(path="resolve.*weights|safetensors", status=401), "refuses .*model.saf", "HF_TOKEN"),
    (Fault(path="safetensors", status=404, code="EntryNotFound"), "not on the hub", "Look at"),
    (Fault(path="safetensors", status=502), "model.safetensors: the hub is out", "later"),
    (Fault(path="safetensors", cut_at=0), "stopped in the middle", "kept"),
    (Fault(path="safetensors", body=b"v" * 5000), "other bytes .*digest", "proxy"),
    (Fault(path="safetensors", body=b"w" * 4000), "another number of bytes", "again"),
    (Fault(path="tokenizer.json", body=b'{"a": 2}'), "tokenizer.json: .*other bytes", "again"),
]


@pytest.mark.parametrize(("fault", "words", "remedy"), REFUSALS)
def test_each_failure_is_told_and_leaves_nothing_half(
    fault: Fault, words: str, remedy: str, hub: FakeHub, tmp_path: Path
) -> None:
    hub.faults.append(Fault(**vars(fault)))
    with pytest.raises(HubError, match=f"(?s){words}") as caught:
        resolve_model("org/tiny")
    assert "org/tiny" in str(caught.value)
    assert remedy in caught.value.remedy
    assert isinstance(caught.value, CheckpointError)
    assert "model.safetensors" not in {one.name for one in tmp_path.rglob("snapshots/*/*")}
    hub.faults.clear()
    assert names_in(resolve_model("org/tiny")) == NEEDED


@pytest.mark.parametrize("name", ["org/none", "org/tiny@dev"])
def test_what_the_hub_does_not_have(name: str, hub: FakeHub) -> None:
    with pytest.raises(HubError) as caught:
        resolve_model(name)
    missing = "no such model on the hub: org/none" if name == "org/none" else "no revision 'dev'"
    assert missing in str(caught.value)


def test_a_connection_that_breaks_is_taken_up_again(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    hub.faults.append(Fault(path="model.safetensors", cut_at=2000, times=1))
    path = resolve_model("org/tiny")
    assert (path / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    ranges = [asked for path, asked in hub.requests if path.endswith("model.safetensors")]
    assert ranges == [None, "bytes=2000-"]


def test_the_token_goes_with_every_request(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    resolve_model("org/tiny")
    assert hub.tokens == {"Bearer hf_secret"}


@pytest.mark.parametrize("part", [b"w" * 3000, b"v" * 3000, b"w" * 9000])
def test_a_later_run_goes_on_where_one_ended(part: bytes, hub: FakeHub, tmp_path: Path) -> None:
    hub.faults.append(Fault(path="model.safetensors", cut_at=0))
    with pytest.raises(HubError):
        resolve_model("org/tiny")
    (left,) = parts_in(tmp_path)
    left.write_bytes(part)
    hub.faults.clear()
    hub.requests.clear()
    path = resolve_model("org/tiny")
    assert (path / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    asked = [asked for path, asked in hub.requests if path.endswith("model.safetensors")]
    expected = {b"w" * 3000: ["bytes=3000-"], b"v" * 3000: ["bytes=3000-", None]}
    assert asked == expected.get(part, [None])
    assert parts_in(tmp_path) == []


def test_a_file_of_the_cache_that_was_cut_is_fetched_again(hub: FakeHub) -> None:
    path = resolve_model("org/tiny")
    (path / "model.safetensors").resolve().write_bytes(b"w" * 10)
    assert (resolve_model("org/tiny") / "model.safetensors").stat().st_size == 5000


def test_a_disk_without_room_is_told_before_and_while(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=4000)
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(HubError, match=r"org/tiny does not fit .*0 MiB free"):
        resolve_model("org/tiny")
    monkeypatch.undo()


def test_a_disk_that_fills_up(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("paredown.models.hub.download.http_get", full)
    with pytest.raises(HubError, match=r"config.json|chat_template.jinja.*does not fit"):
        resolve_model("org/tiny")
    assert not list(tmp_path.rglob("snapshots/*/*"))


def test_repositories_without_a_model(hub: FakeHub) -> None:
    hub.repositories["org/bin"] = Repository(files={"config.json": b"{}", "a.bin": b"b"})
    with pytest.raises(HubError, match="no weights in safetensors form"):
        resolve_model("org/bin")
    hub.repositories["org/lora"] = Repository(files={"adapter_model.safetensors": b"b"})
    with pytest.raises(HubError, match=r"no config\.json"):
        resolve_model("org/lora")
    index = SHARDS | {}
    del index["model-2.safetensors"]
    hub.repositories["org/half"] = Repository(files=index)
    with pytest.raises(HubError, match=r"no model-2\.safetensors"):
        resolve_model("org/half")
    one = {"only.gguf": b"g", "config.json": b"{}"}
    hub.repositories["org/one"] = Repository(files=one)
    assert resolve_model("org/one").name == "only.gguf"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a/b", HubName(repository="a/b")),
        ("a/b-1.5_x@refs/pr/1", HubName(repository="a/b-1.5_x", revision="refs/pr/1")),
        ("a/b:c.gguf", HubName(repository="a/b", file="c.gguf")),
        ("a/b@v1:d/c d.gguf", HubName(repository="a/b", revision="v1", file="d/c d.gguf")),
        *((text, None) for text in ("a", "a/b/c", "./a/b", "/a/b", "~/b", "a/b.gguf", "a/..")),
        *((text, None) for text in ("a/b@", "a/b:", "a/b:../c.gguf", "a/b@../x", "a--b/c", "ä/b")),
        *((text, None) for text in ("a/b\0", "a/b\n", "a/" + "b" * 100, "a/b:/c.gguf")),
    ],
)
def test_names_are_taken_apart(text: str, parsed: HubName | None) -> None:
    assert HubName.parse(text) == parsed
    if parsed is not None:
        assert str(parsed) == text


def test_a_path_beyond_the_cache_has_no_source(tmp_path: Path) -> None:
    assert HubSource.of(tmp_path) is None
    assert model_name(tmp_path) == tmp_path.name
