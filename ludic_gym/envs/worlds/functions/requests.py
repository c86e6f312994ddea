"""Requests of a user of FunctionCalls, and the calls that fulfil them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import between, pick, shuffled
from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.worlds.functions.groups import (
    DAYS,
    LENGTHS,
    PEOPLE,
    ROOMS,
    SYMBOLS,
    Home,
    Shares,
    Trains,
)
from ludic_gym.envs.worlds.functions.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the user.

    text: the request in words.
    replies: calls that fulfil it; those of one reply do not depend on each other's results.
    by_state: True if only the state afterwards is compared, because more than one sequence of calls
        leads there; False if the calls themselves are.
    """

    text: str
    replies: tuple[tuple[Call, ...], ...]
    by_state: bool = False


Maker = Callable[[np.random.Generator, Toolbox], Request]
THINGS = (
    "call the dentist", "buy stamps", "water the plants", "pay the rent", "book a table",
    "return the books", "clean the oven", "send the report", "fix the bike", "wash the car",
)  # fmt: skip
LABELS = ("gym", "school run", "early train", "medicine", "market", "choir")
NEWS = (
    "I will be late", "the meeting is off", "dinner is at eight", "the keys are at the desk",
    "please call me back", "the parcel has arrived",
)  # fmt: skip


def call(name: str, **arguments: Any) -> Call:  # noqa: ANN401 (JSON)
    """A call with these arguments."""
    return Call(name, arguments)


def heat(rng: np.random.Generator, box: Toolbox) -> Request:
    """One to three rooms to heat."""
    rooms = shuffled(rng, ROOMS)[: between(rng, 1, 3)]
    # Quarters of a degree, which no room has at the start.
    pairs = [(room, between(rng, 10, 58) / 2 + 0.25) for room in rooms]
    text = ", and ".join(f"the {room} to {degrees:g} degrees" for room, degrees in pairs)
    calls = tuple(call("set_temperature", room=room, degrees=value) for room, value in pairs)
    return Request(f"Please set {text}.", (calls,), by_state=True)


def lights(rng: np.random.Generator, box: Toolbox) -> Request:
    """Two rooms with lights to switch."""
    rooms = shuffled(rng, ROOMS)[:2]
    home: Home = box.group("home")
    # One light at least changes: a request that nothing fulfils would be fulfilled by no call.
    on = not home.lights[rooms[0]]
    calls = tuple(call("switch_light", room=room, on=on) for room in rooms)
    way = "on" if on else "off"
    text = f"Switch {way} the lights in the {rooms[0]} and in the {rooms[1]}."
    return Request(text, (calls,), by_state=True)


def alarm(rng: np.random.Generator, box: Toolbox) -> Request:
    """An alarm with a label."""
    hour, minute, label = between(rng, 5, 9), 5 * between(rng, 0, 11), pick(rng, LABELS)
    text = f'Wake me at {hour}:{minute:02} tomorrow morning, and label the alarm "{label}".'
    one = call("set_alarm", hour=hour, minute=minute, label=label)
    return Request(text, ((one,),), by_state=True)


def warmth(rng: np.random.Generator, box: Toolbox) -> Request:
    """Temperatures of two rooms, which are only read."""
    rooms = shuffled(rng, ROOMS)[:2]
    calls = tuple(call("read_temperature", room=room) for room in rooms)
    return Request(f"How warm is it in the {rooms[0]}, and in the {rooms[1]}?", (calls,))


def timetable(rng: np.random.Generator, box: Toolbox) -> Request:
    """Trains of a connection, which are only listed."""
    here, there, day, _ = _train(rng, box)
    one = call("find_trains", origin=here, destination=there, day=day)
    return Request(f"Which trains go from {here} to {there} on {day}?", ((one,),))


def ride(rng: np.random.Generator, box: Toolbox) -> Request:
    """Seats on the cheaper train of a connection, which has to be looked up."""
    here, there, day, _ = _train(rng, box)
    seats, first = between(rng, 1, 6), rng.random() < 0.5
    trains: Trains = box.group("trains")
    same = {n: t[3] for n, t in trains.trains.items() if t[:3] == (here, there, day)}
    number = min(same, key=same.__getitem__)
    # Second class is the default, and may be left out.
    arguments = {"train": number, "seats": seats} | ({"seat_class": "first"} if first else {})
    text = (
        f"Book {seats} {'first' if first else 'second'}-class seat{'s' * (seats > 1)} on the "
        f"cheapest train from {here} to {there} on {day}."
    )
    look = call("find_trains", origin=here, destination=there, day=day)
    return Request(text, ((look,), (Call("book_seats", arguments),)), by_state=True)


def tasks(rng: np.random.Generator, box: Toolbox) -> Request:
    """Two tasks to add, one of them urgent."""
    titles, day = shuffled(rng, THINGS)[:2], pick(rng, DAYS)
    text = f'Put "{titles[0]}" and "{titles[1]}" on my list for {day}; the second one is urgent.'
    calls = (
        call("add_task", title=titles[0], day=day),
        call("add_task", title=titles[1], day=day, urgent=True),
    )
    return Request(text, (calls,), by_state=True)


def prices(rng: np.random.Generator, box: Toolbox) -> Request:
    """Prices of two to four shares, which are only read."""
    symbols = shuffled(rng, SYMBOLS)[: between(rng, 2, 4)]
    calls = tuple(call("share_price", symbol=symbol) for symbol in symbols)
    text = f"What are the prices of {', '.join(symbols[:-1])} and {symbols[-1]}?"
    return Request(text, (calls,))


