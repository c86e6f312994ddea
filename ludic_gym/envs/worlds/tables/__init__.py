"""DataAnalysis: generated tables, and questions about them."""
