"""The contract that every text environment keeps, as one call: `check_text_env(id)`."""
