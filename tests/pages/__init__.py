"""The documentation, checked: its links, its words for files and tests, and every block of code in it."""
