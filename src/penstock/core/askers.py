"""Who asks an object of ours for its class: Keras does, to see whether it can train on it.

It takes only types that it knows, and its own error names none of ours. That question is the moment to say what to
write instead.
"""

import sys

_TRAINERS = ("keras.src.trainers.", "tf_keras.src.engine.")


def asking_keras() -> str:
    """Return 'keras' or 'tf_keras' (Keras 2) if its training code asks the caller of this function; else ''."""
    frame = sys._getframe(1).f_back  # noqa: SLF001  # there is no other way to a frame
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] if name.startswith(_TRAINERS) else ""
