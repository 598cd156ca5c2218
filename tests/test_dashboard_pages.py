from __future__ import annotations

import io
import json
import re
import shutil
import tomllib
import zipfile
from html import unescape
from pathlib import Path

import pytest
from dashboard_fixture import RUN, verdicts, write_lake, write_run
from pages_shown import html, show, text
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard import data, figures, theme
from dashboard.records import figure
from ingest.lake import Lake

APP = Path(dashboard.__path__[0]) / "app.py"
VIEWS = ("verdict", "health", "routing")
PATIENCE_S = 30


PAGES = ("verdict", "health", "routing")


def shown_figures(at: AppTest) -> list[tuple[str, tuple[float, float, float]]]:
    """(metric, (value, low, high)) of every figure on the page, in order."""
    found = re.findall(r'data-metric="(\w+)" data-value="([^"]+)" data-low="([^"]+)" data-high="([^"]+)"', html(at))
    return [(metric, (float(value), float(low), float(high))) for metric, value, low, high in found]


def numbers(figure: dict) -> tuple[float, float, float]:
    return figure["value"], figure["low"], figure["high"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def made_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a lake alone, made once: the tests work on copies."""
    made = tmp_path_factory.mktemp("made")
    write_lake(made)
    return made


@pytest.fixture
def telemetry(home: Path, made_lake: Path) -> Path:
    shutil.copytree(made_lake, home, dirs_exist_ok=True)
    return home


@pytest.fixture
def full(telemetry: Path) -> Path:
    write_run(telemetry)
    return telemetry


@pytest.mark.parametrize("view", VIEWS)
def test_empty_home_says_what_to_do(view: str, home: Path) -> None:
    at = show(view)
    assert not at.exception
    assert "Nothing has arrived yet" in text(at)
    assert f"retroute collect --home {home}" in text(at)


@pytest.mark.parametrize("view", VIEWS)
def test_home_that_does_not_exist_is_an_empty_home(view: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(home / "nowhere"))
    at = show(view)
    assert not at.exception
    assert "Nothing has arrived yet" in text(at)
    assert not (home / "nowhere").exists()


@pytest.mark.parametrize("view", ["verdict", "routing"])
def test_telemetry_without_a_run_says_how_to_get_a_verdict(view: str, telemetry: Path) -> None:
    at = show(view)
    assert not at.exception
    assert f"retroute nightly --home {telemetry}" in text(at)


def test_health_works_before_any_run(telemetry: Path) -> None:
    at = show("health")
    assert not at.exception
    assert "120 spans in 120 traces arrived; 1 record could not be used. 12 of 120 model calls lack a price." in text(
        at
    )
    assert "No run has looked for decisions yet" in text(at)


def test_health_of_an_empty_lake_names_the_listening_collector(home: Path) -> None:
    Lake.open(home, write=True).close()
    (home / "collector.json").write_text(json.dumps({"pid": 1, "host": "127.0.0.1", "port": 4318, "started_ns": 0}))
    at = show("health")
    assert not at.exception
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318" in text(at)


def test_health_shows_the_counts_of_the_lake(full: Path) -> None:
    at = show("health")
    with Lake.open(full) as lake:
        services = lake.query("health_by_service").to_dicts()
        unpriced = lake.query("unpriced").to_dicts()
        unknown = lake.query("unknown_attributes").to_dicts()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html(at))
    for row in services:
        assert row["service"] in cells
        assert figures.part(row["unpriced"], row["llm_calls"]) in cells
        assert figures.part(row["scored_traces"], row["traces"]) in cells
    for row in unpriced:
        assert row["reason"] in cells
        assert figures.part(row["calls"], 120) in cells
    assert "12 of 120 calls (10.0%) have no cost, and none of the tokens that were told; 12 told no tokens." in text(at)
    assert "Estimated input tokens" in text(at)  # no call of the fixture tells its tokens
    assert unknown[0]["key"] in cells
    assert "90% of 3,500 decisions scored for quality" in text(at)


def test_verdict_page_names_the_price_list_and_both_views(full: Path) -> None:
    said = text(show("verdict", service="alpha"))
    assert "Costs are at the prices of 2026-03-09 (a list of 2026-03-01, 2 prices of retroute.toml, 1 discount" in said
    assert "Today costs $1.31 per 1,000 decisions as billed, $1.05 at these prices (3,488 decisions with both)." in said
    assert "350 of 7,000 calls (5.0%) have no cost, and 7.0% of the tokens that were told; 3 told no tokens." in said


def test_routing_page_says_what_a_switch_inside_a_session_costs(full: Path) -> None:
    said = text(show("routing", service="alpha"))
    assert "A turn of a session that big-model takes over from another model costs $0.0054 in lost cache reads" in said
    assert "not in the savings" in said


def test_health_shows_the_newest_comparison_with_an_invoice(full: Path) -> None:
    assert "Beside the invoice" not in text(show("health"))
    row = {"our_usd": 1.5, "their_usd": 2.0, "usd_difference": -0.5, "usd_tolerance": 0.02, "our_tokens": 10}
    row |= {"their_tokens": None, "tokens_difference": None, "tokens_tolerance": None, "within": False}
    kept = {
        "file": "costs.csv",
        "format": "openai",
        "made_at": "2026-11-30T10:00:00+00:00",
        "from": "2026-11-01",
        "to": "2026-11-29",
        "within": False,
        "tolerance": 0.01,
        "totals": row,
        "models": [{**row, "day": "2026-11-01", "model": "gpt-4o"}],
        "reasons": [{"day": None, "model": "gpt-4o", "reason": "spans not received", "calls": 7}],
    }
    (full / "reconciled.json").write_text(json.dumps(kept))
    at = show("health")
    assert not at.exception
    assert "openai invoice costs.csv, 2026-11-01 to 2026-11-29, compared 30 Nov 2026" in text(at)
    assert "ours and theirs differ by more than 1%." in text(at)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html(at))
    assert {"gpt-4o", "outside", "$1.5000", "$2.0000", "−$0.5000", "spans not received", "7"} <= set(cells)
    (full / "reconciled.json").write_text(json.dumps({"file": "x"}))
    assert "The kept comparison is not as expected" in text(show("health"))


def test_health_follows_the_collector(full: Path) -> None:
    at = show("health")
    assert "120 spans" in text(at)
    write_lake(full, traces=150, first=120)
    assert "150 spans" in text(at.run())


def test_overview_lists_each_service_with_verdict_and_the_three_axes(full: Path) -> None:
    at = show("verdict")
    assert not at.exception
    cards = re.findall(r'class="rr rr-card[^"]*" data-verdict="(\w+)" data-service="([^"]+)"', html(at))
    assert cards == [("deploy", "alpha"), ("promising", "beta-agent"), ("keep", "gamma"), ("cannot_tell", "delta")]
    said = verdicts()["services"]
    expected = [
        (key, numbers(said[name][key]))
        for name in ("alpha", "beta-agent", "gamma")
        for key in ("savings_usd_per_1k", "quality_change", "latency_change_s")
    ]
    assert shown_figures(at) == expected
    assert "Not estimated" in text(at)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("alpha", "Deploy"),
        ("beta-agent", "Promising"),
        ("gamma", "Keep today's routing"),
        ("delta", "Your logs cannot tell"),
    ],
)
def test_verdict_page_shows_the_numbers_of_the_run(name: str, word: str, full: Path) -> None:
    at = show("verdict", service=name)
    assert not at.exception
    said = verdicts()["services"][name]
    assert f"<h1>{word}</h1>" in html(at)
    keys = ("savings_usd_per_1k", "quality_change", "latency_change_s")
    expected = [(key, numbers(said[key])) for key in keys if said[key]["value"] is not None]
    expected += [
        (key, numbers(row[key]))
        for row in said["table"]
        for key in ("cost_usd_per_1k", "quality", "latency_s")
        if row[key]["value"] is not None
    ]
    assert shown_figures(at) == expected
    for reason in said["reasons"]:
        assert reason["got"] in text(at)
        assert reason["needed"] in text(at)
        assert reason["holds"] or reason["remedy"].capitalize() in text(at)
    if said["plan"]:
        assert said["plan"]["text"] in text(at)
    assert figures.count(said["data"]["decisions"]) in text(at)


def test_kind_of_each_interval_is_written_beside_it(full: Path) -> None:
    at = show("verdict", service="alpha")
    assert html(at).count('class="rr-kind"') == len(shown_figures(at))


def test_where_the_logs_cannot_tell_what_they_do_say_stands_with_its_kind(full: Path) -> None:
    at = show("verdict", service="delta")
    table = html(at).partition('data-table="parts"')[2].partition("</table>")[0]
    cells = [unescape(cell).replace("\xa0", " ") for cell in re.findall(r"<td[^>]*>(.*?)</td>", table)]
    assert cells == [
        "always <i>small</i>",
        "quality",
        "+1.2 points (−1.8 to +4.2 points; asymptotic), on 44% of decisions",
        "−47.8 to +14.6 points",
        "+0.4 points (−2.2 to +3.0 points; assumption)",
    ]
    assert "DM and DR differ by 3.1 standard errors: the outcome model is off." in text(at)
    assert "The tenant was fixed before the decision, yet moved it." in text(at)
    assert "What the logs do say" not in text(show("verdict", service="alpha"))


def test_refused_figures_give_their_reason_instead_of_a_number(full: Path) -> None:
    at = show("verdict", service="delta")
    reason = verdicts()["services"]["delta"]["savings_usd_per_1k"]["reason"]
    refused = re.findall(r'rr-refused" data-metric="\w+">.*?</span></span>', html(at))
    assert refused
    assert all("Not estimated" in one and reason in unescape(one) for one in refused)
    assert len(at.get("vega_lite_chart")) == 1  # the frontier; an axis that cannot be estimated is not drawn


def test_monthly_saving_is_at_the_pace_of_the_decisions(full: Path) -> None:
    pace = 3500 / 7 * 30 / 1000
    value, low, high = (pace * x for x in numbers(verdicts()["services"]["alpha"]["savings_usd_per_1k"]))
    month = figures.said(figure({"value": value, "low": low, "high": high, "kind": "asymptotic"}), "usd")
    assert f"about {month.value} a month ({month.interval}) at the logged pace" in text(
        show("verdict", service="alpha")
    )


def test_service_is_chosen_by_the_url_and_changes_it(full: Path) -> None:
    at = show("verdict", service="gamma")
    assert at.button_group[0].value == "gamma"
    at.button_group[0].set_value("alpha").run()
    assert at.query_params["service"] == "alpha"
    assert "<h1>Deploy</h1>" in html(at)
    at.button_group[0].set_value("All services").run()
    assert "service" not in at.query_params
    assert "What your logs say" in text(at)


def test_unknown_service_in_the_url_shows_the_overview(full: Path) -> None:
    at = show("verdict", service="omega")
    assert not at.exception
    assert "What your logs say" in text(at)


def test_card_opens_its_service(full: Path) -> None:
    at = show("verdict")
    at.button(key="open-gamma").click().run()
    assert at.query_params["service"] == "gamma"
    assert "Keep today's routing" in html(at)


def test_many_services_are_offered_as_a_list(home: Path) -> None:
    alpha = verdicts()["services"]["alpha"]
    write_run(home, content={"services": {f"service-{i}": {**alpha, "bundle": None} for i in range(9)}})
    at = show("verdict")
    assert not at.exception
    assert len(at.selectbox[0].options) == 10


def test_routing_shows_shares_savings_and_logged_counts(full: Path) -> None:
    at = show("routing", service="beta-agent")
    assert not at.exception
    said = verdicts()["services"]["beta-agent"]
    assert shown_figures(at) == [("savings_usd_per_1k", numbers(said["savings_usd_per_1k"]))]
    assert "the log never chose otherwise here" in text(at)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html(at))
    for point in said["points"]:
        for action in point["actions"]:
            row = [action["action"], figures.share(action["today_share"]), figures.share(action["policy_share"])]
            assert [*row, figures.count(action["logged"])] in [cells[i : i + 4] for i in range(0, len(cells), 4)]
    assert "not a call to switch" in text(at)


def test_routing_says_the_suggestion_in_words_and_how_well_they_fit(full: Path) -> None:
    at = show("routing", service="alpha")
    assert not at.exception
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html(at))
    (said,) = verdicts()["services"]["alpha"]["points"]
    for rule in said["rules"]["rules"]:
        row = [figures.capital(" and ".join(rule["conditions"])), rule["action"]]
        shares = [figures.share(rule["share"]), figures.share(rule["agreement"])]
        found = cells[cells.index(row[0]) :][:5]
        assert [*found[:2], *found[3:]] == [*row, *shares]
    assert figures.share(said["rules"]["fidelity"]) in text(at)
    for key in ("savings_usd_per_1k", "quality_change"):
        assert (f"rules_{key}", numbers(said["rules"][key])) in shown_figures(at)


def test_routing_without_evidence_suggests_nothing(full: Path) -> None:
    at = show("routing", service="delta")
    assert "nothing is suggested" in text(at)
    assert "unknown" in text(at)  # the suggestion's shares
    assert not at.get("download_button")


def test_policy_and_bundle_can_be_downloaded(full: Path) -> None:
    at = show("routing", service="alpha")
    assert [button.proto.label for button in at.get("download_button")] == ["Policy", "Bundle"]
    assert "in use" in text(at)
    assert RUN in text(at)


def test_download_is_the_same_bytes_for_the_same_files(full: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "alpha"
    shutil.copytree(full / "bundles" / "alpha", copy)
    assert data.zipped(copy) == data.zipped(full / "bundles" / "alpha")
    with zipfile.ZipFile(io.BytesIO(data.zipped(copy))) as archive:
        assert archive.namelist() == ["alpha/config.yaml", "alpha/policy/manifest.json", "alpha/policy/weights.npz"]


def test_bundle_replaced_by_a_later_export_is_not_offered_for_the_old_run(full: Path) -> None:
    (full / "bundles" / "alpha" / "policy" / "manifest.json").write_text("{}")
    at = show("routing", service="alpha")
    assert [button.proto.label for button in at.get("download_button")] == ["Policy"]
    assert "No bundle" in text(at)


def test_bundle_that_also_says_how_it_was_judged_is_still_this_runs(full: Path) -> None:
    manifest = full / "bundles" / "alpha" / "policy" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "evaluation": {"verdict": "deploy"}}))
    assert [button.proto.label for button in show("routing", service="alpha").get("download_button")] == [
        "Policy",
        "Bundle",
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("verdicts.json", "{not json", "verdicts.json of run"),
        ("verdicts.json", "[]", "does not hold an object"),
        ("verdicts.json", '{"services": {"alpha": {"verdict": "deploy"}}}', "alpha lacks"),
        ("manifest.json", None, "has no manifest.json"),
        ("verdicts.json", None, "it is not judged yet. `retroute evaluate` does."),
    ],
)
@pytest.mark.parametrize("view", ["verdict", "routing"])
def test_broken_run_is_named_and_the_older_one_shown(
    view: str, name: str, content: str | None, said: str, full: Path
) -> None:
    newer = full / "runs" / "20260310T021500Z-broken"
    shutil.copytree(full / "runs" / RUN, newer)
    (newer / name).unlink() if content is None else (newer / name).write_text(content)
    at = show(view, service="alpha")
    assert not at.exception
    assert f"Run {newer.name} is left out" in text(at)
    assert said in text(at)
    assert "Deploy" in text(at)


@pytest.mark.parametrize("view", VIEWS)
def test_run_without_decisions_still_shows_its_verdicts(view: str, full: Path) -> None:
    (full / "runs" / RUN / "decisions.parquet").write_bytes(b"not parquet")
    at = show(view, service="alpha")
    assert not at.exception
    assert "a month" not in text(at)  # the pace is not known


@pytest.mark.parametrize("view", VIEWS)
def test_only_broken_runs_leave_a_designed_page(view: str, telemetry: Path) -> None:
    (telemetry / "runs" / RUN).mkdir(parents=True)
    at = show(view)
    assert not at.exception


def test_half_written_run_is_not_shown(full: Path) -> None:
    (full / "runs" / ".draft").mkdir()
    at = show("verdict")
    assert ".draft" not in text(at)


def test_damaged_list_of_active_policies_hides_nothing(full: Path) -> None:
    (full / "runs" / "active.json").write_text("{")
    at = show("routing", service="alpha")
    assert not at.exception
    assert "in use" not in text(at)


def test_home_of_a_newer_version_is_said_in_one_line(full: Path) -> None:
    (full / "home.json").write_text(json.dumps({"format": 99}))
    at = show("health")
    assert not at.exception
    assert "made by a newer version" in text(at)


def test_names_from_outside_are_escaped(home: Path) -> None:
    content = verdicts()
    content["services"] = {"<img src=x>": {**content["services"]["beta-agent"], "policy_label": "<b>x</b>"}}
    content["services"]["<img src=x>"]["reasons"][0]["got"] = "<script>alert(1)</script>"
    write_run(home, content=content)
    at = show("verdict", service="<img src=x>")
    assert not at.exception
    assert "<img" not in html(at)
    assert "<script>" not in html(at)


def test_app_opens_on_the_verdict(full: Path) -> None:
    at = AppTest.from_file(str(APP), default_timeout=PATIENCE_S).run()
    assert not at.exception
    assert "What your logs say" in text(at)


def test_streamlit_is_told_the_tones_of_the_theme() -> None:
    config = tomllib.loads((APP.parent / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    for mode, tones in (("light", theme.LIGHT), ("dark", theme.DARK)):
        told = config["theme"][mode]
        assert (told["backgroundColor"], told["textColor"]) == (tones.page, tones.text)
        assert (told["secondaryBackgroundColor"], told["borderColor"]) == (tones.panel, tones.line)
