"""What all pages share: filters that live in the URL, links, downloads and the navigation."""

from __future__ import annotations

import io
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import polars as pl
import pytest
from dashboard_fixture import RUN, write_run
from streamlit.testing.v1 import AppTest

from dashboard import data, pages
from dashboard.records import UnreadableError
from dashboard.views import frame

DAY_NS = 86_400_000_000_000
FIRST_OF_MARCH_NS = 1_772_323_200_000_000_000
PATIENCE_S = 30


def controls() -> None:
    import streamlit as st

    from dashboard.views import frame

    found = frame.filters("here", ["alpha", "beta"], every=True, time=True, runs=["newer", "older"])
    st.session_state["found"] = found
    st.session_state["group"] = frame.kept("group", "model", ["model", "agent"])


def show(**query: str) -> AppTest:
    at = AppTest.from_function(controls, default_timeout=PATIENCE_S)
    at.query_params.update(query)
    at.run()
    assert not at.exception
    return at


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETROUTE_HOME", str(tmp_path))
    return tmp_path


def test_page_without_filters_in_its_address_shows_everything() -> None:
    assert show().session_state["found"] == frame.Filters(None, None, None, None)


def test_address_sets_the_filters_and_days_are_whole() -> None:
    url = {"service": "beta", "from": "2026-03-01", "to": "2026-03-02", "run": "older"}
    at = show(**url)
    assert at.session_state["found"] == frame.Filters(
        "beta", FIRST_OF_MARCH_NS, FIRST_OF_MARCH_NS + 2 * DAY_NS, "older"
    )
    assert at.query_params == url


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"service": "<img>", "run": "../../etc"}, frame.Filters(None, None, None, None)),
        ({"from": "yesterday", "to": "9999-12-31"}, frame.Filters(None, None, None, None)),
        (
            {"from": "2026-03-02", "to": "2026-03-01"},
            frame.Filters(None, FIRST_OF_MARCH_NS, FIRST_OF_MARCH_NS + 2 * DAY_NS, None),
        ),
    ],
)
def test_address_that_means_nothing_filters_nothing_and_a_turned_range_is_put_right(
    query: dict[str, str], found: frame.Filters
) -> None:
    assert show(**query).session_state["found"] == found


def test_controls_write_the_address() -> None:
    at = show(service="beta")
    at.date_input(key="from-here").set_value("2026-03-01").run()
    at.selectbox(key="run-here").set_value("older").run()
    assert at.query_params["from"] == "2026-03-01"
    assert at.query_params["run"] == "older"
    assert at.session_state["found"] == frame.Filters("beta", FIRST_OF_MARCH_NS, None, "older")
    at.date_input(key="from-here").set_value(None).run()
    at.selectbox(key="run-here").set_value(frame.NEWEST).run()
    assert at.session_state["found"] == frame.Filters("beta", None, None, None)
    assert set(at.query_params) == {"service"}


def test_page_keeps_its_own_control_in_the_address_within_its_options() -> None:
    assert show(group="agent").session_state["group"] == "agent"
    assert show(group="<b>").session_state["group"] == "model"
    assert show().session_state["group"] == "model"


def test_link_holds_any_name_and_leaves_out_what_is_empty() -> None:
    name = 'a&b=c "<img>" /#?'
    found = urlsplit(frame.link("traces", service=name, trace="", model=None, page=2))
    assert found.path == "traces"  # relative: holds behind a proxy's path
    assert parse_qs(found.query) == {"service": [name], "page": ["2"]}
    assert frame.link("traces") == "traces"


def test_trace_links_to_the_users_own_viewer(home: Path) -> None:
    assert frame.trace_link("ab12") is None
    (home / "retroute.toml").write_text('[dashboard]\ntrace_url = "https://viewer.example/p/1/traces/{trace_id}?x=1"\n')
    assert frame.trace_link("ab12") == "https://viewer.example/p/1/traces/ab12?x=1"
    assert frame.trace_link('"><script>') == "https://viewer.example/p/1/traces/%22%3E%3Cscript%3E?x=1"


SHOWN = pl.DataFrame(
    {"name": ["=1+2", "plain", None, "@sum"], "cost": [-1.5, 2.0, None, 0.0], "tags": [["a", "b"], [], None, ["c"]]}
)


def test_csv_calculates_nothing_in_a_spreadsheet_and_keeps_numbers() -> None:
    read = pl.read_csv(frame.csv(SHOWN))
    assert read["name"].to_list() == ["'=1+2", "plain", None, "'@sum"]
    assert read["cost"].to_list() == SHOWN["cost"].to_list()
    assert json.loads(read["tags"][0]) == ["a", "b"]


def test_parquet_is_exactly_what_is_shown() -> None:
    assert pl.read_parquet(io.BytesIO(frame.parquet(SHOWN))).equals(SHOWN)


def test_empty_table_can_be_downloaded() -> None:
    assert frame.csv(SHOWN.head(0)).decode().strip() == "name,cost,tags"


def test_files_of_a_run_are_read_and_nothing_outside_of_it(home: Path) -> None:
    folder = write_run(home)
    (folder / "extra.json").write_text('{"a": 1}')
    assert data.run_json(RUN, "extra.json") == {"a": 1}
    table = data.run_table(RUN, "decisions.parquet")
    assert table is not None
    assert table.height == pl.read_parquet(folder / "decisions.parquet").height
    (home / "secret.json").write_text("{}")
    for run_id, name in ((RUN, "none.json"), ("none", "extra.json"), ("..", "secret.json"), (RUN, "../../secret.json")):
        assert data.run_json(run_id, name) is None
    (folder / "extra.json").write_text("[1]")
    with pytest.raises(UnreadableError, match="does not hold an object"):
        data.run_json(RUN, "extra.json")
    (folder / "broken.parquet").write_bytes(b"PAR1")
    assert data.run_table(RUN, "broken.parquet") is None


def test_every_page_has_its_own_path_and_title() -> None:
    shown = pages.pages()
    assert len({page.path for page in shown}) == len({page.title for page in shown}) == len(shown)
    assert shown[0].path == "verdict"
    assert list(pages.SECTIONS) == ["Decide", "Your app", "Evidence"]
