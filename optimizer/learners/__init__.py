"""Learners: what was logged in, a model that a router can carry out.

`Lesson` is what all of them learn from; `candidates` fits every learner at a few prices of quality.
"""

from optimizer.learners.candidates import Candidate, candidates
from optimizer.learners.lesson import Lesson

__all__ = ["Candidate", "Lesson", "candidates"]
