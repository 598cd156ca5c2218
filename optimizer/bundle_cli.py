"""`retroute bundle`: look at exported policies, compare, check and sign them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ingest.errors import UsageError, WorkError
from optimizer.cli_options import FILE, json_option

_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.group(short_help="Show, compare, check and sign exported policies.")
def bundle() -> None:
    """Show, compare, check and sign exported policies.

    A folder is what `retroute export` wrote, or the folder policy in it.

    \b
    Example:
      retroute bundle show assistant-bundle
    """


@bundle.command(short_help="What a bundle does, in words.")
@json_option
@click.argument("folder", type=_FOLDER)
def show(folder: Path, as_json: bool) -> None:
    """Say in words what a bundle does, how it was judged and what it holds.

    \b
    Example:
      retroute bundle show assistant-bundle --json
    """
    from optimizer import bundle_check, bundle_words

    found = bundle_words.about(bundle_check.policy_of(folder))
    _print(found, as_json, bundle_words.in_words)


@bundle.command(short_help="What changed between two bundles.")
@json_option
@click.argument("before", type=_FOLDER)
@click.argument("after", type=_FOLDER)
def diff(before: Path, after: Path, as_json: bool) -> None:
    """Say what changed: actions, what the manifests state, and the probabilities on the requests that they are tested
    with.

    \b
    Example:
      retroute bundle diff last-week/assistant-bundle assistant-bundle
    """
    from optimizer import bundle_check, bundle_words

    found = bundle_words.changes(bundle_check.policy_of(before), bundle_check.policy_of(after))
    _print(found, as_json, bundle_words.changes_in_words)


@bundle.command(short_help="Check a bundle as a router does.")
@json_option
@click.option("--key", type=FILE, metavar="FILE", help="Public key in PEM that the policy must be signed for.")
@click.argument("folder", type=_FOLDER)
def verify(folder: Path, key: Path | None, as_json: bool) -> None:
    """Make every check that a router makes, the signature too where a public key is configured: --key, the variable
    RETROUTE_PUBLIC_KEY, or policy_key.pem beside the folder policy. Exit code 1 and a line for each failure.

    \b
    Example:
      retroute bundle verify assistant-bundle --key policy_key.pem
    """
    from optimizer import bundle_check, report

    found = bundle_check.failures(bundle_check.policy_of(folder), key)
    if as_json:
        click.echo(report.to_json({"folder": str(folder), "ok": not found, "failures": found}))
    elif not found:
        click.echo(f"{folder}: a router takes it")
    if found and not as_json:
        for line in found:
            click.echo(line)
    if found:
        raise WorkError(
            f"{folder} failed {len(found)} check{'s' if len(found) > 1 else ''}",
            "Export it again, or restore the files; a running router keeps the last good policy.",
        )


@bundle.command(short_help="Sign a bundle with an Ed25519 key.")
@json_option
@click.option("--key", type=FILE, required=True, metavar="FILE", help="Private Ed25519 key in PEM.")
@click.argument("folder", type=_FOLDER)
def sign(folder: Path, key: Path, as_json: bool) -> None:
    """Sign a bundle's manifest into policy/manifest.sig. Its hashes vouch for every other file.

    Give routers the public key as policy_key.pem beside the folder policy, or name it in RETROUTE_PUBLIC_KEY: they
    then take signed policies only.

    \b
    Example:
      openssl genpkey -algorithm ed25519 -out private.pem
      openssl pkey -in private.pem -pubout -out assistant-bundle/policy_key.pem
      retroute bundle sign assistant-bundle --key private.pem
    """
    from optimizer import bundle_check, report, signing

    policy = bundle_check.policy_of(folder)
    if broken := bundle_check.unusable(policy):
        raise UsageError(f"{policy} is not signed: {broken}", "Export it again.")
    signing.sign(policy, key)
    written = policy / "manifest.sig"
    click.echo(report.to_json({"signature": str(written)}) if as_json else str(written))


def _print(found: dict[str, Any], as_json: bool, words: Any) -> None:
    from optimizer import report

    if as_json:
        click.echo(report.to_json(found))
        return
    for line in words(found):
        click.echo(line)
