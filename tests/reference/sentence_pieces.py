"""BPE by scores, straight from its definition: again and again the best pair anywhere in the text is joined."""

from itertools import pairwise

from model.loading.checkpoint import Vocabulary


def encode(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of a text without "▁" in it, in time quadratic in its length.

    Tokens that are found in text as they stand come first, the leftmost and longest, and are joined with nothing. Of
    all neighbours that together are a piece the two with the highest score are joined, the leftmost of equals. What
    is no piece in the end becomes its bytes.
    """
    symbols = _symbols(vocabulary, (" " * vocabulary.adds_space_prefix + text if text else "").replace(" ", "▁"))
    pieces = _pieces(vocabulary)
    while True:
        joined = [
            (vocabulary.scores[pieces[left + right]], -place)
            for place, ((left, fixed), (right, also_fixed)) in enumerate(pairwise(symbols))
            if not fixed and not also_fixed and left + right in pieces
        ]
        if not joined:
            break
        place = -max(joined)[1]
        symbols[place : place + 2] = [(symbols[place][0] + symbols[place + 1][0], False)]
    ids: list[int] = []
    for symbol, fixed in symbols:
        if fixed:
            ids.append(_fixed(vocabulary)[symbol])
        elif symbol in pieces:
            ids.append(pieces[symbol])
        else:
            ids += [vocabulary.tokens.index(f"<0x{byte:02X}>") for byte in symbol.encode()]
    return ids


def _fixed(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.tokens[i].replace(" ", "▁"): i for i in vocabulary.user_defined_token_ids}


def _pieces(vocabulary: Vocabulary) -> dict[str, int]:
    others = vocabulary.control_token_ids | vocabulary.unused_token_ids | vocabulary.byte_token_ids
    others |= vocabulary.user_defined_token_ids
    return {spelling: i for i, spelling in enumerate(vocabulary.tokens) if i not in others}


def _symbols(vocabulary: Vocabulary, text: str) -> list[tuple[str, bool]]:
    """Single characters, and tokens that nothing may be joined with."""
    fixed = sorted(_fixed(vocabulary), key=len, reverse=True)
    symbols = []
    place = 0
    while place < len(text):
        found = next((each for each in fixed if text.startswith(each, place)), None)
        symbols.append((text[place] if found is None else found, found is not None))
        place += len(symbols[-1][0])
    return symbols
