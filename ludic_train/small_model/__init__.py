"""Small chat models made on this machine, from episodes of the environments' own oracles."""
