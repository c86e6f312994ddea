"""Formats of chat APIs: requests from their JSON, and responses and events as JSON."""