def invest(rng: np.random.Generator, box: Toolbox) -> Request:
    """As many shares as a sum of money buys, which needs the price."""
    symbol, euros = pick(rng, SYMBOLS), between(rng, 6, 40) * 50
    shares: Shares = box.group("shares")
    count = euros // shares.prices[symbol]
    text = f"Buy as many shares of {symbol} as {euros} euros pay for."
    look, buy = call("share_price", symbol=symbol), call("buy_shares", symbol=symbol, count=count)
    return Request(text, ((look,), (buy,)), by_state=True)


def length(rng: np.random.Generator, box: Toolbox) -> Request:
    """Two lengths to convert."""
    source, target = shuffled(rng, list(LENGTHS))[:2]
    # Halves are exact in decimal and binary, so that no digit of a call is in doubt.
    values = [between(rng, 2, 900) / 2 for _ in range(2)]
    text = f"Convert {values[0]:g} and {values[1]:g} from {source} to {target}, each on its own."
    calls = tuple(call("convert_length", value=v, source=source, target=target) for v in values)
    return Request(text, (calls,))


def loan(rng: np.random.Generator, box: Toolbox) -> Request:
    """A monthly payment."""
    amount, rate, years = 1000 * between(rng, 2, 60), between(rng, 4, 18) / 2, between(rng, 1, 10)
    one = call("loan_payment", amount=amount, rate=rate, months=12 * years)
    years_text = f"{years} year{'s' * (years > 1)}"
    text = f"What would I pay each month for {amount} euros at {rate:g} percent over {years_text}?"
    return Request(text, ((one,),))


def mail(rng: np.random.Generator, box: Toolbox) -> Request:
    """A message to one or two people."""
    people, news = shuffled(rng, PEOPLE)[: between(rng, 1, 2)], pick(rng, NEWS)
    calls = tuple(call("send_message", person=person, text=news) for person in people)
    return Request(f'Write to {" and to ".join(people)}: "{news}".', (calls,), by_state=True)


# Group -> requests that its functions fulfil.
MAKERS: Mapping[str, tuple[Maker, ...]] = MappingProxyType(
    {
        "home": (heat, lights, alarm, warmth),
        "trains": (timetable, ride),
        "tasks": (tasks,),
        "shares": (prices, invest),
        "sums": (length, loan),
        "mail": (mail,),
    }
)
# Group -> requests in which a fact is missing that a call needs.
INCOMPLETE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "home": ("Set the temperature of the {room}.", "Make the {room} warmer or colder."),
        "trains": ("Find me a train from {city} on {day}.", "Book {count} seats on a train."),
        "tasks": ("Put something on my list for {day}.",),
        "shares": ("Buy some shares of {symbol}.", "Sell {count} shares."),
        "sums": ("Convert {count} miles.", "What would {count} thousand euros cost me each month?"),
        "mail": ("Write a message to {person}.",),
    }
)


def incomplete(rng: np.random.Generator, group: str) -> Request:
    """A request that no call can fulfil, because a fact is missing."""
    text = pick(rng, INCOMPLETE[group]).format(
        room=pick(rng, ROOMS),
        city=pick(rng, ("Aarhus", "Basel", "Cork", "Delft")),
        day=pick(rng, DAYS),
        symbol=pick(rng, SYMBOLS),
        count=between(rng, 2, 9),
        person=pick(rng, PEOPLE),
    )
    return Request(text, ())


def undo(rng: np.random.Generator, before: Request, box: Toolbox) -> Request | None:
    """A request that needs the result of the one before; None if that one has no such."""
    if not before.replies:
        return None
    last = before.replies[-1][-1]
    if last.name == "book_seats":
        trains: Trains = box.group("trains")
        one = call("cancel_booking", booking=trains.last)
        return Request("I have changed my mind: cancel that booking.", ((one,),), by_state=True)
    if last.name == "add_task":
        one = call("finish_task", title=last.arguments["title"])
        return Request("The urgent task is done, by the way.", ((one,),), by_state=True)
    if last.name == "buy_shares":
        one = call("sell_shares", symbol=last.arguments["symbol"], count=2)
        return Request("Now sell two of those shares again.", ((one,),), by_state=True)
    return None


def requests(
    rng: np.random.Generator,
    box: Toolbox,
    offered: Sequence[str],
    others: Sequence[str],
    count: int,
) -> tuple[Request, ...]:
    """The requests of an episode; the toolbox is left in the state after all of them.

    The first one can be fulfilled. Each other one can be, or lacks a fact, or needs a group that is
    not offered, or needs the result of the one before.

    offered, others: groups whose functions are in the toolbox, and groups whose are not.
    """
    made = list[Request]()
    while len(made) < count:
        # The first request can be fulfilled: else doing nothing would win some episodes.
        kind = rng.random() if made else 1.0
        found: Request | None = None
        if kind < 0.15:
            found = incomplete(rng, pick(rng, offered))
        elif kind < 0.3 and others:
            found = _beyond(rng, pick(rng, others))
        elif kind < 0.5:
            found = undo(rng, made[-1], box)
        found = found or pick(rng, MAKERS[pick(rng, offered)])(rng, box)
        # Later requests are about the state that this one leaves.
        for reply in found.replies:
            for one in reply:
                box.run(one)
        made.append(found)
    return tuple(made)


def _beyond(rng: np.random.Generator, group: str) -> Request:
    """A request for functions that are not offered."""
    text = pick(rng, MAKERS[group])(rng, Toolbox([group], rng)).text
    return Request(text, ())


def _train(rng: np.random.Generator, box: Toolbox) -> tuple[str, str, str, int]:
    trains: Trains = box.group("trains")
    return pick(rng, list(trains.trains.values()))
