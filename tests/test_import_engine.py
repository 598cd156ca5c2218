"""An import that is interrupted goes on where it stopped; one that cannot sync says nothing of having read."""

from __future__ import annotations

import pytest
from otlp_traces import span

from ingest import wal
from ingest.errors import WorkError
from ingest.importers import engine
from ingest.importers.engine import Journal, import_sources
from ingest.importers.sources import Importer, Item, Source
from ingest.options import ConverterOptions


def broken_after(count, total=10, *, resumes=False):
    """An importer of `total` spans that fails once after `count` of them; it notes what it gave."""
    given: list[int] = []
    fails = [WorkError("gone")]

    def read(source):
        start = int(source.state.get("next", 0)) if resumes else 0
        for n in range(start, total):
            if n == count and fails:
                raise fails.pop()
            given.append(n)
            yield Item(n + 1, [span(n + 1, {"n": n})], share=n / total, state={"next": n + 1} if resumes else None)

    return Importer("numbers", "", lambda sample: False, read, resumes), given


@pytest.fixture
def quick(monkeypatch):
    """No lake: only what gets into the log counts here."""
    monkeypatch.setattr(engine, "drain", lambda *_: None)


def logged(home):
    records = [record for _, record in wal.WalReader(home / "wal").read(1 << 30)]
    return [body.count(b'"spanId"') for body in (record.body for record in records)]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("resumes", [False, True])
def test_an_interrupted_import_goes_on_after_what_was_synced(tmp_path, resumes):
    (tmp_path / "x").write_text("x")
    home, source = tmp_path / "home", Source("x", tmp_path / "x")
    importer, given = broken_after(4, resumes=resumes)
    with pytest.raises(WorkError):
        import_sources(home, [(importer, source)], ConverterOptions())
    assert logged(home) == [4]
    report = import_sources(home, [(importer, source)], ConverterOptions())
    assert (report.spans, logged(home)) == (6, [4, 6])
    assert given == ([*range(10)] if resumes else [*range(4), *range(10)])


@pytest.mark.usefixtures("quick")
def test_a_finished_source_is_read_again_only_when_it_changed_or_when_asked(tmp_path):
    path, home = tmp_path / "x", tmp_path / "home"
    path.write_text("x")
    importer, _ = broken_after(99)
    counts = []
    for again, content in ((False, "x"), (False, "x"), (True, "x"), (False, "longer")):
        if path.read_text() != content:
            path.write_text(content)
        report = import_sources(home, [(importer, Source("x", path))], ConverterOptions(), again=again)
        counts.append((report.spans, report.unchanged))
    assert counts == [(10, 0), (0, 1), (10, 0), (10, 0)]


@pytest.mark.usefixtures("quick")
def test_what_could_not_be_synced_is_read_again(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("x")
    source = Source("x", tmp_path / "x")
    importer, _ = broken_after(99)
    with monkeypatch.context() as patch:
        patch.setattr(wal.Wal, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            import_sources(tmp_path / "home", [(importer, source)], ConverterOptions())
    assert Journal.of(tmp_path / "home", importer, source).items == 0
    assert import_sources(tmp_path / "home", [(importer, source)], ConverterOptions()).spans == 10


@pytest.mark.usefixtures("quick")
def test_progress_is_told_with_the_share_that_is_read(tmp_path):
    (tmp_path / "x").write_text("x")
    told = []
    importer, _ = broken_after(99, total=4)
    import_sources(
        tmp_path / "home", [(importer, Source("x", tmp_path / "x"))], ConverterOptions(), lambda *t: told.append(t)
    )
    assert told == [("x", 0.0, 1), ("x", 0.25, 2), ("x", 0.5, 3), ("x", 0.75, 4)]


def test_groups_are_synced_while_reading(tmp_path, quick, monkeypatch):
    monkeypatch.setattr(engine, "GROUP_SPANS", 3)
    (tmp_path / "x").write_text("x")
    importer, _ = broken_after(99)
    import_sources(tmp_path / "home", [(importer, Source("x", tmp_path / "x"))], ConverterOptions())
    assert logged(tmp_path / "home") == [3, 3, 3, 1]
