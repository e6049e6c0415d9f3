"""The files of a chain that are behind URLs, and how much of them `with_options(remote_cache=...)` keeps."""

import weakref
from typing import TYPE_CHECKING

from penstock.core.fingerprint import walk
from penstock.core.lazy import lazy
from penstock.core.rows import Node
from penstock.engine.plan.plan import Plan
from penstock.io.location import Location
from penstock.memory import format_nbytes

if TYPE_CHECKING:
    from penstock.io.remote import cache, traffic
else:
    cache = lazy("penstock.io.remote.cache")  # Most pipelines read no URL.
    traffic = lazy("penstock.io.remote.traffic")

_found: "weakref.WeakKeyDictionary[Node, tuple[Location, ...]]" = weakref.WeakKeyDictionary()
"""By the last node of a chain: there may be many files, and every epoch asks."""


def remote_files(node: Node) -> tuple[Location, ...]:
    """Return the files that a chain reads behind URLs, each once."""
    found = _found.get(node)
    if found is None:
        every = (one for part in walk(node) for one in part.files_read())
        remote = {one.url: one for one in every if isinstance(one, Location) and one.is_remote}
        found = _found[node] = tuple(remote.values())
    return found


def open_traffic(plan: Plan) -> "traffic.Traffic | None":
    """Return what counts and caches the reads of remote files until it is closed; None if there are none."""
    files = remote_files(plan.node)
    if not files:
        return None
    root = cache.cache_root(plan.scratch) if plan.remote_cache else None
    return traffic.Traffic(files, root, plan.remote_cache, plan.node)


def cache_notes(plan: Plan) -> list[str]:
    """Return what the cache of remote files will keep, for `explain()`; reads nothing."""
    if not plan.remote_cache:
        return []
    files = remote_files(plan.node)
    if not files:
        return ["remote_cache keeps nothing: no file is behind a URL."]
    where = cache.cache_root(plan.scratch)
    stores = [one for one in files if one.is_directory]
    known = [one for one in files if one.etag and one.size]
    notes = []
    if known:
        share = cache.share_of(known, plan.remote_cache)
        part = 100 * share.kept_nbytes / max(1, share.total_nbytes)
        rest = "" if share.kept_nbytes == share.total_nbytes else "; each epoch fetches the rest"
        notes.append(
            f"remote_cache keeps {format_nbytes(share.kept_nbytes)} of {format_nbytes(share.total_nbytes)} "
            f"({part:.0f} %) in {where}, as far as other processes leave room{rest}."
        )
    if stores:
        notes.append(
            f"remote_cache: how much of {len(stores)} Zarr stores fits is known when the stream opens."
        )
    unknown = len(files) - len(known) - len(stores)
    if unknown:
        notes.append(
            f"remote_cache does not keep {unknown} of {len(files)} files: empty, or of no known version."
        )
    return notes
