"""The command line: parses, calls one function, prints.

stdout is the result, stderr everything else. Exit codes: 0 done, 1 the work failed, 2 wrong usage or input, 130
interrupted; `nightly` also 3 (no decision with an outcome) and 4 (another run holds the lock). Whatever is heavy is
imported inside the command that needs it: `retroute --help` loads click and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingest.errors import AppError, ConfigError, UsageError, WorkError
from optimizer.bundle_cli import bundle
from optimizer.cli_options import home_option, json_option, services_option
from optimizer.rollout_cli import rollout

if TYPE_CHECKING:
    from ingest.importers.sources import Importer, Source
    from ingest.intake import ReceiverOptions
    from ingest.listen import Listen
    from ingest.options import ConverterOptions
    from ingest.privacy import Policy
    from optimizer.config import CollectorSettings, Settings

INTERRUPTED = 130


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"retroute {version('retroute')}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Turn the traces of an LLM app into a routing policy with honest savings.

    \b
    Example, everything on sample data:
      retroute demo
    Example, on your own:
      retroute collect                # then point your OTLP exporter at http://127.0.0.1:4318
      retroute nightly
      retroute dashboard
    """


@cli.command(short_help="Receive OTLP telemetry.")
@home_option
@click.option("--host", metavar="HOST", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="PORT", help="OTLP/HTTP port; 0 takes any free one. [default: 4318]")
@click.option("--grpc-port", type=int, metavar="PORT", help="OTLP/gRPC port; 0 takes any free one. [default: 4317]")
def collect(home: Path, host: str | None, port: int | None, grpc_port: int | None) -> None:
    """Receive OTLP traces, logs and scores until interrupted.

    Tokens, TLS and limits are set in retroute.toml.

    \b
    Example:
      retroute collect --home /var/lib/retroute --port 4318 --grpc-port 4317
    """
    from ingest import collector

    flags = {"collector.host": host, "collector.port": port, "collector.grpc_port": grpc_port}
    settings = _settings(home, flags, create=True)
    listen, rights = _listen(home, settings.collector), _rights(settings)
    collector.run(home, listen, _converter_options(settings), rights)


@cli.command(short_help="Make a token for senders.")
@json_option
@click.argument("name")
def token(as_json: bool, name: str) -> None:
    """Make a token for senders: prints it once, and the line for retroute.toml, which holds only its hash.

    \b
    Example:
      retroute token assistant
    """
    from ingest import auth
    from optimizer import report

    secret = auth.new_token()
    try:
        made = auth.Token(name, auth.hashed(secret))
    except ValueError as error:
        raise UsageError(f"{name!r} is not {error}") from None
    if as_json:
        click.echo(report.to_json({"name": made.name, "token": secret, "sha256": made.sha256}))
        return
    click.echo(secret)
    click.echo("The token is shown only here. Under [collector.tokens] in retroute.toml goes:", err=True)
    click.echo(f'"{made.name}" = "{made.sha256}"', err=True)


