"""Puppeteer's run folders (`logs/TASK/TIME/` of its public code): one trace a run.

    path_K.jsonl       the steps of one branch, with those that it shares with others      which agent did what
    meta.log           the question, when each branch made a step, the final answer        order and time
    model_query.log    every model call with its messages, tokens and times                what it cost

Each step is an agent's span, once however many branches share it, linked to the step before it; one that ends a branch
is named STOP. Each model call lies below the step in which it happened, the calls that merge answers below the run. The
probabilities in train.log are a softmax, not the chance with which an agent was chosen, so the decisions carry no
propensity. Times have no date: it is that of the folder's name, else the day of the file.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from ingest import foreign_ids
from ingest.dialects.values import text
from ingest.importers.call import Attributes, Tokens, as_json, present, scope
from ingest.importers.sources import Importer, Item, Sample, Source
from ingest.spans import Span, Status

_ENTRY = re.compile(r"^\[(?:(?P<date>\d{4}-\d{2}-\d{2}) )?(?P<time>\d{2}:\d{2}:\d{2})[^\]]*\]\n", re.MULTILINE)
_STEP = re.compile(r"-*\[(?P<done>DONE\]: )?Reasoning Path ?(?P<path>\d+) STEP")
_USAGE = re.compile(r"Completion Tokens: (\d+)\s+Prompt Tokens: (\d+)")
_QUERYING = re.compile(r"\[Model Query\] Querying (.+)")
_ANSWER = re.compile(r"\[Model Query\] (.+?) response: (.*)", re.DOTALL)
_FOLDER = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})-\d{1,2}-\d{1,2}-\d{1,2}")
_MODELS = {"gpt4o": "gpt-4o", "gpt-3.5": "gpt-3.5-turbo", "gpt4": "gpt-4"}
_DAY_NS = 86_400 * 10**9
_TERMINATOR = "TerminatorAgent"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log."""

    at_ns: int
    said: str


@dataclass(frozen=True, slots=True)
class Query:
    """One model call."""

    model: str
    start_ns: int
    end_ns: int
    messages: object
    answer: str
    tokens: Tokens
    failures: int
    """Attempts before it that failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a branch: `path` names the agents and actions up to it."""

    path: tuple[str, ...]
    agent: str
    action: str
    parameter: object
    answer: object
    failed: bool
    start_ns: int
    end_ns: int


def run_spans(folder: Path, service: str | None) -> list[Span]:
    """The spans of a run. Raises ValueError naming the file that cannot be used."""
    midnight = _midnight(folder)
    meta = _entries(folder / "meta.log", midnight)
    queries = _queries(_entries(folder / "model_query.log", midnight))
    steps = _steps(folder, _windows(meta))
    if not meta:
        raise ValueError("meta.log has no entries")
    question = next((entry.said.partition("\n")[2] for entry in meta if entry.said.startswith("Task:")), "")
    final = next(
        (e.said.partition("]: ")[2].strip() for e in reversed(meta) if e.said.startswith("[Final Answer]")), ""
    )
    run = f"puppeteer/{folder.name}/{hashlib.sha256(question.encode()).hexdigest()}"
    trace_id, root_id = foreign_ids.trace_id(run), foreign_ids.span_id(run)
    resource = {"service.name": service or "puppeteer"}
    attributes = present(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "puppeteer",
            "gen_ai.input.messages": as_json([{"role": "user", "content": question}] if question else None),
            "gen_ai.output.messages": as_json([{"role": "assistant", "content": final}] if final else None),
        }
    )
    times = [entry.at_ns for entry in meta] + [query.end_ns for query in queries]

    def made(identity: str, parent: str | None, name: str, start_ns: int, end_ns: int, **more: object) -> Span:
        values: Attributes = more["attributes"]  # type: ignore[assignment]
        links: tuple[tuple[str, str], ...] = more.get("links", ())  # type: ignore[assignment]
        status: Status = "error" if more.get("failed") else "ok"
        return Span(
            trace_id, foreign_ids.span_id(identity), parent, name, "internal", start_ns, end_ns, status, "", values,
            resource, scope("puppeteer"), links=links,
        )  # fmt: skip

    spans = [made(run, None, "puppeteer", min(times), max(times), attributes=attributes)]
    ids = {step.path: foreign_ids.span_id(f"{run}/{'/'.join(step.path)}") for step in steps}
    for step in steps:
        before = ids.get(step.path[:-1])
        spans.append(
            made(
                f"{run}/{'/'.join(step.path)}",
                root_id,
                "STOP" if step.agent == _TERMINATOR else step.agent,
                step.start_ns,
                step.end_ns,
                attributes=_step_attributes(step),
                links=((trace_id, before),) if before else (),
                failed=step.failed,
            )
        )
    for number, query in enumerate(queries):
        owner = _owner(query, steps)
        parent = root_id if owner is None else ids[owner.path]
        values = _query_attributes(query) | ({"gen_ai.agent.name": owner.agent} if owner else {})
        name = f"chat {query.model}"
        spans.append(made(f"{run}/query/{number}", parent, name, query.start_ns, query.end_ns, attributes=values))
    return spans


def _step_attributes(step: Step) -> Attributes:
    return present(
        {
            "gen_ai.operation.name": "stop" if step.agent == _TERMINATOR else "invoke_agent",
            "gen_ai.agent.name": step.agent,
            "puppeteer.action": step.action,
            "gen_ai.output.messages": as_json([{"role": "assistant", "content": step.answer}] if step.answer else None),
        }
    )


