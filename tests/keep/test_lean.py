"""What a quick command leaves unimported, and what it does without."""

import hashlib
import subprocess
import sys

from fleet.keep.digests import blake2b


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_msgspec_comes_without_typing_extensions_which_can_be_had_afterwards():
    assert run(
        "import sys; from fleet.keep import lean; lean.import_msgspec(); "
        "print('msgspec' in sys.modules, 'typing_extensions' in sys.modules, 'inspect' in sys.modules); "
        "import typing_extensions; print(bool(typing_extensions.Annotated))"
    ) == ["True", "False", "False", "True"]


def test_typing_extensions_stays_where_somebody_has_it():
    assert run(
        "import sys, typing_extensions as known; from fleet.keep import lean; lean.import_msgspec(); "
        "print(sys.modules['typing_extensions'] is known)"
    ) == ["True"]


def test_records_are_read_alike_without_typing_extensions():
    raw = b'{"id":"p-0123456789abcdef","n":{"seen":{"a.0a1b2c3d":2}}}'
    read = f"from fleet.keep import config, line; print(line.decode({raw!r}), line.decode_block({raw!r}))"
    lean = run(f"from fleet.keep import lean; lean.import_msgspec(); {read}")
    assert "Line(add={}," in lean
    assert lean == run(f"import typing_extensions; {read}")


def test_the_digest_is_that_of_hashlib():
    for data in (b"", b"a lesson", bytes(range(256)) * 9):
        for size in (4, 8, 16):
            assert blake2b(data, digest_size=size).digest() == hashlib.blake2b(data, digest_size=size).digest()
    assert blake2b(b"x", digest_size=8, person=b"fleet").hexdigest() == (
        hashlib.blake2b(b"x", digest_size=8, person=b"fleet").hexdigest()
    )


def test_what_stood_in_for_a_module_is_gone_afterwards_and_the_real_one_can_be_had():
    lean = "import sys; from fleet.keep import lean; lean.import_pathlib(); lean.import_msgspec(); "
    assert run(
        lean + "print(*(name in sys.modules for name in ('pathlib', 'msgspec', 'urllib.parse', 'platform'))); "
        "import platform, urllib.parse; print(platform.python_version(), urllib.parse.quote('a b'))"
    ) == ["True", "True", "False", "False", sys.version.split()[0], "a%20b"]


def test_paths_and_identifiers_are_what_they_are_without_stand_ins():
    asked = (
        "import pathlib, uuid, msgspec; one = uuid.UUID(int=7); "
        "print(pathlib.Path('/a b/ü').as_uri(), msgspec.json.encode(one), uuid._AIX, uuid._LINUX, uuid.getnode())"
    )
    lean = run(f"from fleet.keep import lean; lean.import_pathlib(); lean.import_msgspec(); {asked}")
    assert lean == run(f"import typing_extensions; {asked}")
    assert lean[0] == "file:///a%20b/%C3%BC"


def test_a_python_that_asks_a_stand_in_for_more_gets_the_real_module():
    assert (
        run(
            "import sys, types; from fleet.keep import lean; "
            "lean._import('pathlib', {'urllib.parse': types.ModuleType('urllib.parse')}); "
            "print('pathlib' in sys.modules, 'urllib.parse' in sys.modules); "
            "import pathlib; print(pathlib.Path('/a b').as_uri())"
        )[-1]
        == "file:///a%20b"
    )