@cli.command("import", short_help="Read traces from files and other tools.")
@home_option
@json_option
@click.option("--format", "form", metavar="NAME", default="auto", show_default=True, help="What the sources are.")
@click.option("--service", metavar="NAME", help="The service of what names none.")
@click.option("--again", is_flag=True, help="Also read what was imported before and has not changed.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
def import_(home: Path, as_json: bool, form: str, service: str | None, again: bool, sources: tuple[str, ...]) -> None:
    """Read traces and scores from files, folders and addresses into the lake.

    Formats, told from the content: otlp, litellm, langfuse, phoenix, helicone, promptlayer, openai, puppeteer;
    addresses: postgres (a LiteLLM proxy's database), promptlayer-api.

    What cannot be read is named with its file and line, the rest is imported, and the exit code is 1. An import that
    was interrupted goes on where it stopped.

    \b
    Example:
      retroute import traces/ spend-logs.jsonl postgresql://reader@db/litellm
    """
    from ingest.importers import registry

    if form not in ("auto", *registry.NAMES):
        raise UsageError(f"unknown format '{form}'", f"Known are auto, {', '.join(registry.NAMES)}.")
    _import(home, registry.find(sources, form, service), as_json, again)


@cli.group(short_help="Scores from files.")
def scores() -> None:
    """What was good: scores from files.

    \b
    Example:
      retroute scores import ratings.csv
    """


@scores.command("import", short_help="Read scores from files.")
@home_option
@json_option
@click.option("--again", is_flag=True, help="Also read what was imported before and has not changed.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FILE...")
def scores_import(home: Path, as_json: bool, again: bool, files: tuple[Path, ...]) -> None:
    """Read scores from .csv, .jsonl, .json and .parquet files, a score a row.

    Columns: name; value or label; one of trace_id, span_id, session_id, response_id; if you like id, source,
    explanation and time. The same file read twice is stored once; of several scores of one thing the last counts.

    \b
    Example:
      retroute scores import ratings.csv
    """
    from ingest.importers import tables
    from ingest.importers.opened import suffix
    from ingest.importers.sources import Source
    from ingest.score_files import IMPORTER

    for file in files:
        if suffix(file) not in tables.SUFFIXES:
            raise UsageError(f"{file} is no file of scores by its name", f"Known are {', '.join(tables.SUFFIXES)}.")
    _import(home, [(IMPORTER, Source(str(file), file)) for file in files], as_json, again)


def _import(home: Path, sources: Sequence[tuple[Importer, Source]], as_json: bool, again: bool) -> None:
    """Runs an import and prints what it did. Raises WorkError when a part could not be read."""
    from ingest.importers import engine
    from optimizer import report

    settings = _settings(home, create=True)
    options, policy = _converter_options(settings), _policy(settings)
    with report.progress() as show:
        done = engine.import_sources(
            home,
            sources,
            options,
            lambda name, share, _: show(f"importing {name}", share),
            again=again,
            policy=policy,
        )
    for problem in done.problems:
        click.echo(problem, err=True)
    if as_json:
        result = {name: getattr(done, name) for name in ("files", "unchanged", "records", "spans", "scores")}
        click.echo(report.to_json(result | {"problems": list(done.problems)}))
    else:
        click.echo(
            f"Imported {done.spans} spans and {done.scores} scores in {done.records} records from {done.files} sources"
            + (f"; {done.unchanged} unchanged since their last import." if done.unchanged else ".")
        )
    if done.problems:
        raise WorkError(f"{len(done.problems)} parts could not be read; the rest is imported", "They are named above.")


@cli.command(short_help="What arrived but was not understood.")
@home_option
@json_option
def doctor(home: Path, as_json: bool) -> int:
    """Say what arrived but was not understood or cannot be used, and what to do about it.

    Exit code 1 when something asks for attention.

    \b
    Example:
      retroute doctor --home /var/lib/retroute
    """
    from ingest.home import open_home
    from optimizer import doctor as checks
    from optimizer import report

    findings = checks.examine(open_home(home, create=False))
    if as_json:
        click.echo(report.to_json(checks.as_records(findings)))
    else:
        click.echo("\n\n".join(checks.as_text(finding) for finding in findings))
    return int(any(finding.attention for finding in findings))


@cli.command(short_help="List the decision points.")
@home_option
@services_option
@json_option
def points(home: Path, services: tuple[str, ...], as_json: bool) -> None:
    """List the decision points that the traces show: what is decided there, how often in a trace, whether it is studied
    step by step or why not, and the lines of retroute.toml that change it.

    \b
    Example:
      retroute points --service assistant
    """
    from optimizer import report
    from optimizer.sequential import points as found

    every = found.find_points(home, _settings(home), services)
    if as_json:
        click.echo(report.to_json(found.as_records(every)))
    elif every:
        click.echo("\n\n".join(map(found.as_text, every)))
    else:
        click.echo("No trace holds a decision.")


@cli.command(short_help="Query the lake.")
@home_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "parquet"]),
    default="table",
    show_default=True,
    help="How the result is written.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file instead of stdout.")