def _query_attributes(query: Query) -> Attributes:
    return present(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai" if "gpt" in query.model else None,
            "gen_ai.request.model": _MODELS.get(query.model, query.model),
            "gen_ai.input.messages": as_json(query.messages),
            "gen_ai.output.messages": as_json([{"role": "assistant", "content": query.answer}]),
            "puppeteer.failed_attempts": query.failures or None,
            **query.tokens.attributes(),
        }
    )


def _owner(query: Query, steps: Sequence[Step]) -> Step | None:
    """The step during which a call was made: of those whose time holds it, the one that began last."""
    holding = [step for step in steps if step.start_ns <= query.start_ns and query.end_ns <= step.end_ns]
    started = [step for step in holding if step.start_ns < step.end_ns]
    return max(started, key=lambda step: step.start_ns, default=None)


def _steps(folder: Path, windows: dict[int, list[tuple[int, int]]]) -> list[Step]:
    """The distinct steps of all branches, in order of time. The last steps of a branch are its own."""
    found: dict[tuple[str, ...], Step] = {}
    paths = sorted(folder.glob("path_*.jsonl"), key=lambda path: int(path.stem.partition("_")[2]))
    for file in paths:
        try:
            listed = orjson.loads(file.read_bytes())
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{file.name} is not JSON: {error}") from None
        if not isinstance(listed, list) or not all(isinstance(step, dict) for step in listed):
            raise ValueError(f"{file.name} is not a list of steps")
        own = windows.get(int(file.stem.partition("_")[2]), [])
        first = len(listed) - len(own)
        path: tuple[str, ...] = ()
        for index, step in enumerate(listed):
            action = step.get("action") if isinstance(step.get("action"), dict) else {}
            agent = text(step.get("agent")) or "agent"
            path = (*path, f"{agent}:{action.get('action')}")
            if index < first or path in found:
                continue
            result = step.get("result") if isinstance(step.get("result"), dict) else {}
            start_ns, end_ns = own[index - first]
            found[path] = Step(
                path,
                agent,
                text(action.get("action")) or "",
                action.get("parameter"),
                result.get("answer") or result.get("step_data"),
                step.get("success") == "Failure",
                start_ns,
                end_ns,
            )
    return sorted(found.values(), key=lambda step: (step.start_ns, step.path))


def _windows(meta: Sequence[Entry]) -> dict[int, list[tuple[int, int]]]:
    """When each branch made a step: its number -> starts and ends, in order."""
    found: dict[int, list[tuple[int, int]]] = {}
    begun: dict[int, int] = {}
    for entry in meta:
        if match := _STEP.match(entry.said):
            path = int(match["path"])
            if match["done"] and path in begun:
                found.setdefault(path, []).append((begun.pop(path), entry.at_ns))
            elif not match["done"]:
                begun[path] = entry.at_ns
    return found


def _queries(entries: Sequence[Entry]) -> list[Query]:
    found: list[Query] = []
    start_ns, failures, messages = 0, 0, None
    tokens = Tokens()
    for entry in entries:
        if _QUERYING.match(entry.said):
            start_ns, messages, failures, tokens = entry.at_ns, None, 0, Tokens()
        elif entry.said.startswith("[Model Query] ["):
            messages = _literal(entry.said.removeprefix("[Model Query] "))
        elif match := _USAGE.search(entry.said):
            tokens = Tokens(int(match[2]), int(match[1]))
        elif "query failed" in entry.said[:80]:
            failures += 1
        elif match := _ANSWER.match(entry.said):
            found.append(Query(match[1], start_ns, entry.at_ns, messages, match[2], tokens, failures))
    return found


def _literal(said: str) -> object:
    try:
        return ast.literal_eval(said)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return said


def _entries(file: Path, midnight_ns: int) -> list[Entry]:
    """The entries of a log, in order; the clock may pass midnight."""
    try:
        content = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise ValueError(f"{file.name} is missing") from None
    marks = list(_ENTRY.finditer(content))
    found: list[Entry] = []
    day_ns = midnight_ns
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        hours, minutes, seconds = (int(part) for part in mark["time"].split(":"))
        at_ns = day_ns + (hours * 3600 + minutes * 60 + seconds) * 10**9
        if found and at_ns < found[-1].at_ns:
            day_ns += _DAY_NS
            at_ns += _DAY_NS
        found.append(Entry(at_ns, content[mark.end() : following.start() if following else None].strip()))
    return found


def _midnight(folder: Path) -> int:
    if match := _FOLDER.search(folder.name):
        try:
            return _ns(datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=UTC))
        except ValueError:
            pass
    file = folder / "meta.log"
    changed = datetime.fromtimestamp(file.stat().st_mtime if file.exists() else 0, UTC)
    return _ns(changed.replace(hour=0, minute=0, second=0, microsecond=0))


def _ns(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * 10**9


def _read(source: Source) -> Iterator[Item]:
    assert source.path is not None
    try:
        yield Item(None, run_spans(source.path, source.service), share=1.0)
    except (ValueError, OSError) as error:
        yield Item(None, problem=f"{error}; the run is not imported", share=1.0)


def _recognises(sample: Sample) -> bool:
    path = sample.path
    return (
        sample.kind == "folder" and path is not None and (path / "meta.log").exists() and any(path.glob("path_*.jsonl"))
    )


IMPORTER = Importer(
    "puppeteer", "run folders of Puppeteer (meta.log, model_query.log, path_*.jsonl)", _recognises, _read
)
