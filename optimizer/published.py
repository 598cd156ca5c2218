"""Which run's policy is meant, and whether it may leave the house."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.errors import UsageError, WorkError
from optimizer import runs
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

    Raises UsageError for a service or run that is not there, WorkError for a run that suggests no policy."""
    runs.run_folder(home, run_id)
    judged = {run: _verdicts(home, run) for run in ([run_id] if run_id else runs.run_ids(home))}
    holding = [run for run, services in judged.items() if service in services]
    if not holding:
        known = sorted({name for services in judged.values() for name in services})
        near = nearest(service, known)
        hint = f"Did you mean '{near}'?" if near else f"Judged services: {', '.join(known) or 'none'}."
        raise UsageError(f"no verdict on service '{service}' in {run_id or home}", hint)
    active = runs.active(home).get(service)
    chosen = active if active in holding else holding[0]
    said = judged[chosen][service]
    folder = runs.policy_folder(home / "runs" / chosen, service)
    if not folder.is_dir():
        raise WorkError(
            f"run {chosen} suggests no policy for {service}: the verdict is '{said['verdict']}'",
            "`retroute dashboard` shows why and what would change it.",
        )
    unmet = tuple(
        f"{reason['condition']}: {reason['got']}" for reason in said.get("reasons", ()) if not reason["holds"]
    )
    return PublishedPolicy(folder, service, chosen, str(said.get("policy_id")), said["verdict"], unmet)


def _verdicts(home: Path, run_id: str) -> dict[str, Any]:
    """service -> what verdicts.json says; empty for a run that was not evaluated."""
    file = home / "runs" / run_id / "verdicts.json"
    services: dict[str, Any] = runs.read_json(file)["services"] if file.is_file() else {}
    return services
