"""The formats that `retroute import` reads: one registry, and how a source's format is told from its content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ingest.errors import UsageError
from ingest.importers import (
    helicone,
    langfuse,
    litellm,
    openai_logs,
    otlp_files,
    phoenix,
    postgres,
    promptlayer,
    promptlayer_api,
    puppeteer,
    tables,
)
from ingest.importers.opened import suffix
from ingest.importers.sources import Importer, Sample, Source

IMPORTERS: tuple[Importer, ...] = (
    puppeteer.IMPORTER,
    otlp_files.IMPORTER,
    langfuse.IMPORTER,
    phoenix.IMPORTER,
    litellm.IMPORTER,
    helicone.IMPORTER,
    promptlayer.IMPORTER,
    openai_logs.IMPORTER,
    postgres.IMPORTER,
    promptlayer_api.IMPORTER,
)
"""In the order in which they are asked whether a source is theirs."""

NAMES = tuple(importer.name for importer in IMPORTERS)
SUFFIXES = (*tables.SUFFIXES, *otlp_files.SUFFIXES)
_HELP = "Try 'retroute import --help'."


def find(locations: Sequence[str], form: str = "auto", service: str | None = None) -> list[tuple[Importer, Source]]:
    """What to read, and by which importer. Folders are walked, in order of name.

    Raises UsageError for a path that does not exist, and for a source of no known format.
    """
    found: list[tuple[Importer, Source]] = []
    for location in locations:
        if "://" in location:
            found.append(_known(Sample(location, None, "url", {}), form, service))
            continue
        path = Path(location)
        if not path.exists():
            raise UsageError(f"{location} does not exist.", _HELP)
        for each in _walk(path):
            kind = "folder" if each.is_dir() else suffix(each)
            first = tables.first(each) if kind in tables.SUFFIXES and form == "auto" else {}
            found.append(_known(Sample(str(each), each, kind, first), form, service))
    return found


def _walk(path: Path) -> Iterator[Path]:
    """The files and run folders below a path."""
    if not path.is_dir() or puppeteer.IMPORTER.recognises(Sample(str(path), path, "folder", {})):
        yield path
    else:
        for inner in sorted(path.iterdir()):
            if inner.is_dir() or suffix(inner) in SUFFIXES:
                yield from _walk(inner)


def _known(sample: Sample, form: str, service: str | None) -> tuple[Importer, Source]:
    source = Source(sample.location, sample.path, service)
    if form != "auto":
        return next(importer for importer in IMPORTERS if importer.name == form), source
    for importer in IMPORTERS:
        if importer.recognises(sample):
            return importer, source
    if sample.kind in otlp_files.SUFFIXES and not sample.first:  # damaged or empty: its reader says how
        return otlp_files.IMPORTER, source
    shown = postgres.hidden(sample.location)
    raise UsageError(f"{shown} is of no format that is known.", f"Name it with --format: {', '.join(NAMES)}.")
