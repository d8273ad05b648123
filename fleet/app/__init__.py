"""Use cases: one function each, values in and values out, nothing printed. The only place that joins the verbs."""
