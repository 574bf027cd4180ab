"""The build may not change a bit: what the compiler is told, and what it must never be told."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = (ROOT / "CMakeLists.txt").read_text()
SOURCES = {path.name: path.read_text() for path in (ROOT / "model" / "native").glob("*.?pp")}
COMMANDS = "\n".join(line.split("#")[0] for line in BUILD.splitlines())


def test_nothing_is_fused_that_the_source_does_not_fuse() -> None:
    assert "-ffp-contract=off" in COMMANDS


def test_nothing_that_changes_bits_is_switched_on() -> None:
    forbidden = r"fast-math|-Ofast|-flto|INTERPROCEDURAL|march=|mtune=|ffinite-math|funsafe|-mrecip"

    assert re.findall(forbidden, COMMANDS) == []
    assert [
        name
        for name, text in SOURCES.items()
        if re.search(r"#pragma (GCC (?!unroll)|STDC|clang)|__attribute__|\btarget\(", text)
    ] == []


def test_wide_instructions_are_allowed_only_where_the_name_says_so() -> None:
    options = re.findall(r"(\w+)_SOURCES\}\s+PROPERTIES COMPILE_OPTIONS \"([^\"]*)\"", COMMANDS)

    assert [name for name, _ in options] == ["AVX2", "AVX512"]
    assert "-m" not in re.sub(r"set_source_files_properties\(.*?\)", "", COMMANDS, flags=re.DOTALL)


def test_no_approximation_instruction_and_no_library_transcendental_is_used() -> None:
    """Their results differ between machines and libraries."""
    approximate = r"_mm\d*_(?:mask_|maskz_)?(?:rcp|rsqrt)\w*|std::(?:exp|log|pow|sin|cos|tanh?)\w*\("

    assert {name: found for name, text in SOURCES.items() if (found := re.findall(approximate, text))} == {}
