"""CustomerDesk: requests of a customer, dealt with by a policy, tools and questions."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Info, TextEnv, Turn, checked_choice, end, pick, proceed
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, draw_in_split
from ludic_gym.envs.tools.calls import FORM, Call, Schemas, listed, one_call, result_of, schemas_of
from ludic_gym.envs.worlds.businesses import Airline, Library, Retail
from ludic_gym.envs.worlds.desk import Customer, Desk, Wish, asking
from ludic_gym.reader import without_thought
from ludic_gym.tools.tool import tool_schema
from ludic_gym.types import ToolSchema

DOMAINS: Mapping[str, type[Desk]] = {"airline": Airline, "retail": Retail, "library": Library}
# Level -> numbers of requests and of turns.
SIZES: Mapping[str, tuple[int, int]] = {"easy": (1, 15), "medium": (2, 30), "hard": (3, 45)}
SHARED = ("identify", "show", "resolve")
# For players whose every action is a call.
SAY = "say"
SAYING: Schemas = {
    SAY: (
        "Tell the customer something, or ask.",
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    )
}
_SPEAKING = ("```", "<tool_call>", "{", "[")
PROMPT = """\
You work at the service desk of {article} {domain}. Deal with the customer's requests, one after \
the other, and keep to this policy.
R1. Identify the customer before you show or change a record, show a record before you resolve a \
request about it, and show or change no record of another customer.
R2. Before you change anything, tell the customer exactly what you will do, with all numbers and \
values, and let the customer confirm it. Then do that and nothing else.
{policy}
A request that a rule from R3 on forbids is refused with the number of that rule, whatever the \
customer says; any other request is fulfilled. Each request ends with a call of resolve.
Your tools:
{tools}
To call a tool, reply with the call as JSON and nothing else: {form}. Any other reply is read by \
the customer, who tells you only what you ask for. You have {turns} turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A customer's requests. world: seed of the database."""

    domain: str
    world: int
    wishes: tuple[Wish, ...]


