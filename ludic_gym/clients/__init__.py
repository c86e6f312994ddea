"""Chat clients: the ends of the wire to whatever generates text."""
