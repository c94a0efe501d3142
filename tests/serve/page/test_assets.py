"""The page's files come as a browser wants them and fit together; tests/security/test_page.py has
what keeps texts from running in it. A browser tries it in `make serve-check`."""

import re
from collections.abc import Iterator

import pytest

from drivers.encoder_server import encoder_server
from drivers.page_tags import PageTags
from drivers.running_server import Running, running_server
from paredown.serve.page.assets import ENCODER_PAGE, FOLDER, GENERATION_PAGE, PREFIX
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.completion import CompletionRequest

STARTS = {GENERATION_PAGE: "chat.js", ENCODER_PAGE: "encoder.js"}
SCRIPTS = {path.name: path.read_text() for path in FOLDER.glob("*.js")}


@pytest.fixture(scope="module", params=STARTS)
def start(request: pytest.FixtureRequest) -> str:
    return request.param


def reached(name: str) -> Iterator[str]:
    """Yields a script and those that it imports, in turn."""
    todo, seen = [name], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        todo += re.findall(r'from "\./([\w.]+)"', SCRIPTS[name])


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server(page=True) as running:
        yield running


def test_a_browser_that_has_a_file_is_told_so(server):
    first = server.client.get("/")
    again = server.client.get("/", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert server.client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


def test_without_the_page_there_is_nothing_at_its_paths():
    with running_server() as server:
        assert server.client.get("/").status_code == 404
        assert server.client.get(f"{PREFIX}chat.js").status_code == 404
        assert server.client.get("/report").status_code == 200


def test_each_script_is_reached_and_each_name_that_is_imported_is_there():
    known = {name for first in STARTS.values() for name in reached(first)}
    assert known == SCRIPTS.keys()
    for name, text in SCRIPTS.items():
        for names, other in re.findall(r'import \{([^}]*)\} from "\./([\w.]+)"', text):
            for wanted in filter(None, (one.strip() for one in names.split(","))):
                pattern = rf"^export (?:async )?(?:function\*?|const|class) {wanted}\b"
                assert re.search(pattern, SCRIPTS[other], re.MULTILINE), (name, wanted)
                assert len(re.findall(rf"\b{wanted}\b", text)) > 1, f"{name} does not use {wanted}"


def test_each_element_that_a_script_looks_for_is_in_its_page(start):
    ids = [tag[1]["id"] for tag in PageTags((FOLDER / start).read_text()).tags if "id" in tag[1]]
    assert len(ids) == len(set(ids))
    wanted = {
        found
        for name in reached(STARTS[start])
        for found in re.findall(r'element\("([\w-]+)"\)', SCRIPTS[name])
    }
    assert wanted <= set(ids)


def test_each_field_has_a_label_and_each_reference_a_target(start):
    tags = PageTags((FOLDER / start).read_text()).tags
    ids = {attributes.get("id") for _, attributes, _ in tags}
    labelled = {attributes.get("for") for tag, attributes, _ in tags if tag == "label"}
    for tag, attributes, around in tags:
        if tag in {"input", "textarea", "select"}:
            assert "label" in around or attributes.get("id") in labelled, attributes
        for name in {"for", "aria-controls", "aria-describedby"} & attributes.keys():
            assert attributes[name] in ids
        if tag == "img":
            assert "alt" in attributes
    assert tags[0][1]["lang"] == "en"


def test_settings_are_fields_of_the_api():
    tags = PageTags((FOLDER / GENERATION_PAGE).read_text()).tags
    names = {
        attributes["name"]
        for _, attributes, around in tags
        if "name" in attributes and "label" in around
    }
    assert len(names) > 10
    for model in (ChatRequest, CompletionRequest):
        assert names - {"system"} <= model.model_fields.keys()


def test_metrics_that_the_page_looks_for_are_there(server):
    wanted = set(re.findall(r'"((?:paredown_|vllm:)\w+)"', SCRIPTS["live.js"]))
    there = server.client.get("/metrics").text
    with encoder_server() as encoder:
        there += encoder.client.get("/metrics").text
    names = set(re.findall(r"^# TYPE ([\w:]+)", there, re.MULTILINE))
    assert wanted <= names
