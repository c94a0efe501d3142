"""The options that restrict untrusted clients."""

import argparse

from paredown.serve.server import Listen


def add_strangers_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("strangers (docs/internals/server.md)")
    group.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        help="a name that the server may be called by, beside localhost, 127.0.0.1 and [::1]; may "
        "be given again. On loopback no other name is answered, so that no page in a browser can "
        "use the server; on another address any name is, unless names are given",
        metavar="NAME",
    )
    group.add_argument(
        "--address-connections",
        type=int,
        default=Listen.address_connections,
        help="connections of one client address; behind a proxy all are the proxy's "
        f"(default: {Listen.address_connections})",
        metavar="N",
    )
    group.add_argument(
        "--max-answer-tokens",
        type=int,
        help="tokens of one answer; a request for more is refused (default: what the context "
        "holds; with --attention-sinks as many as that, or 32,768 where that is more)",
        metavar="N",
    )
    group.add_argument(
        "--isolate-prefixes",
        action="store_true",
        help="let clients find only what they computed themselves in the prefix cache, by address "
        "and `user`; else the time of an answer tells whether somebody sent the same prompt",
    )
    group.add_argument(
        "--exact-metrics",
        action="store_true",
        help="show exact counts of prefix hits on /metrics, which tell the same; with "
        "--isolate-prefixes they are exact in any case",
    )
