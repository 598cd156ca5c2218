"""A logged trace as spans and evaluation events, named as OpenTelemetry's GenAI conventions do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from logbook import Logged, Logging, Streams, late
from otlp_json import Item, compact, evaluation, span
from outcomes import STEP_GAP_US, Call, Tool
from stepwise import ROUTE_US, Decision

PROVIDER = {
    "llama3-chatqa-1.5-70b": "nvidia_nim",
    "qwen2.5-7b-instruct": "nvidia_nim",
    "gemma-2-9b-it": "nvidia_nim",
    "chat-bison-001": "gcp.vertex_ai",
    "mixtral-8x7b-instruct": "together_ai",
}  # all others: openai
Message = dict[str, object]
CHAT, AGENT, GRADER = (f"retroute.sample_traces.{part}" for part in ("chat", "agent", "grader"))


@dataclass(frozen=True)
class Writer:
    """Turns the traces of one service into OTLP items, with fresh ids."""

    logging: Logging
    streams: Streams

    def items(self, log: list[Logged]) -> list[Item]:
        """All spans and evaluation events of the service."""
        stepwise = self.logging.script is not None
        return [item for logged in log for item in (self._agent(logged) if stepwise else self._single(logged))]

    def _single(self, logged: Logged) -> Iterator[Item]:
        """One chat span, and its score minutes to hours later."""
        outcome = logged.task.outcomes[logged.choice.action]
        call = outcome.calls[0]
        trace_id, span_id = logged.trace_id, self.streams.hex(16)
        messages = [_message("user", logged.task.question)]
        attributes = {
            **self._chat_attributes(logged, call, messages),
            **self._policy(logged.choice.action, logged.choice.probabilities, "explore"),
        }
        end_ns = logged.start_ns + call.latency_us * 1000
        yield Item("spans", CHAT, end_ns, _chat(trace_id, span_id, None, logged.start_ns, call, attributes))
        if logged.labelled:
            at = end_ns + 1000 * late(logged.score_delay, median_s=2_400, sigma=1.0, low_s=120, high_s=18_000)
            response = str(attributes["gen_ai.response.id"])
            yield self._score(trace_id, span_id, self.logging.score, outcome.quality, at, response)

    def _agent(self, logged: Logged) -> Iterator[Item]:
        """invoke_agent over route, chat and execute_tool spans; minutes later the rewards, of each step and in the end.

        An arm sees what it did itself on the task, not what others did.
        """
        root, clock, best = self.streams.hex(16), logged.start_ns, 0.0
        begin = _beginning(logged)
        seen: dict[str, list[Message]] = {arm: list(begin) for arm in self.logging.arms}
        for decision in logged.episode.decisions:
            yield self._route(logged, decision, root, clock)
            if decision.call and decision.call.tool:
                best = max(best, decision.call.tool.reward)
                yield from self._step(logged, decision, root, clock, seen[decision.action], best)
            clock += decision.latency_us * 1000
        yield from self._root(logged, root)

    def _step(
        self, logged: Logged, decision: Decision, root: str, start_ns: int, messages: list[Message], best: float
    ) -> Iterator[Item]:
        """The model call and the tool of a decision that begins then; the messages grow by them."""
        call, model = decision.call, decision.action.split("|")
        if call is None or call.tool is None:
            return
        begin = start_ns + (ROUTE_US + STEP_GAP_US) * 1000
        attributes = self._chat_attributes(logged, call, messages)
        attributes["gen_ai.prompt.name"] = model[1]
        end = begin + call.latency_us * 1000
        yield Item("spans", CHAT, end, _chat(logged.trace_id, self.streams.hex(16), root, begin, call, attributes))
        yield from self._tool(logged, call.tool, root, end + STEP_GAP_US * 1000, best)
        messages += [_message("assistant", str(call.text)), _message("user", call.tool.result)]

    def _route(self, logged: Logged, decision: Decision, root: str, start_ns: int) -> Item:
        """The span of a decision, be it STOP."""
        end_ns = start_ns + ROUTE_US * 1000
        attributes = {
            "gen_ai.agent.name": self.logging.service,
            "gen_ai.conversation.id": logged.session,
            "retroute.sample.latency": "modelled",
            **self._policy(decision.action, decision.probabilities, "explore" if decision.explored else "control"),
            "policy.reason": "explore" if decision.explored else "script",
        }
        body = _internal(logged.trace_id, self.streams.hex(16), root, "route", start_ns, end_ns, attributes)
        return Item("spans", AGENT, end_ns, body)

    def _root(self, logged: Logged, span_id: str) -> Iterator[Item]:
        outcome, trace_id = logged.episode, logged.trace_id
        end_ns = logged.start_ns + outcome.latency_us * 1000
        attributes = {
            **self._common(logged, "invoke_agent"),
            "gen_ai.provider.name": _provider(outcome.calls[0].model),
            "gen_ai.input.messages": compact(_beginning(logged)),
            "gen_ai.output.messages": compact([_message("assistant", str(outcome.calls[-1].text))]),
        }
        name = f"invoke_agent {self.logging.service}"
        yield Item(
            "spans", AGENT, end_ns, _internal(trace_id, span_id, None, name, logged.start_ns, end_ns, attributes)
        )
        if logged.labelled:
            yield self._score(trace_id, span_id, self.logging.score, outcome.quality, _graded_ns(logged))

    def _tool(self, logged: Logged, tool: Tool, root: str, start_ns: int, best: float) -> Iterator[Item]:
        """The tool span; the best reward so far is told when the trace is graded."""
        trace_id, span_id = logged.trace_id, self.streams.hex(16)
        end_ns = start_ns + tool.latency_us * 1000
        attributes = {
            **self._common(logged, "execute_tool"),
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": compact(tool.arguments),
            "gen_ai.tool.call.result": tool.result,
            "error.type": "sql_error" if tool.failed else None,
        }
        name = f"execute_tool {tool.name}"
        body = _internal(trace_id, span_id, root, name, start_ns, end_ns, attributes, failed=tool.failed)
        yield Item("spans", AGENT, end_ns, body)
        if logged.labelled:
            yield self._score(trace_id, span_id, f"step_{self.logging.score}", best, _graded_ns(logged))

    def _common(self, logged: Logged, operation: str) -> dict[str, object]:
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": self.logging.service if self.logging.script else None,
            "gen_ai.conversation.id": logged.session,
            "retroute.sample.latency": "modelled" if self.logging.latency_modelled else None,
        }

    def _chat_attributes(self, logged: Logged, call: Call, messages: list[Message]) -> dict[str, object]:
        return {
            **self._common(logged, "chat"),
            "gen_ai.provider.name": _provider(call.model),
            "gen_ai.request.model": call.model,
            "gen_ai.response.model": call.model,
            "gen_ai.response.id": f"chatcmpl-{self.streams.hex(24)}",
            "gen_ai.usage.input_tokens": call.input_tokens,
            "gen_ai.usage.output_tokens": call.output_tokens,
            **{f"gen_ai.request.{name}": value for name, value in call.parameters.items()},
            "gen_ai.input.messages": compact(messages),
            "gen_ai.output.messages": compact([_answer(call)]) if call.text is not None else None,
        }

    def _policy(self, action: str, probabilities: Mapping[str, float], arm: str) -> Mapping[str, object]:
        if not self.logging.propensities_logged:
            return {}
        return {
            "policy.id": "logging-v1",
            "policy.version": "1",
            "policy.action": action,
            "policy.propensity": float(probabilities[action]),
            "policy.candidates": compact(list(probabilities)),
            "policy.probabilities": compact(list(probabilities.values())),
            "policy.arm": arm,
        }

    def _score(
        self, trace_id: str, span_id: str, name: str, value: float, time_ns: int, response_id: str | None = None
    ) -> Item:
        body = evaluation(
            trace_id=trace_id, span_id=span_id, name=name, value=value, time_ns=time_ns, response_id=response_id
        )
        return Item("logRecords", GRADER, time_ns, body)


def _beginning(logged: Logged) -> list[Message]:
    """What the agent was given."""
    return [_message("system", str(logged.task.system)), _message("user", logged.task.question)]


def _graded_ns(logged: Logged) -> int:
    """When an agent's trace is graded, all of its steps at once."""
    end_ns = logged.start_ns + logged.episode.latency_us * 1000
    return end_ns + 1000 * late(logged.score_delay, median_s=180, sigma=0.5, low_s=60, high_s=600)


def _provider(model: str) -> str:
    return PROVIDER.get(model, "openai")


def _message(role: str, text: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _answer(call: Call) -> Message:
    thought = [{"type": "reasoning", "content": call.thought}] if call.thought else []
    return {"role": "assistant", "parts": [*thought, {"type": "text", "content": call.text}], "finish_reason": "stop"}


def _chat(
    trace_id: str, span_id: str, parent: str | None, start_ns: int, call: Call, attributes: Mapping[str, object]
) -> dict[str, object]:
    return span(
        trace_id=trace_id,
        span_id=span_id,
        parent=parent,
        name=f"chat {call.model}",
        client=True,
        start_ns=start_ns,
        end_ns=start_ns + call.latency_us * 1000,
        attributes=attributes,
    )


def _internal(
    trace_id: str,
    span_id: str,
    parent: str | None,
    name: str,
    start_ns: int,
    end_ns: int,
    attributes: Mapping[str, object],
    failed: bool = False,
) -> dict[str, object]:
    return span(
        trace_id=trace_id,
        span_id=span_id,
        parent=parent,
        name=name,
        client=False,
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=attributes,
        failed=failed,
    )
