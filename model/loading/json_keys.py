"""A JSON object from a model folder, each value checked as it is asked for.

Knows types and ranges, not what a key means. Always: what is returned has the type and lies in the range that the
caller named; anything else raises ModelFileError with the file and the key. A key that is null counts as absent.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from model.loading.cursor import shown
from model.loading.model_file import ModelFile
from model.loading.safetensors import parsed_json


class JsonKeys:
    """Typed access to the keys. A default stands for a key that is absent; without one the key must be there."""

    def __init__(self, file: ModelFile, values: Mapping[str, Any], inside: str = "") -> None:
        self.file = file
        self._values = values
        self._inside = inside

    @classmethod
    def read(cls, path: Path, most_bytes: int) -> Self:
        """Raises ModelFileError for what is no JSON object, repeats a key, or is larger than `most_bytes`."""
        file = ModelFile(path)
        values = read_json(file, most_bytes)
        if not isinstance(values, dict):
            raise file.error("not a JSON object")
        return cls(file, values)

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def names(self, key: str) -> bool:
        """Whether the key is there, null or not."""
        return key in self._values

    def value(self, key: str) -> Any:
        """As it stands; None when it is absent."""
        return self._values.get(key)

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Raise ModelFileError: `key` is `reason`."""
        raise self.file.error(f"{self._label(key)} {reason}")

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        number = self._find(key, default)
        if type(number) is not int:
            self.refuse(key, "is not a whole number")
        if not least <= number <= most:
            self.refuse(key, f"is {shown_value(number)}; allowed are {least} to {most}")
        return number

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """A number in [least, most], written with a point or without."""
        number = self._find(key, default)
        if isinstance(number, bool) or not isinstance(number, int | float):
            self.refuse(key, "is not a number")
        if not least <= number <= most:
            self.refuse(key, f"is {shown_value(number)}; allowed are {least:g} to {most:g}")
        return float(number)

    def flag(self, key: str, default: bool | None = None) -> bool:
        flag = self._find(key, default)
        if not isinstance(flag, bool):
            self.refuse(key, "is not true or false")
        return flag

    def text(self, key: str, most_bytes: int, default: str | None = None) -> str:
        text = self._find(key, default)
        if not isinstance(text, str):
            self.refuse(key, "is not a string")
        size = len(text.encode())
        if size > most_bytes:
            self.refuse(key, f"is {size} bytes long; allowed are {most_bytes}")
        return text

    def items(self, key: str) -> list[Any]:
        items = self._find(key, None)
        if not isinstance(items, list):
            self.refuse(key, "is not a list")
        return items

    def object(self, key: str) -> "JsonKeys":
        values = self._find(key, None)
        if not isinstance(values, dict):
            self.refuse(key, "is not an object")
        return JsonKeys(self.file, values, f"{self._inside}{label(key)}.")

    def _find(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            self.refuse(key, "is missing")
        return default

    def _label(self, key: str) -> str:
        return self._inside + label(key)


def read_json(file: ModelFile, most_bytes: int) -> Any:
    """What the file holds, as `parsed_json` judges it.

    Raises ModelFileError, also when the file is larger than `most_bytes`.
    """
    try:
        return parsed_json(read_small(file, most_bytes))
    except ValueError as error:
        raise file.error(f"not valid JSON: {shown(str(error))}") from None


def read_small(file: ModelFile, most_bytes: int) -> bytes:
    """The whole file. Raises ModelFileError when it is larger than `most_bytes`."""
    if file.size > most_bytes:
        raise file.error(f"{file.size} bytes, more than the {most_bytes} that are allowed")
    return file.read(0, file.size).tobytes()


def label(key: str) -> str:
    """A key from a file, fit for one line of an error message."""
    return key if key and len(key) <= MAX_LABEL and key.isascii() and key.isprintable() else shown(key)


def shown_value(value: Any) -> str:
    """A value from a file, fit for one line of an error message."""
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return "a whole number of many digits"
    return shown(value if isinstance(value, str) else str(value)).strip("'\"")


MAX_LABEL = 80
MAX_SHOWN_BITS = 256
