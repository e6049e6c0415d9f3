"""A pytest plugin (`-p native.sanitized`): tests the module that PENSTOCK_SANITIZED names, not the installed one."""

import importlib.util
import os
import sys

spec = importlib.util.spec_from_file_location("penstock._native", os.environ["PENSTOCK_SANITIZED"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["penstock._native"] = module


def pytest_report_header():
    return f"native module: {module.__file__}"
