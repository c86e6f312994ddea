"""Queues that carry groups from actors to a trainer: in Redis, in a file, or in memory."""
