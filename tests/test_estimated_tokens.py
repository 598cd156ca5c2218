"""Calls without token counts get estimates by the length of their texts, learned from the same model, in no cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from otlp_traces import SECOND, START, agent, chat, log, logs_body, span, traces_body

from ingest import wal
from ingest.converter import run
from ingest.home import open_home
from ingest.lake import Lake
from ingest.options import ConverterOptions
from ingest.pricing import Price
from ingest.privacy import Policy
from optimizer import doctor, prompts


def said(role: str, words: int) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": "word " * words}]}])


def call(number: int, words: int | None, answer: int | None, *, counted: bool, model: str = "talker", **more: object):
    """A call of so many words; the model makes a token of every word, and 8 of the rest."""
    texts = {} if words is None else {"gen_ai__input__messages": said("user", words)}
    texts |= {} if answer is None else {"gen_ai__output__messages": said("assistant", answer)}
    given, answered = ((words or 0) + 8, (answer or 0) + 8) if counted else (None, None)
    return span(number, chat(model, given, answered, **texts, **more), trace=number)


def home_of(folder: Path, spans, logs=(), *, seal: bool = False) -> Path:
    open_home(folder, create=True)
    body = traces_body(spans)
    if seal:
        body = Policy(content=False, vector=prompts.vector).apply(body, "traces", "json")
    writer = wal.Wal(folder / "wal")
    writer.write([wal.Record("traces", "json", START + 10**12, body)])
    if logs:
        writer.write([wal.Record("logs", "json", START + 10**12 + 1, logs_body(logs))])
    writer.close()
    run(folder, ConverterOptions(quiet_s=0.0, commit_s=0.0, prices=(Price("talker", 1.0, 1.0),)), lambda: True)
    return folder


def estimates(home: Path) -> dict[int, tuple[int | None, int | None]]:
    with Lake.open(home) as lake:
        rows = lake.sql("select trace_id, estimated_input_tokens, estimated_output_tokens from token_estimates").rows()
    return {int(trace, 16): (given, answered) for trace, given, answered in rows}


KNOWN = [call(n, 100 * n, 20 * n, counted=True) for n in range(1, 7)]


def test_tokens_are_estimated_by_calls_of_the_same_model(tmp_path: Path) -> None:
    home = home_of(tmp_path, [*KNOWN, call(20, 350, 70, counted=False), call(21, 350, None, counted=False)])
    found = estimates(home)
    assert found.keys() == {20, 21}
    assert found[20][0] == pytest.approx(358, rel=0.03)
    assert found[20][1] == pytest.approx(78, rel=0.03)
    assert found[21][1] is None  # no answer was recorded


def test_what_cannot_be_learned_is_unknown_and_not_0(tmp_path: Path) -> None:
    spans = [
        *KNOWN[:4],  # too few to learn from
        call(20, 350, 70, counted=False),
        call(21, 350, 70, counted=False, model="silent"),  # none of its calls tells tokens
        call(22, None, None, counted=False),  # no text
    ]
    assert estimates(home_of(tmp_path, spans)) == dict.fromkeys((20, 21, 22), (None, None))


def test_estimates_are_in_no_cost_and_beside_the_counts(tmp_path: Path) -> None:
    home = home_of(tmp_path, [*KNOWN, call(20, 350, 70, counted=False)])
    with Lake.open(home) as lake:
        row = lake.sql("select input_tokens, cost_usd, unpriced from calls where trace_id like '%14'").row(0)
        summed = lake.query("estimated_tokens").to_dicts()
    assert row == (None, None, "no input token count")
    assert (summed[0]["model"], summed[0]["calls"], summed[0]["estimated_calls"]) == ("talker", 1, 1)
    assert summed[0]["calls_learned_from"] == 6
    finding = next(found for found in doctor.examine(home) if found.name == "estimated tokens")
    assert "1 model calls told no tokens; by their length 1 of them have about" in finding.says
    assert "an estimate that is in no cost and no saving" in finding.says


def test_reasoning_is_no_part_of_what_can_be_read(tmp_path: Path) -> None:
    thinking = [
        span(
            n,
            chat("talker", 10, 1000 + 20 * n, gen_ai__usage__reasoning__output_tokens=1000)
            | {"gen_ai.output.messages": said("assistant", 20 * n)},
            trace=n,
        )
        for n in range(1, 7)
    ]
    found = estimates(home_of(tmp_path, [*thinking, call(20, None, 70, counted=False)]))
    assert found[20][1] == pytest.approx(70, rel=0.2)


def test_texts_that_came_as_events_count(tmp_path: Path) -> None:
    def event(number: int, words: int) -> dict[str, object]:
        return log(
            "gen_ai.user.message", {}, trace=number, span=number, body={"role": "user", "content": "word " * words}
        )

    spans = [span(n, chat("talker", 100 * n if n < 20 else None, None), trace=n) for n in (1, 2, 3, 4, 5, 20)]
    spans += [span(99, agent(), trace=99, start_ns=START, end_ns=START + SECOND)]
    logs = [event(n, 100 * n) for n in (1, 2, 3, 4, 5)] + [event(20, 350)]
    assert estimates(home_of(tmp_path, spans, logs))[20][0] == pytest.approx(350, rel=0.05)


def test_sealed_texts_have_the_same_estimates(tmp_path: Path) -> None:
    """Without content only the lengths of texts are kept: see `ingest.sealing`."""
    spans = [*KNOWN, call(20, 350, 70, counted=False)]
    assert estimates(home_of(tmp_path / "sealed", spans, seal=True)) == estimates(home_of(tmp_path / "whole", spans))
