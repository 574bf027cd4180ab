"""Bytes that nobody thought of, for whatever reads what strangers write: only named errors may come out."""
