"""Every command: help with an example, a place in the README, exit codes, errors as one line and a hint."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import polars as pl
import pytest

from ingest import auth
from ingest.errors import AppError, UsageError, WorkError
from ingest.home import open_home
from optimizer import cli, config, report

ROOT = Path(cli.__file__).resolve().parent.parent


def leaves(group: click.Group, before: str = "") -> dict[str, click.Command]:
    """All commands by what is typed: those of a group after its name."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        found |= leaves(command, f"{before}{name} ") if isinstance(command, click.Group) else {before + name: command}
    return found


LEAVES = leaves(cli.cli)
COMMANDS = sorted(LEAVES)
HOMELESS = ("token", "prices show", "prices update", "bundle diff", "bundle show", "bundle sign", "bundle verify")
AT_HOME = [name for name in COMMANDS if name not in HOMELESS]
MAKES_HOME = ("collect", "import", "scores import", "demo")
OF_SERVICE = {f"rollout {name}": ["--service", "a"] for name in ("advance", "rollback", "start", "status")}
RESULT = {
    "calls": 3,
    "decisions": 2,
    "seconds": 1.5,
    "services": {
        "assistant": {
            "verdict": "promising",
            "reasons": [
                {"condition": "savings", "got": "$1", "needed": "above $0", "remedy": "", "holds": True},
                {
                    "condition": "quality",
                    "got": "-3 points",
                    "needed": "above -1",
                    "remedy": "Score more.",
                    "holds": False,
                },
            ],
            "run_id": "r1",
            "bundle": None,
            "savings_usd_per_1k": {"value": 1.25, "low": 0.5, "high": 2.0, "kind": "asymptotic", "truth": 1.3},
            "quality_change": {"value": 0.01, "low": -0.03, "high": 0.04, "kind": "asymptotic", "truth": -0.002},
            "latency_change_s": {"value": None, "low": None, "high": None, "kind": None, "reason": "no latency logged"},
            "table": [
                {
                    "policy": "today",
                    "label": "as logged",
                    "cost_usd_per_1k": {"value": 0.1234, "low": 0.12, "high": 0.13, "truth": 0.1235},
                    "quality": {"value": 0.5, "low": 0.45, "high": 0.55, "truth": 0.51},
                    "latency_s": {
                        "value": None,
                        "low": None,
                        "high": None,
                        "kind": None,
                        "reason": "no latency logged",
                    },
                }
            ],
            "plan": {"text": "1,200 more scored decisions", "decisions_needed": 1200},
        }
    },
}


@pytest.fixture
def home(tmp_path):
    return open_home(tmp_path / "home", create=True)


def fake(monkeypatch, name, function):
    """Replaces a function of a module that is imported only when its command runs."""
    monkeypatch.setattr(f"optimizer.{name}", function)


def options_of(command):
    return [option for option in command.params if isinstance(option, click.Option)]


def test_commands_are_those_that_exist_so_far():
    expected = "collect token import sql reconcile doctor points train evaluate nightly plan runs export dashboard demo"
    bundles = [f"bundle {name}" for name in ("diff", "show", "sign", "verify")]
    prices = ["prices reprice", "prices show", "prices update", "scores import"]
    rollouts = [f"rollout {name}" for name in ("advance", "rollback", "start", "status", "watch")]
    assert sorted([*expected.split(), *bundles, *prices, *rollouts]) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_describes_every_option(name, capsys):
    assert cli.run([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"Example.*retroute {name}", shown, re.DOTALL)
    assert all(option.help for option in options_of(LEAVES[name]))


@pytest.mark.parametrize("name", AT_HOME)
def test_command_works_on_a_home(name):
    flags = {flag for option in options_of(LEAVES[name]) for flag in option.opts}
    assert "--home" in flags


@pytest.mark.parametrize(
    "name",
    [
        "import",
        "scores import",
        "doctor",
        "points",
        "sql",
        "reconcile",
        "train",
        "evaluate",
        "nightly",
        "plan",
        "runs",
        "demo",
        "bundle diff",
        "bundle show",
        "bundle sign",
        "bundle verify",
        "rollout advance",
        "rollout rollback",
        "rollout start",
        "rollout status",
        "rollout watch",
    ],
)
def test_command_with_a_result_can_print_json(name):
    assert "--json" in {flag for option in options_of(LEAVES[name]) for flag in option.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_documented_in_the_readme(name):
    assert f"retroute {name}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["sql"],
        ["import"],
        ["import", "/nonexistent/file.jsonl"],
        ["scores", "import", "/nonexistent/file.csv"],
        ["collect", "--port", "many"],
        ["dashboard", "--port", "70000"],
        ["export", "--target", "litellm"],
        ["export", "--target", "nginx", "--service", "a", "--out", "b"],
        ["sql", "--format", "xml", "select 1"],
    ],
)
def test_wrong_usage_ends_with_2_and_a_hint(arguments, capsys):
    assert cli.run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert "hint: Try 'retroute" in printed.err


