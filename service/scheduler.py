"""Which requests run, with which rows and pages; and what becomes of them when their tokens are chosen.

Knows requests, pages, sessions and the times it is given; knows nothing of tensors, HTTP, threads or clocks.
Always: every submitted request ends in exactly one terminal event; requests of a key are admitted in the order they
came, and keys get their turns; what a request was counted for equals the usage of its terminal event.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from model.batch import PageCopy
from model.decoding.choice import Choice, Constraint
from model.decoding.history import history_of
from model.decoding.params import Drawn
from model.decoding.transcript import Transcript
from model.kv_cache import BooksError, PagePool, reservation
from service.accounts import Accounts
from service.beam_answers import begin_search, conclude_search, grow_beams, let_beams_go
from service.drafting import Drafting
from service.fair_queue import FairQueue
from service.lease import Lease
from service.namespaces import Namespaces
from service.plan import Plan, PlannedRows, assemble
from service.preemption import is_pressing, who_gives_way
from service.prefix_tree import Match
from service.prompt_rows import PromptRows
from service.request import Failed, FailureCode, Finished, GenerationRequest, RequestEvent
from service.sequence import Active, Sequence, record_of
from service.sessions import Turn, without_session
from service.step_budget import StepBudget
from service.step_report import StepReport

Keep = Literal["all", "whole pages", "none"]
"""What stays in the tree of a sequence that ends: everything computed, what was entered before, or nothing."""

KEPT_ON_FAILURE: dict[FailureCode, Keep] = {"engine_failed": "whole pages", "numerical_error": "none"}

MakeTranscript = Callable[[GenerationRequest], Transcript]


class Scheduler:
    """The queue, the running requests, and the pages between them."""

    def __init__(
        self,
        pool: PagePool,
        namespaces: Namespaces,
        *,
        make_transcript: MakeTranscript,
        eos_token_ids: frozenset[int],
        control_token_ids: frozenset[int] = frozenset(),
        budget: StepBudget,
        drafting: Drafting,
    ) -> None:
        self._pool = pool
        self._namespaces = namespaces
        self._make_transcript = make_transcript
        self._eos_token_ids = eos_token_ids
        self._exempt_token_ids = eos_token_ids | control_token_ids
        self._budget = budget
        self._drafting = drafting
        self._queue = FairQueue()
        self._running: list[Active] = []
        self._copies: list[PageCopy] = []
        # Not returned by the methods that make them: a fault in the middle of one must lose none.
        self._events: list[RequestEvent] = []
        self._accounts = Accounts()

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, request: GenerationRequest, arrived: float) -> None:
        """Queue a request that the door has accepted; its session is busy from here to its terminal event."""
        active = Active(request, arrived, self._namespaces.of(request.key_id))
        self._queue.append(active)
        if request.session_id is not None:
            active.session = active.sessions.open(request.session_id, arrived)

    def cancel(self, request_id: str, now: float) -> None:
        """End a request before the next step; nothing when it has ended already."""
        self._fail_all([each for each in self._all() if each.id == request_id], "cancelled", now)

    def fail_everything(self, code: FailureCode, now: float) -> None:
        self._fail_all(self._all(), code, now)

    def expire(self, now: float) -> None:
        """Apply deadlines, and forget sessions past their time to live."""
        everyone = self._all()
        self._namespaces.expire(now, (each.namespace for each in everyone))
        late = [each for each in everyone if each.deadline is not None and now >= each.deadline]
        self._fail_all([each for each in late if not each.has_begun], "deadline_exceeded", now)
        for active in late:
            if not active.has_begun:
                continue
            if active.beams is not None:
                active.beams.search = active.beams.search.cut("deadline")
                self._accounts.gained(active, conclude_search(active, self._eos_token_ids))
            for sequence in active.sequences:
                sequence.finish_reason = sequence.finish_reason or "deadline"
            self._collect(active, now)

    def plan(self, now: float) -> Plan | None:
        """Every decoding sequence gets a row and its guesses; what is left of the budget goes to prompts."""
        self._answer_what_ended(now)
        self._make_room(now)
        rows = [PlannedRows(a, s, 1) for a in self._running if not a.is_prefilling for s in a.growing]
        rows = self._drafting.draft(rows)
        decode_rows = sum(each.count for each in rows)
        self._accounts.tally.decode_rows += decode_rows
        prompts = self._prompts(self._budget.prefill_rows(decode_rows), now)
        rows += [self._prompt_rows(active, count) for active, count in prompts.items()]
        if not rows:
            return None
        plan = assemble(rows, tuple(self._copies))
        self._copies.clear()
        return plan

    def commit(self, plan: Plan, choices: Iterable[Choice], now: float) -> None:
        """Account for a step that ran: lengths, pages, tokens, and who has ended."""
        for rows in plan.rows:
            prefilled = rows.active.is_prefilling
            # Of decode rows only the first is sure: those of drafted tokens count once the tokens are gained.
            rows.sequence.lease.length += rows.count if prefilled else 1
            self._accounts.drafted(rows.active, len(rows.drafts))
            if prefilled and rows.active.request.use_cache:
                rows.sequence.lease.publish(rows.active.context_ids)
        for active, choice in zip(plan.asking, choices, strict=True):
            if (failure := _failure_of(active, choice)) is not None:
                self._fail(active, failure, now)
                continue
            active.prompt_records += map(record_of, choice.prompt)
            if choice.raw is not None:
                active.logits.append(choice.raw)
                self._end_with_prompt(active, now)
            elif choice.search is not None:
                self._search(active, choice, now)
            elif choice.tokens:
                self._gain(active, choice, now)
                self._collect(active, now)

    def abandon(self, plan: Plan, now: float) -> None:
        """The step failed: its requests fail, and nothing that it may have half written is kept."""
        self._fail_all(plan.actives, "engine_failed", now)
        # Copies that the step should have made may be missing from pages that were kept before it.
        self._namespaces.clear()

    def abort(self, code: FailureCode, now: float) -> None:
        """Answer everything that was accepted, without touching pages: the caller throws them away with this."""
        for active in self._all():
            self._accounts.ended(active, code, now)
            self._events.append(Failed(active.id, code, active.usage(), active.timings(now)))
        self._running.clear()
        self._queue.clear()

    def take_events(self) -> list[RequestEvent]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    def report(self, step_s: float) -> StepReport:
        """What happened since the last report."""
        return self._accounts.take_tally().report(
            step_s=step_s,
            evicted=self._namespaces.collect_evicted(),
            running=self.running,
            queued=self.queued,
            pages=(self._pool.free, self._pool.idle, self._pool.leased),
        )

    def observe(self, plan: Plan, seconds: float) -> None:
        self._budget.observe(plan.batch.row_count, self._drafting.observe(plan.rows, seconds))

    def check_books(self) -> None:
        """With nothing running: no page is leased or promised, and tokens counted equal tokens answered for."""
        self._pool.check()
        self._namespaces.check()
        self._drafting.check(idle=not (self._running or self._queue))
        if self._running or self._queue:
            return
        if self._pool.leased or self._pool.promised:
            raise BooksError(f"{self._pool.leased} pages leased and {self._pool.promised} promised while idle")
        self._accounts.check()
        if busy := self._namespaces.busy_count():
            raise BooksError(f"{busy} sessions are busy while nothing runs")

    def _all(self) -> list[Active]:
        return [*self._running, *self._queue]

    def _admit(self, active: Active, now: float) -> bool:
        """Give a queued request its pages, or leave it where it is until others end."""
        request = active.request
        match = self._match(active)
        needed = self._pages_for(active, match)
        if needed > self._pool.available:
            return False
        active.promise = self._pool.promise(needed)
        lease = Lease(self._pool, active.tree, active.promise, self._copies)
        turn = self._turn(active, match)
        lease.attach(match, take_over=turn.take_over)
        if active.preemptions:
            active.sequences[0].lease = lease
            active.turn = replace(active.turn, evicted_tokens=active.turn.evicted_tokens + turn.evicted_tokens)
            active.paused_s += now - active.waiting_since
            return True
        active.turn, active.reused_tokens = turn, lease.length
        active.sequences = [self._sequence(active, 0, lease)]
        if request.searches:
            active.beams = begin_search(request, self._make_transcript(request))
        self._accounts.admitted(active, now)
        return True

    def _pages_for(self, active: Active, match: Match) -> int:
        """What a queued request may come to need. One that goes on needs no more than it was begun with."""
        request = active.request
        shared = active.tree.leased_nodes(match.node)
        return reservation(request.read_tokens, request.tokens_left, request.sequence_count, shared)

    def _make_room(self, now: float) -> None:
        """Let requests of keys that were given more give way to the one that is next and has waited for long."""
        head = self._queue.head
        if head is None or not is_pressing(head, now):
            return
        needed = self._pages_for(head, self._match(head))
        for active in who_gives_way(head, needed, self._running, self._queue, self._pool):
            self._preempt(active, now)

    def _preempt(self, active: Active, now: float) -> None:
        """Take a request's pages back, and have it wait until it can go on after its last token."""
        assert active.promise is not None, "what runs was promised its pages"
        self._let_go(active, active.sequences[0], "all")
        active.promise.withdraw()
        active.preempt(now)
        self._running.remove(active)
        self._queue.put_back(active)
        self._accounts.tally.preemptions += 1

    def _match(self, active: Active) -> Match:
        """What the tree holds of the tokens before the first that something is wanted of."""
        if active.asks_every_row or not active.request.use_cache:
            return Match(active.tree.root)
        return active.tree.match(active.context_ids[: active.first_asked])

    @staticmethod
    def _turn(active: Active, match: Match) -> Turn:
        """How the context continues what is kept, and what that drops."""
        request = active.request
        # Asked before the turn, which may drop what the tree holds.
        is_known = active.asks_every_row and bool(active.tree.match(request.prompt_ids[:-1]).tokens)
        if not request.use_cache:
            return Turn(take_over=False, reason="disabled")
        if active.session is None:
            turn = without_session(active.tree, match)
        else:
            turn = active.sessions.turn(active.session, active.context_ids, match)
        return replace(turn, reason="recomputed") if is_known else turn

    def _prompts(self, rows: int, now: float) -> dict[Active, int]:
        """How many rows each prompt gets, those of requests among them that begin because there are rows for them."""
        prompts = PromptRows(rows)
        for active in self._running:
            if active.is_prefilling:
                prompts.add(active)
        while (head := self._queue.head) is not None and prompts.has_room_for(head) and self._admit(head, now):
            self._running.append(self._queue.take())
            prompts.add(head)
        return prompts.divided()

    def _prompt_rows(self, active: Active, count: int) -> PlannedRows:
        active.computed_tokens += 0 if active.has_begun else count
        self._accounts.tally.prefill_rows += count
        return PlannedRows(active, active.sequences[0], count)

    def _gain(self, active: Active, choice: Choice, now: float) -> None:
        """Continue the chosen sequences with their tokens; a parent's last child inherits it, others fork."""
        parents, active.sequences = active.sequences, []
        gained = 0
        remaining = [choice.parents.count(index) for index in range(len(parents))]
        for parent, count in zip(parents, remaining, strict=True):
            if not count:
                parent.lease.release()
        for new_index, (parent_index, tokens) in enumerate(zip(choice.parents, choice.tokens, strict=True)):
            remaining[parent_index] -= 1
            parent = parents[parent_index]
            sequence = parent
            if remaining[parent_index]:
                sequence = self._sequence(active, new_index, parent.lease.fork())
            elif active.is_prefilling:
                sequence.index = new_index
            active.sequences.append(sequence)
            gained += self._gain_tokens(active, sequence, tokens)
        self._accounts.gained(active, gained)
        if gained:
            active.is_prefilling = False
            self._accounts.timed(active, gained, now)

    def _end_with_prompt(self, active: Active, now: float) -> None:
        """End a request that generates nothing, once all of its prompt has run."""
        (sequence,) = active.sequences
        if sequence.lease.length == len(active.request.prompt_ids):
            self._let_go(active, sequence, "all")
            active.sequences = []
            self._finish(active, now)

    def _search(self, active: Active, choice: Choice, now: float) -> None:
        """Let beams grow. Tokens count once they are sure to be returned; each step is one token's time."""
        gained = grow_beams(active, choice, self._make_transcript, self._eos_token_ids)
        active.is_prefilling = False
        self._accounts.gained(active, gained)
        self._accounts.timed(active, len(active.sequences), now)
        self._collect(active, now)

    def _gain_tokens(self, active: Active, sequence: Sequence, tokens: tuple[Drawn, ...]) -> int:
        """Append tokens until the text ends; answers how many are new.

        The rows of drafts that were taken are computed positions now; those of a context were counted already.
        """
        before = sequence.generated_anew
        taken = sequence.gain(tokens, active.request.parameters, self._eos_token_ids)
        if not active.is_prefilling:
            sequence.lease.length += taken - 1
            self._accounts.accepted(active, min(taken, len(tokens) - 1))
        if active.request.use_cache:
            sequence.lease.publish(sequence.ids)
        return sequence.generated_anew - before

    def _collect(self, active: Active, now: float) -> None:
        """Deltas of what became final, completions of what has ended, and the terminal after the last one."""
        for sequence in active.sequences:
            delta = sequence.delta(active.id) if active.request.streams or sequence.finish_reason else None
            if delta is not None and active.request.streams:
                self._events.append(delta)
            if sequence.finish_reason is not None:
                active.completions[sequence.index] = sequence.completion()
                self._let_go(active, sequence, "all")
        active.sequences = [sequence for sequence in active.sequences if sequence.finish_reason is None]
        if not active.sequences:
            self._finish(active, now)

    def _let_go(self, active: Active, sequence: Sequence, keep: Keep) -> None:
        """Give a sequence's pages back, having entered into the tree what is to be kept; a queued one has none."""
        if active.promise is None:
            return
        lease = sequence.lease
        self._drafting.forget(sequence)
        if active.request.use_cache and keep == "all":
            lease.publish_tail(sequence.ids)
        node, computed = lease.node, min(lease.length, lease.node.end)
        lease.release()
        if keep == "none":
            active.tree.drop_unheld(node, "explicit")
            node, computed = active.tree.root, 0
        if active.session is not None and active.request.use_cache and sequence.index == 0:
            prompt_tokens = len(active.request.prompt_ids)
            active.sessions.settle(active.session, sequence.ids, prompt_tokens, computed, node)

    def _sequence(self, active: Active, index: int, lease: Lease) -> Sequence:
        request = active.request
        sequence = Sequence(
            index,
            lease,
            self._make_transcript(request),
            request.prompt_ids,
            resumed_ids=request.resumed_ids,
            history=history_of(request.parameters, request.prompt_ids, self._exempt_token_ids),
        )
        if not active.retraces:
            sequence.gain(tuple(map(Drawn, request.resumed_ids)), request.parameters, self._eos_token_ids)
        sequence.constraint = _form_of(active)
        return sequence

    def _answer_what_ended(self, now: float) -> None:
        """Requests whose resumed tokens are the whole answer, and that want nothing else, wait for nothing."""
        for active in [each for each in self._queue if each.request.resumed_ends and not each.retraces]:
            unused = Lease(self._pool, active.tree, self._pool.promise(0), self._copies)
            sequence = self._sequence(active, 0, unused)
            sequence.delta(active.id)
            active.completions[0] = sequence.completion()
            self._accounts.admitted(active, now)
            self._finish(active, now)

    def _finish(self, active: Active, now: float) -> None:
        completions = tuple(active.completions[index] for index in sorted(active.completions))
        self._end(active, completions[0].finish_reason if completions else "length", now)
        usage, cache, timings = active.usage(), active.cache_report(), active.timings(now)
        prompt, speculation = tuple(active.prompt_records), active.speculation_report()
        stopped = active.beams.search.stopped if active.beams is not None else None
        beams = tuple(active.beams.steps) if active.beams is not None else ()
        logits = tuple(active.logits)
        self._events.append(
            Finished(active.id, completions, usage, cache, timings, prompt, stopped, speculation, beams, logits)
        )

    def _fail_all(self, actives: Iterable[Active], code: FailureCode, now: float) -> None:
        for active in actives:
            self._fail(active, code, now)

    def _fail(self, active: Active, code: FailureCode, now: float) -> None:
        let_beams_go(active)
        for sequence in active.sequences:
            self._let_go(active, sequence, KEPT_ON_FAILURE.get(code, "all"))
        active.sequences = []
        self._end(active, code, now)
        self._events.append(Failed(active.id, code, active.usage(), active.timings(now)))

    def _end(self, active: Active, outcome: str, now: float) -> None:
        if active.promise is not None:
            active.promise.withdraw()
            self._running.remove(active)
            self._queue.ended(active)
        else:
            self._queue.remove(active)
        if active.session is not None:
            active.sessions.close(active.session, now)
        self._accounts.ended(active, outcome, now)


def _form_of(active: Active) -> Constraint | None:
    """Where the constraint of a request that begins stands: after its resumed tokens, unless these are drawn anew."""
    request = active.request
    if request.constraint is None or (request.resumed_form is not None and not active.retraces):
        return request.resumed_form
    form = request.constraint.begin(request.parameters.max_new_tokens)
    for token_id in () if active.retraces else request.resumed_ids:
        form.advance(token_id)
    return form


def _failure_of(active: Active, choice: Choice) -> FailureCode | None:
    """Why something could not be drawn: the form gave up, or a row held something that is not a number."""
    if choice.mismatch:
        return "resume_mismatch"
    if all(drawn.token_id is not None for tokens in (choice.prompt, *choice.tokens) for drawn in tokens):
        return None
    running = (*active.sequences, *active.growing)
    gave_up = any(each.constraint is not None and each.constraint.failed for each in running)
    return "constraint_failed" if gave_up else "numerical_error"
