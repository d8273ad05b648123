"""Conflict-free replicated data types: pure functions on plain data.

No files, no clock of its own, no words of fleet. Each module holds one type, named as in Shapiro, Preguiça, Baquero
and Zawirski, "A comprehensive study of Convergent and Commutative Replicated Data Types" (INRIA RR-7506, 2011).
"""
