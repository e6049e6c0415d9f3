"""The memory that the library holds: the budget, the ledger of who holds how much, and the buffers."""

from penstock.memory.budget import default_budget, format_nbytes, free_nbytes, parse_nbytes
from penstock.memory.ledger import Account, Advice, Ledger, process_ledger
from penstock.memory.pool import (
    ALIGNMENT,
    Allocate,
    Hold,
    Lease,
    Pool,
    allocate_plain,
    buffer_nbytes,
    hold_plain,
)

__all__ = [
    "ALIGNMENT",
    "Account",
    "Advice",
    "Allocate",
    "Hold",
    "Lease",
    "Ledger",
    "Pool",
    "allocate_plain",
    "buffer_nbytes",
    "default_budget",
    "format_nbytes",
    "free_nbytes",
    "hold_plain",
    "parse_nbytes",
    "process_ledger",
]
