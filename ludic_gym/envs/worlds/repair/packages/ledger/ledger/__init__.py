"""Double-entry bookkeeping in cents."""

from ledger.book import Book
from ledger.money import cents, euros, split
from ledger.report import statement, trial

__all__ = ["Book", "cents", "euros", "split", "statement", "trial"]
