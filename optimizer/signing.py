"""Signatures of policies: Ed25519 over the bytes of manifest.json, whose hashes vouch for every other file.

`manifest.sig` holds the signature in base64. A router asks for it where a public key is configured; see
`runtime.public_key_path`. Keys are PEM files:

    openssl genpkey -algorithm ed25519 -out private.pem
    openssl pkey -in private.pem -pubout -out policy_key.pem
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.errors import UsageError, WorkError
from optimizer.bundle import write_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_MAKE = "Make one: openssl genpkey -algorithm ed25519 -out private.pem"


def sign(folder: Path, private_key: Path) -> None:
    """Write manifest.sig for the policy in `folder`.

    The same manifest is put in place again after it, so that a running router looks at both. UsageError if
    `private_key` is no Ed25519 key in PEM, WorkError without the package cryptography.
    """
    key = _private(private_key)
    manifest = (folder / "manifest.json").read_bytes()
    write_files(folder, {"manifest.sig": base64.b64encode(key.sign(manifest)) + b"\n", "manifest.json": manifest})


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise WorkError("signing needs the package cryptography", "pip install cryptography") from None
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except TypeError:
        raise UsageError(
            f"{path} is encrypted", f"Decrypt it first: openssl pkey -in {path} -out private.pem"
        ) from None
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path} cannot be read as a private key in PEM", _MAKE) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is not an Ed25519 key", _MAKE)
    return key
