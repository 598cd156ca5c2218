"""A policy's way into production: shadow, then a canary of some percent, then full, watched by arm, with a way back.

`state` is what is known of a rollout, `arms` what its arms did, `monitor` the judgement of it, `bundles` writes what
routers load, and `stages` are the actions. Each action writes a new revision; only the newest one counts.
"""

from optimizer.rollout.stages import Done, advance, holds, last_revision, require_free, rollback, start, status, watch
from optimizer.rollout.state import Rollout, Step

__all__ = [
    "Done", "Rollout", "Step", "advance", "holds", "last_revision", "require_free", "rollback", "start", "status",
    "watch",
]  # fmt: skip
