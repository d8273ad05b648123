"""BLAKE2b, without what ``hashlib`` loads beside it: all of OpenSSL, which takes as long as a third of Python's start.

The interpreter's own module is the very one that ``hashlib`` hands out under that name, where there is one.
"""

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter that was built to have all digests from elsewhere
    from hashlib import blake2b

__all__ = ["blake2b"]
