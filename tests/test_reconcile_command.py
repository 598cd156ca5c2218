"""`retroute reconcile` on a lake made by the real import, with invoices of every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from billed_calls import ANTHROPIC_USD, DAY_1, FOUR, GPT, HOUR, INVOICES, OPENAI_USD, call, lake_of

from dashboard import records
from optimizer import cli

FINANCE = "Date=day Model=model Prompt=input_total Cached=cache_read Stored=cache_write Completion=output Amount=usd"
MAPPED = [word for pair in FINANCE.split() for word in ("--map", pair)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return lake_of(tmp_path_factory.mktemp("billed") / "home", FOUR)


def run(capsys, home: Path, *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["reconcile", "--home", str(home), *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize(
    ("name", "tokens", "usd"),
    [
        ("openai_usage.json", 189_846, None),
        ("openai_usage.csv", 189_846, None),
        ("openai_costs.json", None, OPENAI_USD),
        ("openai_costs.csv", None, OPENAI_USD),
        ("anthropic_usage.json", 1_092_000, None),
        ("console_tokens.csv", 1_092_000, None),
        ("anthropic_cost.json", None, ANTHROPIC_USD),
        ("console_cost.csv", None, 1.82),
        ("litellm_spend.jsonl", 1_281_846, OPENAI_USD + ANTHROPIC_USD),
        ("litellm_activity.json", 1_281_846, OPENAI_USD + ANTHROPIC_USD),
        ("finance.csv", 1_281_846, OPENAI_USD + ANTHROPIC_USD),
    ],
)
def test_every_format_equals_our_calls(capsys, home, name, tokens, usd):
    more = MAPPED if name == "finance.csv" else []
    code, out, err = run(capsys, home, str(INVOICES / name), "--json", *more)
    found = json.loads(out)
    assert (code, err, found["within"]) == (0, "", True)
    assert found["totals"]["their_tokens"] == tokens
    assert found["totals"]["their_usd"] == (usd if usd is None else pytest.approx(usd))
    assert found["totals"]["our_tokens"] == (tokens or found["totals"]["our_tokens"])
    assert {row["reason"] for row in found["reasons"]} <= {"model alias"}


def test_each_token_class_costs_what_it_costs_by_hand(capsys, home):
    found = json.loads(run(capsys, home, str(INVOICES / "anthropic_cost.json"), "--json")[1])
    ours = {(row["day"], row["token_class"]): row["our_usd"] for row in found["classes"]}
    assert ours == {
        ("2026-11-01", "input"): pytest.approx(0.3),
        ("2026-11-01", "cache_read"): pytest.approx(0.24),
        ("2026-11-01", "cache_write"): pytest.approx(0.375),
        ("2026-11-01", "output"): pytest.approx(0.75),
        ("2026-11-02", "input"): pytest.approx(0.12),
        ("2026-11-02", "output"): pytest.approx(0.03),
    }


def test_the_table_says_what_differs_and_why(capsys, home, tmp_path):
    text = (INVOICES / "openai_usage.csv").read_text(encoding="utf-8").replace("100000.0", "120000.0")
    file = tmp_path / "usage.csv"
    file.write_text(
        text.replace(
            ",1.0,user-1,key_1,gpt-4o-2024-08-06,FALSE,default,120000",
            ",3.0,u,k,gpt-4o-2024-08-06,FALSE,default,120000",
        )
    )
    code, out, err = run(capsys, home, str(file))
    assert code == 1
    assert "OUTSIDE" in out
    assert "-20,000" in out
    assert "spans not received" in out
    assert "error: ours and theirs differ by more than 1%" in err
    assert run(capsys, home, str(file), "--tolerance", "20%")[0] == 0
    assert run(capsys, home, str(file), "--to", "2026-11-01")[0] == 0


def test_the_newest_comparison_is_kept_for_the_dashboard(capsys, home):
    run(capsys, home, str(INVOICES / "openai_costs.json"))
    assert run(capsys, home, str(INVOICES / "anthropic_cost.json"))[0] == 0
    found = records.reconciled(json.loads((home / "reconciled.json").read_text(encoding="utf-8")))
    assert (found.file, found.form, found.within, found.in_usd) == ("anthropic_cost.json", "anthropic", True, True)
    assert found.total.ours == pytest.approx(ANTHROPIC_USD)
    assert {line.day for line in found.lines} == {"2026-11-01", "2026-11-02"}


def test_an_unpriced_call_and_emitted_costs_are_shown(capsys, tmp_path):
    spans = [*FOUR[:1], call(7, "nobody-1", DAY_1 + 2 * HOUR, 10, 20, gen_ai__usage__cost=0.5)]
    home = lake_of(tmp_path / "home", spans)
    code, out, _ = run(capsys, home, str(INVOICES / "openai_usage.csv"), "--to", "2026-11-01")
    assert code == 1
    assert "unpriced 1 of 2 calls" in out
    assert "no price for nobody-1" in out
    assert "0.5000" in out


def test_a_service_alone_is_laid_beside_the_invoice(capsys, home):
    code, out, _ = run(capsys, home, str(INVOICES / "openai_costs.json"), "--service", "nobody", "--json")
    assert (code, json.loads(out)["totals"]["calls"]) == (1, 0)


def test_an_alias_given_by_hand_joins_two_names(capsys, home, tmp_path):
    file = tmp_path / "azure.csv"
    file.write_text("day,model,input_total,output\n2026-11-02,prod-gpt,100000,20000\n")
    arguments = [str(file), "--from", "2026-11-02", "--alias", f"{GPT}=prod-gpt"]
    found = json.loads(run(capsys, home, *arguments, "--json")[1])
    row = next(row for row in found["models"] if row["model"] == "prod-gpt")
    assert (row["our_tokens"], row["within"]) == (120_000, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tolerance", "much"], "Write 1% or 0.01"),
        (["--tolerance", "100%"], "Write 1% or 0.01"),
        (["--time-zone", "Mars/Olympus"], "no time zone"),
        (["--time-zone", "Europe/Berlin"], "another time zone"),
        (["--currency", "EUR"], "EUR=1.08"),
        (["--currency", "money"], "CODE=RATE"),
        (["--currency", "EUR=1.1"], "in USD, but --currency says EUR"),
        (["--from", "2027-01-01"], "none of those asked for"),
        (["--from", "yesterday"], "does not match the format"),
        (["--format", "anthropic"], "is not Anthropic's"),
        (["--map", "amount=usd"], "no column amount"),
        (["--alias", "a"], "OURS=THEIRS"),
    ],
)
def test_wrong_input_ends_with_2_and_says_how_to_map_it(capsys, home, arguments, said):
    code, out, err = run(capsys, home, str(INVOICES / "openai_costs.json"), *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_home_without_a_lake_is_told(capsys, tmp_path):
    code, _, err = run(capsys, tmp_path / "none", str(INVOICES / "openai_costs.json"))
    assert code == 2
    assert err.startswith("error: ")
