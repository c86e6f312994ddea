"""FunctionCalls: requests for single, parallel and dependent calls, and for none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import (
    Info,
    TextEnv,
    Turn,
    checked_choice,
    end,
    pick,
    proceed,
    random_int,
    random_order,
)
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, draw_in_split
from ludic_gym.envs.tools.calls import FORM, Call, calls_in, listed, problem_with
from ludic_gym.envs.worlds.functions import (
    DAYS,
    GROUPS,
    LENGTHS,
    PEOPLE,
    ROOMS,
    SYMBOLS,
    Home,
    Shares,
    Toolbox,
    Trains,
    same_call,
)
from ludic_gym.reader import without_thought


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
    rooms = random_order(rng, ROOMS)[: random_int(rng, 1, 3)]
    # Quarters of a degree, which no room has at the start.
    pairs = [(room, random_int(rng, 10, 58) / 2 + 0.25) for room in rooms]
    text = ", and ".join(f"the {room} to {degrees:g} degrees" for room, degrees in pairs)
    calls = tuple(call("set_temperature", room=room, degrees=value) for room, value in pairs)
    return Request(f"Please set {text}.", (calls,), by_state=True)


def lights(rng: np.random.Generator, box: Toolbox) -> Request:
    """Two rooms with lights to switch."""
    rooms = random_order(rng, ROOMS)[:2]
    home: Home = box.group("home")
    # One light at least changes: a request that nothing fulfils would be fulfilled by no call.
    on = not home.lights[rooms[0]]
    calls = tuple(call("switch_light", room=room, on=on) for room in rooms)
    way = "on" if on else "off"
    text = f"Switch {way} the lights in the {rooms[0]} and in the {rooms[1]}."
    return Request(text, (calls,), by_state=True)


def alarm(rng: np.random.Generator, box: Toolbox) -> Request:
    """An alarm with a label."""
    hour, minute, label = random_int(rng, 5, 9), 5 * random_int(rng, 0, 11), pick(rng, LABELS)
    text = f'Wake me at {hour}:{minute:02} tomorrow morning, and label the alarm "{label}".'
    one = call("set_alarm", hour=hour, minute=minute, label=label)
    return Request(text, ((one,),), by_state=True)


def warmth(rng: np.random.Generator, box: Toolbox) -> Request:
    """Temperatures of two rooms, which are only read."""
    rooms = random_order(rng, ROOMS)[:2]
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
    seats, first = random_int(rng, 1, 6), rng.random() < 0.5
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
    titles, day = random_order(rng, THINGS)[:2], pick(rng, DAYS)
    text = f'Put "{titles[0]}" and "{titles[1]}" on my list for {day}; the second one is urgent.'
    calls = (
        call("add_task", title=titles[0], day=day),
        call("add_task", title=titles[1], day=day, urgent=True),
    )
    return Request(text, (calls,), by_state=True)


def prices(rng: np.random.Generator, box: Toolbox) -> Request:
    """Prices of two to four shares, which are only read."""
    symbols = random_order(rng, SYMBOLS)[: random_int(rng, 2, 4)]
    calls = tuple(call("share_price", symbol=symbol) for symbol in symbols)
    text = f"What are the prices of {', '.join(symbols[:-1])} and {symbols[-1]}?"
    return Request(text, (calls,))


def invest(rng: np.random.Generator, box: Toolbox) -> Request:
    """As many shares as a sum of money buys, which needs the price."""
    symbol, euros = pick(rng, SYMBOLS), random_int(rng, 6, 40) * 50
    shares: Shares = box.group("shares")
    count = euros // shares.prices[symbol]
    text = f"Buy as many shares of {symbol} as {euros} euros pay for."
    look, buy = call("share_price", symbol=symbol), call("buy_shares", symbol=symbol, count=count)
    return Request(text, ((look,), (buy,)), by_state=True)


def length(rng: np.random.Generator, box: Toolbox) -> Request:
    """Two lengths to convert."""
    source, target = random_order(rng, list(LENGTHS))[:2]
    # Halves are exact in decimal and binary, so that no digit of a call is in doubt.
    values = [random_int(rng, 2, 900) / 2 for _ in range(2)]
    text = f"Convert {values[0]:g} and {values[1]:g} from {source} to {target}, each on its own."
    calls = tuple(call("convert_length", value=v, source=source, target=target) for v in values)
    return Request(text, (calls,))


def loan(rng: np.random.Generator, box: Toolbox) -> Request:
    """A monthly payment."""
    amount, rate, years = (
        1000 * random_int(rng, 2, 60),
        random_int(rng, 4, 18) / 2,
        random_int(rng, 1, 10),
    )
    one = call("loan_payment", amount=amount, rate=rate, months=12 * years)
    years_text = f"{years} year{'s' * (years > 1)}"
    text = f"What would I pay each month for {amount} euros at {rate:g} percent over {years_text}?"
    return Request(text, ((one,),))


def mail(rng: np.random.Generator, box: Toolbox) -> Request:
    """A message to one or two people."""
    people, news = random_order(rng, PEOPLE)[: random_int(rng, 1, 2)], pick(rng, NEWS)
    calls = tuple(call("send_message", person=person, text=news) for person in people)
    return Request(f'Write to {" and to ".join(people)}: "{news}".', (calls,), by_state=True)


# Group -> requests that its functions fulfil.
MAKERS: Mapping[str, tuple[Maker, ...]] = {
    "home": (heat, lights, alarm, warmth),
    "trains": (timetable, ride),
    "tasks": (tasks,),
    "shares": (prices, invest),
    "sums": (length, loan),
    "mail": (mail,),
}
# Group -> requests in which a fact is missing that a call needs.
INCOMPLETE: Mapping[str, tuple[str, ...]] = {
    "home": ("Set the temperature of the {room}.", "Make the {room} warmer or colder."),
    "trains": ("Find me a train from {city} on {day}.", "Book {count} seats on a train."),
    "tasks": ("Put something on my list for {day}.",),
    "shares": ("Buy some shares of {symbol}.", "Sell {count} shares."),
    "sums": ("Convert {count} miles.", "What would {count} thousand euros cost me each month?"),
    "mail": ("Write a message to {person}.",),
}


def incomplete(rng: np.random.Generator, group: str) -> Request:
    """A request that no call can fulfil, because a fact is missing."""
    text = pick(rng, INCOMPLETE[group]).format(
        room=pick(rng, ROOMS),
        city=pick(rng, ("Aarhus", "Basel", "Cork", "Delft")),
        day=pick(rng, DAYS),
        symbol=pick(rng, SYMBOLS),
        count=random_int(rng, 2, 9),
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
        request: Request | None = None
        if kind < 0.15:
            request = incomplete(rng, pick(rng, offered))
        elif kind < 0.3 and others:
            # For functions that are not offered.
            group = pick(rng, others)
            request = Request(pick(rng, MAKERS[group])(rng, Toolbox([group], rng)).text, ())
        elif kind < 0.5:
            request = undo(rng, made[-1], box)
        request = request or pick(rng, MAKERS[pick(rng, offered)])(rng, box)
        # Later requests are about the state that this one leaves.
        for reply in request.replies:
            for one in reply:
                box.run(one)
        made.append(request)
    return tuple(made)


def _train(rng: np.random.Generator, box: Toolbox) -> tuple[str, str, str, int]:
    trains: Trains = box.group("trains")
    return pick(rng, list(trains.trains.values()))


DONE = "[]"
MOST_CALLS = 16
# Replies to one request, the last one without a call.
REPLIES = 5
PROMPT = (
    "You fulfil the requests of a user by calling functions:\n{functions}\n"
    "Reply with a JSON list of calls and nothing else: [{form}, ...]. Calls of one reply are "
    "executed in their order. You are shown the results, and may call further functions. Reply "
    "with [] once the request is fulfilled, or at once if no function can fulfil it or if a fact "
    "is missing that a call needs; then the next request comes. Call nothing that the request does "
    "not need. You have {replies} replies for each request."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Requests of an episode. world: seed of the state of the offered groups."""

    offered: tuple[str, ...]
    world: int
    requests: tuple[Request, ...]


