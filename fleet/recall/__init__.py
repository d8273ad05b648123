"""Recall: what an agent or a person reads."""
