"""Metadata of a GGUF file by key and type, each value checked as it is asked for.

Knows types and ranges, not what a key means. Always: what is returned has the type and lies in the range that the
caller named; anything else raises ModelFileError with the key and its place in the file.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NoReturn

import numpy as np

from model.loading.cursor import shown
from model.loading.gguf_reader import Scalar, Value
from model.loading.model_file import ModelFile


class Metadata:
    """Typed access to the keys. A default stands for a key that the file lacks; without one the key must be there."""

    def __init__(self, file: ModelFile, values: Mapping[str, Value]) -> None:
        self._file = file
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Raise ModelFileError: `key` is `reason`."""
        value = self._values.get(key)
        raise self._file.error(f"{_label(key)} {reason}", value.offset if value else None)

    def scalar(self, key: str) -> Scalar:
        data = self._find(key).data
        if not isinstance(data, bool | int | float | str):
            self.refuse(key, "is an array, not a single value")
        return data

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        if key not in self._values and default is not None:
            return default
        number = self.scalar(key)
        if isinstance(number, bool) or not isinstance(number, int):
            self.refuse(key, "is not an integer")
        if not least <= number <= most:
            self.refuse(key, f"is {number}; allowed are {least} to {most}")
        return number

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """A finite floating-point number in [least, most]."""
        if key not in self._values and default is not None:
            return default
        number = self.scalar(key)
        if not isinstance(number, float):
            self.refuse(key, "is not a floating-point number")
        if not math.isfinite(number) or not least <= number <= most:
            self.refuse(key, f"is {number}; allowed are {least:g} to {most:g}")
        return number

    def flag(self, key: str, default: bool) -> bool:
        if key not in self._values:
            return default
        flag = self.scalar(key)
        if not isinstance(flag, bool):
            self.refuse(key, "is not a truth value")
        return flag

    def text(self, key: str, most_bytes: int, default: str | None = None) -> str:
        if key not in self._values and default is not None:
            return default
        text = self.scalar(key)
        if not isinstance(text, str):
            self.refuse(key, "is not a string")
        size = len(text.encode("utf-8"))
        if size > most_bytes:
            self.refuse(key, f"is {size} bytes long; allowed are {most_bytes}")
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        data = self._find(key).data
        if not isinstance(data, tuple):
            self.refuse(key, "is not an array of strings")
        return data

    def integers(self, key: str) -> list[int]:
        data = self._find(key).data
        if not isinstance(data, np.ndarray) or not np.issubdtype(data.dtype, np.integer):
            self.refuse(key, "is not an array of integers")
        return [int(number) for number in data.tolist()]

    def numbers(self, key: str) -> tuple[float, ...]:
        data = self._find(key).data
        if not isinstance(data, np.ndarray) or not np.issubdtype(data.dtype, np.floating):
            self.refuse(key, "is not an array of floating-point numbers")
        return tuple(data.tolist())

    def _find(self, key: str) -> Value:
        value = self._values.get(key)
        if value is None:
            raise self._file.error(f"{_label(key)} is missing")
        return value


def _label(key: str) -> str:
    return key if key.isascii() and key.isprintable() else shown(key)
