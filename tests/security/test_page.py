"""No text of a model, a client or a proof can run in the page, and no other page can hold it."""

import re
from collections.abc import Iterator

import pytest

from drivers.page_tags import PageTags
from drivers.running_server import Running, running_server
from paredown.serve.page.assets import ENCODER_PAGE, FOLDER, GENERATION_PAGE, PREFIX

# Ways from a text to markup, a script or a style, which the policy forbids too.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|"
    r"createContextualFragment|setHTML|srcdoc|\bimport\("
)
ADDRESS = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)\w[\w.-]*\.\w+")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server(page=True) as running:
        yield running


def test_the_page_and_its_files_come_with_headers_that_let_nothing_else_run(server):
    kinds = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    paths = {
        f"{PREFIX}{one.name}": kinds[one.suffix] for one in FOLDER.iterdir() if one.suffix in kinds
    }
    assert len(paths) > 10
    for path, kind in {"/": "text/html", **paths}.items():
        reply = server.client.get(path)
        assert reply.status_code == 200
        assert reply.headers["content-type"].split(";")[0] == kind
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        policy = dict(
            part.strip().split(" ", 1)
            for part in reply.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"


def test_no_path_beside_the_files_is_found(server):
    for name in ("", "assets.py", "%2e%2e/assets.py", "chat.html", "__init__.py"):
        assert server.client.get(f"{PREFIX}{name}").status_code == 404
    assert server.client.post("/").status_code == 405


@pytest.mark.parametrize("start", [GENERATION_PAGE, ENCODER_PAGE])
def test_a_page_holds_no_script_and_no_style_of_its_own(start):
    found = PageTags((FOLDER / start).read_text())
    assert not "".join(found.scripts).strip()
    for tag, attributes, _ in found.tags:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in {"src", "href"} & attributes.keys():
            path = attributes[name]
            assert path.startswith("#") or (FOLDER / path.removeprefix("page/")).is_file(), (
                tag,
                path,
            )


def test_files_name_no_other_host_and_turn_no_text_into_markup():
    for path in FOLDER.iterdir():
        text = path.read_text()
        assert not ADDRESS.findall(text), path.name
        assert not FORBIDDEN.findall(text), path.name
