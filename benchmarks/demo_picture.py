"""The picture of the README: what `penstock demo` prints, as a terminal.

python benchmarks/demo_picture.py                # writes docs/pictures/demo.svg: about half a minute
python benchmarks/demo_picture.py --compare      # arguments are those of `penstock demo`
"""

import io
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "demo.svg"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main(arguments: list[str]) -> None:
    """Run the demo, and make a picture of what it prints; progress, on stderr, is not part of it."""
    command = ["penstock", "demo", *arguments]
    done = subprocess.run(
        [Path(sys.executable).parent / command[0], *command[1:]],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stdout)
    if done.returncode:
        sys.exit(done.returncode)
    lines = [line.rstrip() for line in done.stdout.strip("\n").split("\n")]
    width = max(72, *map(len, lines))
    console = Console(record=True, file=io.StringIO(), width=width, color_system="truecolor")
    console.print(f"[bold green]$[/] [bold]{' '.join(command)}[/]")
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True)
    picture = console.export_svg(title="penstock demo", theme=MONOKAI, unique_id="demo")
    # Without the fonts that it would load from elsewhere: the reader's own do.
    PICTURE.write_text(_FONTS.sub("", picture))
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main(sys.argv[1:])
