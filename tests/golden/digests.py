"""What the kernels give is tied to `NUMERIC_VERSION`: neither changes without the other.

`digests.json` keeps, for each version, a digest of every kernel and of whole small models. A change that changes bits
raises `NUMERIC_VERSION` in `model/ops/native_ops.py`; then `python -m tests.golden` adds the new digests to the file.
While a version was never released, taking its entry out of the file lets the same command write it anew.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from model.ops.native_ops import NUMERIC_VERSION, Isa, KvType
from tests.bits.conditions import available_isas
from tests.golden.model import FAMILIES, model_digest
from tests.source_files import ROOT

PATH = Path(__file__).with_name("digests.json")
COMMON = "all"
"""Stands for the instruction set of what has one version only."""

Digests = Mapping[str, str]
History = Mapping[int, Digests]


def history() -> dict[int, Digests]:
    """What is on record: digests by version."""
    return {int(version): digests for version, digests in json.loads(PATH.read_text(encoding="utf-8")).items()}


def problems(past: History, version: int, digests: Digests) -> list[str]:
    """Why the digests found do not agree with those on record for this version; empty when they do."""
    found = [
        f"{name} has changed: raise NUMERIC_VERSION, and run python -m tests.golden"
        for name in sorted(changed(past.get(version, {}), digests))
    ]
    if version in past and past[version].keys() != digests.keys():
        found.append("a digest was added or taken away: run python -m tests.golden")
    if version not in past:
        found.append(f"no digests are on record for NUMERIC_VERSION {version}: run python -m tests.golden")
    if past and version < max(past):
        found.append(f"NUMERIC_VERSION was {max(past)} before: it only grows")
    if version - 1 in past and not changed(past[version - 1], digests):
        found.append("NUMERIC_VERSION has grown, but nothing has changed: leave it as it was")
    return found


def with_digests(past: History, version: int, digests: Digests) -> dict[int, Digests]:
    """The record with these digests. Raises ValueError where that would hide a change."""
    added = {**past, version: digests}
    hidden = [problem for problem in problems(past, version, digests) if "has changed" in problem]
    if found := hidden + problems(added, version, digests):
        raise ValueError("\n".join(found))
    return dict(sorted(added.items()))


def write(record: History) -> None:
    PATH.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def changed(before: Digests, after: Digests) -> set[str]:
    return {name for name in before.keys() & after.keys() if before[name] != after[name]}


def found() -> Digests:
    """Digests of everything, which must be the same on all instruction sets. Raises ValueError when they are not."""
    by_isa = {isa: {**kernels, **model_digests(isa)} for isa, kernels in kernel_digests().items()}
    (scalar, *others) = by_isa.items()
    for isa, digests in others:
        if different := sorted(changed(scalar[1], digests)):
            raise ValueError(f"{isa} differs from {scalar[0]} in {', '.join(different)}")
    return dict(sorted(scalar[1].items()))


def kernel_digests() -> dict[Isa, dict[str, str]]:
    """Kernels by instruction set, as a program without Python finds them; what has one version stands with each."""
    command = [str(ROOT / "tests" / "native" / "run.sh"), "golden"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    read: dict[str, dict[str, str]] = defaultdict(dict)
    for isa, kernel, digest in (line.split() for line in lines if line.startswith((COMMON, *available_isas()))):
        read[isa][kernel] = digest
    return {isa: {**read[COMMON], **read[isa]} for isa in available_isas()}


def model_digests(isa: Isa) -> dict[str, str]:
    kv_types: tuple[KvType, ...] = get_args(KvType)
    return {f"{family}_{kv_type}": model_digest(family, isa, kv_type) for family in FAMILIES for kv_type in kv_types}


def remake() -> None:
    """Put what is found now on record for the present version."""
    write(with_digests(history() if PATH.exists() else {}, NUMERIC_VERSION, found()))
