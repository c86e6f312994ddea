"""Where updated params go: whatever samples from them."""