@click.argument("query")
def sql(home: Path, form: str, as_json: bool, output: Path | None, query: str) -> None:
    """Query the lake, read-only, also while the collector runs.

    Tables: calls, spans, scores, contents, events, traces.

    \b
    Example:
      retroute sql "select service, count(*) as calls, sum(cost_usd) as usd from calls group by all"
    """
    from ingest.lake import Lake
    from optimizer import report

    form = "json" if as_json else form
    if form == "parquet" and output is None:
        raise UsageError("parquet is not for a terminal", "Add --output FILE.")
    with Lake.open(home) as lake:
        frame = lake.sql(query)
    report.write_frame(frame, form, output)


@cli.group(short_help="Look up prices, add a price list.")
def prices() -> None:
    """Look up what a model costs, and add price lists to those that come with retroute.

    \b
    Example:
      retroute prices show gpt-4o --at 2024-06-03
      retroute prices update model_prices_and_context_window.json
    """


@prices.command("show", short_help="Say what a model costs.")
@home_option
@json_option
@click.option("--provider", metavar="NAME", help="Who serves it. [default: whoever lists it]")
@click.option("--at", "day", type=click.DateTime(["%Y-%m-%d"]), help="On this day, UTC. [default: the newest list]")
@click.argument("model")
def prices_show(home: Path, as_json: bool, provider: str | None, day: datetime | None, model: str) -> None:
    """Say what a model costs, by which entry of which list, and what it cost before.

    \b
    Example:
      retroute prices show claude-sonnet-4-20250514 --provider anthropic --at 2025-09-01
    """
    from ingest.prices.shelf import home_prices
    from ingest.prices.shown import shown
    from optimizer import config, report

    settings = _settings(home) if (home / "home.json").is_file() else config.Settings()
    listed = home_prices(home, settings.prices, settings.discounts)
    found = shown(listed, model, provider, day.strftime("%Y-%m-%d") if day else None)
    click.echo(report.to_json(found) if as_json else report.price_table(found))
    if found["problem"]:
        raise WorkError(str(found["problem"]), "State it as [[prices]] in retroute.toml, or name the provider.")


