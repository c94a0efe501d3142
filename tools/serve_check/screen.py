"""Screen: the page in a browser, watched for what it must never do."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

WAIT_MS = 20_000
WIDE, NARROW = (1280, 800), (360, 740)


class Screen:
    """`page` is Playwright's; `faults` holds what broke the policy, failed in a script, opened a
    dialog, or went to another host."""

    def __init__(self, page: "Page", url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.faults.append(f"a script failed: {error}"))
        page.on("dialog", lambda dialog: self._note_dialog(dialog))
        page.on("request", lambda request: self._note_request(request.url))
        page.on("console", lambda told: self._note_console(told.type, told.text))

    def open(self) -> None:
        """Opens the page and waits until the server is ready."""
        self.page.goto(self.url)
        self.wait_for_state("ready")

    def wait_for_state(self, state: str) -> None:
        self.page.locator(f"#state[data-state={state}]").wait_for()

    def ask(self, text: str) -> None:
        """Types a message and sends it as a person does."""
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.keyboard.press("Enter")

    def wait_for_answer(self, number: int = 1) -> str:
        """Waits until that many answers are complete. Returns the last one's text."""
        self.page.locator(".answer:not(.busy)").nth(number - 1).wait_for()
        return self.answer_text()

    def answer_text(self) -> str:
        return str(self.page.locator(".answer > .said").last.evaluate("node => node.textContent"))

    def setting(self, label: str, value: str) -> None:
        self.page.get_by_label(label, exact=True).fill(value)

    def announced(self) -> str:
        return str(self.page.locator("#announcer").inner_text())

    def fake_answer(self, pieces: Sequence[dict[str, Any]]) -> None:
        """Answers the page's next questions with this stream in place of the server's."""
        events = [{"choices": [{"index": 0, "finish_reason": None, **one}]} for one in pieces]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        body = "".join(f"data: {json.dumps(one)}\n\n" for one in events) + "data: [DONE]\n\n"
        self._fulfill("**/v1/chat/completions", 200, body, {"Content-Type": "text/event-stream"})

    def fake_error(self, status: int, message: str, **headers: str) -> None:
        body = json.dumps({"error": {"message": message}})
        self._fulfill("**/v1/chat/completions", status, body, headers)

    def stop_faking(self) -> None:
        self.page.unroute_all()

    def _fulfill(self, pattern: str, status: int, body: str, headers: dict[str, str]) -> None:
        def answer(route: "Route") -> None:
            route.fulfill(status=status, body=body, headers=headers)

        self.page.route(pattern, answer)

    def _note_dialog(self, dialog: Any) -> None:
        self.faults.append(f"a dialog opened: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, url: str) -> None:
        if not url.startswith(self.url):
            self.faults.append(f"a request went elsewhere: {url}")

    def _note_console(self, kind: str, text: str) -> None:
        # A status that is an error is told there too, and is some checks' point.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.faults.append(f"the console has: {text}")


@contextmanager
def screen(
    browser: "Browser",
    url: str,
    *,
    size: tuple[int, int] = WIDE,
    is_dark: bool = False,
    scale: float = 1.0,
) -> Iterator[Screen]:
    """Yields the page of `url`, not opened yet, with a fresh store of its own."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if is_dark else "light",
        device_scale_factor=scale,
        reduced_motion="reduce",
        locale="en-GB",
    )
    try:
        yield Screen(context.new_page(), url)
    finally:
        context.close()
