"""Which documents of an evaluation a model was calibrated on, by what its recipe recorded.

Knows recipes as plain values. Always: what is named rests on the recorded names, in an equal corpus or among addresses,
whose names mean the same text in every corpus of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from model.evaluation.corpus import ADDRESSES, Corpus, Window

_ADDRESSES = f"{ADDRESSES.requirement},"


def calibrated_documents(recipe: Mapping[str, Any] | None, corpus: Corpus, windows: Sequence[Window]) -> list[str]:
    """Names of the windows' documents that the model was calibrated on, each once."""
    calibration = (recipe or {}).get("calibration")
    if not isinstance(calibration, Mapping):
        return []
    both = (str(calibration.get("corpus")), corpus.name)
    is_the_same = calibration.get("corpus_sha256") == corpus.sha256
    documents = calibration.get("documents")
    if not isinstance(documents, list) or not (is_the_same or all(name.startswith(_ADDRESSES) for name in both)):
        return []
    return [name for name in dict.fromkeys(name for name, _ in windows) if name in documents]
