"""Which run's policy is meant, and whether it may leave the house."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.errors import UsageError, WorkError
from optimizer.config import nearest


@dataclass(frozen=True)
class PublishedPolicy:
    """A policy folder with what was said about it. `unmet` are the conditions of the gate that do not hold."""

    folder: Path
    service: str
    run_id: str
    policy_id: str
    verdict: str
    unmet: tuple[str, ...]

    def require_deployable(self, unproven: bool) -> None:
        """Raises WorkError for a verdict other than deploy, unless `unproven` is accepted."""
        if self.verdict != "deploy" and not unproven:
            why = f" ({'; '.join(self.unmet)})" if self.unmet else ""
            raise WorkError(
                f"the verdict on {self.service} in run {self.run_id} is '{self.verdict}', not 'deploy'{why}",
                "Add --unproven to export it all the same.",
            )


def find(home: Path, service: str, run_id: str | None = None) -> PublishedPolicy:
    """The policy of a service: of the given run, else of the active run, else of the newest run that has one.

    Raises UsageError for a service or run that is not there, WorkError for a run without a policy."""
    verdicts = _verdicts_by_run(home)
    if not verdicts:
        raise UsageError(f"no runs in {home}", "Make one with `retroute nightly`.")
    if run_id is not None and run_id not in verdicts:
        near = nearest(run_id, verdicts)
        raise UsageError(f"no run '{run_id}' in {home}", f"Did you mean {near}?" if near else "See `retroute runs`.")
    considered = {run_id: verdicts[run_id]} if run_id is not None else verdicts
    holding = [run for run, services in considered.items() if service in services]
    if not holding:
        known = sorted({name for services in considered.values() for name in services})
        near = nearest(service, known)
        hint = f"Did you mean '{near}'?" if near else f"Services with a policy: {', '.join(known) or 'none'}."
        raise UsageError(f"no policy for service '{service}' in {run_id or home}", hint)
    active = _read(home / "runs" / "active.json").get(service)
    chosen = active if run_id is None and active in holding else holding[0]
    said = verdicts[chosen][service]
    folder = home / "runs" / chosen / "policy" / service
    if not (folder / "manifest.json").is_file():
        raise WorkError(
            f"run {chosen} suggests no policy for {service}: {said['verdict']}",
            f"`retroute dashboard --home {home}` shows why and what would change it.",
        )
    unmet = tuple(
        f"{reason['condition']}: {reason['got']}" for reason in said.get("reasons", ()) if not reason["holds"]
    )
    return PublishedPolicy(folder, service, chosen, str(said.get("policy_id")), said["verdict"], unmet)


def _verdicts_by_run(home: Path) -> dict[str, dict[str, Any]]:
    """Newest first: run id -> service -> what verdicts.json says. Run ids sort by time."""
    files = sorted((home / "runs").glob("*/verdicts.json"), reverse=True)
    return {file.parent.name: _read(file).get("services", {}) for file in files}


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise WorkError(f"{file} is damaged", "Remove it, or take another run with --run.") from None
    return content
