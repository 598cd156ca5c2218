"""Named queries and migrations: registered, documented, and valid against the newest schema."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import pytest

from ingest import queries
from ingest.lake import Lake


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    home = tmp_path_factory.mktemp("home")
    Lake.open(home, write=True).close()
    with Lake.open(home) as lake:
        yield lake


def test_every_file_is_registered_and_every_name_has_a_file() -> None:
    names = {file.name.removesuffix(".sql") for file in (files("ingest") / "sql" / "queries").iterdir()}
    assert names == set(queries.QUERIES)
    assert sorted(queries.QUERIES) == list(queries.QUERIES)


@pytest.mark.parametrize("name", queries.QUERIES)
def test_declared_parameters_are_the_used_ones(name: str) -> None:
    query = queries.query(name)
    assert sorted(query.parameters) == list(queries.used_parameters(query.text))


@pytest.mark.parametrize("name", queries.QUERIES)
def test_query_gives_its_declared_columns_on_an_empty_lake(reader: Lake, name: str) -> None:
    frame = reader.query(name)
    assert tuple(frame.columns) == queries.query(name).columns
    assert len(frame) == (1 if queries.query(name).order == "one row" else 0)


@pytest.mark.parametrize("name", queries.QUERIES)
def test_more_than_one_row_comes_in_a_stated_order(name: str) -> None:
    query = queries.query(name)
    assert query.order == "one row" or "\norder by " in query.text


def test_a_surplus_parameter_is_a_type_error(reader: Lake) -> None:
    with pytest.raises(TypeError, match="no parameter servise"):
        reader.query("calls", servise="shop")


def test_a_missing_header_line_is_refused() -> None:
    with pytest.raises(ValueError, match="header needs"):
        queries.parse("broken", "-- What it gives.\n-- parameters: none\n-- columns: a\nselect 1 as a")


def test_an_unknown_query_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there are calls, "):
        queries.query("nope")


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    numbers = [step.number for step in queries.migrations()]
    assert numbers == list(range(1, len(numbers) + 1))
