"""Arithmetic on page numbers: which page is free, leased or idle. The op set owns the storage behind them.

Knows no tensors, tokens or requests. A page holds the keys and values of `PAGE_SIZE` positions.
Always: free + idle + leased = total, and pages promised but not yet taken never exceed free + idle.
"""

PAGE_SIZE = 32
