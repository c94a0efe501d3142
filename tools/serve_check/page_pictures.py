"""`python -m tools.serve_check.page_pictures MODEL FOLDER`: takes pictures of the page in Chromium,
wide and narrow, light and dark, with an answer and the probabilities of a token. That of the guide
is web_page.png."""

import argparse
import sys
from pathlib import Path

from tools.serve_check.browser import browser
from tools.serve_check.finding import MissingToolError
from tools.serve_check.screen import NARROW, WIDE, Screen, screen
from tools.serve_check.served import serve

QUESTION = "Tell me a story about an evening by the river."
NUM_TOKENS, SEED = "120", "11"
WAIT_MS = 2500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.serve_check.page_pictures")
    parser.add_argument("model", help="a folder with a verification.json")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        with browser() as found, serve("--exact-metrics", options.model) as served:
            for name, size, is_dark in (
                ("web_page", WIDE, False),
                ("dark", WIDE, True),
                ("narrow", NARROW, False),
            ):
                with screen(found, served.url, size=size, is_dark=is_dark, scale=1.5) as shown:
                    _show(shown)
                    shown.page.screenshot(path=options.folder / f"{name}.png")
    except MissingToolError as error:
        print(f"no pictures: {error}", file=sys.stderr)
        return 1
    return 0


def _show(shown: Screen) -> None:
    """Asks, goes to the report, and points at a token in the left half of the answer that was not
    sure."""
    shown.page.add_init_script(
        f"""localStorage.setItem('paredown-settings', JSON.stringify({{ values: {{
        temperature: '0.8', max_tokens: '{NUM_TOKENS}', seed: '{SEED}' }}, wantsTokens: true,
        shade: true }}))"""
    )
    shown.open()
    shown.ask(QUESTION)
    shown.wait_for_answer()
    shown.page.evaluate(
        """() => {
        const [panel, title] = ['#panel', '#report h3'].map((one) => document.querySelector(one));
        panel.scrollTop = title.offsetTop - panel.clientHeight / 2;
        }"""
    )
    tokens = shown.page.locator(".answer > .said > .token[data-share='2']")
    places = tokens.evaluate_all("nodes => nodes.map((node) => node.getBoundingClientRect().left)")
    width = shown.page.evaluate("innerWidth")
    tokens.nth(next(i for i, left in enumerate(places) if i > 4 and left < width / 3)).hover()
    shown.page.locator("#token-card").wait_for()
    # By then the load has been asked for some times.
    shown.page.wait_for_timeout(WAIT_MS)


if __name__ == "__main__":
    sys.exit(main())
