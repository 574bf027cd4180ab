"""Stop strings in texts that branch."""

import numpy as np

from model.decoding.stop_scan import StopScan
from model.decoding.transcript import Transcript


def test_a_scan_stops_where_a_transcript_does() -> None:
    """Stop strings that overlap, cross tokens and break characters."""
    pieces = [b"a", b"b", "é".encode()[:1], "é".encode()[1:], "🌱".encode()[:3], b"ab", b"", "🌱".encode()[3:]]

    class Pieces:
        def token_bytes(self, token_id: int) -> bytes:
            return pieces[token_id]

    rng = np.random.default_rng(1)
    for _ in range(300):
        stop = tuple(rng.choice(["aba", "é", "bé", "🌱a", "\ufffd"], size=2, replace=False).tolist())
        transcript, scan = Transcript(Pieces(), stop=stop), StopScan.begin(Pieces(), stop)
        for token in rng.integers(0, len(pieces), size=30).tolist():
            assert scan is not None
            before, scan = scan, scan.after(token)
            assert before.after(token).is_complete == scan.is_complete
            stopped = transcript.push(token)
            assert stopped == scan.is_complete
            if stopped:
                break
