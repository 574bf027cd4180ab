"""Every hostile input, one after the other, while a canary sings."""

from dataclasses import dataclass

from tests.hostile.canary import Song, singing
from tests.hostile.inputs import Hostile, keyless_inputs
from tests.hostile.keyed import keyed_inputs
from tests.hostile.wire import WireAnswer, talk

FAULT = 500


@dataclass(frozen=True, slots=True)
class Report:
    """What a server made of it."""

    answers: dict[str, tuple[Hostile, WireAnswer]]
    song: Song

    @property
    def problems(self) -> dict[str, list[str]]:
        """What is wrong, by the name of the input."""
        found = {name: hostile.problems(answer) for name, (hostile, answer) in self.answers.items()}
        return {name: problems for name, problems in found.items() if problems}

    @property
    def faults(self) -> list[str]:
        """The inputs that were answered as if the server were to blame."""
        return [name for name, (_, answer) in self.answers.items() if (answer.status or 0) >= FAULT]


def assault(url: str, key: str | None = None) -> Report:
    """Send all of it to the server at this address, which asks for this key or for none."""
    answers: dict[str, tuple[Hostile, WireAnswer]] = {}
    inputs = keyless_inputs() if key is None else keyed_inputs(key)
    with singing(url, key) as song:
        for hostile in inputs:
            assert hostile.name not in answers, "names are unique"
            answers[hostile.name] = hostile, talk(url, hostile.raw, ends=hostile.ends)
    return Report(answers, song)