@prices.command("update", short_help="Add a price list.")
@home_option
@json_option
@click.option(
    "--from", "day", type=click.DateTime(["%Y-%m-%d"]), help="Its prices hold from this day. [default: today]"
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def prices_update(home: Path, as_json: bool, day: datetime | None, file: Path) -> None:
    """Add a price list in the form of litellm's price file. Calls that are settled from then on are priced by it, also
    by a collector that runs; those settled before by `retroute prices reprice`. A bad entry is named and left out, and
    the exit code is 1.

    \b
    Example:
      retroute prices update model_prices_and_context_window.json --from 2027-01-15
    """
    from ingest.home import open_home
    from ingest.prices.shelf import add_list
    from optimizer import report

    added = add_list(open_home(home, create=True), file, day.strftime("%Y-%m-%d") if day else None)
    for name, why in added.refused:
        click.echo(f"{name}: {why}", err=True)
    result = {"list": added.listed, "from": added.date, "changed": added.changed, "unchanged": added.unchanged}
    refused = [{"model": name, "reason": why} for name, why in added.refused]
    if as_json:
        click.echo(report.to_json({**result, "refused": refused}))
    else:
        click.echo(f"{added.changed} prices changed from {added.date} on, {added.unchanged} are as before.")
    if refused:
        raise WorkError(f"{len(refused)} entries are refused; the rest is added", "They are named above.")


@prices.command("reprice", short_help="Price settled calls again.")
@home_option
@json_option
@click.option(
    "--since",
    "day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Only calls from this day on, UTC. [default: all]",
)
def prices_reprice(home: Path, as_json: bool, day: datetime | None) -> None:
    """Give calls that are settled already the prices that retroute.toml and the lists state now, each those of its day.

    While a collector runs it does the work, and goes on with these prices; else this command does. What was changed is
    in the table `repricings`, and `calls.price` names the list that each call is priced by.

    \b
    Example:
      retroute prices reprice --since 2026-11-01
    """
    from optimizer import report, repriced

    settings = _settings(home)
    since_ns = None if day is None else int(day.replace(tzinfo=UTC).timestamp()) * 10**9
    done = repriced.reprice(
        home, settings.prices, settings.discounts, since_ns, lambda said: click.echo(said, err=True)
    )
    click.echo(report.to_json(repriced.as_json(done)) if as_json else repriced.as_text(done))


@cli.command(short_help="Lay our costs beside an invoice.")
@home_option
@services_option
@json_option
@click.option("--from", "first", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="First day, as 2026-11-30.")
@click.option("--to", "last", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="Last day, included.")
@click.option(
    "--tolerance", default="1%", show_default=True, metavar="SHARE", help="Largest difference that is fine: 1% or 0.01."
)
@click.option("--time-zone", metavar="ZONE", help="Zone of the invoice's days. [default: UTC]")
@click.option(
    "--currency", default="USD", show_default=True, metavar="CODE=RATE", help="Its currency, with the USD for one unit."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "openai", "anthropic", "litellm", "csv"]),
    default="auto",
    show_default=True,
    help="Whose file it is; csv is any table: CSV, TSV, JSON lines, Parquet.",
)
@click.option(
    "--map", "columns", multiple=True, metavar="COLUMN=FIELD", help="What a column of a table is; may be repeated."
)
@click.option(
    "--alias", "aliases", multiple=True, metavar="OURS=THEIRS", help="A model that the invoice names otherwise."
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def reconcile(
    home: Path,
    services: tuple[str, ...],
    as_json: bool,
    first: datetime | None,
    last: datetime | None,
    tolerance: str,
    time_zone: str | None,
    currency: str,
    form: str,
    columns: tuple[str, ...],
    aliases: tuple[str, ...],
    file: Path,
) -> None:
    """Lay our costs beside an invoice: per day, model and token class, with the reasons for what differs.

    FILE: OpenAI's usage or costs, Anthropic's usage or cost report, LiteLLM's spend logs or daily activity, or a table
    with the columns day, model, input, cache_read, cache_write, output, usd.

    Exit code 0 within the tolerance, 1 outside, 2 for a file that cannot be read.

    \b
    Example:
      retroute reconcile completions_usage.csv
      retroute reconcile invoice.csv --map Date=day --map Model=model --map Amount=usd --currency EUR=1.08
    """
    from ingest.prices.shelf import home_prices
    from optimizer import reconciling

    since, until = (day.date() if day else None for day in (first, last))
    share = reconciling.share(tolerance)
    request = reconciling.Request(file, form, since, until, share, time_zone, currency, columns, aliases, services)
    settings = _settings(home)
    prices = home_prices(home, settings.prices, settings.discounts)
    done = reconciling.reconcile(home, prices, request)
    try:
        reconciling.keep(home, done, file)
    except OSError as error:  # a home that may only be read: the result is printed all the same
        click.echo(f"The dashboard will not show this: {error}", err=True)
    reconciling.show(done, as_json)
    if not done.within:
        raise WorkError(f"ours and theirs differ by more than {tolerance}", "The reasons are named above.")


@cli.command(short_help="Learn policies.")
@home_option
@services_option
@json_option
def train(home: Path, services: tuple[str, ...], as_json: bool) -> None:
    """Learn policies from what was collected; prints the run's id.

    \b
    Example:
      retroute train --service assistant
    """
    from optimizer import pipeline, report

    settings = _settings(home)
    with report.progress() as show:
        run_id = pipeline.train(home, settings, services or None, show)
    click.echo(report.to_json({"run_id": run_id}) if as_json else run_id)


@cli.command(short_help="Estimate and judge a run's policies.")
@home_option
@json_option
@click.argument("run_id", required=False)
def evaluate(home: Path, as_json: bool, run_id: str | None) -> None:
    """Estimate what a run's policies would have cost and scored, and judge them. RUN_ID: the newest by default.

    \b
    Example:
      retroute evaluate
    """
    from optimizer import pipeline, report

    _settings(home)
    with report.progress() as show:
        result = pipeline.evaluate(home, run_id, show)
    report.show(result, as_json)


@cli.command(short_help="Train, evaluate, judge and write bundles.")
@home_option
@services_option
@json_option
def nightly(home: Path, services: tuple[str, ...], as_json: bool) -> None:
    """Train, evaluate, judge, and write the bundles that may be deployed: everything a night needs.

    Exit code 0 whatever the verdicts, 3 when no decision has an outcome, 4 when another run holds the lock.

    \b
    Example, in a crontab:
      15 3 * * *  retroute nightly --home /var/lib/retroute
    """
    from optimizer import pipeline, report

    settings = _settings(home)
    with report.progress() as show:
        result = pipeline.nightly(home, settings, services or None, show)
    report.show(result, as_json)


@cli.command(short_help="Say what would decide what the logs leave open.")
@home_option
@services_option
@json_option
@click.option("--labels", is_flag=True, help="Say which decisions to have scored instead.")
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --labels: scores for each service. [default: as many as decide it]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.csv",
    help="With --labels: write the list of traces here.",
)
@click.option(
    "--export",
    "out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write one service's experiment as a bundle for a LiteLLM proxy.",
)
def plan(
    home: Path,
    services: tuple[str, ...],
    as_json: bool,
    labels: bool,
    budget: int | None,
    output: Path | None,
    out: Path | None,
) -> None:
    """Say what would decide the questions that the newest run leaves open: whom to randomise and with what
    probability, what that costs a day, and for how long. With --labels: which decisions to have scored.

    \b
    Example:
      retroute plan
      retroute plan --labels --budget 200 -o to-score.csv   # fill in value, then: retroute scores import to-score.csv
      retroute plan --service assistant --export assistant-exploration
    """
    from optimizer import planned, planned_text
    from optimizer.export import experiment

    if not labels and (budget is not None or output is not None):
        raise UsageError("--budget and --output belong to --labels", "Add --labels.")
    if out is not None and (labels or len(services) != 1):
        raise UsageError("--export writes the experiment of one service", "Add --service NAME, and leave out --labels.")
    settings = _settings(home)
    found = planned.questions(home, services)
    if out is not None:
        planned_text.show_export(experiment.export(home, found[0], settings, out), out)
    elif labels:
        planned_text.show_labels(found, home, budget, output, as_json)
    else:
        planned_text.show(found, as_json)


