"""Makes `data/history.jsonl.gz`: what litellm's price list said, about once a month, as differences.

Run by hand, needs a network, never run by tests:

    python -m ingest.prices.build_history [OUT]

takes the first final release of each month of `litellm` from the Python package index with `pip download --no-deps`,
reads the price list in it, and deletes the wheel. The index no longer has litellm's releases of January to November
2024; `tokencost` (MIT licence), which ships copies of the same list, fills that gap.

Lines: one list each, the oldest first, {"list": "litellm 1.65.1", "date": "2025-04-02"}; then one line per entry that a
list changed, {"m": model, "p": provider, "l": number of the list, "f": {field: value}}, "f" null where the list
dropped it. A field is a price or what a price depends on; its names and units are litellm's.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.prices.fields import price_fields

_INDEX = "https://pypi.org/simple/{}/"
_FROM = {"litellm": "2023-09", "tokencost": "2024-01"}
_UNTIL = {"tokencost": "2024-11"}
_MEMBER = re.compile(r"(litellm|tokencost)/model_prices(_and_context_window_backup)?\.json")
_WHEEL = re.compile(r"(?P<name>\w+)-(?P<version>\d+(\.\d+)+)-.*(any|manylinux\S*x86_64)\.whl")


@dataclass(frozen=True, order=True)
class Release:
    """A release of a package: when it was uploaded (UTC), and its version."""

    date: str
    package: str
    version: str


def releases() -> list[Release]:
    """The first final release of each month, the oldest first, and the last of litellm."""
    chosen: dict[str, Release] = {}
    last: Release | None = None
    for package in ("litellm", "tokencost"):
        request = urllib.request.Request(
            _INDEX.format(package), headers={"Accept": "application/vnd.pypi.simple.v1+json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            files = json.load(answer)["files"]
        found = sorted(
            Release(file["upload-time"][:10], package, wheel["version"])
            for file in files
            if (wheel := _WHEEL.fullmatch(file["filename"])) and not file["yanked"]
        )
        for release in found:
            month = release.date[:7]
            if _FROM[package] <= month <= _UNTIL.get(package, "9999"):
                chosen.setdefault(month, release)
        if package == "litellm":
            last = found[-1]
    return sorted({*chosen.values(), *([last] if last else [])})


def download(release: Release) -> Mapping[str, object] | None:
    """The price list of a release; None when it has none, as the oldest."""
    with tempfile.TemporaryDirectory() as folder:
        what = f"{release.package}=={release.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, what]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if _MEMBER.fullmatch(name)), None)
            found: Mapping[str, object] | None = json.loads(archive.read(member)) if member else None
            return found


def lines(found: list[tuple[Release, Mapping[str, object]]]) -> Iterator[dict[str, object]]:
    """The lines of the file."""
    for release, _ in found:
        yield {"list": f"{release.package} {release.version}", "date": release.date}
    before: dict[str, tuple[str | None, dict[str, object]]] = {}
    for number, (_, entries) in enumerate(found):
        now = {name: (_provider(entry), price_fields(entry)) for name, entry in entries.items() if _usable(name, entry)}
        now = {name: entry for name, entry in now.items() if entry[1]}
        for name in sorted(now):
            provider, fields = now[name]
            if before.get(name) != now[name]:
                yield {"m": name, "p": provider, "l": number, "f": fields}
        for name in sorted(before.keys() - now.keys()):
            yield {"m": name, "p": before[name][0], "l": number, "f": None}
        before = now


def _usable(name: str, entry: object) -> bool:
    return name != "sample_spec" and isinstance(entry, dict)


def _provider(entry: object) -> str | None:
    said = entry.get("litellm_provider") if isinstance(entry, dict) else None
    return said if isinstance(said, str) else None


def write(out: Path, found: list[tuple[Release, Mapping[str, object]]]) -> None:
    text = "".join(json.dumps(line, separators=(",", ":"), sort_keys=True) + "\n" for line in lines(found))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data" / "history.jsonl.gz"
    found = []
    for release in releases():
        print(release, file=sys.stderr)
        if (listed := download(release)) is not None:
            found.append((release, listed))
    write(out, found)


if __name__ == "__main__":
    main()
