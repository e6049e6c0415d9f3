"""How many bytes are read at once, in all formats: measured on disks, and good enough for other storage."""

READ_NBYTES = 1 << 16
"""A random read must have this many bytes for a disk to run at its full speed."""
GAP_NBYTES = 1 << 16
"""Reading on over a gap of up to this many bytes is cheaper than another read."""
OWN_NBYTES = 1 << 14
"""Rows of at least this many bytes are read straight to their places, shorter ones through a buffer."""
PIECE_NBYTES = 1 << 22
"""At most this many bytes are read at once for rows that lie apart."""
