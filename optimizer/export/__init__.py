"""Policies as files for the routers that people already run."""
