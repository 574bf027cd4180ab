"""What names a model of the hub, and where it is kept."""

from pathlib import Path

import pytest

from model.loading.checkpoint import ModelFileError
from model.loading.hf_reference import HubAccess, HubReference

NAMES: dict[str, HubReference] = {
    "hf:ORG/REPO": HubReference("ORG", "REPO"),
    "hf:ORG/REPO@v1.0": HubReference("ORG", "REPO", None, "v1.0"),
    "hf:ORG/REPO@refs/pr/3": HubReference("ORG", "REPO", None, "refs/pr/3"),
    "hf:ORG/REPO/some.Q4_K_M.gguf": HubReference("ORG", "REPO", "some.Q4_K_M.gguf"),
    "hf:ORG/REPO/q4/some model.gguf@v2": HubReference("ORG", "REPO", "q4/some model.gguf", "v2"),
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_read(text: str) -> None:
    assert NAMES[text] == HubReference.parse(text)


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_written_as_it_was_read(text: str) -> None:
    assert text == HubReference.parse(text).name


@pytest.mark.parametrize(
    "text",
    [
        "hf:",
        "hf:gpt2",
        "hf:ORG/",
        "hf:/REPO",
        "hf:ORG/../REPO",
        "hf:../REPO",
        "hf:ORG/..",
        "hf:ORG/.REPO",
        "hf:ORG/RE PO",
        "hf:ORG/REPO/",
        "hf:ORG/REPO/config.json",
        "hf:ORG/REPO/../x.gguf",
        "hf:ORG/REPO/a//x.gguf",
        "hf:ORG/REPO/.gguf",
        "hf:ORG/REPO/a\\x.gguf",
        "hf:ORG/REPO/a\nx.gguf",
        "hf:ORG/REPO@",
        "hf:ORG/REPO@..",
        "hf:ORG/REPO@/main",
        "hf:ORG/REPO@a/../b",
        "hf:ORG/REPO@a?b",
        f"hf:ORG/{'x' * 97}",
        f"hf:ORG/REPO@{'x' * 201}",
    ],
)
def test_what_is_no_name_is_refused_with_the_form_of_one(text: str) -> None:
    with pytest.raises(ModelFileError, match="its name must be hf:ORG/REPO"):
        HubReference.parse(text)


def test_the_folder_is_called_as_the_repository(tmp_path: Path) -> None:
    assert tmp_path / "hf" / "main" / "ORG" / "REPO" == HubReference("ORG", "REPO").path(tmp_path)


def test_a_file_is_called_as_it_is_in_the_repository(tmp_path: Path) -> None:
    path = HubReference("ORG", "REPO", "q4/some.gguf").path(tmp_path)

    assert tmp_path / "hf-gguf" / "main" / "ORG" / "REPO" / "q4%2Fsome.gguf" / "some.gguf" == path


def test_no_two_names_share_a_place(tmp_path: Path) -> None:
    references = [*NAMES.values(), HubReference("ORG", "REPO", "q4/some model.gguf"), HubReference("v1.0", "ORG")]
    places = [reference.place(tmp_path) for reference in references]

    assert len(places) == len(set(places))
    assert not [(one, other) for one in places for other in places if one in other.parents]


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(HubAccess(token="secret"))
