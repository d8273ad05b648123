"""Learn: signals become records on this machine, before the next reply.

What a function logs is durable when it returns. Else it raises: ``DiskError`` where it did not reach the disk,
``RefusedError`` for a text that is too long, ``NoError`` for the beginning of an id that no entry has, or several have.
"""
