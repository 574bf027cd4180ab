"""What a large block took is given back when it is freed, also after others like it were."""

import platform
import subprocess
import sys

import pytest

from service.allocator import LARGE_BYTES
from tests.source_files import ROOT

AFTER_A_LARGER_ONE = """
import ctypes
from service.allocator import give_back_large_blocks
class Info(ctypes.Structure):
    _fields_ = [(f"field{i}" if i != 3 else "hblks", ctypes.c_size_t) for i in range(10)]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
if {chosen}: assert give_back_large_blocks()
larger = bytes(8 << 20)
del larger
before = mallinfo().hblks
block = bytes(4 << 20)
print(mallinfo().hblks - before)
"""
"""How many blocks of its own, which the system has again when it is freed, a block of four MiB is."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
@pytest.mark.parametrize(("chosen", "blocks"), [(True, "1"), (False, "0")])
def test_a_large_block_is_the_systems_own_also_after_a_larger_one(chosen: bool, blocks: str) -> None:
    code = AFTER_A_LARGER_ONE.replace("{chosen}", str(chosen))

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert blocks == ran.stdout.strip()


def test_a_body_of_the_most_bytes_is_a_large_block() -> None:
    assert LARGE_BYTES < 2 << 20
