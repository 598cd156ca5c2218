"""A policy that orchestrates agents, inside the app that runs them. `steps.py` stands alone: bundles hold a copy."""
