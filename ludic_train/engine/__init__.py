"""An in-process sampler for the live model, as a chat client; and policies from run folders."""
