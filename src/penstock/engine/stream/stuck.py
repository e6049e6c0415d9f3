"""Threads that do not end when a stream is closed: where they are, in words."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.core.frames import frames_of_threads
from penstock.core.rows import Flow, Node
from penstock.stages.base.functions import UserFunction


@dataclass(frozen=True, slots=True)
class Stuck:
    """A thread that has not ended: the stage whose work it does, and the line that it is at."""

    stage: str
    line: str
    is_in_function: bool
    """Whether it is a function of the user's that has not returned, and not a read."""
    is_elsewhere: bool
    """Whether it waits in code that is not penstock's; else it is on its way, on a machine that is busy."""

    @staticmethod
    def warning(found: "Sequence[Stuck]", seconds: float) -> str:
        """Return what the user should know of threads that were left behind."""
        where = " and ".join(dict.fromkeys(f"{one.stage}, {one.line}," for one in found))
        return (
            f"the stream was closed, but {where} has not returned within {seconds:g} s: it goes on in a thread in the "
            "background, which ends when it returns. Give what it waits for a timeout."
        )


def find_stuck(threads: Sequence[threading.Thread]) -> list[Stuck]:
    """Return where threads are."""
    return [stuck_at(thread.ident) for thread in threads]


def stuck_at(ident: int | None) -> Stuck:
    """Return where the thread of this number is: its innermost stage."""
    frame: FrameType | None = frames_of_threads().get(ident or 0)
    line, stage, is_in_function, is_elsewhere = "at its end", "a thread", False, False
    while frame is not None:
        owner = _owner(frame)
        if owner is not None:
            stage, is_in_function, is_compiled = owner
            is_elsewhere |= is_compiled
            break
        if not _is_ours(frame):
            line = f"at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            is_elsewhere |= frame.f_globals is not vars(threading)
        frame = frame.f_back
    return Stuck(stage, line, is_in_function, is_elsewhere)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("penstock.")


def _owner(frame: FrameType) -> tuple[str, bool, bool] | None:
    """Return the stage whose method a frame runs, if it calls a function there, and if that is not in Python."""
    if not _is_ours(frame):
        return None
    me: Any = frame.f_locals.get("self")
    function = getattr(me, "function", None)
    if isinstance(function, UserFunction):
        site = f", {function.site}" if function.site else ""
        return function.describe() + site, True, function.is_compiled
    node = getattr(me, "_flow", me)
    if isinstance(node, Node | Flow):
        return node.describe(), False, False
    return None
