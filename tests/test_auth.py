"""Tokens: what is stored of them, how a request shows one, which one it was."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import auth
from ingest.auth import Token

TOKENS = (Token("app", auth.hashed("secret")), Token("job", auth.hashed("other:one")), Token("odd", auth.hashed("é")))


def basic(text: str) -> bytes:
    return b"Basic " + b64encode(text.encode())


@pytest.mark.parametrize(
    ("authorization", "api_key", "name"),
    [
        (b"Bearer secret", b"", "app"),
        (b"bearer   secret ", b"", "app"),
        ("Bearer é".encode(), b"", "odd"),
        (basic("pk-lf-1:secret"), b"", "app"),
        (basic(":secret"), b"", "app"),
        (basic("user:other:one"), b"", "job"),
        (b"", b"secret", "app"),
        (b"", b" other:one", "job"),
        (b"Digest x", b"secret", "app"),
        (b"Bearer wrong", b"secret", None),
        (b"Bearer Secret", b"", None),
        (b"Bearer", b"", None),
        (b"secret", b"", None),
        (basic("secret"), b"", None),
        (basic("secret:"), b"", None),
        (b"Basic %%%", b"", None),
        (b"Basic " + "é".encode(), b"", None),
        (b"", b"", None),
        (b"Bearer " + TOKENS[0].sha256.encode(), b"", None),
    ],
)
def test_a_token_is_found_wherever_exporters_put_it(authorization, api_key, name):
    assert auth.find(TOKENS, authorization, api_key) == name


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_no_bytes_open_without_the_token(authorization, api_key):
    assert auth.find(TOKENS[:1], authorization, api_key) is None
    assert auth.find((), authorization, api_key) is None


def test_every_token_is_compared_in_constant_time(monkeypatch):
    compared = []

    def compare(one: str, other: str) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert auth.find(TOKENS, b"Bearer secret") == "app"
    assert compared == [token.sha256 for token in TOKENS]


def test_the_stored_hash_is_that_of_sha256sum():
    assert auth.hashed("secret") == "sha256:" + hashlib.sha256(b"secret").hexdigest()


def test_new_tokens_are_long_and_differ():
    made = {auth.new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) > 40 and token.isascii() and " " not in token for token in made)


@pytest.mark.parametrize(
    ("name", "sha256"),
    [("", auth.hashed("x")), ("a b", auth.hashed("x")), ("a" * 65, auth.hashed("x")), ('a"', auth.hashed("x"))]
    + [("a", text) for text in ("secret", "", "sha256:", "sha256:" + "G" * 64, "sha256:" + "a" * 63, "a" * 64)],
)
def test_a_token_has_a_plain_name_and_a_hash(name, sha256):
    with pytest.raises(ValueError, match="name" if sha256 == auth.hashed("x") else "sha256"):
        Token(name, sha256)
