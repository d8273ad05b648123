"""Agent hosts: what their hooks send, what they read back, and their plugin files."""
