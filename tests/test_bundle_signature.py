"""Signed policies: who has a public key beside the folder takes nothing else."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from ingest.errors import UsageError
from optimizer import signing
from optimizer.bundle import read_policy, write_policy
from optimizer.runtime import Model, PolicyError, Router


def pem(private: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    return (
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = Model("constant", ("big", "small"), {"values": np.array([0.0, 1.0])})
    write_policy(
        tmp_path / "bundle" / "policy",
        model,
        policy_id="support",
        version="v1",
        revision=1,
        virtual_model="auto",
        incumbent="big",
        evaluation={},
        created_at="2026-11-30T00:00:00+00:00",
    )
    return tmp_path / "bundle" / "policy"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    private, public = pem(Ed25519PrivateKey.generate())
    (tmp_path / "private.pem").write_bytes(private)
    (tmp_path / "public.pem").write_bytes(public)
    return tmp_path / "private.pem", tmp_path / "public.pem"


def test_without_a_key_no_signature_is_asked_for(folder: Path) -> None:
    assert Router.load(folder).version == "v1"


def test_a_signed_policy_loads_with_the_key_beside_it_or_in_the_environment(
    folder: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "manifest.json").read_bytes()
    signing.sign(folder, keys[0])
    assert (folder / "manifest.json").read_bytes() == before
    (folder.parent / "policy_key.pem").write_bytes(keys[1].read_bytes())
    assert Router.load(folder).version == "v1"
    (folder.parent / "policy_key.pem").unlink()
    monkeypatch.setenv("RETROUTE_PUBLIC_KEY", str(keys[1]))
    assert Router.load(folder).version == "v1"


def test_signing_makes_the_manifest_look_new_so_that_a_router_looks_again(
    folder: Path, keys: tuple[Path, Path]
) -> None:
    before = (folder / "manifest.json").stat()
    signing.sign(folder, keys[0])
    after = (folder / "manifest.json").stat()
    assert (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns)


def unsigned(folder: Path, _keys: tuple[Path, Path]) -> None:
    pass


def by_another(folder: Path, keys: tuple[Path, Path]) -> None:
    keys[0].write_bytes(pem(Ed25519PrivateKey.generate())[0])
    signing.sign(folder, keys[0])


def edited(folder: Path, keys: tuple[Path, Path]) -> None:
    signing.sign(folder, keys[0])
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"revision": 1', '"revision": 2'))


def garbled(folder: Path, keys: tuple[Path, Path]) -> None:
    (folder / "manifest.sig").write_text("not base64!")


def short(folder: Path, keys: tuple[Path, Path]) -> None:
    (folder / "manifest.sig").write_bytes(base64.b64encode(b"x" * 63))


def no_key(folder: Path, keys: tuple[Path, Path]) -> None:
    keys[1].write_text("nonsense")


def missing_key(folder: Path, keys: tuple[Path, Path]) -> None:
    keys[1].unlink()


def other_kind(folder: Path, keys: tuple[Path, Path]) -> None:
    public = generate_private_key(65537, 1024).public_key()
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    keys[1].write_bytes(public.public_bytes(encoding, form))


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (unsigned, "manifest.sig is missing"),
        (by_another, "not a signature of this manifest.json"),
        (edited, "not a signature of this manifest.json"),
        (garbled, "not a signature of this manifest.json"),
        (short, "not a signature of this manifest.json"),
        (no_key, "cannot be read as a public key in PEM"),
        (missing_key, "cannot be read as a public key in PEM"),
        (other_kind, "is not an Ed25519 key"),
    ],
)
def test_with_a_key_everything_else_is_refused_in_one_line(
    breaks, reason: str, folder: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(folder, keys)
    monkeypatch.setenv("RETROUTE_PUBLIC_KEY", str(keys[1]))
    with pytest.raises(PolicyError, match=reason) as caught:
        Router.load(folder)
    assert "\n" not in str(caught.value)


def test_without_the_package_a_configured_key_refuses(
    folder: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    signing.sign(folder, keys[0])
    monkeypatch.setenv("RETROUTE_PUBLIC_KEY", str(keys[1]))
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    with pytest.raises(PolicyError, match="pip install cryptography"):
        Router.load(folder)


def test_the_optimizer_reads_its_own_unsigned_policies_all_the_same(
    folder: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETROUTE_PUBLIC_KEY", str(keys[1]))
    assert read_policy(folder)[1]["version"] == "v1"


@pytest.mark.parametrize("name", ["public.pem", "none.pem"])
def test_signing_needs_a_private_key(name: str, folder: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=name):
        signing.sign(folder, tmp_path / name)


def test_an_encrypted_key_is_refused_with_the_way_out(folder: Path, tmp_path: Path) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = Ed25519PrivateKey.generate().private_bytes(encoding, form, serialization.BestAvailableEncryption(b"x"))
    (tmp_path / "locked.pem").write_bytes(locked)
    with pytest.raises(UsageError, match="encrypted"):
        signing.sign(folder, tmp_path / "locked.pem")
