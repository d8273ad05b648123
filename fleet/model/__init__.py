"""Vocabulary of fleet as pure values: records, folds, edits, ids, limits and errors. No file, no clock, no network."""
