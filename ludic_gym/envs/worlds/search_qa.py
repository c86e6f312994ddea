"""SearchQA: questions over thousands of passages, answered with a search engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ludic_gym.envs.core.base import Info, TextEnv, Turn, checked_choice, end, pick, proceed
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, draw_in_split
from ludic_gym.envs.tools.calls import FORM, Call, Schemas, listed, one_call
from ludic_gym.envs.worlds.archive import (
    COUNTS,
    Query,
    country,
    index,
    passage,
    question_text,
    titles,
)
from ludic_gym.graders.extract import extract
from ludic_gym.graders.text import normalised
from ludic_gym.reader import without_thought
from ludic_gym.tools.tool import tool_schema

RESULTS = 5
# Characters of a query that are used.
LONGEST_QUERY = 300
# Level -> numbers of passages that a question needs, and of turns.
SIZES: Mapping[str, tuple[tuple[int, int], int]] = {
    "easy": ((1, 2), 8),
    "medium": ((2, 3), 12),
    "hard": ((3, 4), 16),
}
# Tool -> its purpose, its argument, and what that is.
_TOOLS = (
    ("search", f"Find {RESULTS} passages by words. Gives their titles.", "query", "words"),
    ("open", "Read a passage.", "title", "its title, as the search gave it"),
    ("answer", "Answer the question, which ends the task.", "text", "the answer alone"),
)
SCHEMAS: Schemas = {
    name: (
        purpose,
        {
            "type": "object",
            "properties": {argument: {"type": "string", "description": about}},
            "required": [argument],
        },
    )
    for name, purpose, argument, about in _TOOLS
}
# A call as a person types it.
_PLAIN = re.compile(
    r"(search|open|answer)(?:\s*:\s*|\s*\(\s*|\s+)[\"']?([^\n\"]*?)[\"']?\s*\)?", re.I
)
LONGEST_ACTION = 2_000
PROMPT = (
    "Answer the question with the help of an archive of {count:,} passages about a fictional "
    "country. Each passage is about one person, place, company, school or work, which is its "
    "title. These are your tools:\n{tools}\nReply with one tool call as JSON, {form}, and nothing "
    "else. Open every passage that states a fact that you need: the answer counts only if you have "
    "read all of them. Answer with a name, a word or a number, without a sentence. You have "
    "{turns} turns."
)


class SearchQAEnv(TextEnv):
    """A question over an archive of 21,000 generated passages, with a BM25 search.

    In the manner of multi-hop data sets (Yang et al. 2018, arXiv:1809.09600), generated here: the
    country is fictional, so that no answer is known beforehand, and each question has one answer.

    - Observation: the question, then titles that were found, or a passage.
    - Action: a call of `search`, `open` or `answer` as JSON, {"name": ..., "arguments": {...}},
      alone or in <tool_call> tags, or as "search: words"; also the answer in <answer></answer>
      tags.
    - Reward: 1 if the answer is exact and all passages that state its facts were opened, else 0
      (component "answer"). Case, punctuation and articles of the answer do not matter.
    - Info: "illegal" in every step; in the last one "exact" is True for an exact answer, "support"
      the share of the needed passages that were opened, and "truth" the answer.

    Args:
        level: "easy" (1 or 2 passages, 8 turns), "medium" (2 or 3, 12) or "hard" (3 or 4, 16).
        split: "train" and "test" have no question in common, also not in other words; one in five
            is in "test". Both are about the same archive.
    """

    action_tools = tuple(tool_schema(name, *SCHEMAS[name]) for name in SCHEMAS)

    def __init__(
        self, level: Level = "medium", split: Split = "all", render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self._hops, self._turns = SIZES[checked_choice("level", level, LEVELS)]
        self._split = checked_choice("split", split, SPLITS)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a question of the split."""
        rng = self.np_random
        self.query: Query = draw_in_split(
            lambda: question_text(pick(rng, self._hops), rng),
            self._split,
            lambda query: query.chain,
        )
        self._opened: tuple[int, ...] = ()
        self._has_searched = False
        self._turns_left = self._turns
        count = sum(COUNTS.values())
        prompt = PROMPT.format(count=count, tools=listed(SCHEMAS), form=FORM, turns=self._turns)
        return self.query.text, prompt

    def turn(self, action: str) -> Turn:
        """Search, open a passage, or judge the answer."""
        self._turns_left -= 1
        call, problem = read(action)
        if problem:
            return self._proceed(f"Error: {problem}.", illegal=True)
        (text,) = call.arguments.values()
        match call.name:
            case "answer":
                return self._ended(text, illegal=False)
            case "search":
                self._has_searched = True
                numbers = index().best(text[:LONGEST_QUERY], RESULTS)
                titles_found = [f"{country()[n].name} ({country()[n].kind})" for n in numbers]
                return self._proceed("\n".join(titles_found) or "No passage has these words.")
        # With the kind, as in the list of titles, or without it.
        title = " ".join(text.lower().partition("(")[0].split())
        number = titles().get(title)
        if number is None:
            return self._proceed(f"Error: there is no passage {text[:100]!r}; search for its title")
        self._opened = (*self._opened, number)
        return self._proceed(passage(number))

    def _proceed(self, text: str, *, illegal: bool = False) -> Turn:
        if not self._turns_left:
            return self._ended("", illegal=illegal)
        return proceed(f"{text}\nTurns left: {self._turns_left}", info={"illegal": illegal})

    def _ended(self, answer: str, *, illegal: bool) -> Turn:
        needed = set(self.query.support)
        truth = self.query.answer
        # "The Faesnes" is as good a name as "River Faesnes".
        exact = normalised(answer) in map(normalised, (truth, truth.removeprefix("River ")))
        info: Info = {
            "illegal": illegal,
            "exact": exact,
            "support": len(needed & set(self._opened)) / len(needed),
            "truth": truth,
        }
        # A guess without the passages is not paid: kinds of things have few members.
        success = exact and needed <= set(self._opened)
        return end(success=success, info=info, answer=success)

    def best_action(self) -> str:
        """Search for the thing that is named, open the passages of the chain, and answer."""
        query, things = self.query, country()
        if not self._has_searched:
            return Call("search", {"query": things[query.start].name}).as_json()
        for number in query.support:
            if number not in self._opened:
                return Call("open", {"title": things[number].name}).as_json()
        return Call("answer", {"text": query.answer}).as_json()


def read(action: str) -> tuple[Call, str]:
    """The call in a reply, and its error ("" for a valid call)."""
    answer, rule = extract(action)
    if rule == "tag" and answer is not None:
        return Call("answer", {"text": answer}), ""
    if plain := _PLAIN.fullmatch(without_thought(action)[-LONGEST_ACTION:]):
        name = plain[1].lower()
        (argument,) = SCHEMAS[name][1]["properties"]
        return Call(name, {argument: plain[2]}), ""
    return one_call(action, SCHEMAS)
