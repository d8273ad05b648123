"""One line of the table, and the table as Markdown. Nothing is measured here."""

from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        work: what was done.
        ours: how long it took fleet.
        against: the peer or the floor, and how long it took that.
        ratio: how the two compare.
        aim: what was to be reached; "" for a figure that is only told.
        is_met: whether it was, None where it was not measured or there is no aim.
    """

    work: str
    ours: str = ""
    against: str = ""
    ratio: str = ""
    aim: str = ""
    is_met: bool | None = None


def told(seconds: float) -> str:
    """Return seconds as milliseconds."""
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2f} ms"


def at_most(work: str, ours: float, floor: float, of: str, most: float) -> Row:
    """Return a row that must not be more than so many times a floor."""
    ratio = ours / floor
    return Row(work, told(ours), f"{of} {told(floor)}", f"{ratio:.2f}x", f"at most {most:g}x", ratio <= most)


def under(work: str, figure: float, most: float, unit: str, of: str = "") -> Row:
    """Return a row that must stay below a figure of its own."""
    shown = f"{figure:,.0f}" if figure >= 10 else f"{figure:.1f}" if figure >= 1 else f"{figure:.2f}"
    return Row(work, f"{shown} {unit}", of, "", f"under {most:,g} {unit}", figure < most)


def only_told(work: str, ours: float, other: float, of: str) -> Row:
    """Return a row without an aim."""
    return Row(work, told(ours), f"{of} {told(other)}", f"{ours / other:.2f}x")


def unmeasured(work: str, aim: str, why: str) -> Row:
    """Return a row that says why there is no figure."""
    return Row(work, "", why, "", aim)


def render(table: Iterable[Row]) -> list[str]:
    """Return the table as lines of Markdown."""
    lines = ["| work | fleet | against | ratio | aim | |", "|---|---|---|---|---|---|"]
    for row in table:
        missing = "" if row.ours else "not measured"
        verdict = {True: "met", False: "**not met**", None: missing}[row.is_met]
        lines.append(f"| {row.work} | {row.ours} | {row.against} | {row.ratio} | {row.aim} | {verdict} |")
    return lines
