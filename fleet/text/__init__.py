"""Text processing of lessons and messages, pure: secrets, likeness, signs of a correction, Markdown, shell, dates.

Nothing here does I/O but for reading the data files beside it.
"""
