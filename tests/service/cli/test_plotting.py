"""A picture is a file of the format that its name says, and what prevents it is told before any work."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from service.cli.plotting import figure, plot_option

pytest.importorskip("matplotlib")


@click.command()
@plot_option("the growth")
def command(plot: Path | None) -> None:
    click.echo(f"drew {plot.name if plot else 'nothing'}")


def run(path: Path) -> Result:
    return CliRunner().invoke(command, ["--plot", str(path)])


def draw(path: Path) -> bytes:
    with figure(path, 2) as (left, right):
        left.plot([0, 1], [1, 2], label="rain")
        left.legend()
        right.set(xlabel="days")
    return path.read_bytes()


def test_a_png_is_written(tmp_path: Path) -> None:
    assert draw(tmp_path / "a.png").startswith(b"\x89PNG")


def test_equal_drawings_are_equal_svg_files_with_text(tmp_path: Path) -> None:
    first = draw(tmp_path / "a.svg")

    assert first == draw(tmp_path / "b.svg")
    assert b"rain" in first


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"cannot write .*No such file"):
        draw(tmp_path / "missing" / "a.svg")


def test_a_block_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), figure(tmp_path / "a.svg"):
        raise ZeroDivisionError

    assert [] == list(tmp_path.iterdir())


def test_a_file_to_draw_into_is_given_to_the_command(tmp_path: Path) -> None:
    assert "drew a.svg\n" == run(tmp_path / "a.svg").output


@pytest.mark.parametrize(
    ("name", "message"), [("a.pdf", r".pdf, and .png or .svg is drawn"), ("missing/a.svg", "there is no folder")]
)
def test_a_file_that_could_not_be_drawn_is_refused_at_once(tmp_path: Path, name: str, message: str) -> None:
    result = run(tmp_path / name)

    assert 2 == result.exit_code
    assert message in result.output


def test_a_missing_library_is_named_with_the_way_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.plotting.find_spec", lambda name: None)

    result = run(tmp_path / "a.svg")

    assert (1, "Error: drawing needs matplotlib: run `pip install 'tane[plots]'`\n") == (
        result.exit_code,
        result.output,
    )
