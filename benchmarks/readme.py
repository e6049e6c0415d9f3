"""Writes what was measured into the documents: `python benchmarks/readme.py bench.json [more.json ...]`.

The files are what `run.py --json` wrote. docs/measured.md gets a table of every case; the README gets its own part,
between two marks, from the same figures. So no figure there was typed by hand. Cases that are not in the files stay as
they are: each has the ratios of one run, whichever that was.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from table import quantity

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
# What the README has a row of, in its order; docs/measured.md has all.
SHOWN = (
    "w2",
    "w3a",
    "w4-floats-32",
    "w4-floats-1024",
    "w5-1GB",
    "w5-300MB",
    "w6",
    "w7",
    "w8-800GB",
    "w9-tensorflow",
    "w9-jax",
    "w9-torch",
    "w10",
    "w11-import",
    "w12-4k-32",
    "w12-48k-32",
    "w12-400-1024",
    "w12-columns-32",
    "w12-columns-1024",
    "w13",
    "w14-hdf5",
    "w14-zarr",
    "w14-parquet",
    "w15-csv",
    "w15-csv-shuffled",
    "w15-text-short",
    "w15-text-long",
    "w16-cost",
    "w16-ranks",
    "w17-open",
    "w17-processes",
    "w17-files",
    "w17-mix",
    "w18",
    "map-32",
    "map-1024",
)


def main() -> int:
    """Rewrite both documents."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    cases: dict[str, dict] = {}
    machine: dict = {}
    for path in sys.argv[1:]:
        report = json.loads(Path(path).read_text())
        machine = report["machine"]
        cases |= {case["name"]: case for case in report["cases"]}
    missing = [name for name in SHOWN if name not in cases]
    if missing:
        print(f"not measured, and so left as they are: {' '.join(missing)}", file=sys.stderr)
    document = ROOT / "docs" / "measured.md"
    document.write_text(_document(cases, machine, document.read_text()))
    readme = ROOT / "README.md"
    text = readme.read_text()
    pattern = re.compile(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", re.DOTALL)
    before = pattern.search(text)
    if before is None:
        print(f"README.md has no part between {BEGIN} and {END}", file=sys.stderr)
        return 1
    part = f"{BEGIN}\n{_part(cases, before[1])}\n{END}"
    readme.write_text(pattern.sub(lambda _: part, text))
    return 0


def _document(cases: dict[str, dict], machine: dict, before: str) -> str:
    lines = [
        "# Measured",
        "",
        "Made by `make bench ARGS='--rounds 3 --json bench.json'` and `python benchmarks/readme.py bench.json`, on "
        f"{machine.get('cpus')} cores without a GPU, Python {machine.get('python')}: "
        + ", ".join(f"{name} {one}" for name, one in machine.get("versions", {}).items() if one)
        + ". The best round of each contender, taken in turns; `x` is how many times as fast penstock is. "
        "[How each is used](../benchmarks/README.md).",
        "",
    ]
    sections = dict(
        re.findall(r"^(?=## (\S+): )(.*?)(?=^## |\Z)", before, re.DOTALL | re.MULTILINE)
    )
    sections |= {name: _section(case) for name, case in cases.items()}
    lines += sections.values()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _section(case: dict) -> str:
    lines = [f"## {case['name']}: {case['title']}", "", *_table(case), ""]
    for bar in case["bars"]:
        if bar["value"] is not None:
            verdict = "met" if bar["met"] else "**not met**"
            lines.append(f"- {bar['text']}: {bar['value']:.3g}, {verdict}")
    return "\n".join([*lines, ""])


def _table(case: dict) -> list[str]:
    rows = ["| | | penstock is | how |", "|---|---|---|---|"]
    for name, one in case["contenders"].items():
        if "best" not in one:
            rows.append(f"| {name} | - | - | {_why(one)} |")
            continue
        ratio = "" if name == "penstock" else _ratio(case, name)
        rows.append(f"| {name} | {quantity(one['best'], case['unit'])} | {ratio} | {one['how']} |")
    return rows


def _part(cases: dict[str, dict], before: str) -> str:
    head = "| | penstock | times as fast as |"
    lines = [before.partition(head)[0].rstrip(), ""]
    if "w1" in cases:
        lines = [f"**{cases['w1']['title']}**", "", *_table(cases["w1"]), ""]
    lines += [head, "|---|---|---|"]
    for name in SHOWN:
        case = cases.get(name)
        if case is None:
            lines += re.findall(rf"^\| `{re.escape(name)}`: .*$", before, re.MULTILINE)
            continue
        if "best" not in case["contenders"].get("penstock", {}):
            continue
        own = quantity(case["contenders"]["penstock"]["best"], case["unit"])
        lines.append(f"| `{name}`: {case['title']} | {own} | {_ratios(case)} |")
    return "\n".join(lines)


def _ratios(case: dict) -> str:
    found = []
    for name, one in case["contenders"].items():
        if name == "penstock":
            continue
        if "best" in one:
            found.append(f"{_ratio(case, name)} {name}")
        else:  # Of an error, what kind it is.
            found.append(f"{name}: {_why(one).split(': ')[0]}")
    return "; ".join(found)


def _ratio(case: dict, name: str) -> str:
    ours = case["contenders"].get("penstock", {}).get("best")
    if ours is None:
        return ""
    theirs = case["contenders"][name]["best"]
    return quantity(ours / theirs if case["higher_is_better"] else theirs / ours, "x")


def _why(one: dict) -> str:
    return str(one.get("missing") or one.get("failed") or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
