"""Where one file is, and which version of it was seen there."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from penstock.core.evidence import Unproven

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# How fsspec names a file in a file: zip://x.npy::https://host/a.zip. An IPv6 host has ::
# as well, so that only one before a scheme counts.
_CHAIN = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]+://)")

# Names of objects there may have ? and # in them, and no secret: credentials are never part of these URLs.
_PLAIN = ("s3", "s3a", "gs", "gcs")


def is_url(path: str) -> bool:
    """Return whether `path` is a URL rather than a local path.

    >>> is_url("https://host/x.npy"), is_url("data/x.npy"), is_url("/data/a::b.npy")
    (True, False, False)
    """
    if path.startswith("/"):  # First, since it is asked several times of each of many files.
        return False
    return bool(_SCHEME.match(path)) or bool(_CHAIN.search(path))


def split_chain(url: str) -> tuple[str, str]:
    """Return the URL's first link and the rest of its chain, '' for a plain URL.

    >>> split_chain("zip://x.npy::https://host/a.zip")
    ('zip://x.npy', 'https://host/a.zip')
    """
    first, *rest = _CHAIN.split(url, maxsplit=1)
    return first, "".join(rest)


def without_secrets(url: str) -> str:
    """Return `url` fit for a message: no password, no signature in its query.

    >>> without_secrets("https://me:word@host/x.npy?signature=abc")
    'https://host/x.npy?...'
    """
    return "::".join(_public(link) for link in _CHAIN.split(url)) if is_url(url) else url


def _public(link: str) -> str:
    if not _SCHEME.match(link):
        return link
    if link.partition("://")[0] in _PLAIN:
        return link
    try:
        parts = urlsplit(link)
    except ValueError:  # such as an unclosed [ in the host
        return link.partition("?")[0].rpartition("@")[2]
    query = "..." if parts.query else ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


@dataclass(frozen=True, slots=True)
class Location:
    """One file: where it is, how large it is, and what tells this version of it from another.

    Args:
        url: An absolute local path, or a URL.
        size: How many bytes it has.
        mtime_ns: When a local file was last written; None if later writes are expected.
        etag: The server's name for this version, if it gives one.
        inode: The number of a local file in its file system, which a file put in its place does not have.
        is_directory: Whether this is a folder that is read as one thing, such as a Zarr store.
        storage_options: What fsspec needs to know to read it, such as credentials; never printed.
    """

    url: str
    size: int
    mtime_ns: int | None = None
    etag: str | None = None
    is_directory: bool = False
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    inode: int | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it is behind a URL, and read through fsspec."""
        return is_url(self.url)

    @property
    def name(self) -> str:
        """The last part of its path: `part-3.npy`."""
        path = self.url
        if self.is_remote:
            path = split_chain(without_secrets(path))[0].removesuffix("?...")
        return path.rstrip("/").rpartition("/")[2]

    def identity(self) -> list[Any]:
        """Return its bytes, and what tells this version from others, as JSON; raise Unproven if nothing does."""
        if self.is_directory and not self.is_remote:
            return _identity_of_folder(self.url)
        if self.mtime_ns is not None and not self.is_directory:
            return [self.size, self.mtime_ns, self.inode]
        if self.etag is None:
            raise Unproven("no version of it is known")
        return [self.size, self.etag]

    @property
    def suffix(self) -> str:
        """The end of its name in lower case, `.npy`, or '' without one."""
        stem, dot, ending = self.name.rpartition(".")
        return f".{ending.lower()}" if dot and stem else ""

    def __str__(self) -> str:
        return without_secrets(self.url)


def _identity_of_folder(root: str) -> list[Any]:
    """Return the bytes of all files in a folder, and a digest of their names and versions."""
    found = hashlib.blake2b(digest_size=16)
    total = 0
    for place, folders, names in os.walk(root, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)  # noqa: PTH118  There may be millions.
            try:
                one = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                continue  # Removed since it was listed, or a link to nowhere.
            total += one.st_size
            words = f"{os.path.relpath(path, root)} {one.st_size} {one.st_mtime_ns} {one.st_ino}\n"
            found.update(words.encode("utf-8", "surrogateescape"))
    return [total, found.hexdigest()]
