"""The compiled extension."""
