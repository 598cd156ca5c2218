"""The page on segments and rules: who gains, who loses, what changed since the version before, and the worst cases."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from html import unescape
from pathlib import Path

import pytest
from dashboard_fixture import RUN, verdicts, write_lake, write_run
from flow_fixture import flow, with_flows
from kept_fixture import keep, regressions
from pages_shown import figures_of, html, table, text
from pages_shown import show as show_page

from dashboard import access, data, segments_charts, segments_data, theme

LOSES = "Prompt length: over 90 characters"


show = partial(show_page, "segments")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def full(home: Path) -> Path:
    keep(write_run(home), "alpha", "regressions", regressions())
    return home


def test_an_empty_home_says_what_to_do(home: Path) -> None:
    at = show()
    assert not at.exception
    assert "Nothing has arrived yet" in text(at)


def test_who_loses_is_said_first(full: Path) -> None:
    at = show(service="alpha")
    assert not at.exception
    assert f"Quality falls past the limit of −1 point in {LOSES}. It clearly rises in 1 of 4 segments." in text(at)


def test_nobody_loses_is_said_with_how_much_is_not_clear(full: Path) -> None:
    said = regressions()
    said["segments"] = [one for one in said["segments"] if one["quality_flag"] != "worse"]
    keep(full / "runs" / RUN, "alpha", "regressions", said)
    assert (
        "No segment loses quality past the limit of −1 point, as far as the log (2 of 3 are not clear) shows."
        in text(show(service="alpha"))
    )


def test_the_allowance_for_many_segments_is_stated(full: Path) -> None:
    assert "All 8 intervals hold together at 95%: each is a 99.38% interval (Bonferroni)." in text(
        show(service="alpha")
    )


def test_every_segment_stands_with_the_numbers_of_the_run(full: Path) -> None:
    at = show(service="alpha")
    expected = [
        (key, one[key]["value"], one[key]["low"], one[key]["high"])
        for one in regressions()["segments"]
        for key in ("savings_usd_per_1k", "quality_change")
        if one[key]["value"] is not None
    ]
    assert figures_of(table(at, "segments")) == expected
    assert "only 12 effective decisions" in table(at, "segments")
    assert "Too few decisions to be looked at alone: Answer: JSON asked for (9)." in text(at)


def test_only_what_is_past_a_limit_has_a_colour(full: Path) -> None:
    found = segments_data.load(data.runs()[0].services["alpha"])
    assert found is not None
    total = data.runs()[0].services["alpha"].quality
    drawn = segments_charts.forest(found.segments, "quality", total, -0.01, theme.LIGHT).to_dict()
    (values,) = [one for one in drawn["datasets"].values() if one and "flag" in one[0] and len(one) == 4]
    assert [one["flag"] for one in values] == ["better", "worse", "unclear", "refused"]
    assert [one["value"] for one in values] == pytest.approx([5.0, -8.0, 1.0, None])
    scale = next(
        layer["encoding"]["color"]["scale"] for layer in drawn["layer"] if "scale" in layer["encoding"].get("color", {})
    )
    tints = dict(zip(scale["domain"], scale["range"], strict=True))
    assert (tints["better"], tints["worse"]) == (theme.HOLDS, theme.FAILS)
    assert tints["unclear"] == tints["inside"] == theme.LIGHT.text


@pytest.mark.parametrize(
    ("order", "first"),
    [("dimension", "up to 90 characters"), ("quality", "over 90 characters"), ("saving", "<b>small</b>")],
)
def test_the_order_is_chosen_by_the_url(order: str, first: str, full: Path) -> None:
    at = show(service="alpha", sort=order)
    assert at.button_group(key="segments-sort").value == order
    rows = re.findall(r'data-segment="[^"]*"><th scope="row">(.*?)<span', table(at, "segments"))
    assert unescape(rows[0]) == first
    at.button_group(key="segments-sort").set_value("decisions").run()
    rows = re.findall(r'data-segment="[^"]*"><th scope="row">(.*?)<span', table(at, "segments"))
    assert rows[0] == "over 90 characters"


def test_unknown_orders_are_as_none(full: Path) -> None:
    at = show(service="alpha", sort="<script>")
    assert not at.exception
    assert at.button_group(key="segments-sort").value == "dimension"


def test_names_from_outside_are_escaped(full: Path) -> None:
    assert "<b>small</b>" not in html(show(service="alpha"))


def test_rules_stand_with_how_far_they_are_the_policy(full: Path) -> None:
    at = show(service="alpha")
    assert "the policy itself chooses so in 93% of decisions" in text(at)
    assert "At most 120 words and no code fences" in table(at, "rules")


def test_what_changed_since_the_version_before(full: Path) -> None:
    at, said = show(service="alpha"), regressions()["previous"]
    told = text(at)
    assert "Beside run 20260301T021500Z, the policy in force." in told
    assert "New among its choices: small-model. No longer among them: old-model." in told
    assert "Both choose the same in 61% of the decisions that judge. 37% of decisions would move." in told
    cells = [unescape(cell).replace("\xa0", " ") for cell in re.findall(r"<td[^>]*>(.*?)</td>", table(at, "versions"))]
    assert cells == ["big-model", "55%", "18%", "−37 points", "small-model", "45%", "82%", "+37 points"]
    for key in ("savings_usd_per_1k", "quality_change"):
        one = said[key]
        assert (f"version_{key}", one["value"], one["low"], one["high"]) in figures_of(html(at))
    rules = [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", table(at, "rules-diff"))]
    assert rules[:3] == ["gone", "At most 90 words", "small-model"]
    assert [rules[i] for i in range(0, len(rules), 3)] == ["gone", "new", "new"]


def test_versions_that_cannot_be_compared_say_why(full: Path) -> None:
    said = regressions()
    said["previous"] |= {"refused": "it chooses among x too", "actions": [], "agreement": None, "moved": None}
    said["previous"] |= {"savings_usd_per_1k": None, "quality_change": None}
    keep(full / "runs" / RUN, "alpha", "regressions", said)
    at = show(service="alpha")
    assert not at.exception
    assert "They cannot be compared decision by decision: it chooses among x too." in text(at)
    assert 'data-table="versions"' not in html(at)


def test_a_first_version_says_so(full: Path) -> None:
    keep(full / "runs" / RUN, "alpha", "regressions", {**regressions(), "previous": None})
    assert "there is none to compare it with" in text(show(service="alpha"))


def test_the_worst_decisions_lead_to_their_traces_and_are_called_predictions(full: Path) -> None:
    at = show(service="alpha")
    part = table(at, "worst")
    for one in regressions()["worst"]:
        assert f'href="traces?service=alpha&amp;trace={one["trace_id"]}"' in part
    cells = [unescape(cell).replace("\xa0", " ") for cell in re.findall(r'<td class="rr-number">(.*?)</td>', part)]
    assert cells == ["80%", "31%", "−49.0 points", "80%", "52%", "−28.0 points"]
    assert "These are predictions of the outcome model" in text(at)
    assert "traces?service=alpha&amp;decision=changed" in html(at)


def test_prompts_are_shown_to_whom_they_may_be_shown_only(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not access.may("content")
    at = show(service="alpha")
    assert not at.toggle
    assert "Prompts are not shown" in text(at)
    monkeypatch.setattr(access, "may", lambda what: what == "content")
    monkeypatch.setattr(segments_data, "prompts", lambda found: {found.worst[0].trace_id: "<i>hello</i>"})
    at = show(service="alpha")
    assert "hello" not in html(at)
    at.toggle[0].set_value(True).run()
    assert "&lt;i&gt;hello&lt;/i&gt;" in table(at, "worst")
    assert "no prompt recorded" in table(at, "worst")


def test_a_prompt_of_a_megabyte_is_cut(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    found = segments_data.load(data.runs()[0].services["alpha"])
    assert found is not None
    rows = pl.DataFrame(
        {
            "trace_id": [found.worst[0].trace_id],
            "text": [json.dumps([{"role": "user", "content": "word " * 200_000}])],
            "characters": [1_000_000],
        }
    )
    monkeypatch.setattr(data, "lake", lambda name, **params: rows)
    (said,) = segments_data.prompts(found).values()
    assert len(said) == segments_data.SHOWN_CHARACTERS


def test_prompts_come_from_the_lake(full: Path) -> None:
    write_lake(full)
    found = segments_data.load(data.runs()[0].services["alpha"])
    assert found is not None
    assert segments_data.prompts(found) == {}  # the lake of the fixture has no text


def test_a_trace_opens_in_the_users_own_viewer(full: Path) -> None:
    (full / "retroute.toml").write_text('[dashboard]\ntrace_url = "https://traces.example/t/{trace_id}"\n')
    trace = regressions()["worst"][0]["trace_id"]
    assert f'href="https://traces.example/t/{trace}" target="_blank"' in table(show(service="alpha"), "worst")


def test_a_service_of_many_steps_says_why_it_has_no_segments(full: Path) -> None:
    nothing = {"refused": "traces of several decisions", "segments": [], "small": [], "worst": [], "previous": None}
    keep(full / "runs" / RUN, "beta-agent", "regressions", nothing)
    at = show(service="beta-agent")
    assert not at.exception
    assert "Nothing can be said by segment: traces of several decisions." in text(at)
    assert "None: nothing is suggested" in text(at)


def test_an_orchestrator_shows_the_rules_that_decide(home: Path) -> None:
    keep(write_run(home, content=with_flows()), "alpha", "regressions", regressions())
    at = show(service="alpha")
    assert not at.exception
    for line in flow()["rules"]:
        assert line in text(at)
    assert "Both versions, each for all traces" in text(at)
    assert 'data-table="versions"' in html(at)
    assert 'data-table="rules-diff"' not in html(at)
    assert 'href="flow?service=alpha"' in html(at)
    assert "Nothing is suggested here, so there are no rules." in text(show(service="delta"))


def test_where_no_segment_can_be_judged_alone_that_is_the_answer(full: Path) -> None:
    said = regressions()
    said["segments"] = [one for one in said["segments"] if one["quality_flag"] == "refused"]
    keep(full / "runs" / RUN, "alpha", "regressions", said)
    at = show(service="alpha")
    assert not at.exception
    assert "No segment can be judged alone. Tools: tools offered: only 12 effective decisions" in text(at)


def test_a_run_from_before_shows_its_rules_alone(full: Path) -> None:
    (full / "runs" / RUN / "regressions-alpha.json").unlink()
    at = show(service="alpha")
    assert not at.exception
    assert "No segments kept" in text(at)
    assert "At most 120 words" in table(at, "rules")


@pytest.mark.parametrize(
    "content", ["{half", '{"segments": []}', json.dumps({**regressions(), "segments": [{"cost_flag": "?"}]}), "[1]"]
)
def test_a_damaged_file_is_a_state_of_the_page(content: str, full: Path) -> None:
    keep(full / "runs" / RUN, "alpha", "regressions", content)
    at = show(service="alpha")
    assert not at.exception
    assert "regressions-alpha.json" in text(at)


def test_an_older_run_is_chosen_by_the_url(full: Path) -> None:
    older = full / "runs" / "20260301T021500Z-older"
    shutil.copytree(full / "runs" / RUN, older)
    judged = older / "verdicts.json"
    judged.write_text(judged.read_text().replace(RUN, older.name))
    (older / "regressions-alpha.json").unlink()
    assert "No segments kept" in text(show(service="alpha", run=older.name))
    assert verdicts()["services"].keys() >= {"alpha"}
