"""Reflection: recurring lessons become permanent memory; and measures of how well that works."""
