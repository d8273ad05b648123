"""The long-running faces: they look on while agents work, and bring what is new to its place."""
