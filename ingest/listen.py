"""Where the collector listens: addresses, sockets and certificates, checked before anything is started."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ingest.errors import ConfigError, UsageError


@dataclass(frozen=True)
class Tls:
    """PEM files: the certificate with its chain, and its private key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raises ConfigError, naming the files, unless they can be used."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"collector.tls_cert {self.certificate} and collector.tls_key {self.key} cannot be used: {why}.",
                "Both are PEM files; the key is not encrypted and is the certificate's.",
            ) from None


@dataclass(frozen=True)
class Listen:
    """A host and its two ports (0: any free one), with TLS on both or on none."""

    host: str = "127.0.0.1"
    port: int = 4318
    grpc_port: int = 4317
    tls: Tls | None = None


Target = tuple[socket.AddressFamily, tuple[object, ...]]


def resolve(host: str, port: int, *, guarded: bool) -> Target:
    """The address of a host name. Raises UsageError when there is none, or it is beyond loopback and not `guarded`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise UsageError(f"Cannot listen on {host}:{port}: {error}.") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    if not guarded and not ipaddress.ip_address(str(address[0])).is_loopback:
        raise UsageError(
            f"Refusing to listen on {host} without a token: anyone on the network could send.",
            "Set collector.tokens in retroute.toml (`retroute token NAME` makes one), or listen on 127.0.0.1.",
        )
    return family, address


@contextlib.contextmanager
def listening(host: str, target: Target, flag: str = "--port") -> Iterator[socket.socket]:
    """A listening socket. Raises UsageError when the address cannot be had."""
    family, address = target
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(2048)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"Port {address[1]} on {host} is in use.", f"Use another {flag}; {flag} 0 takes a free one."
                ) from None
            raise UsageError(f"Cannot listen on {host}:{address[1]}: {error.strerror}.") from None
        yield listener
