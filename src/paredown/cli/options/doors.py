"""The options that say who may use the server: keys, TLS, pages of other sites."""

import argparse
import os
from pathlib import Path

from paredown.cli.printed import tell
from paredown.errors import ConfigError
from paredown.serve.doors.certificates import Certificates
from paredown.serve.doors.cross_origin import CrossOrigins
from paredown.serve.doors.key_ring import VARIABLE, KeyRing
from paredown.serve.server import Listen

_OPEN_FILE = "other users of this machine can read it: `chmod 600` it"


def add_doors_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("keys and TLS (docs/guide/serve.md)")
    keys = group.add_mutually_exclusive_group()
    keys.add_argument(
        "--api-key-file",
        type=Path,
        help="file with API keys, one a line as KEY or NAME: KEY; it is read again when it "
        f"changes. Keys in the environment variable {VARIABLE} are valid, too",
        metavar="FILE",
    )
    keys.add_argument(
        "--no-api-key",
        action="store_true",
        help="ask for no key on an address that other machines reach: whoever reaches it may use "
        "the model",
    )
    for option, text in (
        ("--tls-cert", "certificate chain in PEM; the server then answers https alone"),
        ("--tls-key", "the certificate's private key in PEM, without a password"),
    ):
        group.add_argument(option, type=Path, help=text, metavar="FILE")
    group.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        help="origin of web pages that may use the server, as https://app.example.org; may be "
        "given again; * is any page (default: no page of another site)",
        metavar="ORIGIN",
    )


def listen_options(args: argparse.Namespace) -> Listen:
    """Returns where to listen and whom to let in. Raises ConfigError."""
    listen = Listen(
        host=args.host,
        port=args.port,
        drain_s=args.drain_s,
        address_connections=args.address_connections,
        allowed_hosts=tuple(args.allowed_host),
        keys=_keys(args),
        is_open=args.no_api_key,
        certificates=_certificates(args),
        pages=CrossOrigins.of(args.cors_origin),
    )
    listen.check_exposure()
    return listen


def _keys(args: argparse.Namespace) -> KeyRing | None:
    from_environment = os.environ.get(VARIABLE)
    # Processes that the server starts have no need of it.
    os.environ.pop(VARIABLE, None)
    if args.no_api_key and from_environment is not None:
        raise ConfigError(
            "keys, and no keys",
            seen=f"--no-api-key with {VARIABLE} set",
            remedy="Leave out one of them.",
        )
    if args.api_key_file is None and from_environment is None:
        return None
    keys = KeyRing(args.api_key_file, from_environment)
    if keys.is_readable_by_others:
        tell(f"{args.api_key_file} has keys, and {_OPEN_FILE}")
    return keys


def _certificates(args: argparse.Namespace) -> Certificates | None:
    if args.tls_cert is None and args.tls_key is None:
        return None
    if args.tls_cert is None or args.tls_key is None:
        raise ConfigError(
            "TLS needs a certificate and its key",
            seen="--tls-key alone" if args.tls_cert is None else "--tls-cert alone",
            remedy="Give both --tls-cert and --tls-key.",
        )
    certificates = Certificates(args.tls_cert, args.tls_key)
    if certificates.is_readable_by_others:
        tell(f"{args.tls_key} has a private key, and {_OPEN_FILE}")
    return certificates
