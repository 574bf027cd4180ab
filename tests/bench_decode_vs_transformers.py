"""Single-stream greedy decoding of the default model in float32, against `transformers.generate`.

Run by hand: `python -m tests.bench_decode_vs_transformers [threads]`. Both use the same weights, prompt, number of
tokens and threads; runs alternate, and medians are compared. Prompt processing is in the time of both.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from model.kv_cache import pages_for
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.ops.torch_ops import TorchOps
from model.runner import ModelRunner
from model.tokenizer import Tokenizer
from tests.paged_sequence import PagedSequence
from tests.reference.transformers_model import transformers_model

PROMPT = "Once upon a time, in a village between two rivers, there lived a clockmaker who"
NEW_TOKENS = 64
ROUNDS = 7


def generate_here(runner: ModelRunner, prompt_ids: Sequence[int]) -> list[int]:
    sequence = PagedSequence(range(pages_for(len(prompt_ids) + NEW_TOKENS)))
    ids = [int(sequence.feed(runner, prompt_ids).argmax())]
    while len(ids) < NEW_TOKENS:
        ids.append(int(sequence.feed(runner, ids[-1:]).argmax()))
    return ids


def generate_there(peer: Any, prompt_ids: Sequence[int]) -> list[int]:
    inputs = torch.tensor([prompt_ids])
    with torch.inference_mode():
        output = peer.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=NEW_TOKENS, do_sample=False
        )
    ids: list[int] = output[0, len(prompt_ids) :].tolist()
    return ids


def timed(generate: Callable[[], list[int]]) -> tuple[float, list[int]]:
    started = time.perf_counter()
    ids = generate()
    return time.perf_counter() - started, ids


def main(threads: int) -> None:
    torch.set_num_threads(threads)
    path = pull()
    checkpoint = load_gguf(path)
    prompt_ids = Tokenizer(checkpoint.vocabulary).encode_prompt(PROMPT)
    runner = ModelRunner(TorchOps(checkpoint.config, page_count=8), checkpoint)
    peer = transformers_model(path, checkpoint.config.layer_count)
    ours, theirs = [], []
    for _ in range(ROUNDS + 1):
        ours.append(timed(lambda: generate_here(runner, prompt_ids)))
        theirs.append(timed(lambda: generate_there(peer, prompt_ids)))
    assert ours[0][1] == theirs[0][1], "the texts differ"
    seconds = [median(run for run, _ in runs[1:]) for runs in (ours, theirs)]  # the first round warms up
    report = {
        "threads": threads,
        "rounds": ROUNDS,
        "ours_ms_per_token": round(1000 * seconds[0] / NEW_TOKENS, 2),
        "transformers_ms_per_token": round(1000 * seconds[1] / NEW_TOKENS, 2),
        "times_as_fast": round(seconds[1] / seconds[0], 2),
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
