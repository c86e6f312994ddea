"""Planted faults are found by the check that is meant for them; sound environments pass."""

from dataclasses import replace

import mutants
import pytest

from envs_registry.catalog import CATALOG
from ludic_gym.audit.report import CHECKS, audit_env
from ludic_gym.audit.subject import AuditSubject, Statement, statement_of

# A mutant, and the check that is meant for its fault.
INTENDED = [
    ("SomeTruthsWrong", "scores/oracle"),
    ("TooFewTurns", "scores/oracle"),
    ("EveryReplyWins", "scores/random"),
    ("LongReplyWins", "scores/uninformed"),
    ("PaidForTaking", "scores/uninformed"),
    ("FirstIsRight", "scores/fixed"),
    ("OtherAnswersCount", "scores/other-tasks"),
    ("PaidForTurns", "scores/ladder"),
    ("EqualReward", "scores/success-paid"),
    ("TimeBonus", "grader/deterministic"),
    ("Deadline", "grader/deterministic"),
    ("NoisyReward", "grader/deterministic"),
    ("SubstringReward", "grader/hedges"),
    ("SpaceIsWrong", "grader/paraphrases"),
    ("TagIsWrong", "doors/oracle"),
    ("BrokenTool", "doors/tools"),
    ("TruthIndex", "leaks/info"),
    ("TruthNested", "leaks/info"),
    ("WordInInfo", "leaks/info"),
    ("TruthInRender", "leaks/texts"),
    ("TruthInError", "leaks/texts"),
    ("WordAfterIllegal", "leaks/texts"),
    ("TruthInComment", "leaks/observation"),
    ("TruthInPrompt", "leaks/observation"),
    ("TruthInBase64", "leaks/canary"),
    ("SeedFixed", "seeds/differ"),
    ("ResetRepeats", "seeds/resets-differ"),
    ("KeptTurns", "seeds/history"),
    ("SharedQuestion", "seeds/threads"),
    ("EndlessSkip", "limits/end"),
    ("OneTurnMore", "limits/stated"),
    ("OneTurnLess", "limits/stated"),
    ("LevelsMisnamed", "levels/ordered"),
]
FOUND_BY_THESE = {check for _, check in INTENDED}


@pytest.fixture(scope="module", autouse=True)
def registered():
    mutants.register()


def subject_of(name, **settings):
    mutant = {**mutants.MUTANTS, **mutants.SOUND}[name]
    stated = replace(statement_of(mutant.base), **mutant.stated)
    return AuditSubject(env_id=name, statement=stated, **settings)


@pytest.mark.long
@pytest.mark.parametrize(("name", "check"), INTENDED)
def test_the_check_that_is_meant_for_it_finds_the_fault(name, check):
    episodes = 16 if check.startswith("leaks") else 48
    outcome, summary, _ = CHECKS[check](subject_of(f"mutant/{name}-v0", episodes=episodes))
    assert outcome == "fail", summary


def test_every_check_has_a_fault_that_it_finds():
    assert set(CHECKS) == FOUND_BY_THESE


@pytest.mark.long
@pytest.mark.parametrize(
    "env_id",
    [
        "ludic/Arithmetic-v0",
        "ludic/ConnectFour-v0",
        pytest.param("ludic/Wordle-v0", marks=pytest.mark.slow),
    ],
)
def test_a_sound_environment_has_no_fault(env_id):
    report = audit_env(AuditSubject(env_id=env_id, statement=statement_of(env_id), episodes=24))
    assert report.failed == ()
    assert sum(report.counts.values()) == len(report.findings)


def test_what_the_audit_cannot_decide_is_unknown():
    checks = {"scores/other-tasks", "leaks/canary", "levels/ordered", "grader/hedges"}
    report = audit_env(AuditSubject(env_id="ludic/ConnectFour-v0", episodes=4))
    assert checks <= {found.check for found in report.findings if found.outcome == "unknown"}


def test_an_error_of_the_environment_is_a_finding():
    report = audit_env(subject_of("mutant/RaisesOnText-v0", episodes=4))
    found = {f.check: f.summary for f in report.failed}
    assert "ValueError" in found["scores/uninformed"]


def test_a_statement_moves_the_bounds():
    # A coin: a fixed reply is right in half of the episodes.
    coin = subject_of("mutant/YesIsRight-v0")
    assert CHECKS["scores/fixed"](coin)[0] == "fail"
    lenient = replace(coin, statement=Statement(floor=0.9))
    assert CHECKS["scores/fixed"](lenient)[0] == "pass"


def test_levels_in_their_order_pass():
    stated = Statement(levels=("high", (4, 20, 100)))
    subject = AuditSubject(env_id="ludic/GuessTheNumber-v0", statement=stated)
    outcome, _, evidence = CHECKS["levels/ordered"](subject)
    # Three guesses for 4 numbers: random play finds 1 - (3/4)^3 = 58 % of them.
    assert outcome == "pass"
    assert evidence["success"]["random"][0] > evidence["success"]["random"][2]


@pytest.mark.slow
def test_all_planted_faults_are_found_and_no_sound_environment_has_one():
    failed = {name: audit_env(subject_of(name)).failed for name in mutants.MUTANTS}
    assert len(failed) >= 90
    assert [name for name, findings in failed.items() if not findings] == []
    # A fault in the planting of one, such as a name that the environment has no more.
    assert not any("AttributeError" in f.summary for each in failed.values() for f in each)
    alarms = {name: audit_env(subject_of(name)).failed for name in mutants.SOUND}
    assert not any(alarms.values()), alarms


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [entry.id for entry in CATALOG])
def test_the_environments_of_the_catalogue_have_no_fault(env_id):
    report = audit_env(AuditSubject(env_id=env_id, statement=statement_of(env_id)))
    assert report.failed == ()
    assert report.seconds < 60
