"""The table of parameters in the guide to the API is the schema's."""

from pathlib import Path

from service.parameter_table import END, START, parameter_table, with_table
from service.schemas import GenerateRequest

PAGE = Path(__file__).parents[2] / "docs/api.md"


def test_the_guide_holds_the_table_of_the_schema() -> None:
    """After a change of the schema: python -m service.parameter_table docs/api.md"""
    text = PAGE.read_text(encoding="utf-8")

    assert with_table(text) == text


def test_the_table_has_a_row_for_each_field() -> None:
    names = [line.split("|")[1].strip().strip("`") for line in parameter_table().splitlines()[2:]]

    assert list(GenerateRequest.model_fields) == names


def test_every_row_has_all_its_cells() -> None:
    assert {6} == {len(line.replace("\\|", "").split("|")) for line in parameter_table().splitlines()}


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    assert f"a{START}\n{parameter_table()}\n{END}b" == with_table(f"a{START}old{END}b")
