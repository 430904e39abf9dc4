"""What a user can mend."""


class UserError(Exception):
    """A mistake in a config, file, checkpoint or sentence.

    Its message is one line that names the value and the remedy; the command prints it, without a
    traceback, and exits with code 2.
    """


class RunError(UserError):
    """What is wrong lies in this one run: others of a sweep may go on."""
