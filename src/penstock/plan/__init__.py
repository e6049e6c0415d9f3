"""What a dataset, a memory budget and this machine come to: sizes of blocks, threads, bytes."""

from penstock.plan.explain import Explanation, explain
from penstock.plan.options import Options
from penstock.plan.plan import Plan, make_plan

__all__ = ["Explanation", "Options", "Plan", "explain", "make_plan"]
