"""The page in Chromium: it is typed in and read, with a mouse and without one."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tools.serve_check.browser import browser
from tools.serve_check.finding import Finding
from tools.serve_check.screen import NARROW, Screen, screen
from tools.serve_check.served import Served, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUESTION = "Tell me a story."
HOSTILE = "</div><img src=x onerror=alert(1)><script>alert(2)</script> & <b>bold</b>"
KEY = "key-of-the-page-check-1234567890"
# Text and its ground differ at least so much (WCAG 2.2, AA).
MIN_CONTRAST = 4.5
# How it is computed, and what the keyboard is on.
_CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")
_FOCUSED = """() => {
  const node = document.activeElement;
  return [node.tagName, node.id, node.name ?? '', node.textContent.slice(0, 30)].join(' ');
}"""


def check_page(model: str | None = None) -> Finding:
    """Tries everything on the page of a model that generates (None: the built-in one), and what
    there is on an encoder's. Raises MissingToolError where there is no browser."""
    words = () if model is None else (model,)
    faults = list[str]()
    with browser() as found:
        with serve("--exact-metrics", *words) as served:
            for name, check in _CHECKS.items():
                faults += _run(found, served, name, check)
        with serve("--task", "embed") as served:
            faults += _run(found, served, "two texts are compared", _compares_two_texts)
        with _key_file() as path, serve("--api-key-file", path) as served:
            faults += _run(found, served, "a key is asked for", _asks_for_a_key)
        version = str(found.version)
    return Finding(
        check="page",
        figures={"browser": f"Chromium {version}", "checks": len(_CHECKS) + 2},
        faults=tuple(faults),
    )


@contextmanager
def _key_file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys"
        path.write_text(f"page: {KEY}\n")
        path.chmod(0o600)
        yield str(path)


def _run(
    found: "Browser", served: Served, name: str, check: Callable[[Screen, Served], None]
) -> Iterator[str]:
    from playwright.sync_api import Error

    with screen(found, served.url) as shown:
        try:
            check(shown, served)
        except (AssertionError, Error) as error:
            yield f"{name}: {error or type(error).__name__}"
        yield from (f"{name}: {fault}" for fault in shown.faults)


def _answers_as_the_api_does(shown: Screen, served: Served) -> None:
    shown.open()
    assert served.model in shown.page.title()
    shown.setting("Temperature", "0.7")
    shown.setting("Seed", "5")
    shown.setting("Tokens at most", "40")
    shown.ask(QUESTION)
    text = shown.wait_for_answer()
    body = {"temperature": 0.7, "seed": 5, "max_tokens": 40}
    messages = [{"role": "user", "content": QUESTION}]
    found = served.post("/v1/chat/completions", {"messages": messages, **body})
    assert text == found["choices"][0]["message"]["content"], text
    assert text in shown.announced()
    figures = shown.page.locator(".answer .figures").inner_text()
    assert figures.startswith(f"{found['usage']['completion_tokens']} tokens"), figures
    # A second turn: the first one goes along.
    shown.ask("And then?")
    shown.wait_for_answer(2)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
    found = served.post("/v1/chat/completions", {"messages": messages, **body})
    assert shown.answer_text() == found["choices"][0]["message"]["content"]


