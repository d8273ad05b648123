"""Many lessons at once: each is counted, and nothing is read once for every one of them."""

import pytest

from fleet.learn import corrections_md, counting
from fleet.learn.counting import CountedLog
from fleet.store import config
from fleet.store.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / config.FILE_NAME).write_text(config.render("", "fleet"))
    made = Workspace(tmp_path)
    yield made
    made.close()


def test_entries_written_by_hand_are_counted_in_one_go(workspace, monkeypatch):
    log = CountedLog(workspace, "velma").log_file()
    log.parent.mkdir(parents=True)
    entry = "## 2026-03-15 14:30Z — {0}\n**What I got wrong:** w\n**Pattern:** Check gadget {0} first\n\n"
    log.write_text("".join(entry.format(number) for number in range(40)))
    with workspace.writing("velma"):
        pass
    parsed, parse = [], corrections_md.Log.parse
    monkeypatch.setattr(corrections_md.Log, "parse", lambda page: parsed.append(1) or parse(page))
    counting.reconcile_all(workspace)
    assert len(parsed) <= 3
    assert len(CountedLog(workspace, "velma").read_log().records) == 40
    assert sorted(each.text for each in workspace.patterns.lessons()) == sorted(
        f"Check gadget {number} first" for number in range(40)
    )
