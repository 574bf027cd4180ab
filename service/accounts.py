"""What requests are counted for while they run and when they end: tokens, times and outcomes.

Knows requests and the times it is given; knows nothing of pages, tensors or threads.
Always: with nothing running, the tokens counted equal those that terminal events answered for; a request's prompt is
counted once, however often it is admitted.
"""

from model.kv_cache import BooksError
from service.sequence import Active
from service.tally import Tally


class Accounts:
    """The counts of one engine."""

    def __init__(self) -> None:
        self.tally = Tally()
        """Since the last report."""
        self._counted = [0, 0]
        self._settled = [0, 0]

    def take_tally(self) -> Tally:
        """What was counted since the last call."""
        tally, self.tally = self.tally, Tally()
        return tally

    def admitted(self, active: Active, now: float) -> None:
        """A request leaves the queue for the first time."""
        active.admitted_at = now
        prompt_tokens = len(active.request.prompt_ids)
        self._counted[0] += prompt_tokens
        self.tally.prompt_tokens += prompt_tokens
        self.tally.queue_s.append(now - active.arrived)
        if active.request.use_cache:
            self.tally.queried_tokens += len(active.context_ids)
            self.tally.hit_tokens += active.reused_tokens

    def gained(self, active: Active, tokens: int) -> None:
        active.generated_tokens += tokens
        self._counted[1] += tokens
        self.tally.generated_tokens += tokens

    def drafted(self, active: Active, tokens: int) -> None:
        active.drafted_tokens += tokens
        self.tally.drafted_tokens += tokens

    def accepted(self, active: Active, tokens: int) -> None:
        active.accepted_tokens += tokens
        self.tally.accepted_tokens += tokens

    def timed(self, active: Active, gained: int, now: float) -> None:
        """Tokens that one step gave together share its time."""
        if active.last_token_at is None:
            active.first_token_at = now
            self.tally.time_to_first_token_s.append(now - active.arrived)
        else:
            each = (now - active.last_token_at) * len(active.sequences) / gained
            self.tally.inter_token_s += [each] * gained
        active.last_token_at = now

    def ended(self, active: Active, outcome: str, now: float) -> None:
        usage = active.usage()
        self._settled[0] += usage.prompt_tokens
        self._settled[1] += usage.generated_tokens
        self.tally.outcomes.append(outcome)
        self.tally.request_s.append(now - active.arrived)

    def check(self) -> None:
        """With nothing running. Raises BooksError when a token was lost or counted twice."""
        if self._counted != self._settled:
            raise BooksError(f"tokens counted {self._counted} are not those answered for {self._settled}")
