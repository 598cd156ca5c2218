"""Errors that a user can act on.

AppError                what went wrong, and a hint at the next step; the command line prints both, without a traceback
├── UsageError          wrong usage or input: exit code 2
│   └── ConfigError     retroute.toml, environment or flags
├── HomeError           the home folder cannot be used as it is: newer version, second collector, missing lake
└── WorkError           the work itself failed: exit code 1
"""

from __future__ import annotations


class AppError(Exception):
    """`message` says what, got and expected; `hint` the next step. `exit_code` is the command line's."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AppError):
    """Wrong usage or input."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting that cannot be used; the message names the key and where it was read."""


class HomeError(UsageError):
    """A home folder that cannot be used as it is."""


class WorkError(AppError):
    """The work was started and failed."""
