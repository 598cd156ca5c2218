"""The home folder: its layout, and whether this version can use it.

home.json         {"format": 1}
wal/              acknowledged and not yet in the lake
lake/             the lake's catalogue and data
runs/ bundles/    what the optimizer made
retroute.toml     settings, if any
collector.lock    held by the running collector
collector.json    {pid, host, port, grpc_port, tls, started_ns} while one runs
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ingest.errors import HomeError
from ingest.wal import sync_folder

FORMAT = 1


def is_home(path: Path) -> bool:
    """Whether the folder says that it is a home, of whatever version."""
    return (path / "home.json").is_file()


def open_home(path: Path, create: bool) -> Path:
    """The home at `path`, made if `create`; an existing folder becomes a home by getting its home.json.

    Raises HomeError when there is none, when a newer version made it, or when it cannot be read or written.
    """
    marker = path / "home.json"
    try:
        if not is_home(path):
            if not create:
                raise HomeError(
                    f"There is no retroute home at {path}.",
                    "`retroute collect` makes one; --home or RETROUTE_HOME says where it is.",
                )
            path.mkdir(parents=True, exist_ok=True)
            replace_file(marker, json.dumps({"format": FORMAT}) + "\n")
            sync_folder(path.parent)
        found = json.loads(marker.read_text())["format"]
    except OSError as error:
        raise HomeError(f"The home {path} cannot be used: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError):
        raise HomeError(f"{marker} is damaged.", f'It should read {{"format": {FORMAT}}}.') from None
    if found != FORMAT:
        newer = isinstance(found, int) and found > FORMAT
        raise HomeError(
            f"The home {path} was made by a newer version of retroute (format {found}; this one knows {FORMAT})."
            if newer
            else f"The home {path} has the unknown format {found!r}.",
            "Upgrade retroute, or use another --home." if newer else "Use another --home.",
        )
    return path


def replace_file(path: Path, text: str) -> None:
    """Write a small file so that a reader sees the old or the new one, also after a power failure."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def collector_lock(home: Path) -> Iterator[None]:
    """Be the home's only collector. Raises HomeError when another is running."""
    with (home / "collector.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            at = running_collector(home)
            raise HomeError(
                f"A collector is already running on the home {home}" + (f" ({at})." if at else "."),
                "Send to that one, or give this one another --home.",
            ) from None
        yield


def collector_runs(home: Path) -> bool:
    """Whether a collector holds the home's lock."""
    try:
        with (home / "collector.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def running_collector(home: Path) -> str:
    """Where the collector says that it listens, as text for people; "" when it does not say."""
    try:
        said = json.loads((home / "collector.json").read_text())
        scheme = "https" if said.get("tls") else "http"
        return f"pid {said['pid']}, {scheme}://{said['host']}:{said['port']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
