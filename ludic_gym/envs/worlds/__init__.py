"""Tasks of environments whose state is read and changed by tools."""
