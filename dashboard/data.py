"""The dashboard's only access to the home folder, and its only caches.

Runs are keyed on their files' times, the lake on its snapshot: a page is as new as what it shows, and nothing is read
twice. Everything here only reads, so it works while the collector writes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import streamlit as st

from dashboard import figures, flows, records
from dashboard.connecting import EVERYWHERE
from dashboard.flows import Flow
from dashboard.records import AGAIN, Reconciled, ServiceVerdict, UnreadableError
from ingest.errors import AppError
from ingest.lake import Lake
from optimizer import at_price as prices
from optimizer import board, config, reconciling
from optimizer import runs as run_folders
from optimizer.config import DashboardSettings, ServiceSettings, Settings
from optimizer.evidence import Refused
from optimizer.rollout import state as rollouts
from optimizer.rollout.state import Rollout
from optimizer.runtime import PolicyError, Router

Shape = TypeVar("Shape")

MOST_ACTIONS = 500
"""Of the log, the newest."""


@dataclass(frozen=True)
class Run:
    """A run as the pages show it. `services` is empty where `problem` says why it cannot be read."""

    run_id: str
    created_at: str
    snapshot: int | None
    from_ns: int | None
    to_ns: int | None
    services: Mapping[str, ServiceVerdict]
    problem: str = ""
    flows: Mapping[str, Flow] = field(default_factory=dict)
    """Of services whose traces make several decisions."""


@dataclass(frozen=True)
class Bundle:
    """A policy to take away: a zip, and what the exporter says about it."""

    content: bytes
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Window:
    """The decisions of a service that a run looked at."""

    decisions: int
    first_ns: int
    last_ns: int


def home() -> Path:
    return Path(os.environ.get("RETROUTE_HOME") or "retroute-home").absolute()


def has_lake() -> bool:
    return (home() / "lake").is_dir()


def listening() -> Mapping[str, Any] | None:
    """What the collector of this home says, if something answers where it says that it listens."""
    said = collector()
    if said is None:
        return None
    host = str(said.get("host"))
    try:
        socket.create_connection(("127.0.0.1" if host in EVERYWHERE else host, int(said["port"])), 0.3).close()
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return said


def settings() -> DashboardSettings:
    """[dashboard] of retroute.toml; the defaults, which allow least, where the file cannot be read (see `unset`)."""
    return _all_settings()[0].dashboard


def wants_token() -> bool:
    """Whether a collector of this home asks senders for a token."""
    return bool(_all_settings()[0].collector.tokens)


def unset() -> str:
    """Why the settings cannot be read; "" where they can."""
    return _all_settings()[1]


def _all_settings() -> tuple[Settings, str]:
    return _settings(str(home()), *_stamp(home() / config.FILE_NAME))


def login_file() -> Path:
    """Streamlit's secrets of this home, whose section [auth] sets up the login."""
    return home() / board.SECRETS


