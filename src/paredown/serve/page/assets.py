"""The web page at /: fixed files of the package, under headers that let nothing else run in it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "files"
ENCODER_PAGE, GENERATION_PAGE = "encoder.html", "chat.html"
# Beneath it lie the files that the two pages load.
PREFIX = "/page/"
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Scripts and styles are the package's own files and nothing else, in the page or from elsewhere.
# Texts cannot become markup either: the browser refuses innerHTML and the like.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class Asset:
    """One file of the page, held in memory: a request opens no file."""

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> "Asset":
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(content, _MEDIA_TYPES[path.suffix], f'"{digest}"')

    async def respond(self, request: Request) -> Response:
        """Returns the file, or 304 to a browser that has it."""
        headers = {**HEADERS, "ETag": self.etag}
        known = request.headers.get("if-none-match", "")
        if self.etag in (one.strip().removeprefix("W/") for one in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def page_routes(*, generates: bool) -> Iterator[Route]:
    """Yields a route for the page and one for each file that it loads. They need no key: they are
    the same for everybody and say nothing of the model."""
    start = GENERATION_PAGE if generates else ENCODER_PAGE
    yield Route("/", Asset.read(FOLDER / start).respond, methods=["GET"])
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in _MEDIA_TYPES and path.suffix != ".html":
            yield Route(PREFIX + path.name, Asset.read(path).respond, methods=["GET"])