@cli.command(short_help="List the runs.")
@home_option
@json_option
def runs(home: Path, as_json: bool) -> None:
    """List the runs, newest first, with their verdicts and where they are active.

    \b
    Example:
      retroute runs --json
    """
    from ingest.home import open_home
    from optimizer import pipeline, report

    open_home(home, create=False)
    report.show_runs(pipeline.list_runs(home), as_json)


@cli.command(short_help="Write a policy's bundle for a gateway or an app.")
@home_option
@click.option(
    "--target", type=click.Choice(["litellm", "agents", "onnx", "rules"]), required=True, help="What the bundle is for."
)
@click.option("--service", required=True, metavar="NAME", help="Whose policy.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write.")
@click.option(
    "--run", "run_id", metavar="RUN_ID", help="Take this run's policy. [default: the active run, else the newest]"
)
@click.option("--unproven", is_flag=True, help="Export although the verdict is not 'deploy'.")
def export(home: Path, target: str, service: str, out: Path, run_id: str | None, unproven: bool) -> None:
    """Write a policy as a bundle, for a LiteLLM proxy, for an app that runs agents, as an ONNX graph for routers in
    other languages, or as fixed rules and weights for gateways that cannot run it; prints the folder.

    \b
    Example:
      retroute export --target litellm --service assistant --out assistant-bundle
      retroute export --target agents --service sql-agent --out sql-agent-bundle
      retroute export --target onnx --service assistant --out assistant-onnx
      retroute export --target rules --service assistant --out assistant-rules
    """
    from ingest.home import open_home
    from optimizer import published
    from optimizer import rollout as rollouts
    from optimizer.export import agents, litellm, onnx, rules

    policy = published.find(open_home(home, create=False), service, run_id)
    policy.require_deployable(unproven)
    rollouts.require_free(home, service, out)
    notes = {"litellm": litellm, "agents": agents, "onnx": onnx, "rules": rules}[target].export(
        policy.folder, out, service
    )
    click.echo(f"{target}: policy {policy.policy_id} of run {policy.run_id}, verdict {policy.verdict}", err=True)
    for note in notes:
        click.echo(note, err=True)
    click.echo(str(out))


