"""A server under mixed load for a long time: what grows, and whose bits change."""
