"""Parts of a harness that files name, and the threads that took them."""

import threading

from ludic_gym.policies.chat import ChatPolicy

TAKEN = set()


def policy(client, env):
    """A factory."""
    TAKEN.add(threading.current_thread().name)
    return ChatPolicy(client)


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


def __getattr__(name):
    if name != "TOOLS":
        raise AttributeError(name)
    TAKEN.add(threading.current_thread().name)
    return (double,)
