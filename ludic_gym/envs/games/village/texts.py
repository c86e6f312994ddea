"""Werewolf as its players read it."""

from __future__ import annotations

from ludic_gym.envs.games.village.rules import (
    LAST_DAY,
    LONGEST_MESSAGE,
    REFUSALS,
    ROLES,
    Event,
    State,
    known_to,
    targets,
)

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
    new = known_to(state, player, state.log[state.read[player] :])
    lines += [text for event in new if (text := _sentence(state, event, player))]
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
    if role == "seer" and (seen := _seen(state, player)):
        parts.append(f"You have learnt: {seen}.")
    living = ", ".join(names[seat] for seat in state.living)
    dead = ", ".join(
        f"{name} ({role})"
        for seat, (name, role) in enumerate(zip(names, state.roles, strict=True))
        if seat not in state.living
    )
    when = f"Day {state.day}" if state.phase in ("talk", "vote") else f"Night {state.day}"
    parts.append(f"{when}. Living players: {living}.")
    return " ".join([*parts, *([f"Dead players: {dead}."] if dead else [])])


def _seen(state: State, player: int) -> str:
    """The results of a seer's nights."""
    seen = dict.fromkeys(e.target for e in state.log if e.kind == "see" and e.seat == player)
    return ", ".join(f"{state.names[seat]} {_is_wolf(state, seat)}" for seat in seen)


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