def _stamp(file: Path) -> tuple[int, int]:
    """What changes when a file does: its time and its size; zeros without one."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@st.cache_resource(max_entries=4, show_spinner=False)
def _settings(folder: str, time_ns: int, size: int) -> tuple[Settings, str]:
    try:
        return config.load(Path(folder)), ""
    except AppError as error:
        return Settings(), f"{error.message}. {error.hint}".strip()


def collector() -> Mapping[str, Any] | None:
    """Host and port of the collector that says it runs on this home; None without one."""
    try:
        return _json(home() / "collector.json")
    except UnreadableError:
        return None


# ---- runs


def runs() -> tuple[Run, ...]:
    """All runs, newest first; one that cannot be read says so instead of hiding."""
    folder = home() / "runs"
    names = sorted((path.name for path in folder.glob("*") if _is_run(path)), reverse=True) if folder.is_dir() else []
    return tuple(_run(str(folder / name), _times(folder / name)) for name in names)


def _is_run(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith((".", "_"))


def _times(folder: Path) -> tuple[int, ...]:
    files = (folder / name for name in ("manifest.json", "verdicts.json", "decisions.parquet"))
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


@st.cache_data(max_entries=200, show_spinner=False)
def _run(folder: str, times: tuple[int, ...]) -> Run:
    path = Path(folder)
    try:
        manifest = _json(path / "manifest.json")
        if not (path / "verdicts.json").exists():
            raise UnreadableError("it is not judged yet", "`retroute evaluate` does.")
        services = _json(path / "verdicts.json").get("services")
        if not isinstance(services, Mapping):
            raise UnreadableError(f"verdicts.json of run {path.name} lacks its services", AGAIN)
        found = {name: records.verdict(name, path.name, said) for name, said in services.items()}
        read = {name: flows.flow(name, path.name, said.get("orchestration")) for name, said in services.items()}
    except UnreadableError as error:
        return Run(path.name, "", None, None, None, {}, f"{error.message}. {error.hint}")
    return Run(
        path.name,
        str(manifest.get("created_at") or ""),
        manifest.get("snapshot"),
        manifest.get("from_ns"),
        manifest.get("to_ns"),
        found,
        flows={name: flow for name, flow in read.items() if flow is not None},
    )


def _json(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        raise UnreadableError(f"run {file.parent.name} has no {file.name}", AGAIN)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableError(f"{file.name} of run {file.parent.name} is damaged: {error}", AGAIN) from error
    if not isinstance(content, Mapping):
        raise UnreadableError(f"{file.name} of run {file.parent.name} does not hold an object", AGAIN)
    return content


def run_table(run_id: str, name: str) -> pl.DataFrame | None:
    """A Parquet file of a run, e.g. `estimates.parquet`; None where the run has none or it cannot be read."""
    file = _run_file(run_id, name)
    return None if file is None else _table(str(file), *_stamp(file))


def run_json(run_id: str, name: str) -> Mapping[str, Any] | None:
    """A JSON file of a run; None where the run has none. UnreadableError for one that holds no object."""
    file = _run_file(run_id, name)
    return None if file is None else _object(str(file), *_stamp(file))


def kept(verdict: ServiceVerdict, kind: run_folders.Kept, read: Callable[[Mapping[str, Any]], Shape]) -> Shape | None:
    """What the run of a verdict kept of its service, see `optimizer.runs.kept_name`; None where it kept nothing.

    read: makes a record of the JSON. UnreadableError for a file that is not as it expects.
    """
    name = run_folders.kept_name(verdict.service, kind)
    said = run_json(verdict.run_id, name)
    if said is None:
        return None
    try:
        return read(said)
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise UnreadableError(f"{name} of run {verdict.run_id} is not as expected ({error})", AGAIN) from error


def run_rows(run_id: str, name: str) -> pl.LazyFrame | None:
    """A Parquet file of a run to pick few rows of, as it is too large to hold; None where the run has none."""
    file = _run_file(run_id, name)
    return None if file is None else pl.scan_parquet(file)


def _run_file(run_id: str, name: str) -> Path | None:
    """A file of a run of this home: no name from a URL leads elsewhere."""
    folder = home() / "runs"
    if Path(run_id).name != run_id or not _is_run(folder / run_id):
        return None
    file = folder / run_id / name
    return file if file.is_file() and file.resolve().is_relative_to((folder / run_id).resolve()) else None


@st.cache_data(max_entries=40, show_spinner=False)
def _table(file: str, time_ns: int, size: int) -> pl.DataFrame | None:
    try:
        return pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError):
        return None


@st.cache_data(max_entries=40, show_spinner=False)
def _object(file: str, time_ns: int, size: int) -> Mapping[str, Any]:
    return _json(Path(file))


def reconciled() -> Reconciled | None:
    """The newest comparison with an invoice; None without one. UnreadableError for one that is not as expected."""
    file = home() / reconciling.KEPT
    return records.reconciled(_json(file)) if file.is_file() else None


def active() -> Mapping[str, str]:
    """Service -> the run whose policy is in use; empty where none is or the file cannot be read."""
    try:
        return {str(k): str(v) for k, v in _json(home() / "runs" / "active.json").items()}
    except UnreadableError:
        return {}


def rollout(service: str) -> Rollout | None:
    """A service's rollout; None where it never had one. HomeError where its file cannot be read."""
    return rollouts.read(home(), service)


