"""Accounts and the entries between them."""


class Book:
    """Entries (day, account that gives, account that gets, amount in cents).

    Days are texts such as "2024-03-01". An account has a limit below which it must not fall.
    """

    def __init__(self):
        self.entries = []
        self.limits = {}

    def open(self, account, limit=None):
        """Add an account; without a limit its balance may be any number."""
        if account in self.limits:
            raise ValueError(f"account {account!r} exists")
        self.limits[account] = limit

    def post(self, day, source, target, amount):
        """Move an amount. Raises ValueError, and changes nothing, if it is not allowed."""
        for account in (source, target):
            if account not in self.limits:
                raise ValueError(f"no account {account!r}")
        if source == target:
            raise ValueError("source and target are the same")
        if amount <= 0:
            raise ValueError(f"amount must be positive, got {amount}")
        limit = self.limits[source]
        if limit is not None and self.balance(source) - amount < limit:
            raise ValueError(f"account {source!r} has not enough money")
        self.entries.append((day, source, target, amount))

    def balance(self, account, until=None):
        """The balance at the end of a day, or of all entries."""
        total = 0
        for day, source, target, amount in self.entries:
            if until is not None and day > until:
                continue
            if source == account:
                total -= amount
            if target == account:
                total += amount
        return total

    def undo(self):
        """Remove the last entry and return it; None if there is none."""
        return self.entries.pop() if self.entries else None
