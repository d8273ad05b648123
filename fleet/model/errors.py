"""Errors that a person can act on. A message says what happened, what it means, and what to do."""


class FleetError(Exception):
    """An error that a person can act on. The command line prints its message and exits with ``exit_code``.

    Args:
        message: what happened, what it means, and what to do about its cause.
        again: advice to run the command again, printed after the message if the command failed. It is no part of
            ``str``, which may also be a warning after success: a second run would count everything twice.
    """

    exit_code = 6

    def __init__(self, message: str = "", again: str = "") -> None:
        super().__init__(message)
        self.again = again


class UsageError(FleetError):
    """The command was not understood, or is not possible as given."""

    exit_code = 2


class NoError(FleetError):
    """The requested thing does not exist."""

    exit_code = 1


class RefusedError(FleetError):
    """The input was refused."""

    exit_code = 3


class BusyError(FleetError):
    """Another process holds a lock that is needed."""

    exit_code = 4


class DiskError(FleetError):
    """A write did not reach the disk: nothing was acknowledged."""
