"""How much is read at once, whatever the format: found on disks, and good enough everywhere."""

READ_NBYTES = 1 << 16
"""What a random read must have for a disk to run at its full speed."""
GAP_NBYTES = 1 << 16
"""Reading over a gap this small is cheaper than another read."""
PIECE_NBYTES = 1 << 22
"""No more than this is read at once for rows that lie apart."""
