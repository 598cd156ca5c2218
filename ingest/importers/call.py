"""A model call of another system -> attributes of OpenTelemetry's GenAI conventions, which the dialects read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.dialects.values import count, dumps, real, structure
from ingest.spans import Scope

Attributes = dict[str, object]


def mapping(value: object) -> Mapping[str, object]:
    """The object that a value is or that its JSON text holds; empty for anything else."""
    found = structure(value)
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts as sent. `input` holds the cached part, `output` the reasoning. None: not said."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def attributes(self) -> Attributes:
        return present(
            {
                "gen_ai.usage.input_tokens": self.input,
                "gen_ai.usage.output_tokens": self.output,
                "gen_ai.usage.cache_read.input_tokens": self.cache_read,
                "gen_ai.usage.cache_creation.input_tokens": self.cache_write,
                "gen_ai.usage.reasoning.output_tokens": self.reasoning,
            }
        )


def usage(sent: object) -> Tokens:
    """Token counts of a provider's `usage` object: OpenAI's chat and responses, Anthropic's, or LiteLLM's mixture.

    Anthropic counts cached input apart, and is known by its names without OpenAI's beside them.
    """
    found = structure(sent)
    if not isinstance(found, dict):
        return Tokens()
    details = [
        structure(found.get(key))
        for key in (
            "prompt_tokens_details",
            "input_tokens_details",
            "completion_tokens_details",
            "output_tokens_details",
        )
    ]
    parts: dict[str, object] = {}
    for detail in details:
        if isinstance(detail, dict):
            parts.update({key: value for key, value in detail.items() if value is not None})
    given = first_count(found, "prompt_tokens", "input_tokens")
    read = first_count(found, "cache_read_input_tokens")
    written = first_count(found, "cache_creation_input_tokens")
    apart = "prompt_tokens" not in found and (read is not None or written is not None)
    if given is not None and apart:
        given += (read or 0) + (written or 0)
    return Tokens(
        given,
        first_count(found, "completion_tokens", "output_tokens"),
        first_count(parts, "cached_tokens") if read is None else read,
        first_count(parts, "cache_write_tokens", "cache_creation_tokens") if written is None else written,
        first_count(parts, "reasoning_tokens"),
    )


def first_count(found: Mapping[str, object], *keys: str) -> int | None:
    """The first of some keys that holds a count."""
    return next((value for key in keys if (value := count(found.get(key))) is not None), None)


def first_real(found: Mapping[str, object], *keys: str) -> float | None:
    """The first of some keys that holds a number."""
    return next((value for key in keys if (value := real(found.get(key))) is not None), None)


def present(attributes: Mapping[str, object]) -> Attributes:
    """The attributes that say something."""
    return {key: value for key, value in attributes.items() if value is not None and value != ""}


def as_json(value: object) -> str | None:
    """A structure as JSON text, text as it is; None for what is empty."""
    if value is None or value == "" or value == [] or value == {}:
        return None
    return value if isinstance(value, str) else dumps(value)


def parameters(request: object) -> Attributes:
    """What a request asked for beside its messages: length, effort, tools, format, stream."""
    sent = structure(request)
    if not isinstance(sent, dict):
        return {}
    form = sent.get("response_format")
    if isinstance(text := sent.get("text"), dict):
        form = text.get("format", form)
    effort = sent.get("reasoning_effort")
    if isinstance(reasoning := sent.get("reasoning"), dict):
        effort = reasoning.get("effort", effort)
    return present(
        {
            "gen_ai.request.max_tokens": first_count(sent, "max_tokens", "max_completion_tokens", "max_output_tokens"),
            "gen_ai.request.reasoning.effort": effort if isinstance(effort, str) else None,
            "gen_ai.tool.definitions": as_json(sent.get("tools")),
            "gen_ai.output.type": form.get("type")
            if isinstance(form, dict)
            else form
            if isinstance(form, str)
            else None,
            "gen_ai.request.stream": sent.get("stream") if isinstance(sent.get("stream"), bool) else None,
            "gen_ai.system_instructions": as_json(sent.get("instructions") or sent.get("system")),
        }
    )


def scope(name: str) -> Scope:
    """The scope of what an importer makes."""
    return Scope(f"retroute.import.{name}")
