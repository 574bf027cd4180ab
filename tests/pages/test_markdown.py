"""How pages are taken apart, and how what they show is compared."""

from typing import Any

import pytest

from tests.pages.markdown import blocks_of
from tests.pages.shown import json_differences, missing_lines
from tests.pages.workshop import alone

PAGE = """# Title

```sh
one
```

- in a list

  ```python
  two
  ```

<!-- not run: takes minutes -->
```sh
three
```

<!-- output -->

```json
{}
```

    indented, and no block
"""


def test_every_fenced_block_is_found_with_its_language_and_its_mark() -> None:
    found = [(block.line, block.language, block.text, block.mark) for block in blocks_of("page.md", PAGE)]

    assert [
        (3, "sh", "one\n", ""),
        (9, "python", "two\n", ""),
        (14, "sh", "three\n", "not run: takes minutes"),
        (20, "json", "{}\n", "output"),
    ] == found


def test_the_reason_is_what_follows_the_mark() -> None:
    assert ["", "", "takes minutes", ""] == [block.reason for block in blocks_of("page.md", PAGE)]


@pytest.mark.parametrize(
    ("shown", "real", "differences"),
    [
        ({"text": "a"}, {"text": "a", "seed": 7}, []),
        ({"text": "a"}, {"text": "b"}, ['.text is "b"']),
        ({"text": "a"}, {}, [".text did not come"]),
        ({"id": "x"}, {"id": "y"}, []),
        ({"usage": {"tokens": 1}}, {"usage": {"tokens": 2}}, [".usage.tokens is 2"]),
        ([1, 2], [1, 3], ["[1] is 3"]),
        ([1, 2], [1], ["the whole is [1]"]),
        (1, True, ["the whole is true"]),
        (-0.25, -0.25000000000000006, ["the whole is -0.25000000000000006"]),
    ],
)
def test_json_is_shown_as_it_came_or_without_some_fields(shown: Any, real: Any, differences: list[str]) -> None:
    assert differences == list(json_differences(shown, real))


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        ("one\nthree\n", []),
        ("one\n…\nthree\n", []),
        ("o…e\n", []),
        ("three\none\n", ["one"]),
        ("four\n", ["four"]),
    ],
)
def test_lines_are_shown_as_they_came_and_in_order(shown: str, missing: list[str]) -> None:
    assert missing == missing_lines(shown, "one\ntwo  \nthree\n")


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("tane models\n", [["models"]]),
        ('tane study beam \\\n  --prompt "A b"   # as it is\n', [["study", "beam", "--prompt", "A b"]]),
        ("tane serve\n", []),
        ("tane models | head -1\n", []),
        ('tane info "$(tane pull)"\n', []),
        ("tane models\nls\n", []),
    ],
)
def test_only_plain_commands_of_tane_are_run_without_a_shell(text: str, commands: list[list[str]]) -> None:
    assert commands == alone(text)
