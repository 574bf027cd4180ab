"""Random lives of an engine that searches and samples: answers are right, books balance, no promise runs out."""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from model.kv_cache import reservation
from service.request import Finished, GenerationRequest
from tests.engine_fakes import NAN, ids_of, make_request
from tests.scripted_beams import expected, make_beam_engine
from tests.service.test_engine_properties import KEY_IDS, LENGTHS, PAGES, SESSIONS, EngineLife


class BeamLife(EngineLife):
    """What happens to an engine, with beam searches among it, in a cache that few of them fill."""

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.model = make_beam_engine(page_count=PAGES, clock=self.clock, max_sessions=3)

    @rule(
        history=st.integers(0, 50),
        length=LENGTHS,
        suffix=st.lists(st.integers(2, 38), max_size=3),
        new=st.sampled_from((1, 2, 20, 33, 40)),
        width=st.integers(2, 6),
        returned=st.integers(1, 3),
        alpha=st.sampled_from((0.0, 0.0, 1.0, -1.0)),
        session=st.sampled_from((None, *SESSIONS)),
        key_id=KEY_IDS,
        deadline=st.sampled_from((None, None, 3.0)),
        ignore_eos=st.booleans(),
        use_cache=st.sampled_from((True, True, False)),
        poisoned=st.sampled_from((False,) * 12 + (True,)),
    )
    def search(self, history: int, length: int, suffix: list[int], **given: Any) -> None:
        prompt = (*self.histories[history % len(self.histories)][:length], *suffix)
        prompt = (*prompt, NAN) if given["poisoned"] else prompt
        pages = reservation(len(prompt), given["new"], given["width"])
        if pages > PAGES or (given["key_id"], given["session"]) in self.busy:
            return
        request = make_request(
            prompt,
            request_id=f"r{len(self.requests)}",
            max_new_tokens=given["new"],
            sample_count=min(given["returned"], given["width"]),
            session_id=given["session"],
            key_id=given["key_id"],
            use_cache=given["use_cache"],
            deadline_s=given["deadline"],
            streams=True,
        )
        parameters = replace(
            request.parameters,
            beam_width=given["width"],
            length_penalty=given["alpha"],
            ignore_eos=given["ignore_eos"],
        )
        self.requests[request.id] = request = replace(request, parameters=parameters)
        if given["session"]:
            self.busy[given["key_id"], given["session"]] = request.id
        self.engine.submit(request, self.clock())

    def check(self, request: GenerationRequest, finished: Finished) -> None:
        if not request.searches:
            super().check(request, finished)
            return
        if finished.stopped != "deadline":
            truth, stopped = expected(request)
            assert [each.tokens for each in truth] == [tuple(ids_of(finished, i)) for i in range(len(truth))]
            assert len(truth) == len(finished.completions)
            assert stopped == finished.stopped
        for completion in finished.completions:
            assert self.texts.get((request.id, completion.index), "") == completion.text
        assert finished.usage.generated_tokens == sum(len(each.tokens) for each in finished.completions)
        self.histories.append((*request.prompt_ids, *ids_of(finished)))


BeamLife.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
TestBeamLife = BeamLife.TestCase