def _shows_what_else_could_have_come(shown: Screen, served: Served) -> None:
    shown.open()
    shown.setting("Temperature", "0")
    shown.setting("Tokens at most", "12")
    shown.ask(QUESTION)
    text = shown.wait_for_answer()
    spans = shown.page.locator(".answer > .said > .token")
    assert "".join(spans.all_text_contents()) == text
    asked = {"temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 5}
    messages = [{"role": "user", "content": QUESTION}]
    found = served.post("/v1/chat/completions", {"messages": messages, **asked})
    row = found["choices"][0]["logprobs"]["content"][0]
    card = shown.page.locator("#token-card")
    assert card.is_hidden()
    spans.first.hover()
    card.wait_for()
    assert card.locator(".bar").count() == len(row["top_logprobs"])
    assert re.search(r"\d %", card.inner_text())
    shown.page.keyboard.press("Escape")
    assert card.is_hidden()


def _tokens_are_walked_with_the_keyboard(shown: Screen, served: Served) -> None:
    shown.open()
    shown.setting("Tokens at most", "6")
    shown.ask(QUESTION)
    shown.wait_for_answer()
    inspect = shown.page.get_by_role("button", name="Inspect tokens")
    inspect.focus()
    keys = shown.page.keyboard
    keys.press("Enter")
    first = shown.announced()
    assert "%" in first, first
    keys.press("ArrowRight")
    assert shown.announced() != first
    assert shown.page.locator("#token-card").is_visible()
    keys.press("Home")
    assert shown.announced() == first
    keys.press("Escape")
    assert inspect.evaluate("node => node === document.activeElement")
    assert shown.page.locator("#token-card").is_hidden()


def _stop_ends_the_request(shown: Screen, served: Served) -> None:
    def goes_on(route) -> None:  # type: ignore[no-untyped-def]
        body = {**json.loads(route.request.post_data), "ignore_eos": True}
        route.continue_(post_data=json.dumps(body))

    shown.open()
    shown.page.route("**/v1/chat/completions", goes_on)
    shown.ask(QUESTION)
    shown.page.locator(".answer.busy .token").nth(3).wait_for()
    shown.page.get_by_role("button", name="Stop").click()
    shown.wait_for_answer()
    assert "stopped" in shown.page.locator(".answer .figures").inner_text()
    assert shown.announced().startswith("Stopped")
    assert not served.wait_until_idle()
    # Escape does the same, and what was said until then stays in the conversation.
    shown.ask("Go on.")
    shown.page.locator(".answer.busy .token").nth(3).wait_for()
    shown.page.keyboard.press("Escape")
    shown.wait_for_answer(2)
    assert shown.page.get_by_label("Message", exact=True).evaluate(
        "node => node === document.activeElement"
    )
    shown.stop_faking()


def _texts_never_become_markup(shown: Screen, served: Served) -> None:
    notes = {"notes": [HOSTILE], "recipe": HOSTILE, "compressed": {"perplexity": HOSTILE}}
    report = json.loads(served.get("/report"))
    report["verification"] = {"check": HOSTILE, "figures": notes}
    shown.page.route("**/report", lambda route: route.fulfill(json=report))
    shown.open()
    shown.fake_answer(
        [
            {"delta": {"content": HOSTILE[:9]}},
            {"delta": {"reasoning_content": HOSTILE}},
            {"delta": {"content": HOSTILE[9:]}, "logprobs": {"content": [_token(HOSTILE[9:])]}},
        ]
    )
    shown.ask(HOSTILE)
    assert shown.wait_for_answer() == HOSTILE
    shown.page.locator(".answer > .said > .token").hover()
    shown.page.locator("#token-card").wait_for()
    assert shown.page.locator(".user > .said").inner_text() == HOSTILE
    for tag in ("img:not([alt=''])", "b:not(.speed):not(.note b)", "script:not([src])"):
        assert not shown.page.locator(f"body {tag}").count(), tag
    # The browser would refuse, too.
    refused = shown.page.evaluate(
        "() => { try { document.body.innerHTML = ''; return false; } catch { return true; } }"
    )
    assert refused, "innerHTML is not refused"
    shown.faults = [fault for fault in shown.faults if "TrustedHTML" not in fault]
    shown.stop_faking()


def _token(text: str, logprob: float = -0.5) -> dict[str, object]:
    alone = {"token": text, "logprob": logprob, "bytes": list(text.encode())}
    return {**alone, "top_logprobs": [alone]}


def _characters_of_several_tokens_share_a_span(shown: Screen, served: Served) -> None:
    fox = "🦊".encode()
    parts = [{**_token("\ufffd"), "bytes": [byte]} for byte in fox]
    shown.open()
    shown.fake_answer(
        [
            {"delta": {}, "logprobs": {"content": parts[:3]}},
            {"delta": {"content": "🦊"}, "logprobs": {"content": parts[3:]}},
            {"delta": {"content": " ok"}, "logprobs": {"content": [_token(" ok")]}},
            {"delta": {"content": "!?"}, "logprobs": None},
        ]
    )
    shown.ask(QUESTION)
    assert shown.wait_for_answer() == "🦊 ok!?"
    spans = shown.page.locator(".answer > .said > .token")
    assert spans.all_text_contents() == ["🦊", " ok"]
    spans.first.hover()
    assert shown.page.locator("#token-card section").count() == 4
    shown.stop_faking()


def _errors_are_told_and_can_be_tried_again(shown: Screen, served: Served) -> None:
    shown.open()
    shown.fake_error(429, "too many requests are waiting", **{"Retry-After": "1"})
    shown.ask(QUESTION)
    problem = shown.page.get_by_role("alert")
    problem.filter(has_text="too many requests are waiting").wait_for()
    assert "Try again in 1 s" in problem.inner_text()
    shown.stop_faking()
    shown.setting("Tokens at most", "5")
    shown.page.get_by_role("button", name="Try again").click()
    assert shown.wait_for_answer()
    assert problem.is_hidden()
    shown.setting("Temperature", "-1")
    shown.ask("Another one.")
    assert "Temperature" in problem.inner_text()
    assert shown.page.locator(".turn").count() == 2


def _turns_are_edited_and_given_again(shown: Screen, served: Served) -> None:
    shown.open()
    shown.setting("Tokens at most", "5")
    shown.ask(QUESTION)
    shown.wait_for_answer()
    shown.page.get_by_role("button", name="Answer again").click()
    shown.wait_for_answer()
    assert shown.page.locator(".turn").count() == 2
    shown.page.get_by_role("button", name="Edit").click()
    message = shown.page.get_by_label("Message", exact=True)
    assert message.input_value() == QUESTION
    assert not shown.page.locator(".turn").count()
    # Shift+Enter starts a line and sends nothing.
    message.press("Shift+Enter")
    assert message.input_value() == f"{QUESTION}\n"
    message.press("Enter")
    shown.wait_for_answer()
    shown.page.get_by_role("button", name="New chat").click()
    assert not shown.page.locator(".turn").count()
    assert shown.page.locator("#empty").is_visible()


def _load_and_report_are_shown(shown: Screen, served: Served) -> None:
    shown.open()
    shown.setting("Tokens at most", "5")
    shown.ask(QUESTION)
    shown.wait_for_answer()
    live = shown.page.locator("#live")
    live.get_by_text("Running").wait_for()
    live.get_by_text("pages in use").wait_for()
    report = shown.page.locator("#report").inner_text()
    told = json.loads(served.get("/report"))
    assert f"{told['max_tokens']:,} tokens" in report
    assert told["checkpoint"]["linear_format"] in report
    assert (told["verification"]["check"] or "Not verified") in report


def _a_narrow_screen_holds_it(shown: Screen, served: Served) -> None:
    shown.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    shown.open()
    assert shown.page.locator("#panel").is_hidden()
    opener = shown.page.get_by_role("button", name="Settings")
    opener.click()
    shown.setting("Tokens at most", "5")
    opener.click()
    shown.ask("x" * 300)
    shown.wait_for_answer()
    for is_open in ("true", "false"):
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
        opener.click()
        assert opener.get_attribute("aria-expanded") == is_open
        assert shown.page.locator("#panel").is_visible() == (is_open == "true")


def _every_text_can_be_read(shown: Screen, served: Served) -> None:
    for scheme in ("light", "dark"):
        shown.page.emulate_media(color_scheme=scheme)
        shown.open()
        shown.setting("Tokens at most", "8")
        shown.page.get_by_label("Shade unlikely tokens").check()
        shown.ask(QUESTION)
        shown.wait_for_answer()
        shown.page.locator(".answer > .said > .token").first.hover()
        found = shown.page.evaluate(_CONTRAST)
        assert len(found) > 40
        weak = [f"{ratio:.2f} {text!r}" for ratio, text in found if ratio < MIN_CONTRAST]
        assert not weak, f"{scheme}: {weak[:5]}"


def _everything_is_reached_with_the_keyboard(shown: Screen, served: Served) -> None:
    shown.open()
    shown.setting("Tokens at most", "5")
    shown.ask(QUESTION)
    shown.wait_for_answer()
    page = shown.page
    page.locator("body").evaluate("() => document.activeElement.blur()")
    there = page.locator(
        "button:visible, input:visible, textarea:visible, summary:visible, a:visible"
    ).count()
    reached = set[str]()
    for _ in range(there + 20):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(_FOCUSED))
    for wanted in ("send", "message", "new-chat", "Inspect tokens", "temperature", "Model"):
        assert any(wanted in one for one in reached), f"{wanted} is not reached"
    nameless = page.locator("button, input, textarea").evaluate_all(
        """nodes => nodes.filter((node) => !(node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML)"""
    )
    assert not nameless, nameless


