"""This machine: durable files, configuration, identity, the clock, and the database of joined records."""
