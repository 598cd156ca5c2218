"""Personal and secret strings in texts -> marks such as `<email>`. Pure; nothing that is found is kept or shown.

    email   a name at a domain                        phone   international, or national with separators
    card    13-19 digits that pass Luhn's check       iban    right length for its country, right check digits
    key     sk-..., ghp_..., AKIA..., JSON web tokens, bearer tokens, private keys, long random hex or base64

and patterns of one's own, each with a name. A text that is JSON is read, so that escapes hide nothing and what is put
in leaves it valid; values inside JSON are treated like texts of their own, to any depth.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import orjson

from ingest.dialects.values import dumps, structure
from ingest.iban import iban_length, valid_iban

KINDS = ("email", "phone", "card", "iban", "key")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""The form of a pattern's name."""

_MARK = re.compile(r"<[a-z][a-z0-9_-]{0,31}>")
_CLEAN_TEXTS, _CLEAN_LENGTH = 20_000, 64  # short texts that held nothing are remembered: most come again and again
_DEPTH = 100

_START = r"(?:(?<![^\W_])|(?<=\\[nrtbf]))"  # no letter or digit before it, but for one of an escape that is not undone
_DOMAIN = r"(?:[^\W_](?:[\w-]{0,62}[^\W_])?\.){1,8}[^\W\d_]{2,24}"
_AT = re.compile(rf"(?<=[\w.%+'-])(?:@|%40|\\u0040)(?={_DOMAIN})")
_LOCAL_PART = re.compile(r"[\w.%+'-]{1,64}\Z")
_REST = re.compile(_DOMAIN)

_DIGITS = re.compile(r"\d[\d ()./-]{5,}\d")  # what any phone, card or account number holds
_PHONE = re.compile(
    r"(?<![\w.+-])(?<!\d[/-])(?:"
    r"(?:\+|(?<!\d )00)[1-9](?:[ ()./-]{0,3}\d){7,14}(?!\d)"
    r"|(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])\d{3}[ .-]\d{4}(?![\w-])"
    r"|(?<!\d )\(?0[1-9]\d{0,4}\)?[ /-] ?\d{3,9}(?:[ -]\d{2,9}){0,3}(?![\w.-])"
    r")"
)
_CARD = re.compile(r"(?<!\w)(?<!\d\.)\d(?:[ -]?\d){12,}(?!\w)")
_IBAN = re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]){10,}")

_ISSUERS = "23456"  # first digits of cards; times and counters start with 1

_SECRETS = re.compile(
    rf"{_START}(?:"
    r"(?:sk|pk|rk)[-_](?:[a-zA-Z]{2,12}[-_]){0,3}[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|gsk_\w{16,}|hf_[A-Za-z0-9]{16,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|xox[a-z]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{6,}(?:\.[\w-]*){0,3}"
    r"|(?:[Bb]earer|BEARER|[Bb]asic|BASIC)(?: +|%20)(?=[A-Za-z0-9._~+/-]*[0-9._~+/-])[A-Za-z0-9._~+/-]{12,}=*"
    r")"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
)
_SHORT_SECRET_SIGNS = (
    "eyJ",
    "earer",
    "EARER",
    "asic",
    "ASIC",
    "PRIVATE KEY",
)  # all others have 15 characters of a token
_RANDOM = re.compile(r"(?<![\w+/=-])(?<!base64,)(?:[A-Za-z0-9+/]{32,512}|[A-Za-z0-9_-]{32,512})={0,2}(?![\w+/=-])")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_TOKEN_CHARACTERS = bytes(
    ord("x") if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "+/_-") else ord(" ")
    for code in range(256)
)
_SECRET_TOKEN = b"x" * 15
_ASCII_DIGITS = b"0123456789"
_NAMED_ID = re.compile(r"(?:^|[._-])(?:id|ids|uid|hash|digest|sha\d*|fingerprint|version|features)$|I[dD]s?$|Hash$")


