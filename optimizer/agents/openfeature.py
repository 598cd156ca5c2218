"""Gives a policy's choice as the value of an OpenFeature flag: any client of OpenFeature can then be routed.

    from openfeature import api
    from openfeature.evaluation_context import EvaluationContext
    from policy_agents import Policy
    from policy_openfeature import PolicyProvider

    api.set_provider(PolicyProvider(Policy("policy")))
    context = EvaluationContext(targeting_key=session, attributes={"messages": messages})
    model = api.get_client().get_string_value("helpdesk", "gpt-4o", context)

The flag is the policy's virtual model; variant and value are the action, the metadata hold its probability. Needs
openfeature-sdk. `retroute export --target agents` writes it beside the policy as policy_openfeature.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata

if TYPE_CHECKING:
    from optimizer.agents.steps import Policy

TOLD = ("id", "version", "action", "propensity", "arm", "reason")
"""Attributes of the decision that go into the flag's metadata."""


class PolicyProvider(AbstractProvider):
    """One flag of type string. Attributes that are read: messages, or prompt; tools, response_format, candidates."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def get_metadata(self) -> Metadata:
        return Metadata(name="retroute")

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: Any = None
    ) -> FlagResolutionDetails[str]:
        if flag_key != self.policy.virtual_model:
            what = f"the policy's flag is {self.policy.virtual_model!r}"
            return FlagResolutionDetails(default_value, ErrorCode.FLAG_NOT_FOUND, what, Reason.ERROR)
        candidates = dict(getattr(evaluation_context, "attributes", None) or {}).get("candidates")
        named = candidates if isinstance(candidates, list | tuple | set) else None
        decision = self.policy.decide(context_of(evaluation_context), named)
        logged = decision.attributes()
        told = {f"policy.{name}": logged[f"policy.{name}"] for name in TOLD}
        return FlagResolutionDetails(
            decision.action,
            reason=Reason.SPLIT if decision.propensity < 1.0 else Reason.TARGETING_MATCH,
            variant=decision.action,
            flag_metadata=told,
        )

    def resolve_boolean_details(self, flag_key: str, default_value: bool, evaluation_context: Any = None) -> Any:
        return _mismatch(default_value)

    def resolve_integer_details(self, flag_key: str, default_value: int, evaluation_context: Any = None) -> Any:
        return _mismatch(default_value)

    def resolve_float_details(self, flag_key: str, default_value: float, evaluation_context: Any = None) -> Any:
        return _mismatch(default_value)

    def resolve_object_details(self, flag_key: str, default_value: Any, evaluation_context: Any = None) -> Any:
        return _mismatch(default_value)


def context_of(given: Any) -> dict[str, object]:
    """What the policy may see of an evaluation; the targeting key is the session."""
    attributes = dict(getattr(given, "attributes", None) or {})
    prompt = attributes.get("prompt")
    messages = attributes.get("messages") or ([{"role": "user", "content": prompt}] if prompt else [])
    return {
        "messages": messages,
        "tools": attributes.get("tools"),
        "response_format": attributes.get("response_format"),
        "metadata": {"session": getattr(given, "targeting_key", None)},
    }


def _mismatch(default: Any) -> FlagResolutionDetails[Any]:
    what = "a policy's flag is a string: the name of an action"
    return FlagResolutionDetails(default, ErrorCode.TYPE_MISMATCH, what, Reason.ERROR)
