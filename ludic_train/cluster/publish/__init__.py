"""Publishers send updated params to the programs that sample from them."""
