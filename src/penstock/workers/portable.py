"""Whether this build does without what only Linux has.

A worker does not load the native module to know it, nor this file: it is told (see process.py).
"""

from penstock import _native

is_portable: bool = _native.is_portable
