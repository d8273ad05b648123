"""Use cases: one function each, values in and values out, nothing printed. The only place that joins the verbs.

A use case raises what the functions of the verbs raise that it calls. Of the beginning of an id (``prefix``) that
nothing has, or several have, it makes a ``NoError``. What it wrote is durable when it returns; else it raises a
``DiskError``.
"""
