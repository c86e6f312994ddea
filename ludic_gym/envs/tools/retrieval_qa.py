"""RetrievalQA: questions whose answers are spread over several documents."""

from __future__ import annotations

from pathlib import Path

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.question import DatasetEnv
from ludic_gym.envs.questions.short_answer import question
from ludic_gym.errors import NoOracle
from ludic_gym.graders.text import grade_exact
from ludic_gym.tools.search import Document, search_tools
from ludic_gym.tools.tool import Tool

FOLDER = Path(__file__).parents[1] / "data"
QUESTIONS = FOLDER / "retrieval_questions.jsonl"
DOCUMENTS = FOLDER / "retrieval_documents.jsonl"


class RetrievalQAEnv(DatasetEnv):
    """One question about an invented country, which takes two or three documents to answer.

    data: "sample" (questions written for this package), or another source with the fields
        "question" and "answers" (a list of texts).
    documents: "sample" (the documents that go with them), or another source with the fields
        "title" and "text".
    split: the split of a hub data set or a folder of questions.

    Observation: the question. Action: a text with the answer. Reward: 1 for an accepted one; case,
    punctuation and articles do not matter. `tools()` gives `search` and `read` over the documents,
    for a policy that uses tools. Nothing in the documents is true anywhere else.

        In which town was the founder of the Sorn Lantern Works born?
    <answer>Kell</answer>             (reward 1)
    """

    prompt = (
        "Answer the question about the country of Orvane. Nobody knows it by heart: use the tools "
        "you have. Give the answer in a few words in <answer></answer> tags."
    )
    grade = grade_exact

    def __init__(
        self,
        data: str = "sample",
        documents: str = "sample",
        split: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        rows = load_rows(data, question, sample=QUESTIONS, split=split)
        super().__init__(rows.items, rows.origin, render_mode)
        self._documents = documents

    def documents(self) -> tuple[Document, ...]:
        """What can be searched."""
        return load_rows(self._documents, document, sample=DOCUMENTS).items

    def tools(self) -> tuple[Tool, ...]:
        """The tools `search` and `read`. Raises ConfigError without the extra `tools`."""
        return search_tools(self.documents())

    def oracle_action(self) -> str:
        """The first accepted answer. Raises NoOracle when no question is open."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no question is open; call reset() first")
        return self._question.truth.splitlines()[0]


def document(row: Row) -> Document:
    """The document. Raises DataError if a field is missing."""
    return Document(text_field(row, "title"), text_field(row, "text"))
