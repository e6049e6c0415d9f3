"""The plan for a dataset, a memory budget and this machine: sizes of blocks, threads, bytes."""

from penstock.engine.plan.explain import Explanation, explain
from penstock.engine.plan.options import Options
from penstock.engine.plan.plan import Plan, make_plan

__all__ = ["Explanation", "Options", "Plan", "explain", "make_plan"]
