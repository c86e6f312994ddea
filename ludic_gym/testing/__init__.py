"""The contract of text environments as a test: `check_text_env(id)`."""
