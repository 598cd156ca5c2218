"""`retroute rollout`: bring a policy into production in stages, watch it, go back."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.cli_options import FILE, FOLDER, home_option, json_option, services_option

if TYPE_CHECKING:
    from optimizer.rollout import Done

_service = click.option("--service", required=True, metavar="NAME", help="Whose policy.")
_why = click.option("--why", default="", metavar="TEXT", help="The reason, for the log.")
_key = click.option(
    "--key", type=FILE, metavar="FILE", help="Private key in PEM, where routers take signed policies only."
)


@click.group(short_help="Bring a policy into production in stages, and back.")
def rollout() -> None:
    """Bring a policy into production: in shadow, then for some percent of sessions, then for all; watch both arms; go
    back.

    \b
    Example:
      retroute rollout start --service assistant
    """


@rollout.command(short_help="Begin, in shadow or as a canary.")
@home_option
@_service
@click.option(
    "--percent", type=float, default=0.0, show_default="0, in shadow", metavar="P", help="Sessions under the policy."
)
@click.option(
    "--run", "run_id", metavar="RUN_ID", help="Take this run's policy. [default: the newest that may be deployed]"
)
@click.option("--unproven", is_flag=True, help="Begin although the verdict is not 'deploy'.")
@click.option(
    "--out",
    "bundle",
    type=FOLDER,
    metavar="DIR",
    help="Bundle that the router loads. [default: the last rollout's, else the home's]",
)
@_key
@_why
@json_option
def start(
    home: Path,
    service: str,
    percent: float,
    run_id: str | None,
    unproven: bool,
    bundle: Path | None,
    key: Path | None,
    why: str,
    as_json: bool,
) -> None:
    """Write the bundle of a policy that only watches (in shadow: it decides and logs what it would have done, the
    incumbent serves), or of a canary.

    \b
    Example:
      retroute rollout start --service assistant --out assistant-bundle
    """
    from optimizer import rollout as stages

    _opened(home)
    done = stages.start(
        home, service, by=_user(), why=why, percent=percent, run_id=run_id, unproven=unproven, bundle=bundle, key=key
    )
    _show(done, as_json)


@rollout.command(short_help="The next stage, if all conditions hold.")
@home_option
@_service
@click.option("--percent", type=float, metavar="P", help="Sessions under the policy. [default: 5, 20, 50, then 100]")
@click.option("--force", is_flag=True, help="Go on although a condition does not hold.")
@_key
@_why
@json_option
def advance(
    home: Path, service: str, percent: float | None, force: bool, key: Path | None, why: str, as_json: bool
) -> None:
    """Look once more, then put more sessions under the policy. Exit code 1 and a line for each condition that does not
    hold.

    \b
    Example:
      retroute rollout advance --service assistant --percent 20 --why "two quiet days"
    """
    from optimizer import rollout as stages

    _opened(home)
    _show(stages.advance(home, service, by=_user(), why=why, percent=percent, force=force, key=key), as_json)


@rollout.command(short_help="Back to the policy before.")
@home_option
@_service
@_key
@_why
@json_option
def rollback(home: Path, service: str, key: Path | None, why: str, as_json: bool) -> None:
    """Put the policy that was in force before in force again, as a new revision; the incumbent alone where there was
    none.

    \b
    Example:
      retroute rollout rollback --service assistant --why "support sees odd answers"
    """
    from optimizer import rollout as stages

    _opened(home)
    _show(stages.rollback(home, service, by=_user(), why=why, key=key), as_json)


@rollout.command(short_help="Where a rollout stands.")
@home_option
@_service
@json_option
def status(home: Path, service: str, as_json: bool) -> None:
    """Say where a rollout stands and what the last look found.

    \b
    Example:
      retroute rollout status --service assistant --json
    """
    from optimizer import rollout as stages

    _opened(home)
    _show(stages.Done(stages.status(home, service)), as_json)


@rollout.command(short_help="Look at the arms; go back if need be.")
@home_option
@services_option
@click.option("--every", type=click.FloatRange(min=1), metavar="S", help="Look every S seconds until interrupted.")
@_key
@json_option
def watch(home: Path, services: tuple[str, ...], every: float | None, key: Path | None, as_json: bool) -> None:
    """Compare the arms of every rollout under way, and roll back the one that is beyond a limit for certain.

    \b
    Example, in a crontab:
      */10 * * * *  retroute rollout watch --home /var/lib/retroute
    """
    from optimizer import config, report
    from optimizer import rollout as stages

    settings = config.load(_opened(home))
    while True:
        done = stages.watch(home, settings, services, key=key)
        if as_json:
            click.echo(report.to_json([_record(one) for one in done]))
        for one in () if as_json else done:
            _show(one, False)
        if not done and not as_json:
            click.echo("No rollout is under way.")
        if every is None or not done:
            return
        time.sleep(every)


def _opened(home: Path) -> Path:
    from ingest.home import open_home

    return open_home(home, create=False)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        return "someone"


def _record(done: Done) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(done.rollout), "notes": list(done.notes)}


def _show(done: Done, as_json: bool) -> None:
    from optimizer import report
    from optimizer.rollout import words

    if as_json:
        click.echo(report.to_json(_record(done)))
        return
    for line in words.lines(done.rollout):
        click.echo(line)
    for note in done.notes:
        click.echo(note, err=True)
