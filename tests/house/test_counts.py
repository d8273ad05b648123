"""The counts of the house see through every spelling: each way round them is counted."""

import pytest

from tests.house.counts import STAT, Module, cycles, imported, late_imports, names, public_names, vague_names


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import os\nfrom fleet import x\n", []),
        ("def f():\n    import os\n", [2]),
        ("class A:\n    def f(self):\n        from fleet import x\n", [3]),
        ("import importlib\nx = importlib.import_module('fleet.x')\n", [2]),
        ("from importlib import import_module as late\nlate('fleet.x')\n", [2]),
        ("x = __import__('fleet.x')\n", [1]),
        ("exec('import fleet.x')\n", [1]),
        ("def __getattr__(name):\n    return name\n", [1]),
        ("import re\nre.compile('x').match('y')\n", []),
        ("if TYPE_CHECKING:\n    from fleet import x\n", []),
    ],
)
def test_a_late_import_is_one_however_it_is_written(text, lines):
    assert late_imports(Module("m", text)) == lines


def test_a_private_name_that_others_use_is_public():
    known = {
        each.name: each
        for each in (
            Module("fleet.a", "def _hidden(): ...\ndef _own(): ...\ndef shown(): ...\nclass _Kind: ...\n"),
            Module("fleet.b", "from fleet.a import _hidden as h\n"),
            Module("fleet.c", "from fleet import a as first\nimport fleet.a\nfirst._Kind()\nfleet.a.shown()\n"),
        )
    }
    assert names(known["fleet.a"]) == {"_hidden", "_own", "shown", "_Kind"}
    assert public_names(known) == {"fleet.a.shown", "fleet.a._hidden", "fleet.a._Kind"}


def test_a_cycle_counts_whatever_it_is_for_and_wherever_it_is_closed():
    known = {
        each.name: each
        for each in (
            Module("fleet.a", "from fleet import b\n"),
            Module("fleet.b", "def f():\n    from fleet.c import x\n"),
            Module("fleet.c", "if TYPE_CHECKING:\n    import fleet.a\n"),
            Module("fleet.d", "import fleet.a\n"),
        )
    }
    assert cycles({name: imported(module, known) for name, module in known.items()}) == [
        ["fleet.a", "fleet.b", "fleet.c"]
    ]


@pytest.mark.parametrize(
    "text", ["path.stat().st_mtime_ns", "os.path.getmtime(p)", "s.st_ino", "s.st_ctime", "getctime(p)"]
)
def test_a_look_at_times_or_the_inode_is_seen(text):
    assert STAT.search(text)
    assert not STAT.search("s.st_size, s.st_mode")


def test_a_name_that_says_nothing_is_counted_wherever_it_stands():
    text = "class Told:\n    def tell_all(self, said): ...\nx._is_told = Told(says=1)\nuntold = 'told'\n"
    assert sorted(vague_names(Module("m", text))) == ["Told", "Told", "_is_told", "said", "says", "tell_all"]
