"""Environments of other packages as Ludic's, and Ludic's for other packages."""
