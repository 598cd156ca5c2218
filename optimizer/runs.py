"""Run folders: everything that one training run produced, written beside and renamed into place."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from ingest.errors import AppError, UsageError

FORMAT = 1


class LockHeldError(AppError):
    """Another run is under way."""

    exit_code = 4


@contextmanager
def lock(home: Path) -> Iterator[None]:
    """Only one run at a time on a home; `LockHeldError` at once when another holds it. Ends with the process."""
    folder = home / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LockHeldError(f"another run is under way on {home}", "wait until it has finished") from error
        yield


def new_run_id(home: Path, now: datetime | None = None) -> str:
    """A name that sorts by time and is not taken."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S")
    taken = set(run_ids(home))
    return next(name for k in range(1000) if (name := stamp if k == 0 else f"{stamp}-{k}") not in taken)


def write_run(home: Path, run_id: str, fill: Callable[[Path], None]) -> Path:
    """Let `fill` write the folder beside its place, then rename it; nothing is left when `fill` fails."""
    final = home / "runs" / run_id
    draft = home / "runs" / f".{run_id}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        fill(draft)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    draft.rename(final)
    return final


def run_ids(home: Path) -> list[str]:
    """Complete runs, newest first."""
    folder = home / "runs"
    if not folder.is_dir():
        return []
    return sorted((p.parent.name for p in folder.glob("[!.]*/manifest.json")), reverse=True)


def run_folder(home: Path, run_id: str | None) -> Path:
    """The folder of a run, the newest without an id. Raises UsageError when there is none."""
    known = run_ids(home)
    if not known:
        raise UsageError(f"no run in {home}", "train one: retroute nightly")
    if run_id is None:
        return home / "runs" / known[0]
    if run_id not in known:
        raise UsageError(f"no run {run_id!r} in {home}", f"the newest is {known[0]}; list them: retroute runs")
    return home / "runs" / run_id


LONGEST_NAME = 160
"""Characters: file systems take 255, and names of files have a kind before and an ending behind."""


def folder_name(service: str) -> str:
    """A service's name as the name of one folder or file: names come with telemetry and may hold slashes or be "..".

    Letters, digits and -_~ stay, as do dots that do not lead; everything else is percent-encoded. A name that gets
    longer than `LONGEST_NAME` is cut and ends with its hash.
    """
    quoted = quote(service, safe="")
    name = "%2E" + quoted[1:] if quoted.startswith(".") else quoted or "%"
    if len(name) <= LONGEST_NAME:
        return name
    digest = f"~{hashlib.sha256(service.encode()).hexdigest()[:16]}"
    return name[: LONGEST_NAME - len(digest)] + digest


def policy_folder(run: Path, service: str) -> Path:
    """Where a run keeps a service's policy."""
    return run / "policy" / folder_name(service)


def steps_file(run: Path, service: str, kind: Literal["steps", "turns", "turn_calls"] = "steps") -> Path:
    """Where a run keeps what an orchestrated service decided step by step, and who acted (see `turns.Acted`)."""
    return run / f"{kind}-{folder_name(service)}.parquet"


def probabilities_file(run: Path, service: str) -> Path:
    """Where a run keeps what each policy would do at the certifying decisions of a service."""
    return run / f"policy_probabilities-{folder_name(service)}.parquet"


Kept = Literal["price_scores", "judging_expected", "judged_scores", "evidence", "plan", "backtest", "regressions"]
_TABLES = ("price_scores", "judging_expected", "judged_scores")


def kept_name(service: str, kind: Kept) -> str:
    """The name of a file that a run keeps of a service for later looks, a table or JSON."""
    return f"{kind}-{folder_name(service)}.{'parquet' if kind in _TABLES else 'json'}"


def bundle_folder(home: Path, service: str) -> Path:
    """Where the deployable bundle of a service is."""
    return home / "bundles" / folder_name(service)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a JSON file as a whole."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    draft.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises UsageError naming a missing or broken file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing", "the run is incomplete; run retroute nightly again") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}", "run retroute nightly again") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no JSON object", "run retroute nightly again")
    return value


def active(home: Path) -> dict[str, str]:
    """The run whose policy is in force, per service; empty before the first deployable one."""
    path = home / "runs" / "active.json"
    return {str(k): str(v) for k, v in read_json(path).items()} if path.exists() else {}


def set_active(home: Path, chosen: Mapping[str, str]) -> None:
    """Put these services' policies in force and keep the others'."""
    if chosen:
        write_json(home / "runs" / "active.json", {**active(home), **chosen})
