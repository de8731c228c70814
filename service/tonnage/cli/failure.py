"""What a command cannot do."""


class CommandError(Exception):
    """Something the person at the shell can mend; its text says what."""
