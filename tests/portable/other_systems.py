"""Compile src/native for systems that are not this one: `make cross`. What comes out is thrown away.

By zig, whose package brings a compiler with the headers of all of them. So it is known that the kernels compile there;
that they run has to be seen there.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind
import numpy as np

ROOT = Path(__file__).parents[2]
SYSTEMS = {
    "aarch64-linux-gnu": "generic",
    "aarch64-macos.11.0": "apple_m1",
    # Zig lets no function use more than the processor has; macOS 11 runs on no lesser one.
    "x86_64-macos.11.0": "nehalem",
}
# NumPy's headers are those that it was built with here, and ask for this one, which macOS has elsewhere.
ENDIAN = "#pragma once\n#ifdef __APPLE__\n#include <machine/endian.h>\n#else\n#include_next <endian.h>\n#endif\n"


def compile_one(source: Path, system: str, folder: Path) -> str:
    """Return what the compiler says: nothing if all is well."""
    includes = [folder, np.get_include(), sysconfig.get_path("include")]
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    found = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "ziglang",
                "c++",
                "-target",
                system,
                f"-mcpu={SYSTEMS[system]}",
                *flags,
            ),
            *(f"-isystem{one}" for one in (nanobind.include_dir(), *includes)),
            *("-c", str(source), "-o", str(folder / f"{system}-{source.stem}.o")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build" / "zig")},
    )
    return found.stderr if found.returncode else ""


def main() -> int:
    sources = sorted((ROOT / "src" / "native").glob("*.cpp"))
    num_failed = 0
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        folder = Path(name)
        (folder / "endian.h").write_text(ENDIAN)
        for system in SYSTEMS:
            found = list(pool.map(lambda one, s=system: compile_one(one, s, folder), sources))
            num_failed += sum(map(bool, found))
            print(
                f"{system}: {found.count('')} of {len(sources)} files compile", *filter(None, found)
            )
    return min(num_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