def _compares_two_texts(shown: Screen, served: Served) -> None:
    texts = ["A cat sleeps.", HOSTILE]
    shown.open()
    shown.page.get_by_label("First text").fill(texts[0])
    shown.page.get_by_label("Second text").fill(texts[1])
    shown.page.get_by_role("button", name="Compare").click()
    result = shown.page.locator("#result .speed")
    result.wait_for()
    found = served.post("/v1/embeddings", {"input": texts})
    one, other = (row["embedding"] for row in found["data"])
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    norms = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    assert abs(float(result.inner_text()) - dot / norms) < 1e-4


def _asks_for_a_key(shown: Screen, served: Served) -> None:
    shown.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    shown.page.goto(served.url)
    shown.wait_for_state("locked")
    field = shown.page.get_by_label("API key")
    assert field.evaluate("node => node === document.activeElement")
    field.fill("wrong-key-wrong-key")
    field.press("Enter")
    shown.wait_for_state("locked")
    field.fill(KEY)
    field.press("Enter")
    shown.wait_for_state("ready")
    assert shown.page.locator("#panel").is_hidden()
    shown.ask(QUESTION)
    shown.page.locator(".answer .token").first.wait_for()
    shown.page.get_by_role("button", name="Stop").click()
    assert KEY not in shown.page.evaluate("JSON.stringify({ ...localStorage })")
    # It is there until the tab is closed, and in no other tab.
    shown.page.reload()
    shown.wait_for_state("ready")
    other = shown.page.context.new_page()
    other.goto(served.url)
    other.locator("#state[data-state=locked]").wait_for()


_CHECKS: Mapping[str, Callable[[Screen, Served], None]] = {
    "answers as the API does": _answers_as_the_api_does,
    "shows what else could have come": _shows_what_else_could_have_come,
    "tokens are walked with the keyboard": _tokens_are_walked_with_the_keyboard,
    "stop ends the request": _stop_ends_the_request,
    "texts never become markup": _texts_never_become_markup,
    "characters of several tokens share a span": _characters_of_several_tokens_share_a_span,
    "errors are told and can be tried again": _errors_are_told_and_can_be_tried_again,
    "turns are edited and given again": _turns_are_edited_and_given_again,
    "load and report are shown": _load_and_report_are_shown,
    "a narrow screen holds it": _a_narrow_screen_holds_it,
    "every text can be read": _every_text_can_be_read,
    "everything is reached with the keyboard": _everything_is_reached_with_the_keyboard,
}
