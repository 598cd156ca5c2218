"""What would have happened: for each prompt, the real outcome of every arm, read from the public data sets.

One reader per service. All return tasks in the order of the data; a task holds the prompt, the facts a logging policy
may look at, and one outcome per arm. Tokens and qualities are the data's own; latency is logged for the classifier and
modelled for the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
from latency import LatencyModel, microseconds

Row = Mapping[str, Any]
LONGEST_PROMPT = 4_000  # characters; longer prompts are cut, their token counts stay
STEP_GAP_US = 1_500  # an agent's own work between two spans, an assumption
WINSOR = 0.999  # quantile of all logged latencies of the classifier, above which they are cut
FAQ_PROMPTS = 4_000
NO_OUTPUT = "(no output)"  # what a tool says that says nothing: an empty attribute is as good as none


@dataclass(frozen=True)
class Tool:
    """One tool execution. `reward` is the environment's judgement right after it, in [0, 1]."""

    name: str
    arguments: Mapping[str, str]
    result: str
    failed: bool
    latency_us: int
    reward: float


@dataclass(frozen=True)
class Call:
    """One model call, with the tool it led to. `text` and `thought` are None where the data has no answer text."""

    model: str
    input_tokens: int
    output_tokens: int
    latency_us: int
    text: str | None = None
    thought: str | None = None
    parameters: Mapping[str, int | float] = field(default_factory=dict)
    tool: Tool | None = None


@dataclass(frozen=True)
class Outcome:
    """What one arm does with one prompt. `quality` is in [0, 1]."""

    quality: float
    calls: tuple[Call, ...]

    @property
    def latency_us(self) -> int:
        """From the first to the last moment of the trace, in microseconds."""
        return sum(call.latency_us for call in self.calls)


@dataclass(frozen=True)
class Task:
    """One prompt. Tasks of one `group` belong to one session; `facts` is what a logging policy may depend on."""

    key: str
    question: str
    outcomes: Mapping[str, Outcome]
    facts: Mapping[str, int | str]
    group: str | None = None
    system: str | None = None


def read_assistant(data: Path, arms: Sequence[str], latency: LatencyModel) -> list[Task]:
    """llmrouter9: graded answers of open models. Completion tokens are one constant per benchmark."""
    prompts = _read(data / "llmrouter9/prompts.parquet")
    rows = _rows(data / "llmrouter9/outcomes.parquet", arms, "prompt_id")
    return [_single_call(p, rows[p["prompt_id"]], latency, {"task": p["task"]}) for p in prompts.to_dicts()]


def read_faq(data: Path, arms: Sequence[str], latency: LatencyModel) -> list[Task]:
    """routellm: GPT-4 and Mixtral on the first 4,000 prompts in the order of a hash."""
    names = {"mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b-instruct"}
    prompts = _read(data / "routellm/prompts.parquet").to_dicts()
    rows = _rows(data / "routellm/outcomes.parquet", arms, "prompt_id", names)
    chosen = sorted(prompts, key=lambda p: sha256(f"faq|{p['prompt_id']}".encode()).hexdigest())[:FAQ_PROMPTS]
    return [_single_call(p, rows[p["prompt_id"]], latency, {"chars": len(p["prompt"])}) for p in chosen]


def read_classifier(data: Path, arms: Sequence[str], latency: LatencyModel) -> list[Task]:
    """llmdrift, prime and happy_number: logged tokens and latency, the latter cut at its 99.9 % quantile."""
    del latency  # logged, not modelled
    prompts = _read(data / "llmdrift/prompts.parquet").filter(pl.col("prompt").is_not_null())
    rows = _rows(data / "llmdrift/outcomes.parquet", arms, "prompt_id")
    cap = latency_cap(data, arms)
    tasks = []
    for prompt in prompts.to_dicts():
        facts = {"task": prompt["task"], "number": int(re.findall(r"\d+", prompt["prompt"])[0])}
        outcomes = {arm: _logged(row, cap) for arm, row in rows[prompt["prompt_id"]].items()}
        tasks.append(Task(prompt["prompt_id"], prompt["prompt"], outcomes, facts))
    return tasks


def latency_cap(data: Path, arms: Sequence[str]) -> float:
    """The 99.9 % quantile of the arms' logged latencies on the classifier's prompts, in seconds."""
    logged = _read(data / "llmdrift/outcomes.parquet").filter(
        pl.col("task").is_in(["prime", "happy_number"]), pl.col("model").is_in(arms)
    )
    return float(logged["latency_s"].quantile(WINSOR) or 0.0)