# Level -> numbers of groups that are offered, and of requests.
SIZES: Mapping[str, tuple[int, int]] = {"easy": (1, 2), "medium": (3, 4), "hard": (5, 7)}


class FunctionCallsEnv(TextEnv):
    """A conversation of requests for single, parallel and dependent calls, and for none at all.

    In the manner of the Berkeley Function-Calling Leaderboard (Patil et al. 2025), generated here.

    - Observation: the first request; later the results of the calls, or the next request.
    - Action: a JSON list of calls, [{"name": ..., "arguments": {...}}, ...], also in a code block
      or in <tool_call> tags; [] or a sentence that names no function ends a request. After five
      replies it ends by itself.
    - Reward: 1 if every request is fulfilled, else 0 (component "requests"). A request that changes
      the state is judged by the state after it; any other one by its calls, which must be the
      expected ones in any order, with no other; some need no call at all.
    - Info: "illegal" in every step is True for a reply that is no list of valid calls; "fulfilled"
      in the last one is the number of fulfilled requests.

    Args:
        level: "easy" (functions of one group, 2 requests), "medium" (of three, 4 requests) or
            "hard" (of five, 7 requests).
    """

    def __init__(
        self, level: Level = "medium", split: Split = "all", render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self._size = SIZES[checked_choice("level", level, LEVELS)]
        self._split = checked_choice("split", split, SPLITS)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw the requests."""
        self.begin(draw_in_split(lambda: plan_of(self._size, self.np_random), self._split))
        functions = listed(self._world.functions())
        prompt = PROMPT.format(functions=functions, form=FORM, replies=REPLIES)
        return f"User: {self._request.text}", prompt

    def begin(self, plan: Plan) -> None:
        """Begin the conversation of the plan."""
        self._plan = plan
        self._world, self._goal = (
            Toolbox(plan.offered, np.random.default_rng(plan.world)) for _ in range(2)
        )
        self._number, self._fulfilled = 0, 0
        self._begin_request()

    def turn(self, action: str) -> Turn:
        """Execute the calls, or end the request."""
        self._replies_left -= 1
        functions = self._world.functions()
        calls, problem = ([], "") if _is_sentence(action, functions) else calls_in(action)
        if not problem and len(calls) > MOST_CALLS:
            problem = f"a reply has at most {MOST_CALLS} calls, got {len(calls)}"
        wrong = (problem_with(call, functions, "function") for call in calls)
        problem = problem or next(filter(None, wrong), "")
        info: Info = {"illegal": bool(problem)}
        if calls and not problem:
            self._made += calls
            text = "\n".join(f"{call.name}: {self._world.run(call)}" for call in calls)
        else:
            text = f"Error: {problem}" if problem else ""
        # The last reply ends the request as [] does.
        if self._replies_left and (calls or problem):
            return proceed(
                f"{text}\nReplies left for this request: {self._replies_left}", info=info
            )
        self._fulfilled += self._is_fulfilled()
        self._number += 1
        if self._number < len(self._plan.requests):
            self._begin_request()
            return proceed(f"{text}\nUser: {self._request.text}".lstrip(), info=info)
        success = self._fulfilled == len(self._plan.requests)
        info["fulfilled"] = self._fulfilled
        return end(text, success=success, info=info, requests=success)

    def _begin_request(self) -> None:
        self._request = self._plan.requests[self._number]
        self._replies_left = REPLIES
        self._made: list[Call] = []
        for reply in self._request.replies:
            for call in reply:
                self._goal.run(call)

    def _is_fulfilled(self) -> bool:
        # The state counts for every request: also one that needs no change must not make any.
        if self._world.state() != self._goal.state():
            return False
        if self._request.by_state:
            return True
        expected = [call for reply in self._request.replies for call in reply]
        # As multisets: the order of independent calls is free, and none may come twice.
        return len(self._made) == len(expected) and all(
            sum(same_call(one, made) for made in self._made)
            == sum(same_call(one, other) for other in expected)
            for one in expected
        )

    def best_action(self) -> str:
        """The calls that the request still needs."""
        for reply in self._request.replies:
            missing = [
                call for call in reply if not any(same_call(call, made) for made in self._made)
            ]
            if missing:
                return f"[{', '.join(call.as_json() for call in missing)}]"
        return DONE


def _is_sentence(action: str, functions: Iterable[str]) -> bool:
    """True for words that hold no call and announce none, as models end a request."""
    said = without_thought(action)
    return bool(said) and not any(word in said for word in ("[", "{", *functions))


def plan_of(size: tuple[int, int], rng: np.random.Generator) -> Plan:
    """A conversation. size: numbers of groups and of requests."""
    names = random_order(rng, list(GROUPS))
    offered, others = tuple(names[: size[0]]), names[size[0] :]
    world = int(rng.integers(2**31))
    box = Toolbox(offered, np.random.default_rng(world))
    made = requests(rng, box, offered, others, size[1])
    return Plan(offered=offered, world=world, requests=made)
