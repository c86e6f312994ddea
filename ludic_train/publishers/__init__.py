"""Publishers send updated params to whatever samples from them."""
