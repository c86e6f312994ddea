"""Rules and texts of Werewolf."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ludic_gym.envs.core.game import one_line

Role = Literal["werewolf", "seer", "doctor", "villager"]
Phase = Literal["talk", "vote", "kill", "see", "protect"]

# Number of players -> their roles.
ROLES: Mapping[int, tuple[Role, ...]] = {
    5: ("werewolf", "seer", "doctor", "villager", "villager"),
    6: ("werewolf", "seer", "doctor", "villager", "villager", "villager"),
    7: ("werewolf", "werewolf", "seer", "doctor", "villager", "villager", "villager"),
}
NAMES = (
    "Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gus", "Hana", "Ida", "Jonas", "Kira", "Leo",
    "Mona", "Nils", "Olga", "Paul", "Rosa", "Samir", "Tess", "Uwe",
)  # fmt: skip
# Illegal replies in a row after which a player is out; characters of a message, and of a reply
# that are read.
REFUSALS, LONGEST_MESSAGE, LONGEST_ACTION = 3, 300, 2_000
LAST_DAY = 8
# The order of a night, and the role that acts.
NIGHT: tuple[tuple[Phase, Role], ...] = (
    ("kill", "werewolf"),
    ("see", "seer"),
    ("protect", "doctor"),
)


class Event(NamedTuple):
    """An event, in the order of the game.

    kind: "day", "said", "voted", "hanged", "tie", "killed", "quiet", "expelled", or the secret
        "kill", "see", "protect".
    seat: the player who acts. target: the player it concerns. text: a message.
    to: the players who know it; () for all.
    """

    kind: str
    seat: int = -1
    target: int = -1
    text: str = ""
    to: tuple[int, ...] = ()


class State(NamedTuple):
    """The state of a game.

    names, roles: by seat. living: seats of the players who are in the game.
    day: from 1; the night after a day has its number, the first night is 0.
    queue: seats that still act in this phase, the mover first.
    choices: votes of this phase, or the victim and the protected player of this night.
    log: all events. read: by seat, the number of events that were known at the last reply.
    refused: illegal replies of the mover in a row. expelled: seats that are out for such replies.
    winner: "" before the end.
    """

    names: tuple[str, ...]
    roles: tuple[Role, ...]
    living: tuple[int, ...]
    first: int
    day: int = 0
    phase: Phase = "see"
    queue: tuple[int, ...] = ()
    choices: tuple[tuple[int, int], ...] = ()
    victim: int = -1
    protected: int = -1
    log: tuple[Event, ...] = ()
    read: tuple[int, ...] = ()
    refused: int = 0
    expelled: tuple[int, ...] = ()
    winner: Literal["", "village", "werewolves"] = ""

    @property
    def mover(self) -> int:
        """The seat that acts."""
        return self.queue[0]

    def seats_of(self, role: Role) -> tuple[int, ...]:
        """Living players of the role."""
        return tuple(seat for seat in self.living if self.roles[seat] == role)


def deal(names: tuple[str, ...], roles: tuple[Role, ...], first: int) -> State:
    """The first night, in which the seer alone acts. first: seat that speaks first."""
    everyone = tuple(range(len(names)))
    state = State(names=names, roles=roles, living=everyone, first=first, read=(0,) * len(names))
    return state._replace(queue=state.seats_of("seer"))


def targets(state: State) -> tuple[int, ...]:
    """Players that the mover may name; () in a talk."""
    if state.phase == "talk":
        return ()
    if state.phase == "protect":
        # By the rules of the game, no one is protected in two nights in a row.
        return tuple(seat for seat in state.living if seat != state.protected)
    if state.phase == "kill":
        return tuple(seat for seat in state.living if state.roles[seat] != "werewolf")
    return tuple(seat for seat in state.living if seat != state.mover)


def legal_actions(state: State) -> tuple[str, ...]:
    """A choice of a player in the form of the phase; () in a talk, in which any text is legal."""
    return tuple(f"{state.phase} {state.names[seat]}" for seat in targets(state))


def read(state: State, text: str) -> str:
    """The action in a reply: the message, or the choice in its normal form.

    A reply with no name or several ones is returned as it is, unless one follows the verb.
    """
    if state.phase == "talk":
        return one_line(text, LONGEST_MESSAGE)
    said = text.strip()[-LONGEST_ACTION:].lower()
    names = {name.lower(): name for name in state.names}
    one = "|".join(names)
    after_verb = set(re.findall(rf"\b{state.phase}(?:\s+(?:for|at|on))?[\s:]+({one})\b", said))
    mentioned = after_verb or set(re.findall(rf"\b({one})\b", said))
    return f"{state.phase} {names[mentioned.pop()]}" if len(mentioned) == 1 else said


def play(state: State, action: str) -> State:
    """The state after a legal action."""
    me = state.mover
    read_counts = (len(state.log) if seat == me else count for seat, count in enumerate(state.read))
    state = state._replace(refused=0, read=tuple(read_counts), queue=state.queue[1:])
    if state.phase == "talk":
        return _continue(_log(state, Event("said", me, text=action)))
    target = state.names.index(action.split()[1])
    if state.phase == "vote":
        return _continue(state._replace(choices=(*state.choices, (me, target))))
    # A choice of the night is known to the role alone.
    to = state.seats_of("werewolf") if state.phase == "kill" else (me,)
    state = _log(state, Event(state.phase, me, target, to=to))
    if state.phase == "kill":
        # The last name counts: the other werewolf has read the first one.
        state = state._replace(victim=target)
    if state.phase == "protect":
        state = state._replace(protected=target)
    return _continue(state)


def refuse(state: State, action: str) -> State:
    """The state after an illegal reply: another try, or the mover is out."""
    if state.refused + 1 < REFUSALS:
        return state._replace(refused=state.refused + 1)
    out = state.mover
    state = _without(state, out, Event("expelled", target=out))
    state = state._replace(refused=0, queue=state.queue[1:], expelled=(*state.expelled, out))
    return state if state.winner else _continue(state)


def _continue(state: State) -> State:
    """The state in which the next player acts."""
    phases = [phase for phase, _ in NIGHT]
    while not state.queue and not state.winner:
        if state.phase == "talk":
            state = state._replace(phase="vote", queue=_around(state))
        elif state.phase == "vote":
            state = _hang(state)
            state = state if state.winner else _night(state, "kill")
        elif state.day and (later := phases[phases.index(state.phase) + 1 :]):
            state = _night(state, later[0])
        else:
            # Also after the seer of the first night, in which no one else acts.
            state = _dawn(state)
    return state


def _night(state: State, phase: Phase) -> State:
    if phase == "kill":
        state = state._replace(victim=-1)
    return state._replace(phase=phase, queue=state.seats_of(dict(NIGHT)[phase]))


def _dawn(state: State) -> State:
    """The next day, after the death of the night."""
    # A village that hangs no one could play for ever.
    if state.day == LAST_DAY:
        return state._replace(winner="werewolves")
    if state.day:
        # The victim may have been expelled since, and so may the doctor.
        saved = state.victim == state.protected and bool(state.seats_of("doctor"))
        dead = state.victim in state.living and not saved
        event = Event("killed", target=state.victim) if dead else Event("quiet")
        state = _without(state, state.victim, event) if dead else _log(state, event)
    if state.winner:
        return state
    state = _log(state._replace(day=state.day + 1, phase="talk"), Event("day"))
    return state._replace(queue=_around(state))


def _hang(state: State) -> State:
    """The state after the votes; a tie hangs no one."""
    state = _log(state, *(Event("voted", seat, target) for seat, target in state.choices))
    # A player who was expelled after the first votes can no longer be hanged.
    votes = Counter(target for _, target in state.choices if target in state.living)
    state = state._replace(choices=())
    most = max(votes.values(), default=0)
    first = [seat for seat, count in votes.items() if count == most]
    if len(first) != 1:
        return _log(state, Event("tie"))
    return _without(state, first[0], Event("hanged", target=first[0]))


def _around(state: State) -> tuple[int, ...]:
    """Living players in order; each day begins with another one."""
    # The last speaker knows most, so that the place moves from day to day.
    start = (state.first + state.day) % len(state.names)
    return (*(s for s in state.living if s >= start), *(s for s in state.living if s < start))


def _without(state: State, out: int, event: Event) -> State:
    """The state without a player, and the winner if that decides the game."""
    living = tuple(seat for seat in state.living if seat != out)
    state = _log(state._replace(living=living), event)
    wolves = len(state.seats_of("werewolf"))
    if not wolves:
        return state._replace(winner="village")
    return state._replace(winner="werewolves") if 2 * wolves >= len(living) else state


def _log(state: State, *events: Event) -> State:
    return state._replace(log=(*state.log, *events))


def side(state: State, seat: int) -> str:
    """The side of a player, as in `State.winner`."""
    return "werewolves" if state.roles[seat] == "werewolf" else "village"


def returns(state: State) -> tuple[float, ...] | None:
    """1 for each player of the side that won, else -1, also for the dead; None before the end."""
    if not state.winner:
        return None
    return tuple(1.0 if verdict(state, seat)[1] else -1.0 for seat in range(len(state.names)))


def verdict(state: State, player: int) -> tuple[str, bool]:
    """The outcome at the end; a success is a win of the player's side without an expulsion."""
    if player in state.expelled:
        return "illegal", False
    won = side(state, player) == state.winner
    return ("win", True) if won else ("loss", False)


