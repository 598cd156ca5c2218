"""Settings: defaults < retroute.toml < RETROUTE_* environment < flags.

One frozen `Settings` that can say where each value came from. A key that does not exist, at any depth, is refused with
the nearest one that does; so is a value of the wrong type or out of range. Imports nothing heavy.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from ingest import redact
from ingest.auth import Token
from ingest.errors import ConfigError
from ingest.prices.fields import TIERS
from ingest.prices.hosted import Hosted
from ingest.pricing import Discount, Price
from ingest.scales import Scale
from optimizer.ability import Ability
from optimizer.gate import Limits

FILE_NAME = "retroute.toml"
PREFIX = "RETROUTE_"
OTHER_VARIABLES = ("RETROUTE_HOME", "RETROUTE_KILL")
"""Read elsewhere: by the command line and by an exported policy."""

_LARGEST_REQUEST_MIB = 1024  # gRPC counts in 31 bits

Reader = Callable[[object], object]
"""Turns what was written into the value used; raises ValueError saying what was expected."""


@dataclass(frozen=True)
class CollectorSettings:
    """Where `retroute collect` listens, which browser origins may post to it (`cors`), which `tokens` open it (none:
    everyone who can reach it), the PEM files of TLS ("": no TLS; relative to the home), and what it takes at most: a
    request as it is sent, once inflated, all of them in memory together, and the log of what is not in the lake yet."""

    host: str = "127.0.0.1"
    port: int = 4318
    grpc_port: int = 4317
    cors: tuple[str, ...] = ()
    tokens: tuple[Token, ...] = field(default=(), repr=False)
    tls_cert: str = ""
    tls_key: str = ""
    max_wire_mib: int = 64
    max_body_mib: int = 64
    max_in_flight_mib: int = 256
    max_backlog_mib: int = 1024


@dataclass(frozen=True)
class SettleSettings:
    """A trace is settled when no span of it arrived for `quiet_s` seconds."""

    quiet_s: float = 2.0


@dataclass(frozen=True)
class LakeSettings:
    """Where the lake is (None: catalogue and data files are inside the home folder), and for how many days after their
    receipt facts and texts (`contents_days`) are kept; None: for ever. Texts never outlive their facts."""

    catalog: str | None = None
    data: str | None = None
    retention_days: float | None = None
    contents_days: float | None = None


@dataclass(frozen=True)
class PrivacySettings:
    """What is kept of prompts and answers. `content` False keeps none; `redact` are kinds of personal and secret texts
    that become marks, `patterns` more of them (name -> regular expression); `deny` names attributes that are dropped,
    by key or by prefix ending in a dot or `*`."""

    content: bool = True
    redact: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class DashboardSettings:
    """Who may do what in the dashboard, by the e-mail of their login ("*@host": all of them) or "local": whoever opens
    a dashboard without login on its own machine. `operators` may act, `viewers` may look too (none named: without a
    login everyone who can reach it), and prompts and answers are shown to whom `content` says. `trace_url` is a page of
    the user's own trace viewer."""

    trace_url: str = ""
    content: Literal["everyone", "operators", "nobody"] = "operators"
    operators: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()


@dataclass(frozen=True)
class SegmentSettings:
    """A segment as the user states it: a span attribute and the values that mark it. `quality_margin` None: the
    service's."""

    attribute: str
    values: tuple[str, ...]
    quality_margin: float | None = None


