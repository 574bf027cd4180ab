"""What may be held: read from trees of files that look like those of control groups."""

import resource
from pathlib import Path

import pytest

from service.memory import MemoryUse, own_memory

GIB = 1 << 30


def tree(root: Path, groups: str, **limits: str) -> Path:
    """A root with the files that are read; `limits` are named by their path below sys/fs/cgroup."""
    files = {"proc/self/statm": "1000 250 9 9 9 9 9\n", "proc/self/cgroup": groups}
    files |= {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def limit_of(root: Path) -> int:
    return own_memory(root)()[0].limit


def test_resident_memory_is_read_in_bytes(tmp_path: Path) -> None:
    assert 250 * resource.getpagesize() == own_memory(tree(tmp_path, ""))()[0].used


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/\n", {"memory.max": f"{GIB}\n"}),
        ("0::/pod/app\n", {"pod/app/memory.max": "max\n", "pod/memory.max": f"{GIB}\n"}),
        ("0::/pod/app\n", {"pod/app/memory.max": f"{GIB}\n", "pod/memory.max": f"{2 * GIB}\n"}),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": f"{GIB}\n"}),
        ("5:cpu:/\n4:memory:/a/b\n0::/\n", {"memory/a/memory.limit_in_bytes": f"{GIB}\n"}),
        ("4:memory:/not/here\n", {"memory/memory.limit_in_bytes": f"{GIB}\n"}),
    ],
    ids=["v2", "v2, the group around", "v2, the nearer", "v1", "v1, the group around", "v1, a container's root"],
)
def test_the_smallest_bound_of_the_control_groups_counts(tmp_path: Path, groups: str, limits: dict[str, str]) -> None:
    assert limit_of(tree(tmp_path, groups, **limits)) == GIB


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n"])
def test_without_a_bound_it_is_the_machines_memory(tmp_path: Path, text: str) -> None:
    machine = limit_of(tree(tmp_path / "bare", ""))

    assert machine == limit_of(tree(tmp_path / "group", "0::/\n", **{"memory.max": text}))


def test_the_address_space_counts_where_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (GIB, resource.RLIM_INFINITY))

    uses = own_memory(tree(tmp_path, ""))()

    assert MemoryUse(1000 * resource.getpagesize(), GIB) == uses[1]


def test_where_the_system_does_not_tell_nothing_is_known(tmp_path: Path) -> None:
    assert () == own_memory(tmp_path)()


def test_this_process_is_told_of_itself() -> None:
    assert 1 << 20 < own_memory()()[0].used < own_memory()()[0].limit
