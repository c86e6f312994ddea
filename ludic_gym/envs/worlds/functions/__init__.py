"""FunctionCalls: groups of functions with a state, and requests that need them."""
