"""Chat clients: models behind servers, scripts and caches."""