def read_sql_agent(data: Path, arms: Sequence[str], latency: LatencyModel) -> list[Task]:
    """intercode, SQL: episodes of (model, strategy) arms. The quality is the best reward of the episode."""
    tasks = _read(data / "intercode/tasks.parquet").filter(pl.col("env") == "sql")
    episodes = _episodes(data, arms)
    steps = _read(data / "intercode/steps.parquet").sort("episode_id", "step")
    by_episode = {key[0]: frame.to_dicts() for key, frame in steps.group_by(["episode_id"], maintain_order=True)}
    return [
        Task(
            key=task["task_id"],
            question=task["query"],
            outcomes={
                arm: Outcome(row["reward"], _agent_calls(row, by_episode[row["episode_id"]], latency))
                for arm, row in episodes[task["task_id"]].items()
            },
            facts={"db": task["db"], "hardness": task["hardness"]},
            group=task["group_id"],
            system=f'Answer the question by querying the MySQL database "{task["db"]}".',
        )
        for task in tasks.to_dicts()
        if len(episodes.get(task["task_id"], {})) == len(arms)
    ]


def _read(path: Path) -> pl.DataFrame:
    frame = pl.read_parquet(path)
    if frame["holdout"].any():
        raise ValueError(f"{path}: held-out rows may not be shown")
    return frame


def _rows(
    path: Path, arms: Sequence[str], key: str, names: Mapping[str, str] | None = None
) -> dict[str, dict[str, Row]]:
    """{prompt: {arm: row}}, arms in the order given."""
    frame = _read(path).with_columns(pl.col("model").replace(names or {}))
    frame = frame.filter(pl.col("model").is_in(list(arms)))
    found: dict[str, dict[str, Row]] = {}
    for row in frame.to_dicts():
        found.setdefault(row[key], {})[row["model"]] = row
    return {prompt: {arm: rows[arm] for arm in arms} for prompt, rows in found.items() if len(rows) == len(arms)}


def _episodes(data: Path, arms: Sequence[str]) -> dict[str, dict[str, Row]]:
    frame = _read(data / "intercode/episodes.parquet").filter(pl.col("env") == "sql")
    frame = frame.with_columns(pl.concat_str("model", "agent", separator="|").alias("arm"))
    found: dict[str, dict[str, Row]] = {}
    for row in frame.filter(pl.col("arm").is_in(list(arms))).to_dicts():
        found.setdefault(row["task_id"], {})[row["arm"]] = row
    return {task: {arm: rows[arm] for arm in arms if arm in rows} for task, rows in found.items()}


def _single_call(prompt: Row, rows: Mapping[str, Row], latency: LatencyModel, facts: Mapping[str, int | str]) -> Task:
    outcomes = {arm: _modelled(row, arm, latency) for arm, row in rows.items()}
    return Task(prompt["prompt_id"], prompt["prompt"][:LONGEST_PROMPT], outcomes, facts)


def _modelled(row: Row, arm: str, latency: LatencyModel) -> Outcome:
    tokens = row["completion_tokens"]
    took = latency.call_us(arm, tokens, key=f"{row['source']}|{row['prompt_id']}|{arm}")
    return Outcome(row["quality"], (Call(arm, row["prompt_tokens"], tokens, took, text=row.get("response")),))


def _logged(row: Row, cap: float) -> Outcome:
    parameters = {"temperature": row["temperature"], "max_tokens": row["max_tokens"]}
    took = microseconds(min(row["latency_s"], cap))
    call = Call(row["model"], row["prompt_tokens"], row["completion_tokens"], took, parameters=parameters)
    return Outcome(row["quality"], (call,))


def _agent_calls(episode: Row, steps: Sequence[Row], latency: LatencyModel) -> tuple[Call, ...]:
    calls = []
    for step in steps:
        key = f"{episode['episode_id']}|{step['step']}"
        took = latency.call_us(episode["model"], step["completion_tokens"], key=key)
        tool = _tool(step, latency.tool_us(key))
        tokens = (step["prompt_tokens"], step["completion_tokens"])
        calls.append(Call(episode["model"], *tokens, took, step["action"], step["thought"], tool=tool))
    return tuple(calls)


def _tool(step: Row, latency_us: int) -> Tool:
    """The environment's side of a step. ReAct wraps its SQL in `execute[...]` and ends with `submit`."""
    said = step["observation"] or NO_OUTPUT
    failed = said.startswith("Error executing query")
    if step["action"] == "submit":
        return Tool("submit", {}, said, failed, latency_us, step["reward"])
    query = re.sub(r"^execute\[(.*)\]$", r"\1", step["action"], flags=re.DOTALL)
    return Tool("execute_sql", {"query": query}, said, failed, latency_us, step["reward"])
