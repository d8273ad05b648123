"""What recurs becomes permanent: promotion into memory, and how well it works."""
