"""The actions of a rollout. Each writes a new revision of the bundle, the state, and a line of the log.

start       shadow (0 %), or at once a canary
advance     the next stage, where all conditions hold
rollback    the policy that was in force before; the incumbent alone where there was none
watch       looks at every rollout, and rolls back what is beyond a limit
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ingest.errors import AppError, UsageError, WorkError
from optimizer import config, published, runs
from optimizer.bundle import copy_policy, manifest_for
from optimizer.config import Settings
from optimizer.rollout import bundles, monitor, predicted, state
from optimizer.rollout.looking import looked
from optimizer.rollout.state import Rollout, Stage, Step

LADDER = (5.0, 20.0, 50.0, 100.0)
"""Percent of sessions under the policy, stage by stage."""


@dataclass(frozen=True)
class Done:
    """Where the rollout stands after an action, and what the user should know besides."""

    rollout: Rollout
    notes: tuple[str, ...] = ()


def start(
    home: Path,
    service: str,
    *,
    by: str,
    why: str = "",
    percent: float = 0.0,
    run_id: str | None = None,
    unproven: bool = False,
    bundle: Path | None = None,
    key: Path | None = None,
) -> Done:
    """Begin to roll out a run's policy (the newest that may be deployed), in shadow or to `percent` of sessions.

    bundle: the folder that routers load; by default the one of the last rollout, else the home's. key: private key,
    where routers take signed policies only. UsageError while another rollout of the service is under way, and for a
    bundle whose routers read no stages; WorkError for a policy that may not be deployed, unless `unproven`, and one
    that routers would refuse.
    """
    _check_percent(percent)
    with state.locked(home):
        past = state.read(home, service)
        if past is not None and past.stage in ("shadow", "canary"):
            raise UsageError(
                f"version {past.version} of {service} is being rolled out: {_where(past)}",
                "Go on with `retroute rollout advance`, or end it with `retroute rollout rollback`.",
            )
        policy = published.find(home, service, run_id or _deployable(home, service))
        policy.require_deployable(unproven)
        folder = bundle or (Path(past.folder) if past else runs.bundle_folder(home, service))
        bundles.require_stages(folder)
        manifest = manifest_for(policy.folder, service)
        kept, live = _kept(home, service, manifest["version"]), folder / "policy"
        copy_policy(policy.folder, manifest, kept / "policy")
        _keep_earlier(live, kept / "before", manifest["version"])
        revision = 1 + max(bundles.newest_revision(live, kept / "policy"), past.revision if past else 0)
        notes = _write(kept, folder, service, revision, percent, key)
        now = state.now()
        said = runs.read_json(home / "runs" / policy.run_id / "verdicts.json")["services"][service]
        rollout = Rollout(
            service=service,
            policy_id=manifest["policy_id"],
            version=manifest["version"],
            revision=revision,
            stage=_stage(percent),
            percent=percent,
            since=now,
            run_id=policy.run_id,
            verdict=policy.verdict,
            folder=str(folder.absolute()),
            control=bundles.control(kept / "policy", kept / "before"),
            steps=(Step(now, _stage(percent), percent, revision, by, why),),
            predicted=predicted.predicted(said),
            history=(*past.history, predicted.in_short(past, now)) if past else (),
        )
        _record(home, rollout, "start", by, why)
        for other in (one for one in kept.parent.iterdir() if one.is_dir() and one != kept):
            shutil.rmtree(other)  # of the rollout before: nothing goes back to it any more
        return Done(rollout, tuple(notes))


def advance(
    home: Path,
    service: str,
    *,
    by: str,
    why: str = "",
    percent: float | None = None,
    force: bool = False,
    key: Path | None = None,
) -> Done:
    """Put more sessions under the policy: `percent`, by default the next of `LADDER`.

    WorkError naming the conditions that do not hold, unless `force`; nothing forces what is beyond a limit for certain.
    """
    settings = config.load(home)
    with state.locked(home):
        rollout = state.known(home, service)
        if rollout.stage not in ("shadow", "canary"):
            raise UsageError(f"the rollout of {service} cannot go on: it is {_where(rollout)}", _next(rollout))
        to = next(step for step in LADDER if step > rollout.percent) if percent is None else percent
        _check_percent(to)
        if to <= rollout.percent:
            raise UsageError(
                f"{to:g} % is no more than the {rollout.percent:g} % of now",
                "Name a larger percent, or go back with `retroute rollout rollback`.",
            )
        rollout, found = looked(home, settings, rollout)
        state.write(home, rollout)
        assert rollout.monitor is not None
        if beyond := monitor.crossed(rollout.monitor):
            raise WorkError(
                f"{service} must not go on: {'; '.join(beyond)}", f"retroute rollout rollback --service {service}"
            )
        missing = [one for one in monitor.conditions(rollout, found, rollout.monitor, to=to) if not one.holds]
        if missing and not force:
            told = "".join(f"\n- {one.condition}: {one.got}; needed: {one.needed}; {one.remedy}" for one in missing)
            raise WorkError(f"{service} does not go on to {to:g} %:{told}", "Wait, or add --force if you know better.")
        if missing:
            why = f"{why} (forced although {'; '.join(f'{one.condition}: {one.got}' for one in missing)})".strip()
        kept, folder = _kept(home, service, rollout.version), Path(rollout.folder)
        revision = 1 + max(bundles.newest_revision(folder / "policy"), rollout.revision)
        notes = _write(kept, folder, service, revision, to, key)
        rollout = _stepped(rollout, _stage(to), to, revision, by, why)
        _record(home, rollout, "advance", by, why)
        if rollout.stage == "full":
            runs.set_active(home, {service: rollout.run_id})
        return Done(rollout, tuple(notes))


def rollback(home: Path, service: str, *, by: str, why: str = "", key: Path | None = None) -> Done:
    """Put the policy in force again that was before, under a new revision; the incumbent alone where there was none.

    Where routers take signed policies only and there is no key, the file KILL sends every request to the incumbent at
    once, and a later roll-back with the key writes the signed revision.
    """
    with state.locked(home):
        rollout = state.known(home, service)
        if not (rollout.under_way or rollout.killed):
            raise UsageError(f"there is nothing to roll back: {service} is {_where(rollout)}", _next(rollout))
        if rollout.under_way:
            with suppress(AppError):  # going back must not depend on a lake that can be read
                rollout, _ = looked(home, config.load(home), rollout)
        return _rolled_back(home, rollout, by, why, key)


def status(home: Path, service: str) -> Rollout:
    """Where a service's rollout stands, by the last look. UsageError if it never had one."""
    return state.known(home, service)


