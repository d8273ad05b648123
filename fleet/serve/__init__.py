"""Long-running processes: the sidecar, which watches files, works and syncs while agents work, and the live server."""
