"""What is known of a service's rollout: a JSON file that is replaced as a whole, and a log of who did what and why.

<home>/rollouts/<service>.json    the state, format 1
<home>/rollouts/<service>/        the policy that is rolled out, and the one that was in force before
<home>/rollouts/log.jsonl         one action a line
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ingest.errors import HomeError, UsageError
from optimizer import runs

Stage = Literal["shadow", "canary", "full", "rolled_back", "none"]
FORMAT = 1


@dataclass(frozen=True)
class Step:
    """A revision that was put in force: from when, for which share of sessions, by whom and why."""

    at: str
    stage: Stage
    percent: float
    revision: int
    by: str
    why: str


@dataclass(frozen=True)
class Rollout:
    """Where a service's rollout stands."""

    service: str
    policy_id: str
    version: str
    revision: int
    """Of the bundle that was written last."""
    stage: Stage
    percent: float
    """Of sessions under the policy."""
    since: str
    """When this stage began."""
    run_id: str
    verdict: str
    """Of the run, when it started."""
    folder: str
    """The bundle that routers load."""
    control: str = ""
    """What sessions get that are not under the policy: the version that was in force before, or the incumbent."""
    restored: str | None = None
    """After a roll-back, the version that is in force again; None: the incumbent alone."""
    killed: bool = False
    """Whether the file KILL is what keeps the policy from deciding, until a signed revision can be written."""
    steps: tuple[Step, ...] = ()
    """Oldest first."""
    predicted: Mapping[str, Any] = field(default_factory=dict)
    """By metric the difference, policy minus today, that the run estimated: value, low, high, kind."""
    monitor: Mapping[str, Any] | None = None
    """The last look, see `monitor.look`; None before the first."""
    timeline: tuple[Mapping[str, Any], ...] = ()
    """Of each look that saw more: at, metric, value, low, high, decisions."""
    history: tuple[Mapping[str, Any], ...] = ()
    """Earlier rollouts, oldest first: what was predicted and what came out."""

    @property
    def under_way(self) -> bool:
        """Whether the policy serves or shadows a part of the sessions and may go on or back."""
        return self.stage in ("shadow", "canary", "full")

    @property
    def began(self) -> str:
        """When the first revision of this rollout was put in force."""
        return self.steps[0].at if self.steps else self.since


def folder_of(home: Path, service: str) -> Path:
    """Where a rollout keeps its policies."""
    return home / "rollouts" / runs.folder_name(service)


def read(home: Path, service: str) -> Rollout | None:
    """A service's rollout; None if it never had one. HomeError if the file is damaged or of a newer version."""
    path = _file(home, service)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            raise HomeError(f"{path} was written by another version of retroute", "Upgrade retroute.")
        steps = tuple(Step(**step) for step in found.pop("steps"))
        timeline, history = (tuple(found.pop(name)) for name in ("timeline", "history"))
        return Rollout(steps=steps, timeline=timeline, history=history, **found)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HomeError(
            f"{path} is damaged: {error}", "Restore it, or delete it and start the rollout again."
        ) from error


def known(home: Path, service: str) -> Rollout:
    """A service's rollout. UsageError if it never had one."""
    found = read(home, service)
    if found is None:
        names = ", ".join(services(home)) or "none"
        raise UsageError(
            f"the service '{service}' has no rollout",
            f"Services with one: {names}. Begin: retroute rollout start --service {service}",
        )
    return found


def services(home: Path) -> list[str]:
    """Services that have or had a rollout, by name."""
    files = sorted((home / "rollouts").glob("*.json")) if (home / "rollouts").is_dir() else []
    return sorted(str(runs.read_json(file).get("service")) for file in files)


def write(home: Path, rollout: Rollout) -> None:
    """Replace the state as a whole."""
    path = _file(home, rollout.service)
    path.parent.mkdir(parents=True, exist_ok=True)
    runs.write_json(path, {"format": FORMAT, **asdict(rollout)})


def log(home: Path, rollout: Rollout, action: str, *, by: str, why: str) -> None:
    """Append what was done to the log."""
    line = {
        "at": now(),
        "by": by,
        "service": rollout.service,
        "action": action,
        "why": why,
        **{name: getattr(rollout, name) for name in ("version", "revision", "stage", "percent")},
    }
    with (home / "rollouts" / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """One action at a time on a home; others wait."""
    (home / "rollouts").mkdir(parents=True, exist_ok=True)
    with (home / "rollouts" / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def now() -> str:
    """The time, as states and logs hold it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def nanoseconds(at: str) -> int:
    """Nanoseconds since 1970 of a time of a state."""
    return round(datetime.fromisoformat(at).timestamp() * 1e6) * 1_000


def shares(steps: Sequence[Step]) -> dict[int, float]:
    """Of each revision, the probability that a session is under the policy."""
    return {step.revision: step.percent / 100 for step in steps if step.stage != "rolled_back"}


def _file(home: Path, service: str) -> Path:
    return home / "rollouts" / f"{runs.folder_name(service)}.json"
