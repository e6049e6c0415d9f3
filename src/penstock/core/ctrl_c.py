"""Ctrl-C ends a wait at once, whatever else the process has loaded."""

import signal


def keep_interrupting() -> None:
    """Let Ctrl-C interrupt waits for locks, as Python has it.

    Libraries that set a handler of their own may take that away: after `import polars`, the main thread that waits for
    a lock hears of Ctrl-C only when it has the lock. The handler stays theirs.
    """
    signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003  # It takes no keywords.