PROMPT = (
    "You play Werewolf with {players} players. Their hidden roles are {roles}. The village, which"
    " is all players but the werewolves, wins once no werewolf is left. The werewolves win once "
    "they are at least half of the living players, or after day {last}. You win with your side, "
    "even if you are out of the game by then. In the first night only the seer acts. On each day,"
    " the living players speak one after the other, then all of them vote at the same time; the "
    "player with the most votes is hanged, and a tie hangs no one. In each later night, the "
    "werewolves name a victim one after the other, of which the last one counts, the seer learns "
    "if a player is a werewolf, and the doctor protects a player, but not the same one in two "
    "nights in a row. A victim who is not protected dies. The role of each dead player is made "
    "public. Scripted players understand the sentences 'I am the seer: NAME is a werewolf.', 'I "
    "am the seer: NAME is not a werewolf.' and 'I suspect NAME.' When you are to speak, reply "
    "with your message, of which {longest} characters are read out. When you are to choose a "
    "player, reply with the word that is given there and a name, such as 'vote {name}', and "
    "nothing else. After {refusals} illegal replies in a row you are out and have lost."
)
REQUESTS = {
    "talk": "It is your turn to speak. Reply with your message to all players.",
    "vote": "Vote for the player to be hanged.",
    "kill": "Name the victim of this night.",
    "see": "Choose the player whose side you want to learn.",
    "protect": "Choose the player to protect in this night.",
}
ARTICLES = {"werewolf": "a werewolf", "seer": "the seer", "doctor": "the doctor"}


