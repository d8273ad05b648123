"""Learn: signals become records on this machine, before the next reply."""