def watch(
    home: Path, settings: Settings, services: Sequence[str] = (), *, by: str = "watch", key: Path | None = None
) -> list[Done]:
    """Look at the rollouts of these services (all) that are under way; those beyond a limit are rolled back."""
    done = []
    for service in services or state.services(home):
        with state.locked(home):
            rollout = state.known(home, service)
            if not rollout.under_way:
                continue
            rollout, _ = looked(home, settings, rollout)
            assert rollout.monitor is not None
            if beyond := monitor.crossed(rollout.monitor):
                done.append(_rolled_back(home, rollout, by, "; ".join(beyond), key))
            else:
                state.write(home, rollout)
                done.append(Done(rollout))
    return done


def holds(home: Path, service: str) -> bool:
    """Whether the home's bundle of a service changes by rollouts only: a nightly run then leaves it as it is, and its
    policy waits for the next `start`."""
    found = state.read(home, service)
    return found is not None and Path(found.folder) == runs.bundle_folder(home, service).absolute()


def require_free(home: Path, service: str, bundle: Path) -> None:
    """UsageError if this bundle of the service changes by rollouts only: a policy written into it otherwise would serve
    everyone at once, or be refused for its lower revision."""
    found = state.read(home, service)
    if found is not None and Path(found.folder) == bundle.absolute():
        raise UsageError(
            f"{bundle} is the bundle of a rollout: version {found.version}, {_where(found)}",
            f"Write it by `retroute rollout start --service {service}`, or name another folder.",
        )


def last_revision(home: Path, service: str) -> int:
    """The largest revision that a rollout gave; 0 without any."""
    found = state.read(home, service)
    return 0 if found is None else found.revision


