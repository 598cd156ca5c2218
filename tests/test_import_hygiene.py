"""What is loaded when: a command line that starts at once, a runtime that needs numpy only."""

from __future__ import annotations

import ast
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from optimizer import cli
from optimizer.export.agents import FOR_AGENTS, FOR_CALLS

ROOT = Path(cli.__file__).resolve().parent.parent
HEAVY = {"torch", "sklearn", "scipy", "streamlit", "duckdb", "litellm", "polars", "pyarrow", "numpy", "opentelemetry"}
HELP_CPU_S = 0.3
ELSEWHERE = {
    "optimizer.export.litellm_router",  # runs inside the proxy
    *(f"optimizer.agents.{name}" for name in (*FOR_CALLS, *FOR_AGENTS)),  # inside an app, with its framework
}


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in sorted(cli.cli.commands))])
def test_help_loads_nothing_heavy(arguments):
    assert not HEAVY & modules_after(f"from optimizer import cli\ncli.run({arguments!r})")


def test_settings_load_nothing_heavy():
    assert not HEAVY & modules_after(
        "from pathlib import Path\nfrom optimizer import config\nconfig.load(Path('none'))"
    )


def test_help_is_there_at_once():
    """Least of three, because a busy machine only ever adds."""
    assert min(cpu_seconds([sys.executable, "-m", "optimizer.cli", "--help"]) for _ in range(3)) < HELP_CPU_S


def cpu_seconds(command: list[str]) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_importing_every_module_of_ingest_and_optimizer_loads_no_learner_and_no_dashboard():
    names = [
        module.name
        for package in ("ingest", "optimizer")
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")
        if module.name not in ELSEWHERE
    ]
    loaded = modules_after(f"import importlib\nfor name in {names!r}: importlib.import_module(name)")
    assert {"optimizer", "ingest", "duckdb"} <= loaded
    assert not {"torch", "sklearn", "litellm", "streamlit", "dashboard"} & loaded


def test_runtime_needs_numpy_and_the_standard_library_only():
    runtime = str(ROOT / "optimizer" / "runtime.py")
    before = modules_after("import numpy")
    after = modules_after(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('vendored', {runtime!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['vendored'] = module\n"
        "spec.loader.exec_module(module)"
    )
    assert after - before - {"vendored"} <= set(sys.stdlib_module_names)


def test_the_receivers_process_loads_nothing_of_the_lake(tmp_path):
    """Nothing that `retroute collect` imports until it serves; the converter is a process of its own."""
    loaded = modules_after(
        "from ingest import collector\nfrom optimizer import cli\n"
        "collector.run = lambda *_: None\n"
        f"assert cli.run(['collect', '--home', {str(tmp_path / 'home')!r}, '--port', '0', '--grpc-port', '0']) == 0"
    )
    assert {"grpc", "uvicorn", "google"} <= loaded
    assert not {"duckdb", "polars", "pyarrow", "numpy", "sklearn", "torch"} & loaded


def test_only_the_lake_imports_duckdb():
    importers = {
        file.relative_to(ROOT).as_posix()
        for package in ("ingest", "optimizer", "dashboard")
        for file in (ROOT / package).rglob("*.py")
        if "duckdb" in imported(file)
    }
    assert importers == {"ingest/lake.py"}


def imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found
