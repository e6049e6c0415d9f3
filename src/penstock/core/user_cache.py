"""The user's cache directory, where everything is kept that can be made again."""

import os
from pathlib import Path


def user_cache(kind: str) -> Path:
    """Return the folder for one kind of things, which may not exist yet.

    Raises:
        RuntimeError: Nobody knows where the home of this user is.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if Path(root).is_absolute() else Path("~/.cache").expanduser()
    return base / "penstock" / kind
