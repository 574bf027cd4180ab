"""How the prompt rows of a step are divided between keys."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from model.decoding.params import LogprobOptions
from model.kv_cache import PagePool
from service.lease import Lease
from service.namespaces import Namespaces
from service.prompt_rows import SCORED_ROWS, PromptRows
from service.request import Finished
from service.sequence import Active, Sequence
from tests.engine_fakes import make_engine, make_request, make_transcript

POOL = PagePool(1)
NAMESPACE = Namespaces(POOL, page_bytes=1, session_ttl_s=1, max_sessions=1).of(None)


def prefilling(key_id: str, rows: int, *, scored: bool = False) -> Active:
    """An admitted request of this key, none of whose prompt has run."""
    request = make_request([2] * rows, key_id=key_id, logprobs=LogprobOptions(prompt=True) if scored else None)
    active = Active(request, 0.0, NAMESPACE)
    lease = Lease(POOL, NAMESPACE.tree, POOL.promise(0), [])
    active.sequences = [Sequence(0, lease, make_transcript(request), request.prompt_ids)]
    return active


def divided(rows: int, actives: Iterable[Active]) -> list[int]:
    prompts, actives = PromptRows(rows), list(actives)
    for active in actives:
        prompts.add(active)
    counts = prompts.divided()
    return [counts.get(active, 0) for active in actives]


def test_of_one_key_the_first_prompt_goes_first() -> None:
    assert [60, 40, 0] == divided(100, [prefilling("a", 60), prefilling("a", 60), prefilling("a", 60)])


def test_keys_get_equal_shares_whoever_came_first() -> None:
    assert [50, 0, 50] == divided(100, [prefilling("a", 500), prefilling("a", 500), prefilling("b", 500)])


def test_what_a_key_does_not_need_goes_to_the_others() -> None:
    assert [90, 10] == divided(100, [prefilling("a", 500), prefilling("b", 10)])


def test_rows_that_are_scored_are_divided_too() -> None:
    actives = [prefilling("a", 500, scored=True), prefilling("b", 500, scored=True)]

    assert [SCORED_ROWS // 2, SCORED_ROWS // 2] == divided(300, actives)


prompts = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 300), st.booleans()), max_size=8)


@given(st.integers(16, 512), prompts)
def test_no_row_is_left_that_someone_could_take(rows: int, asked: list[tuple[str, int, bool]]) -> None:
    actives = [prefilling(key_id, length, scored=scored) for key_id, length, scored in asked]

    counts = divided(rows, actives)

    wanted = [len(active.context_ids) for active in actives]
    assert all(0 <= count <= most for count, most in zip(counts, wanted, strict=True))
    scored = sum(count for count, active in zip(counts, actives, strict=True) if active.asks_every_row)
    assert scored <= SCORED_ROWS
    assert sum(counts) <= rows
    if sum(counts) < rows:
        short = [a for a, count, most in zip(actives, counts, wanted, strict=True) if count < most]
        assert all(active.asks_every_row for active in short)
        assert not short or scored == SCORED_ROWS


def test_a_small_prompt_does_not_wait_for_a_long_one_of_another_key() -> None:
    engine, _ = make_engine(page_count=128)
    engine.submit(make_request([5] * 3000, request_id="long", key_id="a", max_new_tokens=1), 0.0)
    engine.submit(make_request([6] * 30, request_id="small", key_id="b", max_new_tokens=1), 0.0)

    events, _ = engine.step()

    assert ["small"] == [event.request_id for event in events if isinstance(event, Finished)]


def test_requests_of_one_key_begin_only_when_there_are_rows_for_them() -> None:
    engine, _ = make_engine(page_count=128)
    for number in range(2):
        engine.submit(make_request([5 + number] * 1500, request_id=f"r{number}", max_new_tokens=1), 0.0)

    _, report = engine.step()

    assert (1, 1) == (report.running, report.queued)
