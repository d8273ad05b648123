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
