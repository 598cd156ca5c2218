"""A home on a small file system that fills up: what was acknowledged is kept, more is refused with 503, and the
collector goes on by itself once there is room."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from collector_process import CollectorProcess, wait_for
from otlp_traces import chat, span, traces_body

from ingest.lake import Lake

SIZE_MB = 24


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = None
    if sys.platform == "linux" and (mount := shutil.which("mount")):
        command = [mount, "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted is None or mounted.returncode:
        pytest.skip("a small file system cannot be mounted here: it takes root on Linux")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_and_loses_nothing(small: Path) -> None:
    home, ballast = small / "home", small / "ballast"
    home.mkdir()
    acknowledged = []
    with CollectorProcess(home, store=True) as running, httpx.Client(timeout=30) as client:

        def send(number: int) -> int:
            body = traces_body([span(1, chat(gen_ai__input__messages="word " * 2000), trace=number)])
            answer = client.post(f"{running.url}/v1/traces", content=body, headers={"content-type": "application/json"})
            if answer.status_code == 200:
                acknowledged.append(number)
            return answer.status_code

        assert send(1) == 200
        wait_for(lambda: (home / "lake" / "catalog.sqlite").exists())
        free = shutil.disk_usage(small).free
        with ballast.open("wb") as file:
            file.write(bytes(max(0, free - (3 << 20))))
        answers = [send(number) for number in range(2, 400)]
        assert set(answers) == {200, 503}
        assert answers[-1] == 503
        assert running.process.poll() is None
        ballast.unlink()
        wait_for(lambda: send(1000) == 200)
        code, said = running.stop()
        assert code == 0, said
    with Lake.open(home) as lake:
        calls = lake.sql("select trace_id from calls")["trace_id"].to_list()
        assert lake.query("counts").row(0, named=True)["unsettled_traces"] == 0
    assert sorted(calls) == sorted(f"{number:032x}" for number in acknowledged)