def window(verdict: ServiceVerdict) -> Window | None:
    """The decisions behind a verdict; None where the run's decisions cannot be read."""
    frame = _decided(verdict.run_id)
    if frame is None:
        return None
    own = frame.filter((pl.col("service") == verdict.service) & (pl.col("timed") > 0))
    return Window(own["timed"].sum(), own["first_ns"].min(), own["last_ns"].max()) if own.height else None  # type: ignore[arg-type]


def label_coverage(verdict: ServiceVerdict) -> pl.DataFrame | None:
    """Decisions and scored decisions per action, most frequent first: action, decisions, labelled."""
    frame = _decided(verdict.run_id)
    if frame is None:
        return None
    own = frame.filter(pl.col("service") == verdict.service).select("action", "decisions", "labelled")
    return own.sort(["decisions", "action"], descending=[True, False])


def _decided(run_id: str) -> pl.DataFrame | None:
    folder = home() / "runs" / run_id
    return _decided_in(str(folder), _times(folder))


@st.cache_data(max_entries=20, show_spinner=False)
def _decided_in(folder: str, times: tuple[int, ...]) -> pl.DataFrame | None:
    """Of each service and action of a run: how many decisions, how many with a score, with a time, and when."""
    quality, time_ns = pl.col("quality").cast(pl.Float64), pl.col("time_ns")
    scored = quality.is_not_null() & ~quality.is_nan().fill_null(False)
    try:
        return (
            pl.scan_parquet(Path(folder) / "decisions.parquet")
            .group_by("service", "action")
            .agg(
                pl.len().cast(pl.Int64).alias("decisions"),
                scored.sum().cast(pl.Int64).alias("labelled"),
                time_ns.count().cast(pl.Int64).alias("timed"),
                time_ns.min().alias("first_ns"),
                time_ns.max().alias("last_ns"),
            )
            .collect()
        )
    except (OSError, pl.exceptions.PolarsError):
        return None


def at_price(run_id: str, service: str, value_usd: float) -> Mapping[str, Any] | str:
    """What the run would suggest where a unit of quality is worth so much, as `at_price_json` says it; or why nothing.

    ValueError or KeyError where the kept scores are not as expected.
    """
    folder = home() / "runs" / run_id
    return _at_price(str(folder), _times(folder), service, value_usd)


@st.cache_data(max_entries=400, show_spinner=False)
def _at_price(folder: str, times: tuple[int, ...], service: str, value_usd: float) -> Mapping[str, Any] | str:
    kept = _kept_scores(folder, times, service)
    if kept is None:
        return "the run kept no scores of its decisions"
    found = kept.at(value_usd)
    return found.reason if isinstance(found, Refused) else prices.at_price_json(found)


@st.cache_resource(max_entries=6, show_spinner=False)
def _kept_scores(folder: str, times: tuple[int, ...], service: str) -> prices.Kept | None:
    try:
        return prices.kept_in(Path(folder), service)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(str(error)) from error


# ---- policies to take away


def policy_folder(verdict: ServiceVerdict) -> Path | None:
    folder = run_folders.policy_folder(home() / "runs" / verdict.run_id, verdict.service)
    return folder if (folder / "manifest.json").is_file() else None


def router(run_id: str, service: str) -> Router | str:
    """What decides by the policy of a run, or why there is none."""
    if Path(run_id).name != run_id:
        return "there is no such run"
    folder = run_folders.policy_folder(home() / "runs" / run_id, service)
    if not (folder / "manifest.json").is_file():
        return "the run suggests no policy"
    return _router(str(folder), *_stamp(folder / "manifest.json"))


@st.cache_resource(max_entries=20, show_spinner=False)
def _router(folder: str, time_ns: int, size: int) -> Router | str:
    try:
        return Router.load(Path(folder), signed=False)
    except PolicyError as error:
        return str(error)


def services_settings() -> Mapping[str, ServiceSettings]:
    """What retroute.toml says of the services; nothing where it cannot be read."""
    return _all_settings()[0].services


