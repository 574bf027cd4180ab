"""The machine that measured, in a few words and numbers that stand beside every figure."""

import os
import platform
from pathlib import Path
from typing import Any

from model.native import _native
from service.op_sets import usable_cores

ISAS = ("scalar", "avx2", "avx512")


def described() -> dict[str, Any]:
    """Processor, cores, widest instruction set with kernels, memory, and how busy others kept it."""
    return {
        "processor": processor_name(),
        "usable_cores": usable_cores(),
        "widest_instruction_set": ISAS[_native.best_isa()],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_average": round(os.getloadavg()[0], 1),
    }


def processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
