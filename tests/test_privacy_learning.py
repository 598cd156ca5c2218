"""A night learns the same policy from a log without texts as from the same log with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ingest.lake import Lake
from optimizer import cli, config
from optimizer.demo import sample_folder

SERVICE = "assistant"  # of the sample's services the one whose policy looks at the prompt


def night(home: Path, privacy: str) -> Path:
    """Imports the sample's log into a new home; the run of its first night."""
    home.mkdir()
    sample = sample_folder()
    (home / config.FILE_NAME).write_text(f"{privacy}\n{(sample / config.FILE_NAME).read_text()}")
    assert cli.run(["import", "--home", str(home), str(sample / f"{SERVICE}.otlp.jsonl.gz")]) == 0
    assert cli.run(["nightly", "--home", str(home), "--json"]) == 0
    return next(iter((home / "runs").glob("2*")))


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("nights")
    return night(folder / "whole", ""), night(folder / "sealed", "[privacy]\ncontent = false\n")


def test_decisions_and_features_are_the_same(nights):
    whole, sealed = (pl.read_parquet(run / "decisions.parquet").sort("decision_id") for run in nights)
    assert len(whole) > 100
    assert np.array_equal(whole["features"].to_numpy(), sealed["features"].to_numpy())
    assert whole.equals(sealed)


def test_the_policy_is_the_same(nights):
    whole, sealed = (np.load(run / "policy" / SERVICE / "weights.npz") for run in nights)
    assert whole.files == sealed.files
    for name in whole.files:
        assert np.array_equal(whole[name], sealed[name]), name


def test_so_is_the_verdict(nights):
    whole, sealed = (json.loads((run / "verdicts.json").read_text())["services"][SERVICE] for run in nights)
    assert whole["verdict"] == sealed["verdict"]
    assert whole["savings_usd_per_1k"] == sealed["savings_usd_per_1k"]


def test_no_prompt_is_in_the_home_without_content(nights):
    whole, sealed = (run.parent.parent for run in nights)
    with Lake.open(whole) as lake:
        texts = lake.sql("select distinct input_text from calls where input_text is not null")["input_text"].to_list()
    said = sorted({message["content"] for text in texts for message in json.loads(text) if message["role"] == "user"})[
        ::20
    ]
    assert len(said) > 10
    with Lake.open(sealed) as lake:
        kept = lake.sql("select * from contents").write_ndjson() + lake.sql("select * from spans").write_ndjson()
    assert not [text for text in said if json.dumps(text)[1:-1] in kept]
    wal = b"".join(path.read_bytes() for path in (sealed / "wal").glob("*.wal"))
    assert wal
    assert not [text for text in said if text.encode() in wal]
