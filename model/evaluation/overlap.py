"""Which documents of an evaluation a model was calibrated on, as far as its recipe tells.

Knows recipes as plain values. Always: what is named rests on an equal hash, or on years of the same addresses.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from model.evaluation.corpus import ADDRESSES, Corpus, Window

_PUBLISHED = re.compile(re.escape(ADDRESSES.requirement.partition("==")[0]) + r"==\S+, (\d{4})-(\d{4})")


def calibrated_documents(recipe: Mapping[str, Any] | None, corpus: Corpus, windows: Sequence[Window]) -> list[str]:
    """Names of the windows' documents that were part of the text that the recipe says it was calibrated on."""
    calibration = (recipe or {}).get("calibration")
    if not isinstance(calibration, Mapping):
        return []
    names = list(dict.fromkeys(name for name, _ in windows))
    if calibration.get("corpus_sha256") == corpus.sha256:
        return names
    years = _years(calibration.get("corpus"))
    return [name for name in names if int(name[:4]) in years] if _years(corpus.name) else []


def _years(name: Any) -> range:
    """Of a published corpus, by its name; empty for any other."""
    found = _PUBLISHED.fullmatch(name) if isinstance(name, str) else None
    return range(int(found[1]), int(found[2]) + 1) if found else range(0)