@dataclass(frozen=True)
class PointSettings:
    """A decision point as the user states it. `actions` None: those that the log shows."""

    actions: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ServiceSettings:
    """What the user knows about a service. `incumbent`: the action it falls back to (None: the most frequent one).
    `quality`: the score that counts (None: the most frequent one). `judge`: the score in which a judge guesses it
    (None: scores of the same name whose source is a judge). `value_usd`: what one decision of full quality is worth
    (None: quality is a limit, not a price). `segments`: decisions whose quality may not fall either, by name.
    `models`: what models can do, where litellm's list does not say or is wrong. `sticky`: a session keeps the
    action that its first request got (see `optimizer.stickiness`); such a service is not studied step by step.
    `orchestrate`: whether its traces are studied step by step (None: where the log shows something to learn from
    that). `step_quality`: the score of a step that says what quality a trace would have if it stopped after it
    (None: "step_" and the name of the quality), of the last step or of the best so far (`step_quality_of`). `reward`:
    what teaches an orchestrator, utility in "real" units or the "puppeteer" paper's. `episode`: what is judged as a
    whole, a "trace" or all traces of a "session" (see `optimizer.sequential.sessions`)."""

    incumbent: str | None = None
    quality: str | None = None
    judge: str | None = None
    value_usd: float | None = None
    sticky: bool = False
    orchestrate: bool | None = None
    step_quality: str | None = None
    step_quality_of: Literal["last", "best"] = "last"
    reward: Literal["real", "puppeteer"] = "real"
    episode: Literal["trace", "session"] = "trace"
    limits: Limits = field(default_factory=Limits)
    segments: Mapping[str, SegmentSettings] = field(default_factory=lambda: MappingProxyType({}))
    models: Mapping[str, Ability] = field(default_factory=lambda: MappingProxyType({}))
    points: Mapping[str, PointSettings] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. `sources` says for each dotted key that was set where its value came from; `source`
    answers for any key."""

    collector: CollectorSettings = field(default_factory=CollectorSettings)
    settle: SettleSettings = field(default_factory=SettleSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    prices: tuple[Price, ...] = ()
    discounts: tuple[Discount, ...] = ()
    scores: tuple[Scale, ...] = ()
    """What scores mean, by their names."""
    services: Mapping[str, ServiceSettings] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def service(self, name: str) -> ServiceSettings:
        """The settings of a service; the defaults when none are written."""
        return self.services.get(name, ServiceSettings())

    def source(self, key: str) -> str:
        """Where the value of a dotted key came from: the path of the file, "environment NAME", "flag" or "default"."""
        return self.sources.get(key, "default")


def load(
    home: Path, flags: Mapping[str, object] = MappingProxyType({}), environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of a home. `flags` are dotted keys; a value of None is a flag not given. Raises ConfigError."""
    file = home / FILE_NAME
    settings = _read_file(file) if file.is_file() else Settings()
    settings = _overlay(settings, _from_environment(os.environ if environment is None else environment))
    return _overlay(settings, [(key, value, "flag") for key, value in flags.items() if value is not None])


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`; None when nothing is like it."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return found[0] if found else None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("a list of texts")
    return tuple(_text(item) for item in value)


def _tokens(value: object) -> tuple[Token, ...]:
    """A table NAME = "sha256:..."; in the environment NAME=sha256:... with commas between."""
    pairs: list[tuple[object, object]]
    if isinstance(value, tuple) and all(isinstance(item, Token) for item in value):
        return value  # read before
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list | tuple) and all(isinstance(item, str) and "=" in item for item in value):
        pairs = [tuple(part.strip() for part in item.split("=", 1)) for item in value]
    else:
        raise ValueError('a table of NAME = "sha256:..." lines, which `retroute token NAME` prints')
    return tuple(Token(str(name), hashed if isinstance(hashed, str) else "") for name, hashed in pairs)


def _file(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("the path of a file")
    return value


def _mib(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
        raise ValueError("a whole number of MiB from 1 to 1048576")
    return value


def _request_mib(value: object) -> int:
    if _mib(value) > _LARGEST_REQUEST_MIB:
        raise ValueError(f"a whole number of MiB from 1 to {_LARGEST_REQUEST_MIB}")
    return _mib(value)


def _tokens_in(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number of tokens from 1")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise ValueError("a whole number from 0 to 65535 (0: any free port)")
    return value


def _number(expected: str, holds: Callable[[float], bool]) -> Reader:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(expected)
        if not math.isfinite(value) or not holds(float(value)):
            raise ValueError(expected)
        return float(value)

    return read


def _attribute(value: object) -> str:
    if '"' in _text(value):
        raise ValueError("the key of a span attribute, without quotes")
    return _text(value)


def _date(value: object) -> str:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):  # TOML has dates of its own
        return value.isoformat()
    try:
        return datetime.date.fromisoformat(_text(value)).isoformat()
    except ValueError:
        raise ValueError("a date such as 2026-01-31") from None


def _kinds(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(item in redact.KINDS for item in value):
        raise ValueError(f"a list of {', '.join(redact.KINDS)}")
    return tuple(dict.fromkeys(value))


def _keys(value: object) -> tuple[str, ...]:
    keys = _texts(value)
    if any("*" in key[:-1] or key == "*" for key in keys):
        raise ValueError("a list of attribute keys, or beginnings of keys with a dot or * at the end")
    return keys


def _patterns(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("a table of names and regular expressions")
    for name, text in value.items():
        redact.compiled(str(name), text)
    return MappingProxyType({str(name): text for name, text in value.items()})


def _not_yet(default: object, read: Reader) -> Reader:
    """A key of the file's layout that this version cannot honour: refused, because ignoring it would be worse."""

    def check(value: object) -> object:
        if read(value) != default:
            raise ValueError("left out, because this version cannot honour it")
        return default

    return check


def _shares(value: object) -> Mapping[str, float]:
    expected = "a table of labels, each with a number from 0 (bad) to 1 (good)"
    read = _number(expected, lambda number: 0 <= number <= 1)
    if not isinstance(value, dict) or not value:
        raise ValueError(expected)
    return MappingProxyType({_text(label): cast(float, read(share)) for label, share in value.items()})


_anything = _number("a number", lambda number: True)
_days = _number("days, 1 or more", lambda number: number >= 1)
_seconds = _number("seconds, 0 or more", lambda number: number >= 0)
_usd = _number("USD per million tokens, 0 or more", lambda number: number >= 0)
_usd_each = _number("USD for one, 0 or more", lambda number: number >= 0)
_above_0 = _number("a number above 0", lambda number: number > 0)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of tokens, 0 or more")
    return value


def _trace_url(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"(https?://[^\s/{}]+[^\s{}]*\{trace_id\}[^\s{}]*)?", value):
        raise ValueError('an address such as "https://host/trace/{trace_id}"')
    return value


def _who(value: object) -> str:
    if value not in ("everyone", "operators", "nobody"):
        raise ValueError('"everyone", "operators" or "nobody"')
    return str(value)


def _people(value: object) -> tuple[str, ...]:
    people = tuple(name.lower() for name in _texts(value))
    if wrong := [name for name in people if name != "local" and not re.fullmatch(r"[^\s@]+@[^\s@]+", name)]:
        raise ValueError(f'a list of e-mail addresses, or "local" for this machine; {wrong[0]!r} is neither')
    return people


def _tier(value: object) -> str:
    if value not in ("standard", *TIERS.values()):
        raise ValueError(f"one of standard, {', '.join(TIERS.values())}")
    return str(value)


def _either(first: str, second: str) -> Reader:
    """A reader of one of two words."""

    def read(value: object) -> str:
        if value not in (first, second):
            raise ValueError(f'"{first}" or "{second}"')
        return str(value)

    return read


SECTIONS: Mapping[str, Mapping[str, Reader]] = {
    "collector": {
        "host": _text,
        "port": _port,
        "grpc_port": _port,
        "cors": _texts,
        "tokens": _tokens,
        "tls_cert": _file,
        "tls_key": _file,
        "max_wire_mib": _request_mib,
        "max_body_mib": _request_mib,
        "max_in_flight_mib": _mib,
        "max_backlog_mib": _mib,
    },
    "settle": {"quiet_s": _number("seconds, from 0.1 to 86400", lambda number: 0.1 <= number <= 86400)},
    "lake": {
        "catalog": _not_yet(None, _text),
        "data": _not_yet(None, _text),
        "retention_days": _days,
        "contents_days": _days,
    },
    "privacy": {"content": _switch, "redact": _kinds, "deny": _keys, "patterns": _patterns},
    "dashboard": {"trace_url": _trace_url, "content": _who, "operators": _people, "viewers": _people},
}
PRICE: Mapping[str, Reader] = {
    "model": _text,
    "provider": _text,
    "from": _date,
    "input": _usd,
    "output": _usd,
    "cache_read": _usd,
    "cache_write": _usd,
    "cache_write_1h": _usd,
    "reasoning": _usd,
    "input_audio": _usd,
    "input_image": _usd,
    "output_audio": _usd,
    "output_image": _usd,
    "request": _usd_each,
    "web_search": _usd_each,
    "code_interpreter": _usd_each,
    "file_search": _usd_each,
    "tier": _tier,
    "above": _count,
}
HOSTED: Mapping[str, Reader] = {
    "usd_per_hour": _above_0,
    "units": _above_0,
    "tokens_per_second": _above_0,
    "input_tokens_per_second": _above_0,
    "output_tokens_per_second": _above_0,
    "utilization": _number("a share above 0, at most 1", lambda number: 0 < number <= 1),
}
"""Keys of a price that is made from what hardware costs, instead of `input` and `output`."""
DISCOUNT: Mapping[str, Reader] = {
    "percent": _number("percent from 0 to 100", lambda number: 0 <= number <= 100),
    "provider": _text,
    "model": _text,
    "from": _date,
    "until": _date,
}
SERVICE: Mapping[str, Reader] = {
    "incumbent": _text,
    "quality": _text,
    "judge": _text,
    "value_usd": _number("USD above 0", lambda number: number > 0),
    "sticky": _switch,
    "orchestrate": _switch,
    "step_quality": _text,
    "step_quality_of": _either("last", "best"),
    "reward": _either("real", "puppeteer"),
    "episode": _either("trace", "session"),
}
LIMITS: Mapping[str, Reader] = {
    "quality_margin": _number("a share from 0 to 1 (0.01 is one point)", lambda number: 0 <= number <= 1),
    "confidence": _number("a share above 0.5 and below 1 (0.95)", lambda number: 0.5 < number < 1),
    "latency_s": _seconds,
}
SEGMENT: Mapping[str, Reader] = {
    "attribute": _attribute,
    "values": _texts,
    "quality_margin": LIMITS["quality_margin"],
}
MODEL: Mapping[str, Reader] = {
    "max_input_tokens": _tokens_in,
    "tools": _switch,
    "json_schema": _switch,
    "images": _switch,
}
POINT: Mapping[str, Reader] = {"actions": _texts}
SCALE: Mapping[str, Reader] = {"min": _anything, "max": _anything, "invert": _switch, "labels": _shares}


@dataclass(frozen=True)
class _Place:
    """Where a value is written: for error messages."""

    origin: str
    key: str = ""

    def __truediv__(self, name: str) -> _Place:
        return _Place(self.origin, f"{self.key}.{name}" if self.key else name)

    def unknown(self, name: str, known: Iterable[str]) -> ConfigError:
        names = sorted(known)
        near = nearest(name, names)
        where = f"in [{self.key}] " if self.key else ""
        hint = f"Did you mean '{near}'?" if near else f"Known here: {', '.join(names)}."
        return ConfigError(f"{self.origin}: unknown key '{name}' {where}".rstrip(), hint)

    def wrong(self, expected: str, value: object) -> ConfigError:
        got = "a hidden value" if self.key.endswith("tokens") else repr(value)
        return ConfigError(f"{self.origin}: {self.key} must be {expected}, got {got}")

    def table(self, value: object) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self.wrong("a table", value)
        return value

    def read(self, table: Mapping[str, object], readers: Mapping[str, Reader]) -> dict[str, object]:
        """The values of a table whose keys are all known."""
        values: dict[str, object] = {}
        for name, value in table.items():
            if name not in readers:
                raise self.unknown(name, readers)
            values[name] = (self / name).value(value, readers[name])
        return values

    def value(self, value: object, reader: Reader) -> object:
        try:
            return reader(value)
        except ValueError as error:
            raise self.wrong(str(error), value) from None


def _read_file(file: Path) -> Settings:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    top = _Place(str(file))
    settings = Settings()
    values: list[tuple[str, object, str]] = []
    for name, content in document.items():
        place = top / name
        if name in SECTIONS:
            section = place.read(place.table(content), SECTIONS[name])
            values += [(f"{name}.{key}", value, str(file)) for key, value in section.items()]
        elif name == "prices":
            settings = replace(settings, prices=_prices(place, content))
        elif name == "discounts":
            settings = replace(settings, discounts=_discounts(place, content))
        elif name == "scores":
            scales = tuple(_scale(place / score, part) for score, part in place.table(content).items())
            settings = replace(settings, scores=scales)
        elif name == "services":
            table = place.table(content)
            services = {service: _service(place / service, part) for service, part in table.items()}
            settings = replace(settings, services=MappingProxyType(services))
        else:
            raise top.unknown(name, [*SECTIONS, "prices", "discounts", "scores", "services"])
    written = {
        key: str(file)
        for name in ("prices", "discounts", "scores", "services")
        if name in document
        for key in _leaves(document, name)
    }
    return _overlay(replace(settings, sources=MappingProxyType(written)), values)


def _leaves(document: Mapping[str, object], name: str) -> list[str]:
    content = document[name]
    if not isinstance(content, dict):
        return [name]
    return [f"{name}.{leaf}" for key in content for leaf in _leaves(content, key)]


def _prices(place: _Place, content: object) -> tuple[Price, ...]:
    if not isinstance(content, list):
        raise place.wrong("[[prices]] tables", content)
    prices = []
    for number, item in enumerate(content, start=1):
        entry = _Place(place.origin, f"prices[{number}]")
        values = entry.read(entry.table(item), {**PRICE, **HOSTED})
        values = _hosted(entry, values) if HOSTED.keys() & values.keys() else values
        missing = [name for name in ("model", "input", "output") if name not in values]
        if missing:
            raise ConfigError(f"{entry.origin}: {entry.key} lacks {' and '.join(missing)}")
        valid_from = values.pop("from", None)
        prices.append(Price(valid_from=valid_from, **values))  # type: ignore[arg-type]
    return tuple(prices)


def _scale(place: _Place, content: object) -> Scale:
    values = place.read(place.table(content), SCALE)
    try:
        return Scale(place.key.partition(".")[2], **values)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(f"{place.origin}: {place.key}: {error}") from None


def _hosted(place: _Place, values: dict[str, object]) -> dict[str, object]:
    """A price in which USD per hour and throughput became USD per million tokens."""
    stated = {name: values.pop(name) for name in HOSTED if name in values}
    if both := [name for name in ("input", "output") if name in values]:
        raise ConfigError(f"{place.origin}: {place.key} has {both[0]} beside {next(iter(stated))}: state one of them")
    try:
        hosted = Hosted(**stated)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{place.origin}: {place.key} needs usd_per_hour, and tokens_per_second or both of "
            "input_tokens_per_second and output_tokens_per_second"
        ) from error
    return {**values, "input": hosted.input, "output": hosted.output}


def _discounts(place: _Place, content: object) -> tuple[Discount, ...]:
    if not isinstance(content, list):
        raise place.wrong("[[discounts]] tables", content)
    discounts = []
    for number, item in enumerate(content, start=1):
        entry = _Place(place.origin, f"discounts[{number}]")
        values = entry.read(entry.table(item), DISCOUNT)
        if "percent" not in values:
            raise ConfigError(f"{entry.origin}: {entry.key} lacks percent")
        dates = {"valid_from": values.pop("from", None), "valid_until": values.pop("until", None)}
        discounts.append(Discount(**dates, **values))  # type: ignore[arg-type]
    return tuple(discounts)


def _service(place: _Place, content: object) -> ServiceSettings:
    table = dict(place.table(content))
    limits = (place / "limits").table(table.pop("limits", {}))
    segments = (place / "segments").table(table.pop("segments", {}))
    points = (place / "points").table(table.pop("points", {}))
    models = (place / "models").table(table.pop("models", {}))
    for name in table:
        if name not in SERVICE:
            raise place.unknown(name, [*SERVICE, "limits", "segments", "models", "points"])
    values = place.read(table, SERVICE)
    if values.get("sticky") and values.get("orchestrate"):
        raise ConfigError(f"{place.origin}: {place.key} cannot be sticky and orchestrate: steps are decided one by one")
    if values.get("sticky") and values.get("episode") == "session":
        raise ConfigError(
            f'{place.origin}: {place.key} cannot be sticky with episode = "session": '
            "a sticky session is one decision already"
        )
    return ServiceSettings(
        limits=Limits(**(place / "limits").read(limits, LIMITS)),  # type: ignore[arg-type]
        segments=MappingProxyType({name: _segment(place / "segments" / name, part) for name, part in segments.items()}),
        models=MappingProxyType({name: _ability(place / "models" / name, part) for name, part in models.items()}),
        points=MappingProxyType({name: _point(place / "points" / name, part) for name, part in points.items()}),
        **values,  # type: ignore[arg-type]
    )


def _segment(place: _Place, content: object) -> SegmentSettings:
    values = place.read(place.table(content), SEGMENT)
    missing = [name for name in ("attribute", "values") if not values.get(name)]
    if missing:
        raise ConfigError(f"{place.origin}: {place.key} lacks {' and '.join(missing)}")
    return SegmentSettings(**values)  # type: ignore[arg-type]


def _ability(place: _Place, content: object) -> Ability:
    return Ability(**place.read(place.table(content), MODEL))  # type: ignore[arg-type]


def _point(place: _Place, content: object) -> PointSettings:
    values = place.read(place.table(content), POINT)
    return PointSettings(**values)  # type: ignore[arg-type]


def _overlay(settings: Settings, values: Iterable[tuple[str, object, str]]) -> Settings:
    """The settings with (dotted key, raw value, origin) laid over them."""
    sources = dict(settings.sources)
    for key, raw, origin in values:
        section, _, name = key.partition(".")
        if name not in SECTIONS.get(section, {}):
            raise _Place(origin).unknown(key, [f"{part}.{leaf}" for part in SECTIONS for leaf in SECTIONS[part]])
        value = _Place(origin, key).value(raw, SECTIONS[section][name])
        settings = replace(settings, **{section: replace(getattr(settings, section), **{name: value})})
        sources[key] = origin
    return replace(settings, sources=MappingProxyType(sources))


_VARIABLES = {
    f"{PREFIX}{section}_{name}".upper(): f"{section}.{name}" for section in SECTIONS for name in SECTIONS[section]
}

# Kubernetes announces a service named retroute-... to every pod of its namespace by variables of this form.
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, object, str]]:
    values: list[tuple[str, object, str]] = []
    for variable, written in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if _KUBERNETES.search(variable) or (variable.endswith("_PORT") and "://" in written):
            continue
        origin = f"environment {variable}"
        if variable not in _VARIABLES:
            near = nearest(variable, [*_VARIABLES, *OTHER_VARIABLES])
            hint = f"Did you mean {near}?" if near else f"Known: RETROUTE_HOME, {', '.join(sorted(_VARIABLES))}."
            raise ConfigError(f"environment: unknown variable {variable}", hint)
        key = _VARIABLES[variable]
        section, _, name = key.partition(".")
        default = getattr(getattr(Settings(), section), name)
        values.append((key, _Place(origin, key).value(written, functools.partial(_parsed, like=default)), origin))
    return values


def _parsed(text: object, like: object) -> object:
    """A variable's text as the type of the setting's default. Lists are separated by commas."""
    written = str(text).strip()
    if isinstance(like, bool):
        if written.lower() not in ("true", "false"):
            raise ValueError("true or false")
        return written.lower() == "true"
    if isinstance(like, Mapping):
        try:
            return json.loads(written)
        except ValueError:
            raise ValueError("a JSON object") from None
    if isinstance(like, tuple):
        return tuple(part.strip() for part in written.split(",") if part.strip())
    if isinstance(like, int | float):
        try:
            return int(written) if isinstance(like, int) else float(written)
        except ValueError:
            raise ValueError("a number") from None
    return written
