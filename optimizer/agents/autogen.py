"""Lets a policy choose who speaks next in an AutoGen group chat, and when it ends.

    from policy_agents import Policy
    from policy_autogen import PolicyChat

    chat = PolicyChat(Policy("policy"))
    team = SelectorGroupChat(
        agents, model_client, selector_func=chat.speaker, termination_condition=chat | MaxMessageTermination(30)
    )

Needs autogen-agentchat. `retroute export --target agents` writes it beside the policy as policy_autogen.py.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import BaseChatMessage, StopMessage

if TYPE_CHECKING:
    from optimizer.agents.steps import Orchestrator, Policy

STOP = "STOP"


class PolicyChat(TerminationCondition):
    """Both the selector of a `SelectorGroupChat` and its end. A chat is an episode; the next one begins with the
    newest policy. One of these leads one team.

    budget: of an episode, see `Router.decide`. agents: names of those that may be chosen; None: all that the policy
    knows. What a speaker used counts as tokens, its last message as its output.
    """

    def __init__(
        self, policy: Policy, budget: Mapping[str, float] | None = None, agents: Collection[str] | None = None
    ) -> None:
        self.policy = policy
        self.budget = dict(budget or {})
        self.agents = agents
        self._begin()

    def _begin(self) -> None:
        self.episode: Orchestrator | None = None
        self.task: list[dict[str, object]] = []
        self.chosen: str | None = None

    @property
    def terminated(self) -> bool:
        return self.chosen == STOP

    async def __call__(self, messages: Sequence[Any]) -> StopMessage | None:
        """After each speaker: take down what it did, and choose the next; a message where the policy stops."""
        if self.terminated:
            raise TerminatedException("the policy has ended this chat")
        if self.episode is None:
            self.episode = _orchestrator(self.policy)
            self.task = [{"role": "user", "content": one.to_text()} for one in messages]
        else:
            texts = [one.to_text() for one in messages if isinstance(one, BaseChatMessage)]
            used = [one.models_usage for one in messages if one.models_usage is not None]
            tokens = sum(one.prompt_tokens + one.completion_tokens for one in used) if used else None
            self.episode.done(output=texts[-1] if texts else None, tokens=tokens)
        context = {"messages": self.task, **({"budget": self.budget} if self.budget else {})}
        decision = self.episode.next(context, self.agents)
        self.chosen = decision.action
        return StopMessage(content=f"stopped: {decision.reason}", source="policy") if self.terminated else None

    def speaker(self, _thread: Sequence[Any]) -> str:
        """For `selector_func`. RuntimeError where this is not the team's termination condition too."""
        if self.chosen is None:
            raise RuntimeError("give the PolicyChat as termination_condition too: there it hears what each speaker did")
        return self.chosen

    async def reset(self) -> None:
        self._begin()


def _orchestrator(policy: Policy) -> Orchestrator:
    """From the module that the policy comes from: that is `policy_agents` where this file was exported."""
    made: Orchestrator = sys.modules[type(policy).__module__].Orchestrator(policy.router, policy.tracer)
    return made
