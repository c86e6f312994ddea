"""Adapters: environments of other packages for Ludic, and Ludic's for other packages."""
