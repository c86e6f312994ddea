"""Running programs that nobody trusts: limits and guarantees as data, one protocol."""
