"""Asynchronous training: actors, queues, and the trainer's end of them."""