class Redactor:
    """Replaces what `kinds` and `patterns` (name -> regular expression) describe. Raises ValueError for an unknown kind
    or a pattern that cannot be used; its `__repr__` and errors never show a text."""

    def __init__(self, kinds: Sequence[str] = (), patterns: Mapping[str, str] = {}) -> None:
        if unknown := set(kinds) - set(KINDS):
            raise ValueError(f"unknown kind {sorted(unknown)[0]!r}; known are {', '.join(KINDS)}")
        self._own = [(name, compiled(name, text)) for name, text in patterns.items()]
        self._kinds = frozenset(kinds)
        self._numbers = bool({"phone", "card", "iban"} & self._kinds)
        self._clean: set[tuple[str, bool]] = set()

    def text(self, value: str, found: Counter[str], key: str = "", depth: int = 0) -> str:
        """The text with marks in place of what was found, counted by kind in `found`; the same object when that is
        nothing. `key` is the name it stands under: a value called an id or a hash is not taken for a random key."""
        named_id = _names_id(key)
        short = len(value) <= _CLEAN_LENGTH
        if short and (value, named_id) in self._clean:
            return value
        if not self._suspect(value, named_id):
            if short and len(self._clean) < _CLEAN_TEXTS:
                self._clean.add((value, named_id))
            return value
        if depth < _DEPTH and value.lstrip()[:1] in ("{", "[", '"'):
            try:
                inner = orjson.loads(value)
            except orjson.JSONDecodeError:
                inner = structure(value) if "\\" in value else None  # a Python repr hides as much as JSON does
            if inner is not None:
                redacted = self.value(inner, found, key, depth + 1)
                return value if redacted is inner else dumps(redacted)
        while (changed := self._once(value, found, named_id)) != value:
            value = changed
        return value

    def value(self, value: object, found: Counter[str], key: str = "", depth: int = 0) -> object:
        """A JSON-like value likewise: its texts, its keys, and whole numbers that are cards. Deeper than 100 levels
        all is dropped."""
        if isinstance(value, str):
            return self.text(value, found, key, depth)
        if isinstance(value, dict):
            if depth > _DEPTH:
                return {}
            fields = {
                self.text(name, found, "id"): self.value(inner, found, name, depth + 1) for name, inner in value.items()
            }
            same = len(fields) == len(value) and all(
                new is old for new, old in zip(fields.values(), value.values(), strict=True)
            )
            return value if same and list(fields) == list(value) else fields
        if isinstance(value, list):
            if depth > _DEPTH:
                return []
            items = [self.value(inner, found, key, depth + 1) for inner in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if isinstance(value, int) and not isinstance(value, bool):
            return self.number(value, found)
        return value

    def number(self, value: int, found: Counter[str]) -> int | str:
        """A whole number; a mark when it is a card's."""
        if "card" not in self._kinds or value < 10**12 or not _is_card(str(value)):
            return value
        found["card"] += 1
        return "<card>"

    def _suspect(self, value: str, named_id: bool) -> bool:
        """Whether anything may be there; quick, and never wrongly False."""
        if self._own or ("\\" in value and ("\\u" in value or "\\/" in value or "\\x" in value)):
            return True
        kinds = self._kinds
        if "email" in kinds and ("@" in value or "%40" in value):
            return True
        if len(value) < 8:
            return False
        raw = value.encode("utf-8", "replace")
        if self._numbers:
            few = value.isascii() and len(raw) - len(raw.translate(None, _ASCII_DIGITS)) < 7
            if not few and _DIGITS.search(value) is not None:
                return True
        if "key" not in kinds:
            return False
        tokens = raw.translate(_TOKEN_CHARACTERS)
        if _SECRET_TOKEN in tokens:
            return True if not named_id else _SECRETS.search(value) is not None
        return any(sign in value for sign in _SHORT_SECRET_SIGNS)

    def _once(self, value: str, found: Counter[str], named_id: bool) -> str:
        for name, pattern in self._own:
            value = _outside_marks(pattern, name, value, found)
        kinds = self._kinds
        if "key" in kinds:
            value = _replaced(_SECRETS, "key", lambda _: True, value, found)
            if not named_id:
                value = _replaced(_RANDOM, "key", _is_random, value, found)
        if "email" in kinds:
            value = _without_emails(value, found)
        if "iban" in kinds:
            value = _without_ibans(value, found)
        if "card" in kinds:
            value = _CARD.sub(lambda match: _without_cards(match[0], found), value)
        if "phone" in kinds:
            value = _replaced(_PHONE, "phone", _is_phone, value, found)
        return value


@lru_cache(maxsize=8192)
def _names_id(key: str) -> bool:
    return _NAMED_ID.search(key) is not None


def compiled(name: str, text: str) -> re.Pattern[str]:
    """A pattern of the user's. Raises ValueError saying what is wrong with its name or expression."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a name of small letters, digits, - and _ instead of {name!r}")
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression under {name!r} ({error})") from None
    if pattern.search("") is not None:
        raise ValueError(f"a regular expression under {name!r} that matches no empty text")
    return pattern


def _replaced(
    pattern: re.Pattern[str], kind: str, holds: Callable[[str], bool], value: str, found: Counter[str]
) -> str:
    def mark(match: re.Match[str]) -> str:
        if not holds(match[0]):
            return match[0]
        found[kind] += 1
        return f"<{kind}>"

    return pattern.sub(mark, value)


def _outside_marks(pattern: re.Pattern[str], name: str, value: str, found: Counter[str]) -> str:
    parts, at = [], 0
    for mark in _MARK.finditer(value):
        parts += [_replaced(pattern, name, bool, value[at : mark.start()], found), mark[0]]
        at = mark.end()
    return "".join([*parts, _replaced(pattern, name, bool, value[at:], found)])


def _without_emails(value: str, found: Counter[str]) -> str:
    """By their @: looked for from there in both directions, which is linear in any text."""
    parts, done = [], 0
    for at in _AT.finditer(value):
        if at.start() < done:
            continue
        local = _LOCAL_PART.search(value, max(done, at.start() - 64), at.start())
        domain = _REST.match(value, at.end())
        if local is None or domain is None:
            continue
        found["email"] += 1
        parts += [value[done : local.start()], "<email>"]
        done = domain.end()
    return "".join([*parts, value[done:]]) if parts else value


def _without_ibans(value: str, found: Counter[str]) -> str:
    parts, done = [], 0
    for match in _IBAN.finditer(value):
        end = _iban_end(value, match.start())
        if end is not None and match.start() >= done:
            found["iban"] += 1
            parts += [value[done : match.start()], "<iban>"]
            done = end
    return "".join([*parts, value[done:]]) if parts else value


def _iban_end(value: str, start: int) -> int | None:
    """Where the account number that starts here ends; None when there is none."""
    wanted = iban_length(value[start : start + 2])
    letters, at = "", start
    while wanted is not None and len(letters) < wanted and at < len(value):
        if value[at].isalnum() and value[at].isascii():
            letters += value[at]
        elif value[at] not in " -":
            return None
        at += 1
    if wanted is None or len(letters) < wanted or not valid_iban(letters):
        return None
    return None if at < len(value) and value[at].isalnum() else at


def _without_cards(run: str, found: Counter[str]) -> str:
    """A run of digits in groups: the first of its stretches of whole groups that is a card's number, and so on."""
    groups = [(match.start(), match.end()) for match in re.finditer(r"\d+", run)]
    parts, done, first = [], 0, 0
    while first < len(groups):
        if run[groups[first][0]] not in _ISSUERS:
            first += 1
            continue
        for last in range(first, min(first + 19, len(groups))):
            start, end = groups[first][0], groups[last][1]
            digits = run[start:end].replace(" ", "").replace("-", "")
            if len(digits) > 19:
                break
            if _is_card(digits):
                found["card"] += 1
                parts += [run[done:start], "<card>"]
                done, first = end, last
                break
        first += 1
    return "".join([*parts, run[done:]]) if parts else run


def _is_card(digits: str) -> bool:
    """By length, issuer and Luhn's check."""
    if not 13 <= len(digits) <= 19 or digits[0] not in _ISSUERS or len(set(digits)) == 1:
        return False
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(int(digit) for digit in digits[-1::-2])) % 10 == 0


def _is_phone(text: str) -> bool:
    digits = sum(character.isdigit() for character in text)
    return 8 <= digits <= 15 if text[0] != "+" and not text.startswith("00") else 8 <= digits <= 17


def _is_random(text: str) -> bool:
    """Hex with letters and digits, or base64 with capitals, small letters and digits, of the entropy of random ones."""
    bare = _UUID.sub("", text.rstrip("="))  # a name made unique by one is no key
    if len(bare) < 32 or not any(character.isdigit() for character in bare):
        return False
    if _HEX.fullmatch(bare):
        return not bare.isdigit() and _entropy(bare) >= 3.0
    mixed = bare.lower() != bare and bare.upper() != bare
    return mixed and _entropy(bare) >= (4.5 if "/" in bare else 4.2)


def _entropy(text: str) -> float:
    """Bits per character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())
