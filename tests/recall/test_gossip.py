"""Gossip: the newest discoveries, plain enough for a terminal and an agent alike."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fleet import RELEASED_MS
from fleet.app.finding import ListFilter
from fleet.model.discovery import Discovery, discovery_id, retraction_id
from fleet.recall.wording import Renderer
from fleet.store.lines import DISCOVERIES
from fleet.store.workspace import Workspace, World

NAUGHTY = Path(__file__).resolve().parents[2].parent / "shared/corpora/strings/blns.json"
MEMBERS = {"velma": "🔍"}


def finding(number: int, **fields) -> Discovery:
    told = {"problem": f"problem {number}", "solution": f"solution {number}", "type": "tip"}
    return Discovery(
        id=f"d-{number:016x}",
        at=f"2026-11-{number % 28 + 1:02}T22:30:00.000Z-0000",
        by="velma.09ab12cd",
        **{**told, **fields},
    )


def ids(told: str) -> list[str]:
    return [row[:-1].rpartition("(")[2].rpartition("; ")[2] for row in told.splitlines()]


def test_a_small_gossip_is_golden():
    joined = [
        finding(1, context="CI on arm64", tags=("ci", "arm"), confidence="high", type="workaround"),
        finding(2, solution=""),
    ]
    assert Renderer(MEMBERS).gossip(joined) == (
        "- 2026-11-03 🔍 velma tip: problem 2 (d-0000000000000002)\n"
        "- 2026-11-02 🔍 velma workaround: CI on arm64: problem 1 -> solution 1 "
        "(ci, arm; high confidence; d-0000000000000001)"
    )


def test_the_newest_come_first_in_whatever_order_they_are_given():
    entries = [finding(n) for n in range(5, 25)]
    for told in (entries, entries[::-1]):
        assert ids(Renderer().gossip(told)) == [f"d-{n:016x}" for n in range(24, 4, -1)]


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "fleet.toml").write_text("")
    opened = Workspace(tmp_path, World(wall_ms=lambda: RELEASED_MS + 40 * 86_400_000, durable=False))
    yield opened
    opened.close()


def shown(workspace: Workspace) -> str:
    return Renderer().gossip(ListFilter().discoveries(workspace, 20))


def log(workspace: Workspace, *entries: Discovery) -> None:
    with workspace.writing("velma") as writer:
        writer.append(DISCOVERIES, entries)


def real(number: int) -> Discovery:
    """A discovery whose id is the hash of what it says: the store takes no other."""
    return replace(finding(number), id=discovery_id("tip", "", f"problem {number}", f"solution {number}"))


def test_no_more_are_told_than_asked(workspace):
    entries = [real(number) for number in range(25)]
    log(workspace, *entries)
    assert ids(shown(workspace)) == [each.id for each in entries[24:4:-1]]


def test_what_is_retracted_is_not_told(workspace):
    target = real(1)
    log(workspace, target)
    assert target.id in shown(workspace)
    log(workspace, Discovery(id=retraction_id(target.id), at=target.at, by=target.by, retracts=target.id))
    assert "No discoveries" in shown(workspace)


def test_nothing_to_tell_tells_how_to_log():
    assert "fleet discover" in Renderer().gossip([])


def test_a_discovery_without_a_stamp_or_a_writer_is_told():
    assert Renderer().discovery(Discovery(id="d-" + "0" * 16, problem="p")) == "- p (d-0000000000000000)"


def assert_plain(told: str, entries: int) -> None:
    assert len(told.split("\n")) == entries
    assert told.isprintable() or all(c == "\n" or not ("\x00" <= c <= "\x1f" or "\x7f" <= c <= "\x9f") for c in told)


texts = st.text() | st.sampled_from(["\x1b[31m", "\x9b", "a\nb", "\u2028", "\r\n", "\U000e0041", "\u202e", "\ud800"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(texts, texts, texts, texts, texts, st.lists(texts, max_size=3)), min_size=1, max_size=5))
def test_no_text_makes_a_line_of_its_own_or_an_escape(fields):
    joined = []
    for number, (type_, context, problem, solution, confidence, tags) in enumerate(fields):
        entry = finding(number, type=type_, context=context, problem=problem, solution=solution)
        assert "\n" not in Renderer({"velma": type_}).discovery(entry)
        more = {"problem": problem, "solution": solution, "confidence": confidence, "context": context}
        joined.append(finding(number, tags=tuple(tags), **more))
    assert_plain(Renderer({"velma": fields[0][0]}).gossip(joined), len(fields))


def test_the_naughty_strings_stay_in_their_lines():
    if not NAUGHTY.exists():
        pytest.skip(f"no {NAUGHTY}: the shared corpora are not beside this tree")
    strings = [text for text in json.loads(NAUGHTY.read_text()) if text]
    joined = [finding(n, problem=text, type=text, tags=(text,)) for n, text in enumerate(strings)]
    assert_plain(Renderer().gossip(joined), len(strings))


def test_a_secret_is_redacted_even_when_something_invisible_or_a_colour_splits_it():
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    for split in ("", "\u200b", "\x1b[31m"):
        text = secret[:9] + split + secret[9:]
        told = Renderer().gossip([finding(1, problem=text, context=text, tags=(text,))])
        assert told.count("[REDACTED:") == 3
        assert secret not in told
