"""split: rows dealt to several parts, the same in every epoch."""

from penstock.stages.split.dealing import Deal, deal_of
from penstock.stages.split.marking import Marks, marks_by_class, marks_by_group
from penstock.stages.split.stage import Marked, Split, check_splittable, live_shuffle

__all__ = [
    "Deal",
    "Marked",
    "Marks",
    "Split",
    "check_splittable",
    "deal_of",
    "live_shuffle",
    "marks_by_class",
    "marks_by_group",
]
