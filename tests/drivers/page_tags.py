"""The elements of a page's HTML."""

from html.parser import HTMLParser


class PageTags(HTMLParser):
    """The elements of a page in order, each with the names of those around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found, tuple(self._open)))
        if tag not in {"meta", "link", "input", "img"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in {"script", "style"}:
            self.scripts.append(data)
