"""Why a router decided as it did: the reasons that `runtime.Decision` gives, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "policy": "The policy chose.",
    "explore": "Drawn to explore, with a known probability.",
    "canary": "Its session is not under the policy yet, so what served before serves it.",
    "not_able": "The session's own action cannot serve this request, so another was drawn.",
    "not_offered": "The session's own action was not among the candidates, so another was drawn.",
    "kill_switch": "The kill switch is on, so the incumbent is taken.",
    "disabled": "The policy is switched off, so the incumbent is taken.",
    "not_yet_valid": "The policy is not valid yet, so the incumbent is taken.",
    "expired": "The policy has expired, so the incumbent is taken.",
    "no_candidates": "The policy knows none of the candidates, so the incumbent is taken.",
    "none_able": "No candidate can serve it, so the incumbent is taken.",
    "history": "No candidate is known to take the conversation's signed or encrypted parts, so the incumbent is taken.",
    "drift": "Nothing like this prompt was seen in training, so the incumbent is taken.",
    "too_slow": "The policy was too slow several times in a row and rests, so the incumbent is taken.",
    "unreadable_history": "The episode's history cannot be read, so the script goes on.",
    "unreadable_budget": "The episode's budget cannot be read, so the script goes on.",
    "unknown_arm": "The episode does not say under which arm it began, so the script goes on.",
    "max_steps": "The episode has reached its longest length, so it ends.",
    "loop": "The last steps repeat themselves, so the episode ends.",
}


def in_words(reason: str) -> str:
    """A sentence for any reason; one that is not known is repeated."""
    kind, _, what = reason.partition(":")
    if kind == "budget":
        return f"The budget of {what} is spent, so the episode ends."
    if kind == "error":
        return f"The policy failed ({what}), so the incumbent is taken."
    return REASONS.get(reason) or f"Reason: {reason}."