def test_a_token_is_printed_with_the_line_that_lets_it_in(home, capsys):
    assert cli.run(["token", "my.app"]) == 0
    secret, _, line = (printed := capsys.readouterr()).out.strip(), *printed.err.splitlines()
    (home / "retroute.toml").write_text(f"[collector.tokens]\n{line}\n", encoding="utf-8")
    tokens = config.load(home, {}, {}).collector.tokens
    assert auth.find(tokens, f"Bearer {secret}".encode()) == "my.app"
    assert secret not in line
    assert cli.run(["token", "--json", "other"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["name"], made["sha256"]) == ("other", auth.hashed(made["token"]))
    assert made["token"] != secret


def test_a_token_needs_a_plain_name(capsys):
    assert cli.run(["token", "two words"]) == 2
    assert "'two words' is not a token's name" in capsys.readouterr().err


def test_one_half_of_tls_is_one_clear_line(home, capsys):
    (home / "retroute.toml").write_text('[collector]\ntls_cert = "cert.pem"\n', encoding="utf-8")
    assert cli.run(["collect", "--home", str(home), "--port", "0", "--grpc-port", "0"]) == 2
    assert "TLS needs both" in capsys.readouterr().err


def test_no_arguments_show_the_help(capsys):
    assert cli.run([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_version_is_the_distributions(capsys):
    assert cli.run(["--version"]) == 0
    assert re.fullmatch(r"retroute \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize("name", [name for name in AT_HOME if name not in {*MAKES_HOME, "dashboard"}])
def test_missing_home_is_one_clear_line(name, tmp_path, capsys):
    export = ["--target", "litellm", "--service", "a", "--out", str(tmp_path / "out")]
    extra = {"sql": ["select 1"], "export": export, **OF_SERVICE}
    assert cli.run([*name.split(), "--home", str(tmp_path / "none"), *extra.get(name, [])]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error


def test_the_dashboard_waits_for_a_home(tmp_path, capsys, monkeypatch):
    served = []
    monkeypatch.setattr("optimizer.board.serve", lambda home, host, port: served.append(home) or 0)
    with pytest.raises(SystemExit, match="0"):
        cli.run(["dashboard", "--home", str(tmp_path / "none")])
    assert f"no retroute home at {tmp_path / 'none'} yet" in capsys.readouterr().err
    assert served == [tmp_path / "none"]


@pytest.mark.parametrize("name", AT_HOME)
def test_home_of_a_newer_version_is_refused(name, home, tmp_path, capsys):
    (home / "home.json").write_text('{"format": 99}', encoding="utf-8")
    (tmp_path / "x.jsonl").write_text("", encoding="utf-8")
    extra = {
        "sql": ["select 1"],
        "reconcile": [__file__],
        "import": [str(tmp_path / "x.jsonl")],
        "scores import": [str(tmp_path / "x.jsonl")],
        "collect": ["--port", "0"],
        "export": ["--target", "litellm", "--service", "a", "--out", str(tmp_path / "out")],
        **OF_SERVICE,
    }
    assert cli.run([*name.split(), "--home", str(home), *extra.get(name, [])]) == 2
    error = capsys.readouterr().err
    assert "newer version" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["collect", "import", "train", "evaluate", "nightly", "plan", "demo"])
def test_unknown_key_in_the_settings_is_refused_with_the_nearest_name(name, home, tmp_path, capsys):
    (home / "retroute.toml").write_text("[collector]\nprot = 1\n", encoding="utf-8")
    (tmp_path / "x.jsonl").write_text("", encoding="utf-8")
    extra = {"import": [str(tmp_path / "x.jsonl")]}
    assert cli.run([*name.split(), "--home", str(home), *extra.get(name, [])]) == 2
    error = capsys.readouterr().err
    assert "unknown key 'prot'" in error
    assert "hint: Did you mean 'port'?" in error


def test_home_comes_from_the_environment(home, monkeypatch, capsys):
    seen = []
    fake(monkeypatch, "pipeline.list_runs", lambda at: seen.append(at) or [])
    monkeypatch.setenv("RETROUTE_HOME", str(home))
    assert cli.run(["runs", "--json"]) == 0
    assert seen == [home]
    assert json.loads(capsys.readouterr().out) == []


class NoOutcomeError(AppError):
    exit_code = 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WorkError("it broke", "mend it"), 1),
        (UsageError("not so", "do this"), 2),
        (NoOutcomeError("no decision has an outcome", "send scores"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_is_the_errors_own(home, monkeypatch, capsys, error, code):
    def nightly(*_arguments):
        raise error

    fake(monkeypatch, "pipeline.nightly", nightly)
    assert cli.run(["nightly", "--home", str(home)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    if isinstance(error, AppError):
        assert printed.err == f"error: {error.message}\nhint: {error.hint}\n"


def test_unforeseen_error_keeps_its_traceback(home, monkeypatch):
    def list_runs(_home):
        raise ZeroDivisionError

    fake(monkeypatch, "pipeline.list_runs", list_runs)
    with pytest.raises(ZeroDivisionError):
        cli.run(["runs", "--home", str(home)])


def test_nightly_json_is_the_pipelines_result_and_progress_is_on_stderr(home, monkeypatch, capsys):
    def nightly(at, settings, services, progress):
        assert (at, services) == (home, ("assistant",))
        assert settings.service("assistant").limits.quality_margin == 0.03
        progress("training", 0.5)
        progress("training", 1.0)
        return RESULT

    (home / "retroute.toml").write_text("[services.assistant.limits]\nquality_margin = 0.03\n", encoding="utf-8")
    fake(monkeypatch, "pipeline.nightly", nightly)
    assert cli.run(["nightly", "--home", str(home), "--service", "assistant", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == RESULT
    assert re.fullmatch(r"training \.\.\.\ntraining: \d+\.\d s\n", printed.err)


def test_train_prints_the_run_and_evaluate_takes_it(home, monkeypatch, capsys):
    fake(monkeypatch, "pipeline.train", lambda at, settings, services, progress: f"run of {services}")
    fake(
        monkeypatch,
        "pipeline.evaluate",
        lambda at, run_id, progress: {"services": {}, "seconds": len(run_id)},
    )
    assert cli.run(["train", "--home", str(home)]) == 0
    assert capsys.readouterr().out == "run of None\n"
    assert cli.run(["evaluate", "--home", str(home), "r12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] == 3


def test_report_says_verdict_interval_truth_reasons_and_refusals_in_words(home, monkeypatch, capsys):
    fake(monkeypatch, "pipeline.nightly", lambda *_arguments: RESULT)
    assert cli.run(["nightly", "--home", str(home)]) == 0
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    for text in (
        "assistant: Promising",
        "$0.1234 [$0.1200, $0.1300]",
        "truth $0.1235",
        "50.0 % [45.0 %, 55.0 %]",
        "change: savings per 1,000 $1.25 [$0.50, $2.00], truth $1.30;",
        "quality +1.0 points [-3.0 points, +4.0 points], truth -0.2 points",
        "NOT met: quality: -3 points (needed: above -1); Score more.",
        "what would decide it: 1,200 more scored decisions",
        "refused: change (latency), today (latency): no latency logged",
        "3 calls, 2 decisions, 2 s",
    ):
        assert text in shown


def test_runs_are_listed_with_verdict_and_activity(home, monkeypatch, capsys):
    run = {"run_id": "r1", "created_at": "2026-01-01", "services": {"a": "deploy", "b": "keep"}, "active": ["a"]}
    fake(monkeypatch, "pipeline.list_runs", lambda _home: [run])
    assert cli.run(["runs", "--home", str(home)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert re.search(r"r1.*2026-01-01.*a.*Deploy.*yes", lines[0])
    assert re.search(r"b.*Keep today's routing", lines[1])
    assert "yes" not in lines[1]


def test_no_runs_say_what_makes_one(home, monkeypatch, capsys):
    fake(monkeypatch, "pipeline.list_runs", lambda _home: [])
    assert cli.run(["runs", "--home", str(home)]) == 0
    assert "retroute nightly" in capsys.readouterr().out


FRAME = pl.DataFrame({"model": ["a", None], "calls": [1, 2**60], "usd": [0.5, None]})


def test_json_of_a_query_is_one_object_a_row_with_null_and_whole_numbers(capsys):
    report.write_frame(FRAME, "json", None)
    rows = json.loads(capsys.readouterr().out)
    assert rows == [{"model": "a", "calls": 1, "usd": 0.5}, {"model": None, "calls": 2**60, "usd": None}]


def test_csv_of_a_query_leaves_null_empty(capsys):
    report.write_frame(FRAME, "csv", None)
    assert capsys.readouterr().out == f"model,calls,usd\na,1,0.5\n,{2**60},\n"


@pytest.mark.parametrize(("form", "read"), [("parquet", pl.read_parquet), ("csv", pl.read_csv), ("json", pl.read_json)])
def test_query_written_to_a_file_reads_back(tmp_path, capsys, form, read):
    report.write_frame(FRAME, form, tmp_path / "out")
    assert read(tmp_path / "out").equals(FRAME)
    assert capsys.readouterr().out == ""


def test_table_of_a_query_says_what_it_leaves_out(capsys):
    report.write_frame(pl.DataFrame({"n": range(1000)}), "table", None)
    shown = capsys.readouterr().out
    assert "199" in shown
    assert "200 of 1,000 rows" in shown


def test_markup_in_data_is_shown_as_it_is(capsys):
    report.write_frame(pl.DataFrame({"[bold]x": ["[red]y[/red]"]}), "table", None)
    shown = capsys.readouterr().out
    assert "[bold]x" in shown
    assert "[red]y[/red]" in shown


def test_file_that_cannot_be_written_is_a_work_error(tmp_path):
    with pytest.raises(WorkError, match="cannot write"):
        report.write_frame(FRAME, "parquet", tmp_path / "none" / "out")


def run_process(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "optimizer.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, **options)


def test_reader_that_stops_early_is_no_error(home, tmp_path):
    script = f"{sys.executable} -m optimizer.cli --help | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupt_ends_with_130(home):
    process = start_collector(home)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (0, 130)
    assert "Traceback" not in (home / "log").read_text()


def start_collector(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "optimizer.cli", "collect", "--home", str(home), "--port", "0", "--grpc-port", "0"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, text=True, cwd=ROOT)
    deadline = time.monotonic() + 30
    while not (home / "collector.json").exists():
        assert process.poll() is None, (home / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def test_second_collector_and_used_port_are_one_clear_line(home, tmp_path):
    process = start_collector(home)
    try:
        port = json.loads((home / "collector.json").read_text(encoding="utf-8"))["port"]
        second = run_process("collect", "--home", str(home), "--port", "0", "--grpc-port", "0")
        other = run_process("collect", "--home", str(tmp_path / "other"), "--port", str(port), "--grpc-port", "0")
        board = run_process("dashboard", "--home", str(home), "--port", str(port))
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0
    for refused in (second, other, board):
        assert refused.returncode in (1, 2)
        assert re.fullmatch(r"error: .+\nhint: .+\n", refused.stderr)
    assert "already running" in second.stderr
    assert str(port) in other.stderr
    assert str(port) in board.stderr


def test_collector_beyond_loopback_wants_a_token(home):
    refused = run_process("collect", "--home", str(home), "--host", "0.0.0.0", "--port", "0", "--grpc-port", "0")
    assert refused.returncode == 2
    assert "token" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("wrong", ["selec 1", "select * from nothing", "delete from calls"])
def test_wrong_sql_is_one_clear_line(home, wrong):
    process = start_collector(home)
    process.terminate()
    process.wait(60)
    refused = run_process("sql", "--home", str(home), wrong)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "Traceback" not in refused.stderr
