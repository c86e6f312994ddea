"""What runs inside the sandboxes; only its text goes there, and imports only the standard library.

Nothing here knows an expected output.
"""
