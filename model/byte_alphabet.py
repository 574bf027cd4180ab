"""The letters in which byte-level vocabularies spell bytes, after GPT-2.

Always: each byte has one letter, and no two share one.
"""

from collections.abc import Mapping


def _byte_alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


# Characters that are no letters of the alphabet become one that Latin-1 cannot encode, so that they show.
_LETTER_TO_BYTE: Mapping[int, int] = dict.fromkeys(range(256), 0xFFFF) | {
    ord(letter): byte for letter, byte in _byte_alphabet().items()
}


def bytes_of(spelling: str) -> bytes:
    """The bytes that these letters stand for. Raises UnicodeEncodeError for what is no letter."""
    return spelling.translate(_LETTER_TO_BYTE).encode("latin-1")
