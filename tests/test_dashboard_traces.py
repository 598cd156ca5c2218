"""The page Traces: the list and its filters, and one trace with what the policy would do at each of its decisions."""

from __future__ import annotations

import re
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dashboard_fixture import START_NS, write_lake
from pages_shown import html, text
from pages_shown import show as show_page
from streamlit.testing.v1 import AppTest
from trace_fixture import BIG, CONTENT, DESK, LONG, RUN, SHOP, SMALL, prompt, trace_id, write

from dashboard import data, messages, trace_sections, traces_data, waterfall
from dashboard.records import ServiceVerdict
from dashboard.theme import DARK, LIGHT
from dashboard.traces_data import Asked
from dashboard.views import frame
from ingest.lake import Lake
from optimizer.runs import policy_folder
from optimizer.runtime import Router, featurise

PATIENCE_S = 60
TRACES = 70


show = partial(show_page, "traces")


def listed(at: AppTest) -> list[int]:
    """Numbers of the traces in the list, in its order."""
    return [int(found, 16) for found in re.findall(r"trace=([0-9a-f]{32})", html(at))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("made") / "home", TRACES)


@pytest.fixture(scope="module")
def open_home(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Path:
    copy = tmp_path_factory.mktemp("open") / "home"
    shutil.copytree(made, copy)
    (copy / "retroute.toml").write_text(CONTENT)
    return copy


@pytest.fixture
def home(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home as it was made, for tests that only look."""
    monkeypatch.setenv("RETROUTE_HOME", str(made))
    return made


@pytest.fixture
def may_read(open_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same where everybody may see prompts."""
    monkeypatch.setenv("RETROUTE_HOME", str(open_home))
    return open_home


@pytest.fixture
def own(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to change."""
    copy = tmp_path / "home"
    shutil.copytree(made, copy)
    monkeypatch.setenv("RETROUTE_HOME", str(copy))
    return copy


# ---- states


def test_an_empty_home_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    at = show()
    assert not at.exception
    assert f"retroute collect --home {tmp_path}" in text(at)


def test_a_lake_without_a_trace_says_when_one_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    Lake.open(tmp_path, write=True).close()
    at = show()
    assert not at.exception
    assert "No trace yet" in text(at)


def test_one_trace_and_no_run_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    write_lake(tmp_path, traces=2)
    at = show()
    assert not at.exception
    assert "2 traces." in text(at)
    one = show(trace=f"{0:032x}")
    assert not one.exception
    assert "no run has looked at this service yet" in text(one)


def test_a_damaged_run_and_policy_leave_the_traces(own: Path) -> None:
    (own / "runs" / RUN / "decisions.parquet").write_bytes(b"PAR1 broken")
    shutil.rmtree(policy_folder(own / "runs" / RUN, SHOP))
    at = show(service=SHOP)
    assert not at.exception
    assert len(listed(at)) == traces_data.PAGE
    one = show(service=SHOP, trace=trace_id(3))
    assert not one.exception
    assert "the run suggests no policy" in text(one)


def test_a_lake_that_cannot_be_read_is_a_state(own: Path) -> None:
    (own / "lake" / "catalog.sqlite").write_bytes(b"no database")
    at = show()
    assert not at.exception
    assert "This home cannot be read" in text(at)


@pytest.mark.parametrize("wrong", ["f" * 32, "../../<script>"])
def test_a_trace_that_is_not_there_says_so(home: Path, wrong: str) -> None:
    at = show(trace=wrong)
    assert not at.exception
    assert "No such trace" in text(at)
    assert "<script>" not in html(at)


# ---- the list


def test_the_list_is_newest_first_a_page_at_a_time(home: Path) -> None:
    at = show(service=SHOP)
    assert f"{TRACES} traces, 1 to 50 shown" in text(at)
    assert listed(at) == list(range(TRACES - 1, TRACES - 51, -1))
    at.button(key="next").click().run()
    assert at.query_params["page"] == "2"
    assert listed(at) == list(range(TRACES - 51, -1, -1))


@pytest.mark.parametrize("number", ["99", "x"])
def test_a_page_that_is_not_there_is_the_first(home: Path, number: str) -> None:
    assert listed(show(service=SHOP, page=number))[0] == TRACES - 1


def found(
    verdicts: dict[str, ServiceVerdict] | None = None, sort: traces_data.Sort = "time", **asked: Any
) -> list[int]:
    """Numbers of the traces of a first page."""
    page = traces_data.page(Asked(**asked), verdicts or {}, sort=sort, rising=False, number=0, content=False)
    return [int(one, 16) for one in page.rows["trace_id"].to_list()]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"service": SHOP, "model": SMALL}, [i for i in range(TRACES) if i % 3 == 0]),
        ({"service": SHOP, "action": BIG}, [i for i in range(TRACES) if i % 3]),
        ({"service": SHOP, "status": "error"}, [i for i in range(TRACES) if i % 7 == 0]),
        ({"service": SHOP, "status": "ok"}, [i for i in range(TRACES) if i % 7]),
        ({"service": SHOP, "unpriced": True}, [i for i in range(TRACES) if i % 10 == 0]),
        ({"service": SHOP, "unscored": True}, [i for i in range(TRACES) if i % 5 == 0]),
        ({"ids": (trace_id(5), trace_id(90), "no such one")}, [5, 90]),
        ({"search": trace_id(41)[-5:]}, [41]),
        ({"search": "s13"}, [39, 40, 41]),
        ({"service": SHOP, "agent": "helper"}, []),
        ({"tool": "run", "status": "error"}, [i for i in range(TRACES, 2 * TRACES) if i % 7 == 0]),
        ({"service": SHOP, "since_ns": START_NS + 48 * 3600 * 10**9}, [*range(48, 70)]),
        ({"service": SHOP, "until_ns": START_NS + 3 * 3600 * 10**9}, [0, 1, 2]),
    ],
)
def test_each_filter_narrows_the_list(home: Path, asked: dict[str, Any], wanted: list[int]) -> None:
    assert sorted(found(**asked)) == wanted[-traces_data.PAGE :]


def test_the_list_shows_what_the_url_asks_for(home: Path) -> None:
    at = show(service=SHOP, model=SMALL, status="error", unscored="1", **{"from": "2026-03-01", "to": "2026-03-03"})
    assert listed(at) == [i for i in range(TRACES - 1, -1, -1) if i % 3 == i % 7 == i % 5 == 0]
    assert [box.value for box in at.checkbox] == [False, True]


def test_changed_and_kept_are_by_the_decisions_that_judged_the_policy(home: Path) -> None:
    # Odd prompts are short, and the policy sends those to the small model; every third used it.
    verdicts = frame.newest(data.runs())
    other = [i for i in range(TRACES) if (i % 2 == 1) != (i % 3 == 0)]
    assert sorted(found(verdicts, service=SHOP, decision="changed")) == other
    assert sorted(found(verdicts, service=SHOP, decision="kept")) == sorted(set(range(TRACES)) - set(other))


def test_changed_and_kept_hold_more_traces_than_a_link_may_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces_data, "MOST_IDS", 3)
    verdicts = frame.newest(data.runs())
    other, same = (found(verdicts, service=SHOP, decision=decision) for decision in ("changed", "kept"))
    assert min(len(other), len(same)) > 3
    assert sorted(other + same) == list(range(TRACES))


@pytest.mark.parametrize(("sort", "first"), [("cost", 69), ("duration", 62), ("quality", 69)])
def test_the_list_is_sorted_by_what_is_asked(home: Path, sort: traces_data.Sort, first: int) -> None:
    assert found(frame.newest(data.runs()), sort, service=SHOP)[0] == first


def test_the_order_turns_round(home: Path) -> None:
    at = show(service=SHOP, sort="cost")
    at.button(key="traces-order").click().run()
    assert at.query_params["order"] == "rising"
    assert listed(at)[:3] == [1, 2, 3]


def test_filters_in_the_page_go_into_the_url_and_back_to_its_first_page(home: Path) -> None:
    at = show(service=SHOP, page="2")
    at.selectbox(key="traces-status").select("error").run()
    assert at.query_params["status"] == "error"
    assert "page" not in at.query_params
    assert len(listed(at)) == 10


def test_what_fits_no_filter_offers_to_take_them_out(home: Path) -> None:
    at = show(service=SHOP, model="nobody <b>")
    assert "No trace fits" in text(at)
    assert "<b>" not in html(at).replace("chat <b>", "")
    at.button(key="reset").click().run()
    assert len(listed(at)) == traces_data.PAGE


def test_numbers_of_the_list_are_the_lakes(home: Path) -> None:
    with Lake.open(home) as lake:
        row = lake.query("traces_found", ids=trace_id(9)).row(0, named=True)
        scores = lake.query("scores").filter((pl.col("trace_id") == trace_id(9)) & (pl.col("name") == "quality"))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html(show(ids=trace_id(9))))
    assert waterfall.money(row["cost_usd"]) in cells
    assert waterfall.duration((row["end_ns"] - row["start_ns"]) / 1e9) in cells
    assert "100%" in cells
    assert scores["value01"].to_list() == [1.0]


def test_prompts_are_hidden_unless_the_settings_allow_them(home: Path) -> None:
    at = show(service=SHOP)
    assert "Short question" not in text(at)
    assert "Prompts and answers are hidden" in text(at)
    one = show(trace=trace_id(3))
    assert "Short question" not in text(one)
    assert "Answer" not in text(one)
    assert "alert" not in text(one)  # nor what a judge said of it


def test_prompts_are_shown_where_the_settings_allow_them(may_read: Path) -> None:
    assert "Short question 69?" in text(show(service=SHOP))
    one = show(trace=trace_id(3))
    assert "Short question 3?" in text(one)
    assert "Answer <i>3</i>" in text(one)


def test_markup_in_prompts_names_and_scores_stays_text(may_read: Path) -> None:
    shown = html(show(service=SHOP, ids=trace_id(1))) + html(show(trace=trace_id(1)))
    assert "<script>" not in shown
    assert "<b>" not in re.sub(r'<b class="rr-change">|<b>[^<]*\(here\)</b>|<b>\w+</b>', "", shown)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_a_prompt_of_a_megabyte_is_cut_and_shown_in_part_on_demand(may_read: Path) -> None:
    started = time.process_time()
    at = show(trace=trace_id(2))
    assert not at.exception
    assert len(html(at)) < 100_000
    at.button(key=f"more-{200:016x}-input_text").click().run()
    assert not at.exception
    assert len(html(at)) < messages.MOST + 100_000
    assert f"{len(LONG) - messages.MOST:,} more characters" in text(at)
    assert time.process_time() - started < 10
    assert len(html(show(ids=trace_id(2)))) < 20_000


# ---- one trace


def test_the_candidates_are_the_routers_numbers_and_name_the_rule(home: Path) -> None:
    for i in (4, 9):
        at = show(service=SHOP, trace=trace_id(i))
        router = Router.load(policy_folder(home / "runs" / RUN, SHOP))
        decision = router.decide({"messages": [{"role": "user", "content": prompt(i)}]})
        found = re.findall(r'<th scope="row">([^<]+)<.*?data-probability="([^"]+)"', html(at))
        shown = {name: float(share) for name, share in found}
        assert shown == pytest.approx(dict(zip(decision.candidates, decision.probabilities, strict=True)))
        words = "at most 20 words in the prompt" if i == 9 else "at least 21 words in the prompt"
        assert f"The policy's rule here: if {words}." in text(at)
        assert "Taken with probability 50%, as logged" in text(at)


def test_each_step_of_an_episode_is_explained_with_stop(home: Path) -> None:
    at = show(service=DESK, trace=trace_id(TRACES + 1))
    assert not at.exception
    assert "The policy would do something else at 1 of 3 decisions." in text(at)
    labels = [one.label for one in at.expander]
    assert labels == ["1. plan", "2. code → STOP", "3. STOP"]
    assert "First step: an episode does not end before it has begun" in text(at)


def test_a_trace_that_no_run_holds_is_rebuilt_from_its_messages(own: Path) -> None:
    rows = pl.read_parquet(own / "runs" / RUN / "decisions.parquet")
    rows.filter(pl.col("trace_id") != trace_id(9)).write_parquet(own / "runs" / RUN / "decisions.parquet")
    at = show(service=SHOP, trace=trace_id(9))
    assert not at.exception
    assert "Not in the run: rebuilt from its messages." in text(at)
    assert "at most 20 words in the prompt" in text(at)


def test_a_trace_shows_its_scores_its_session_and_the_way_to_the_users_own_viewer(own: Path) -> None:
    (own / "retroute.toml").write_text(CONTENT + 'trace_url = "https://mine.example/t/{trace_id}"\n')
    at = show(service=SHOP, trace=trace_id(12))
    links = [element.proto.url for element in at.get("link_button")]
    assert links == [f"https://mine.example/t/{trace_id(12)}"]
    for word in ("quality", "human", "judge", "llm-judge", "stars"):
        assert word in text(at)
    assert {13, 14} <= set(listed(at))  # of its session, each a link


def test_going_back_keeps_the_filters(home: Path) -> None:
    at = show(service=SHOP, trace=trace_id(12), status="error")
    at.button(key="up").click().run()
    assert "trace" not in at.query_params
    assert len(listed(at)) == 10


# ---- its picture


def picture(home: Path, i: int) -> pl.DataFrame:
    with Lake.open(home) as lake:
        spans, calls = lake.query("trace_shown", trace_id=trace_id(i)), lake.query("trace_calls", trace_id=trace_id(i))
    return waterfall.rows(spans.drop("found"), calls, frozenset({f"{100 * i:016x}"}))


def test_the_picture_shows_roles_failures_costs_and_clocks_as_they_are(home: Path) -> None:
    rows = {row["name"]: row for row in picture(home, 0).iter_rows(named=True)}
    assert rows["twin"]["group"] == "shown twice"
    assert rows["twin"]["cost_usd"] is None
    assert rows["lost"]["from_s"] is None
    assert rows["chat <b>"]["status"] == "error"
    assert rows["chat <b>"]["decided"]
    assert rows["chat <b>"]["tokens"] == 120
    assert [row["depth"] for row in rows.values()] == [0, 1, 1]


def test_costs_in_the_picture_sum_to_the_traces(home: Path) -> None:
    with Lake.open(home) as lake:
        calls = lake.query("trace_calls", trace_id=trace_id(9))
    assert picture(home, 9)["cost_usd"].sum() == calls["cost_usd"].sum()


def spans(*found: tuple[str, str | None, int]) -> pl.DataFrame:
    """(span, parent, start in seconds since 2026)"""
    rows = [
        {"span_id": span, "parent_span_id": parent, "name": span, "kind": "llm", "start_ns": START_NS + at * 10**9}
        | {"end_ns": START_NS + at * 10**9 + 5, "role": "own", "call_id": span}
        for span, parent, at in found
    ]
    names = ("status", "status_message", "error_type", "model", "agent", "tool")
    return pl.DataFrame(rows).with_columns(pl.lit(None, pl.String).alias(name) for name in names)


NO_CALLS = pl.DataFrame(
    schema={
        **dict.fromkeys(("span_id", "kind", "unpriced", "attempt_of"), pl.String),
        "cost_usd": pl.Float64,
        "input_tokens": pl.Int64,
        "output_tokens": pl.Int64,
    }
)


def test_spans_in_circles_and_without_parents_all_stand_in_the_picture() -> None:
    rows = waterfall.rows(spans(("a", "b", 0), ("b", "a", 1), ("c", "gone", 2), ("d", "c", 3), ("e", "e", 4)), NO_CALLS)
    assert sorted(rows["name"].to_list()) == ["a", "b", "c", "d", "e"]
    assert dict(zip(rows["name"], rows["depth"], strict=True))["d"] == 1


def test_attempts_of_a_call_are_numbered() -> None:
    calls = pl.DataFrame(
        [{"span_id": name, "kind": "llm", "attempt_of": None if name == "c" else "c"} for name in "abc"]
    ).with_columns(
        unpriced=pl.lit(None, pl.String),
        cost_usd=pl.lit(0.1),
        input_tokens=pl.lit(1, pl.Int64),
        output_tokens=pl.lit(None, pl.Int64),
    )
    rows = waterfall.rows(spans(("a", None, 0), ("b", None, 1), ("c", None, 2)), calls)
    assert rows["attempt"].to_list() == ["attempt 1 of 3", "attempt 2 of 3", "attempt 3 of 3"]


@pytest.mark.parametrize("ink", [LIGHT, DARK])
def test_a_picture_of_very_many_spans_is_cut(ink: object) -> None:
    many = spans(*((f"s{i}", None, i) for i in range(5000)))
    started = time.process_time()
    chart = waterfall.chart(waterfall.rows(many, NO_CALLS), ink).to_dict()  # type: ignore[arg-type]
    assert time.process_time() - started < 3
    assert sum(len(rows) for rows in chart["datasets"].values()) == waterfall.MOST


# ---- messages and numbers


def test_messages_are_read_whatever_they_are() -> None:
    told = messages.read(
        '[{"role": "user", "content": [{"text": "Hi"}, {"type": "image", "media_type": "x", "bytes": 3}]},'
        '{"role": "assistant", "reasoning": "Hm", "content": null, "tool_calls": [{"name": "f", "arguments": "{}"}]},'
        '{"role": "user", "content": [{"type": "sketch", "chars": 1200, "parts": 0, "digest": "' + "0" * 24 + '"}]}, 7]'
    )
    assert [(one.role, one.kind) for one in told[:4]] == [
        ("user", ""),
        ("user", "image"),
        ("assistant", "reasoning"),
        ("assistant", "tool call"),
    ]
    assert told[3].text == "f({})"
    assert told[4].hidden
    assert "1,200 characters, not kept" in trace_sections.message(told[4], whole=False)
    assert messages.read("no json") == [messages.Message("", "no json")]
    assert messages.read(None) == []
    many, left = messages.few([messages.Message("user", str(i)) for i in range(500)])
    assert (len(many), left, many[0].text, many[-1].text) == (messages.MESSAGES, 440, "0", "499")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ('[{"role":"system","content":"Be brief"},{"role":"user","content":"Why?"}]', "Why?"),
        ('[{"role":"user","content":[{"type":"text","text":"Why?"}]}]', "Why?"),
        ('[{"role":"system","content":"x"},{"role":"user","content":"Why \\"so\\"? And th', 'Why "so"? And th'),
        ('[{"role":"system","content":"Be', "Be"),
        ('[{"role":"user","content":"cut \\u00', "cut "),
        ("", None),
        ("[]", None),
    ],
)
def test_the_opening_is_read_from_whole_and_cut_messages(sent: str, said: str | None) -> None:
    assert traces_data.opening(sent) == said


def test_money_and_durations_are_short_and_true() -> None:
    assert [waterfall.money(x) for x in (0, 1.5, 0.00012345, 12345.678, -0.02)] == [
        "$0",
        "$1.50",
        "$0.00012",
        "$12,345.68",
        "−$0.020",
    ]
    assert [waterfall.duration(x) for x in (0.0123, 3.14159, 61, 600, 10000, None)] == [
        "12\u00a0ms",
        "3.14\u00a0s",
        "61.0\u00a0s",
        "10\u00a0min",
        "2.8\u00a0h",
        "unknown",
    ]


def test_what_the_list_says_of_a_decision_is_what_the_router_would_do(home: Path) -> None:
    router = Router.load(policy_folder(home / "runs" / RUN, SHOP))
    for i in (4, 9):
        features = featurise({"messages": [{"role": "user", "content": prompt(i)}]})
        assert traces_data.would(router, features.tolist()) == (SMALL if i % 2 else BIG)
    assert traces_data.would(router, [0.0] * 3) is None
