"""Reports about a book."""

from ledger.money import euros


def statement(book, account):
    """Lines of an account by day: day, other account, amount, new balance."""
    lines = []
    balance = 0
    for day, source, target, amount in sorted(book.entries, key=lambda entry: entry[0]):
        if account not in (source, target):
            continue
        change = amount if account == target else -amount
        other = source if account == target else target
        balance += change
        lines.append(f"{day} {other} {euros(change)} {euros(balance)}")
    return lines


def trial(book):
    """Balances of all accounts that are not zero, by name, and the sum of the positive ones."""
    balances = {name: book.balance(name) for name in sorted(book.limits)}
    shown = {name: value for name, value in balances.items() if value != 0}
    return shown, sum(value for value in shown.values() if value > 0)
