"""How behaviour was estimated, as JSON for a run folder and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimizer.propensity import Behaviour

SHOWN = 3
"""Fixed rules that are printed."""


def behaviour_json(found: Behaviour, action_names: Sequence[str]) -> dict[str, Any]:
    """What training.json keeps of an estimate. Shares and errors are parts of 1."""
    return {
        "model": found.model,
        "accuracy": found.accuracy,
        "log_loss": found.log_loss,
        "calibration_error": found.calibration_error,
        "calibration_noise": found.calibration_noise,
        "blocks": found.blocks,
        "floor": found.floor,
        "raised_share": found.raised_share,
        "untried_share": found.untried_share,
        "fixed_share": found.fixed_share,
        "fixed": [
            {
                "rule": " and ".join(segment.conditions) or "always",
                "action": action_names[segment.action],
                "share": segment.share,
                "taken": segment.taken,
            }
            for segment in found.fixed
        ],
    }


def sentences(said: Mapping[str, Any] | None) -> list[str]:
    """What a person should know of the estimate; nothing where probabilities were logged."""
    if said is None:
        return []
    blocks = f", over {said['blocks']} stretches of time with shares of their own" if said["blocks"] > 1 else ""
    estimated = (
        f"probabilities estimated by {said['model']}{blocks}: calibration error "
        f"{100 * said['calibration_error']:.1f} points (chance alone gives {100 * said['calibration_noise']:.1f}); "
        f"{said['raised_share']:.1%} of decisions raised to the floor of {said['floor']:.0%} of an action's share"
    )
    lines = [estimated, *map(_rule, said["fixed"][:SHOWN])]
    if (more := len(said["fixed"]) - SHOWN) > 0:
        lines.append(f"... and {more} more fixed rules; --json has them")
    return lines


def _rule(segment: Mapping[str, Any]) -> str:
    return (
        f"fixed rule: {segment['rule']}: {segment['action']} in {segment['taken']:.1%} of these, which are "
        f"{segment['share']:.0%} of all decisions; what another action gives there is not known"
    )
