"""An OpenID Connect provider on the loopback address, for tests of the login: discovery, a form that asks for an e-mail
address and believes it, codes for tokens, and the key that the tokens are signed with."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "dashboard", "secret-of-the-test"


class Provider(ThreadingHTTPServer):
    """`signed_by_another`: its tokens are signed with a key that it does not publish."""

    def __init__(self, signed_by_another: bool) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.published = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"}, private=True)
        self.key = RSAKey.generate_key(2048, {"kid": "1"}, private=True) if signed_by_another else self.published
        self.codes: dict[str, Mapping[str, str]] = {}
        self.address = f"http://127.0.0.1:{self.server_port}"

    def described(self) -> dict[str, Any]:
        """The discovery document."""
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def token(self, asked: Mapping[str, str]) -> str:
        now = int(time.time())
        claims = {"iss": self.address, "sub": asked["email"], "aud": CLIENT, "iat": now, "exp": now + 600}
        claims |= {"email": asked["email"], "email_verified": True, "nonce": asked.get("nonce", "")}
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)


class Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/.well-known/openid-configuration":
            self._json(self.server.described())
        elif parts.path == "/keys":
            self._json({"keys": [self.server.published.as_dict(private=False)]})
        elif parts.path == "/authorize" and "email" not in asked:
            kept = "".join(f'<input type="hidden" name="{name}" value="{asked[name]}">' for name in asked)
            form = f'<form>{kept}<input name="email" aria-label="E-mail"><button>Continue</button></form>'
            self._answer(200, form.encode(), "text/html")
        elif parts.path == "/authorize":
            code = secrets.token_urlsafe(16)
            self.server.codes[code] = asked
            self.send_response(302)
            self.send_header(
                "Location", f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
            )
            self.end_headers()
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        token = self.server.token(self.server.codes.pop(parse_qs(body)["code"][0]))
        self._json({"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": token})

    def _json(self, said: Mapping[str, Any]) -> None:
        self._answer(200, json.dumps(said).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing on stderr."""


@contextmanager
def provider(signed_by_another: bool = False) -> Iterator[str]:
    """The address of a running provider."""
    server = Provider(signed_by_another)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
