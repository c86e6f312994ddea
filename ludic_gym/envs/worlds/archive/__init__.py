"""The archive of SearchQA: a fictional country, passages about it, and questions."""