def system_prompt(players: int) -> str:
    """The rules and the form of the replies."""
    roles = ROLES[players]
    wolves, villagers = roles.count("werewolf"), roles.count("villager")
    some = "one werewolf" if wolves == 1 else f"{wolves} werewolves"
    return PROMPT.format(
        players=players,
        roles=f"{some}, one seer, one doctor and {villagers} villagers",
        last=LAST_DAY,
        longest=LONGEST_MESSAGE,
        refusals=REFUSALS,
        name="Ann",
    )


def observation(state: State, player: int) -> str:
    """The player's role and knowledge, who is left, what is new to it, and the request."""
    lines = [_standing(state, player)]
    news = (e for e in state.log[state.read[player] :] if not e.to or player in e.to)
    lines += [text for event in news if (text := _sentence(state, event, player))]
    if state.winner:
        roles = ", ".join(
            f"{name} was {article(role)}"
            for name, role in zip(state.names, state.roles, strict=True)
        )
        won = "The village has" if state.winner == "village" else "The werewolves have"
        return "\n".join([*lines, f"The game is over. {won} won. {roles}."])
    if state.mover == player:
        lines.append(_request(state))
    return "\n".join(lines)


def article(role: str) -> str:
    """The role with its article."""
    return ARTICLES.get(role, f"a {role}")


def _standing(state: State, player: int) -> str:
    names, role = state.names, state.roles[player]
    parts = [f"You are {names[player]}, {article(role)}."]
    if role == "werewolf":
        others = [
            f"{names[seat]}{'' if seat in state.living else ' (dead)'}"
            for seat, other in enumerate(state.roles)
            if other == "werewolf" and seat != player
        ]
        parts.append(
            f"The other werewolf is {others[0]}." if others else "You are the only werewolf."
        )
    seen = dict.fromkeys(e.target for e in state.log if e.kind == "see" and e.seat == player)
    if role == "seer" and seen:
        learnt = ", ".join(f"{names[seat]} {_is_wolf(state, seat)}" for seat in seen)
        parts.append(f"You have learnt: {learnt}.")
    living = ", ".join(names[seat] for seat in state.living)
    dead = ", ".join(
        f"{name} ({role})"
        for seat, (name, role) in enumerate(zip(names, state.roles, strict=True))
        if seat not in state.living
    )
    when = f"Day {state.day}" if state.phase in ("talk", "vote") else f"Night {state.day}"
    parts.append(f"{when}. Living players: {living}.")
    return " ".join([*parts, *([f"Dead players: {dead}."] if dead else [])])


def _is_wolf(state: State, seat: int) -> str:
    return "is a werewolf" if state.roles[seat] == "werewolf" else "is not a werewolf"


def _sentence(state: State, event: Event, player: int) -> str:
    """An event as the player reads it; "" for one that the player knows anyway."""
    mine = event.seat == player
    actor = "You" if mine else state.names[event.seat]
    target = "you" if event.target == player else state.names[event.target]
    was = f"{state.names[event.target]} was {article(state.roles[event.target])}"
    match event.kind:
        case "day":
            return "A new day begins."
        case "said":
            said = f"said: {event.text}" if event.text else "said nothing."
            return "" if mine else f"{actor} {said}"
        case "voted":
            return f"{actor} voted for {target}."
        case "hanged":
            return f"The village hanged {target}: {was}."
        case "tie":
            return "The vote was a tie, so no one was hanged."
        case "killed":
            return f"In the night, the werewolves killed {target}: {was}."
        case "quiet":
            return "In the night, no one died."
        case "expelled":
            return f"After {REFUSALS} illegal replies, {target} left the game: {was}."
        case "see":
            return f"You have learnt that {target} {_is_wolf(state, event.target)}."
        case "kill" if not mine:
            return f"{actor} named {target} as the victim."
    return ""


def _request(state: State) -> str:
    """The form of the reply, with what is legal."""
    again = f"That is not a legal reply (tries left: {REFUSALS - state.refused}). "
    request = f"{again if state.refused else ''}{REQUESTS[state.phase]}"
    if state.phase == "talk":
        return request
    names = [state.names[seat] for seat in targets(state)]
    listed = " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{request} Reply with '{state.phase} NAME', where NAME is {listed}."