cli.add_command(bundle)
cli.add_command(rollout)


@cli.command(short_help="Show the dashboard in the browser.")
@home_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8501, show_default=True, help="Port to listen on.")
def dashboard(home: Path, host: str, port: int) -> None:
    """Show the dashboard in the browser until interrupted. Where there is no home yet, it shows how to connect an app,
    and waits.

    \b
    Example:
      retroute dashboard --port 8501
    """
    from ingest.home import is_home, open_home
    from optimizer import board

    if is_home(home):
        open_home(home, create=False)
    else:
        click.echo(f"There is no retroute home at {home} yet; `retroute collect --home {home}` makes one.", err=True)
    raise SystemExit(board.serve(home, host, port))


@cli.command(short_help="The whole loop on sample data.")
@home_option
@json_option
def demo(home: Path, as_json: bool) -> None:
    """Send the sample traces through a collector of its own, learn from them, and check the savings against the truth.

    \b
    Example:
      retroute demo --home /tmp/retroute-demo
    """
    from optimizer import demo as sample
    from optimizer import report

    with report.progress() as show:
        result = sample.run(home, show)
    report.show(result, as_json)
    if not as_json:
        report.show_next(sample.next_commands(home, result))


def _settings(home: Path, flags: Mapping[str, object] | None = None, *, create: bool = False) -> Settings:
    from ingest.home import open_home
    from optimizer import config

    return config.load(open_home(home, create), flags or {})


def _converter_options(settings: Settings) -> ConverterOptions:
    from ingest.options import ConverterOptions

    return ConverterOptions(
        quiet_s=settings.settle.quiet_s,
        prices=settings.prices,
        discounts=settings.discounts,
        scales=settings.scores,
        retention_days=settings.lake.retention_days,
        contents_days=settings.lake.contents_days,
    )


def _listen(home: Path, settings: CollectorSettings) -> Listen:
    from ingest.listen import Listen, Tls

    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("Only one of collector.tls_cert and collector.tls_key is set; TLS needs both.")
    tls = Tls(home / settings.tls_cert, home / settings.tls_key) if settings.tls_cert else None
    return Listen(settings.host, settings.port, settings.grpc_port, tls)


def _rights(settings: Settings) -> ReceiverOptions:
    from ingest.intake import ReceiverOptions

    c = settings.collector
    return ReceiverOptions(
        tokens=c.tokens,
        cors=c.cors,
        max_wire_bytes=c.max_wire_mib << 20,
        max_body_bytes=c.max_body_mib << 20,
        max_in_flight_bytes=c.max_in_flight_mib << 20,
        max_backlog_bytes=c.max_backlog_mib << 20,
        policy=_policy(settings),
    )


def _policy(settings: Settings) -> Policy:
    """What may be stored. Without content the features of prompts are computed on arrival, by the optimizer's rules."""
    from ingest.privacy import Policy

    p = settings.privacy
    vector = None
    if not p.content:
        from optimizer import prompts

        vector = prompts.vector
    return Policy(content=p.content, deny=p.deny, redact=p.redact, patterns=p.patterns, vector=vector)


def _say(message: str, hint: str) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)


def _terminate(_number: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # so that `finally` blocks stop what was started


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code. An error that nobody foresaw keeps its traceback."""
    try:
        code = cli.main(args=arguments, prog_name="retroute", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except AppError as error:
        _say(error.message, error.hint)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        _say(error.format_message(), f"Try '{context.command_path} --help'." if context else "")
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def main() -> None:
    """The `retroute` command."""
    signal.signal(signal.SIGTERM, _terminate)
    raise SystemExit(run())


if __name__ == "__main__":
    main()
