"""Steps of a Dockerfile, carried out on a folder."""

from pathlib import Path

import pytest

from tests.container.dockerfile import Instruction, pairs, read_stages
from tests.container.rootfs import Stage, carry_out, entering


def stage_after(root: Path, *instructions: Instruction, arguments: dict[str, str] | None = None) -> Stage:
    stage = Stage(root)
    for instruction in instructions:
        carry_out(stage, instruction, {"build": Stage(root / "other")}, arguments or {}, ())
    return stage


def test_continued_lines_are_one_and_comments_are_none(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("# why\nFROM a AS b\nRUN one \\\n    && two\n\nFROM c\n", encoding="utf-8")

    assert [[("FROM", "a AS b"), ("RUN", "one      && two")], [("FROM", "c")]] == read_stages(path)


def test_pairs_lose_their_quotes() -> None:
    assert {"A": "1 2", "B": "", "C": "3"} == pairs('A="1 2" B C=3')


def test_a_variable_may_use_the_one_before_it(tmp_path: Path) -> None:
    stage = stage_after(tmp_path, ("ENV", "PATH=/bin"), ("ENV", 'PATH="/opt/bin:$PATH"'))

    assert "/opt/bin:/bin" == stage.environment["PATH"]


def test_an_argument_that_is_given_wins_over_its_default(tmp_path: Path) -> None:
    stage = stage_after(tmp_path, ("ARG", "PULL=1"), ("ARG", "TORCH=0"), arguments={"PULL": "0"})

    assert {"PULL": "0", "TORCH": "0"} == stage.arguments


def test_copying_leaves_out_what_the_context_leaves_out(tmp_path: Path) -> None:
    stage_after(tmp_path, ("WORKDIR", "/src"), ("COPY", "pyproject.toml LICENSE ./"), ("COPY", "service service"))

    assert (tmp_path / "src/LICENSE").is_file()
    assert (tmp_path / "src/service/app.py").is_file()
    assert [] == [*tmp_path.rglob("__pycache__"), *tmp_path.rglob("*.so")]


def test_copying_from_a_stage_takes_what_was_built_there(tmp_path: Path) -> None:
    built = tmp_path / "other/opt/tane"
    built.mkdir(parents=True)
    (built / "tane").write_text("x", encoding="utf-8")

    stage_after(tmp_path, ("COPY", "--from=build /opt/tane /opt/tane"))

    assert "x" == (tmp_path / "opt/tane/tane").read_text(encoding="utf-8")


def test_an_instruction_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="VOLUME"):
        stage_after(tmp_path, ("VOLUME", "/models"))


def test_a_read_only_run_has_the_images_user_and_no_rights(tmp_path: Path) -> None:
    line = entering(stage_after(tmp_path, ("USER", "10001:10001")), ["tane"], {}, read_only=True)

    assert {"--reuid=10001", "--regid=10001", "--no-new-privs", "--bounding-set=-all"} <= set(line)
    assert f"mount -o remount,bind,ro '{tmp_path}'" in line[line.index("-c") + 1].splitlines()
