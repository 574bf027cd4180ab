"""How often a draft guesses the next token of the target: α of speculative decoding (Leviathan et al. 2023), greedy.

The target writes greedy texts of its own behind several prompts; the draft reads them and predicts each token from what
stands before it. Always: texts are the target's own, so a guess is right exactly where greedy speculation accepts it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from model.evaluation.corpus import Window
from model.evaluation.perplexity import Predicts


class Writes(Protocol):
    def greedy(self, prompt: Sequence[int], count: int, ends: Collection[int] = ()) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Text:
    """What a model wrote behind a prompt."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Over all texts together."""

    tokens: int
    accepted: int

    @property
    def share(self) -> float:
        """α: of all tokens."""
        return self.accepted / self.tokens


def prompts_of(windows: Sequence[Window], *, width: int, count: int) -> list[tuple[int, ...]]:
    """The beginnings of windows of different documents, in order, as far as there are."""
    first = {name: ids[:width] for name, ids in reversed(windows)}
    names = list(dict.fromkeys(name for name, _ in windows))
    return [first[name] for name in names[:count]]


def write_texts(
    target: Writes,
    prompts: Sequence[tuple[int, ...]],
    *,
    count: int,
    ends: Collection[int],
    on_text: Callable[[], None] = lambda: None,
) -> list[Text]:
    """For each prompt up to `count` greedy tokens; the one that ends a text is the last of it."""
    texts = []
    for prompt in prompts:
        texts.append(Text(prompt, target.greedy(prompt, count, ends)))
        on_text()
    return texts


def acceptance(draft: Predicts, texts: Sequence[Text]) -> Acceptance:
    """How many tokens of the texts are the draft's likeliest, each after all before it."""
    accepted = 0
    for text in texts:
        logits = draft.logits((*text.prompt, *text.written)[:-1])[len(text.prompt) - 1 :]
        accepted += sum(
            int(row.argmax()) == token for row, token in zip(logits, text.written, strict=True)
        )  # the first of equals, as greedy decoding takes it
    return Acceptance(sum(len(text.written) for text in texts), accepted)
