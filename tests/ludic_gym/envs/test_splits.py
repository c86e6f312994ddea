"""No task of an environment is in both of its splits."""

import pytest

from envs_registry.catalog import CATALOG
from ludic_gym.audit.subject import AuditSubject, statement_of
from ludic_gym.audit.tasks import asked_by, splits_are_apart


@pytest.mark.parametrize("name", ["LiarsDice", "FunctionCalls", "Werewolf", "CustomerDesk"])
def test_equal_tasks_with_a_state_have_equal_texts(name):
    subject = AuditSubject(env_id=f"ludic/{name}-v0", kwargs={"split": "train"}, episodes=4)
    first, again = (
        list(asked_by(subject, subject.make(), range(4), with_state=True)) for _ in range(2)
    )
    assert first == again
    assert len(set(first)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.id)
def test_no_generated_task_is_in_both_splits(entry):
    subject = AuditSubject(env_id=entry.id, statement=statement_of(entry.id))
    outcome, summary, _ = splits_are_apart(subject)
    if outcome == "not judged":
        pytest.skip(summary)
    assert outcome == "pass", summary