def bundle_folder(verdict: ServiceVerdict) -> Path | None:
    """The exported bundle, as long as it still holds this run's policy: a later export replaces it."""
    folder, own = run_folders.bundle_folder(home(), verdict.service), policy_folder(verdict)
    if own is None or not (folder / "policy" / "manifest.json").is_file():
        return None
    made = _policy_in(own)
    return folder if made is not None and _policy_in(folder / "policy") == made else None


def _policy_in(folder: Path) -> Mapping[str, Any] | None:
    """What makes a policy the same one: an export adds how it was judged, and a rollout who is under it."""
    try:
        said = _json(folder / "manifest.json")
    except UnreadableError:
        return None
    return {name: said.get(name) for name in ("policy_id", "version", "run", "files")}


def policy_manifest(verdict: ServiceVerdict) -> Mapping[str, Any] | None:
    """What a policy says of itself; None where the run has none or it cannot be read."""
    folder = policy_folder(verdict)
    try:
        return None if folder is None else _json(folder / "manifest.json")
    except UnreadableError:
        return None


def bundle(verdict: ServiceVerdict, target: str) -> Bundle | str:
    """A policy as its exporter writes it for a target, made once for the same policy; or why there is none."""
    folder = policy_folder(verdict)
    if folder is None:
        return "The run holds no policy for it."
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    return _bundle(str(folder), digest, verdict.service, target)


def exporter(target: str) -> Callable[[Path, Path, str], list[str]]:
    """What writes a policy folder into a bundle folder, for a service."""
    from optimizer.export import agents, litellm, onnx, rules

    known: dict[str, Callable[[Path, Path, str], list[str]]] = {
        "litellm": litellm.export,
        "agents": agents.export,
        "onnx": onnx.export,
        "rules": rules.export,
    }
    return known[target]


@st.cache_data(max_entries=20, show_spinner="Making the bundle …")
def _bundle(folder: str, digest: str, service: str, target: str) -> Bundle | str:
    with tempfile.TemporaryDirectory(prefix="retroute-bundle-") as place:
        out = Path(place) / run_folders.folder_name(service)
        try:
            notes = exporter(target)(Path(folder), out, service)
        except AppError as error:
            return f"{figures.capital(error.message)}. {error.hint}".strip()
        except PolicyError as error:
            return f"The policy cannot be used: {error}."
        return Bundle(_packed(out), tuple(notes))


def actions() -> list[Mapping[str, Any]]:
    """Who did what to which rollout, newest first; a line that cannot be read is left out."""
    file = home() / "rollouts" / "log.jsonl"
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in reversed(lines[-MOST_ACTIONS:]):
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, Mapping):
                found.append(said)
    return found


def zipped(folder: Path) -> bytes:
    """`folder` as a zip of one top-level folder; the same files give the same bytes."""
    times = tuple(file.stat().st_mtime_ns for file in _files(folder))
    return _zip(str(folder), times)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


@st.cache_data(max_entries=20, show_spinner=False)
def _zip(folder: str, times: tuple[int, ...]) -> bytes:
    return _packed(Path(folder))


def _packed(path: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _files(path):
            entry = zipfile.ZipInfo(f"{path.name}/{file.relative_to(path).as_posix()}", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


# ---- lake


def lake(name: str, **params: object) -> pl.DataFrame:
    """A named query on the newest snapshot. HomeError where the lake cannot be read."""
    catalogue = home() / "lake" / "catalog.sqlite"
    source = _lake(str(home()), catalogue.stat().st_ino if catalogue.exists() else 0)
    return _query(source, str(home()), source.snapshot(), name, tuple(sorted(params.items())))


@st.cache_resource(max_entries=2, show_spinner=False)
def _lake(folder: str, inode: int) -> Lake:
    """One open reader for all pages: opening takes a third of a second, a snapshot number a few milliseconds."""
    return Lake.open(Path(folder))


@st.cache_data(max_entries=100, show_spinner=False)
def _query(
    _source: Lake, folder: str, snapshot: int, name: str, params: tuple[tuple[str, object], ...]
) -> pl.DataFrame:
    return _source.query(name, **dict(params))
