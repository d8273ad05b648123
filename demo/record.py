"""Make the picture of the demo again, after changing it: `python demo/record.py` writes demo/demo.svg.

The same words give the same bytes: what differs from run to run, hashes and seconds, is drawn as it was the first time.
"""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

FOLDER = Path(__file__).resolve().parent
WIDTH = 118
VOLATILE = (
    (re.compile(r"(?<=\x1b\[32m)[0-9a-f]{16}(?=\x1b)"), "f958f01a6dfc7270"),
    (re.compile(r"^\d+ seconds", re.MULTILINE), "12 seconds"),
)


def main() -> None:
    """Run the demo and draw what it prints."""
    environment = os.environ | {"FORCE_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "demo.py")], env=environment, capture_output=True, text=True, check=True
    )
    told = done.stdout
    for found, shown in VOLATILE:
        told = found.sub(shown, told)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(told.strip()))
    svg = console.export_svg(title="make demo", unique_id="fleet")
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)  # a picture asks no server for its letters
    svg = re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)
    (FOLDER / "demo.svg").write_text(svg)


if __name__ == "__main__":
    main()