class CustomerDeskEnv(TextEnv):
    """A service desk with a policy, a database, tools with side effects, and a scripted customer.

    In the manner of tau-bench (Yao et al. 2024, arXiv:2406.12045), generated here. The customer
    gives facts only when asked, must confirm every change, and may have second thoughts. About two
    requests in five are forbidden by the policy and have to be refused. `ludic bench --samples K`
    prints pass^k, the rate of tasks that succeed in all of K episodes.

    Of 1,000 cases, a player that keeps to R1 and R2 without reading the other rules solves 49, 23
    and 12 % (easy, medium, hard) by fulfilling every request, and 13, 2 and 0 % by refusing every
    request with a rule that it draws.

    - Observation: the customer's words, or the result of a call.
    - Action: a call as JSON, {"name": ..., "arguments": {...}}, alone, in a code block or in
      <tool_call> tags; any other text is a message to the customer, and so is a call of `say`.
    - Reward: 1 if the database and the resolutions of all requests are as they must be and no rule
      of the policy was broken on the way, else 0 (component "desk").
    - Info: "illegal" in every step is True for a call that is not valid; in the last one,
      "violations" is the number of calls against the policy, "broken" lists their rules, and
      "resolved" is the number of requests that were resolved rightly.

    Args:
        level: "easy" (1 request, 15 turns), "medium" (2, 30; with second thoughts) or "hard" (3,
            45; the customer also insists after a refusal).
        domain: "airline", "retail" or "library", or "all": drawn for each episode.
    """

    def __init__(
        self,
        level: Level = "medium",
        domain: str = "all",
        split: Split = "all",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._level = checked_choice("level", level, LEVELS)
        self._count, self._turns = SIZES[level]
        checked_choice("domain", domain, ("all", *DOMAINS))
        self._domains = tuple(DOMAINS) if domain == "all" else (domain,)
        self._split = checked_choice("split", split, SPLITS)
        # Which desk it is, the first episode decides.
        self.action_tools = _offered(*(DOMAINS[name] for name in self._domains))

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a case of the split."""
        case = draw_in_split(self._drawn_case, self._split)
        self.desk, _ = open_desk(case.domain, case.world, self._count)
        self.action_tools = _offered(type(self.desk))
        # The state after all requests by the book; what is forbidden changes nothing.
        self.goal = copy.deepcopy(self.desk)
        for wish in case.wishes:
            if not wish.rule:
                result_of(self.goal, wish.final)
            number = wish.wanted.arguments["number"]
            self.goal.resolve(number, "refused" if wish.rule else "done", wish.rule)
        self.customer = Customer(wishes=case.wishes, insistent=self._level == "hard")
        self._broken: list[str] = []
        self._made: list[Call] = []
        self._turns_left = self._turns
        record = self.desk.record(case.wishes[0].wanted.arguments["number"])
        self.email = record["email"]
        text = f"Customer: Hello, this is {record['owner']}. {self.customer.wish.opening}"
        return text, system_prompt(case.domain, self._turns)

    def turn(self, action: str) -> Turn:
        """Execute the call, or give the message to the customer."""
        self._turns_left -= 1
        said = without_thought(action)
        if not said.startswith(_SPEAKING):
            return self._proceed(f"Customer: {self.customer.reply(said, self.desk)}")
        call, problem = one_call(action, {**SCHEMAS[type(self.desk)], **SAYING})
        if problem:
            return self._proceed(f"Error: {problem}", illegal=True)
        if call.name == SAY:
            reply = self.customer.reply(str(call.arguments["text"]), self.desk)
            return self._proceed(f"Customer: {reply}")
        self._judge(call)
        text = result_of(self.desk, call)
        self._made.append(call)
        if call.name != "resolve":
            return self._proceed(text)
        self._made = []
        if not self.customer.next_wish():
            return self._ended(text)
        return self._proceed(f"{text}\nCustomer: One more thing. {self.customer.wish.opening}")

    def _proceed(self, text: str, *, illegal: bool = False) -> Turn:
        if not self._turns_left:
            return self._ended(text, illegal=illegal)
        return proceed(text, info={"illegal": illegal})

    def _judge(self, call: Call) -> None:
        """Note the rule of the policy that the call breaks."""
        desk, customer = self.desk, self.customer
        if call.name not in ("show", "resolve", *desk.writes):
            return
        number = str(call.arguments.get("number"))
        # Without it, a guess of the rule would be a way to refuse what was never looked at.
        if call.name == "resolve" and Call("show", {"number": number}) not in self._made:
            self._broken.append("R1")
            return
        mine = desk.records.get(number, {}).get("email") == self.email
        if number in desk.records and not (mine and desk.identified == self.email):
            self._broken.append("R1")
        if call.name in desk.writes:
            # The very call that was confirmed: a change of more than that is against R2.
            if customer.agreed is None or plain(call) != plain(customer.agreed):
                self._broken.append("R2")
            elif customer.wish.rule:
                self._broken.append(customer.wish.rule)

    def _ended(self, text: str, *, illegal: bool = False) -> Turn:
        # The state and the rules decide, not the words: any way that keeps to the policy is right.
        success = self.desk.state() == self.goal.state() and not self._broken
        # Not strict: an episode that ends early has fewer resolutions.
        pairs = zip(self.desk.resolutions, self.goal.resolutions, strict=False)
        info: Info = {
            "illegal": illegal,
            "violations": len(self._broken),
            "broken": ", ".join(self._broken),
            "resolved": sum(ours == goal for ours, goal in pairs),
        }
        return end(text, success=success, info=info, desk=success)

    def best_action(self) -> str:
        """The next step by the book: ask, identify, look, confirm, change, resolve."""
        desk, customer, wish = self.desk, self.customer, self.customer.wish
        identified = {"email"} if desk.identified == self.email else set()
        if missing := [name for name in wish.facts if name not in customer.told | identified]:
            return f"Please tell me {' and '.join(asking(name, desk)[1] for name in missing)}."
        number = wish.wanted.arguments["number"]
        if not identified:
            return Call("identify", {"email": self.email, "number": number}).as_json()
        show = Call("show", {"number": number})
        if show not in self._made:
            return show.as_json()
        resolution = {"number": number}
        if wish.rule:
            return Call("resolve", resolution | {"outcome": "refused", "rule": wish.rule}).as_json()
        if customer.agreed is None:
            details = ", ".join(
                f"{name} {value}" for name, value in customer.wanted.arguments.items()
            )
            return f"Shall I do this: {customer.wanted.name.replace('_', ' ')}, {details}?"
        if customer.agreed not in self._made:
            return customer.agreed.as_json()
        return Call("resolve", resolution | {"outcome": "done"}).as_json()

    def _drawn_case(self) -> Case:
        domain, world = pick(self.np_random, self._domains), int(self.np_random.integers(2**31))
        _, wishes = open_desk(domain, world, self._count)
        if self._level == "easy":
            wishes = tuple(replace(wish, thought=None) for wish in wishes)
        return Case(domain=domain, world=world, wishes=wishes)


def open_desk(domain: str, world: int, count: int) -> tuple[Desk, tuple[Wish, ...]]:
    """The database of a seed, and the requests of one customer."""
    rng = np.random.default_rng(world)
    desk = DOMAINS[domain](rng)
    return desk, desk.wishes(count, rng)


def _tools_of(desk: type[Desk]) -> Schemas:
    # Of an instance, whose bound methods have no `self`.
    opened = desk(np.random.default_rng(0))
    return schemas_of(getattr(opened, name) for name in (*SHARED, *desk.reads, *desk.writes))


SCHEMAS = {desk: _tools_of(desk) for desk in DOMAINS.values()}


def _offered(*desks: type[Desk]) -> tuple[ToolSchema, ...]:
    """The calls of the desks, each once, and that which speaks."""
    schemas = {name: one for desk in desks for name, one in {**SCHEMAS[desk], **SAYING}.items()}
    return tuple(tool_schema(name, *one) for name, one in schemas.items())


def plain(call: Call) -> tuple[str, dict[str, str]]:
    """The call for comparisons, without regard to case."""
    return call.name, {name: str(value).lower() for name, value in call.arguments.items()}


def system_prompt(domain: str, turns: int) -> str:
    """The policy, the tools and the reply format."""
    desk = DOMAINS[domain]
    return PROMPT.format(
        article="an" if domain[0] == "a" else "a",
        domain="shop" if domain == "retail" else domain,
        policy="\n".join(desk.policy),
        tools=listed(SCHEMAS[desk]),
        form=FORM,
        turns=turns,
    )
