"""Variable-length integers, seven bits a byte, lowest first: how Yjs writes counts and lengths on the wire (lib0)."""

BITS_MAX = 63  # no count that means anything is larger; a longer one is somebody's attempt


class TruncatedError(ValueError):
    """The bytes end, or go wrong, before what they announce."""


def encode(number: int) -> bytes:
    """Return the bytes of a number that is not negative."""
    found = bytearray()
    while number > 0x7F:
        found.append(0x80 | (number & 0x7F))
        number >>= 7
    found.append(number)
    return bytes(found)


def decode(data: bytes, at: int = 0) -> tuple[int, int]:
    """Return (number, where it ends).

    Raises:
        TruncatedError: there is none there.
    """
    number, shift = 0, 0
    while True:
        if at >= len(data) or shift >= BITS_MAX:
            raise TruncatedError("no whole number here")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def encode_bytes(data: bytes) -> bytes:
    """Return bytes with their length before them."""
    return encode(len(data)) + data


def decode_bytes(data: bytes, at: int = 0) -> tuple[bytes, int]:
    """Return (bytes, where they end).

    Raises:
        TruncatedError: fewer are there than are announced.
    """
    length, at = decode(data, at)
    if at + length > len(data):
        raise TruncatedError("fewer bytes than announced")
    return data[at : at + length], at + length