def _rolled_back(home: Path, rollout: Rollout, by: str, why: str, key: Path | None) -> Done:
    folder, kept = Path(rollout.folder), _kept(home, rollout.service, rollout.version)
    revision = 1 + max(bundles.newest_revision(folder / "policy"), rollout.revision)
    before = bundles.manifest_of(kept / "before")
    restored = None if before is None else str(before["version"])
    percent = 0.0 if before is None else float(before["canary"]["percent"])
    if key is None and bundles.wants_signature(folder):
        bundles.kill(folder)
        stopped = _stepped(rollout, "rolled_back", 0.0, rollout.revision, by, why)
        _record(home, replace(stopped, killed=True, restored=None), "rollback", by, why)
        note = (
            f"{folder / 'policy' / 'KILL'} sends every request to the incumbent; write the signed revision with "
            f"`retroute rollout rollback --service {rollout.service} --key private.pem`"
        )
        return Done(replace(stopped, killed=True, restored=None), (note,))
    source, changes = (kept / "policy", bundles.under(0.0, enabled=False)) if before is None else (kept / "before", {})
    notes = bundles.write(source, folder, rollout.service, revision, changes, key)
    if rollout.killed:
        bundles.revive(folder)
    done = replace(_stepped(rollout, "rolled_back", percent, revision, by, why), restored=restored, killed=False)
    _record(home, done, "rollback", by, why)
    if restored in runs.run_ids(home):
        runs.set_active(home, {rollout.service: restored})
    return Done(done, tuple(notes))


def _keep_earlier(live: Path, before: Path, version: str) -> None:
    """Keep the policy that is in force, to go back to."""
    shutil.rmtree(before, ignore_errors=True)
    if bundles.earlier_policy(live, version):
        bundles.keep(live, before)


def _write(kept: Path, folder: Path, service: str, revision: int, percent: float, key: Path | None) -> list[str]:
    """Write a stage; what the user should know."""
    policy, before = kept / "policy", kept / "before" if percent < 100 else None
    notes = bundles.write(policy, folder, service, revision, bundles.under(percent), key, before)
    earlier = bundles.manifest_of(kept / "before")
    if earlier is not None and before is not None:
        serves, rest = bundles.control(policy, before), f"serves the other {100 - percent:g} % of sessions"
        who = "it" if serves == earlier["version"] else f"{serves}, and not it,"
        notes.append(f"version {earlier['version']} is kept to go back to; {who} {rest}")
    return notes


def _stepped(rollout: Rollout, stage: Stage, percent: float, revision: int, by: str, why: str) -> Rollout:
    now = state.now()
    step = Step(now, stage, percent, revision, by, why)
    return replace(rollout, stage=stage, percent=percent, since=now, revision=revision, steps=(*rollout.steps, step))


def _record(home: Path, rollout: Rollout, action: str, by: str, why: str) -> None:
    state.write(home, rollout)
    state.log(home, rollout, action, by=by, why=why)


def _kept(home: Path, service: str, version: str) -> Path:
    return state.folder_of(home, service) / runs.folder_name(version)


def _deployable(home: Path, service: str) -> str | None:
    """The newest run whose policy for the service may be deployed."""
    for run_id in runs.run_ids(home):
        file = home / "runs" / run_id / "verdicts.json"
        said = runs.read_json(file)["services"].get(service) if file.is_file() else None
        if said is not None and said["verdict"] == "deploy":
            return run_id
    return None


def _stage(percent: float) -> Stage:
    return "shadow" if percent == 0 else "full" if percent >= 100 else "canary"


def _check_percent(percent: float) -> None:
    if not 0 <= percent <= 100:
        raise UsageError(f"{percent:g} is no percent of sessions", "Give a number from 0 (shadow) to 100 (full).")


def _where(rollout: Rollout) -> str:
    return {
        "shadow": "in shadow",
        "canary": f"a canary of {rollout.percent:g} %",
        "full": "in full",
        "rolled_back": "rolled back",
        "none": "not begun",
    }[rollout.stage]


def _next(rollout: Rollout) -> str:
    return f"Begin the next one: retroute rollout start --service {rollout.service}"
