"""Planted faults are found by the check that is meant for them; sound environments pass."""

from dataclasses import replace

import mutants
import pytest

from envs_registry.catalog import CATALOG
from ludic_gym.adapters import reasoning_gym_env, textarena
from ludic_gym.audit.report import CHECKS, audit_env
from ludic_gym.audit.subject import AuditSubject, Statement, statement_of

# A mutant, and the check that is meant for its fault.
INTENDED = [
    ("SomeTruthsWrong", "scores/oracle"),
    ("TooFewTurns", "scores/oracle"),
    ("EveryReplyWins", "scores/random"),
    ("LongReplyWins", "scores/search"),
    ("PaidForTaking", "scores/search"),
    ("FirstIsRight", "scores/search"),
    ("OtherAnswersCount", "scores/other-tasks"),
    ("PaidForTurns", "scores/search"),
    ("EqualReward", "scores/search"),
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
    ("SeedFixed", "tasks/different"),
    ("ResetRepeats", "seeds/resets-differ"),
    ("KeptTurns", "seeds/history"),
    ("SharedQuestion", "seeds/threads"),
    ("EndlessSkip", "limits/end"),
    ("OneTurnMore", "limits/stated"),
    ("OneTurnLess", "limits/stated"),
    ("LevelsMisnamed", "levels/ordered"),
]
# The same of the small environments.
SMALL = [
    ("PaidForProse", "scores/search"),
    ("DoorPaysAgain", "scores/search"),
    ("BonusForLength", "scores/embellished"),
    ("NumberOfTask", "leaks/observation"),
    ("ZeroWidth", "leaks/observation"),
    ("ShiftedCharacters", "leaks/info"),
    ("TrailingSpace", "leaks/observation"),
    ("EightTasks", "tasks/different"),
    ("FewHunts", "tasks/different"),
    ("TenthShared", "tasks/splits"),
    ("ReorderedOptions", "tasks/splits"),
    ("ReworkedSpaces", "tasks/splits"),
    ("EndlessQuote", "limits/end"),
    ("OtherMark", "grader/paraphrases"),
    ("EndlessInTurn", "limits/end"),
    ("PrefixedSplit", "tasks/splits"),
    ("MaskedInInfo", "leaks/info"),
    ("AnyWordCounts", "grader/hedges"),
    ("FirstLetterCounts", "grader/hedges"),
    ("WrongSums", "truths/solved"),
    ("WrongSyllogisms", "truths/solved"),
    ("WorstLever", "truths/arms"),
    ("PlainInfoHasTruth", "leaks/info"),
    ("PlainPaysWords", "scores/search"),
    ("SlowLine", "scores/search"),
]
FOUND_BY_THESE = {check for _, check in (*INTENDED, *SMALL)}


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


@pytest.mark.parametrize(("name", "check"), SMALL)
def test_the_check_that_is_meant_for_it_finds_the_fault_of_a_small_one(name, check):
    outcome, summary, _ = CHECKS[check](AuditSubject(env_id=f"small/{name}-v0", episodes=24))
    assert outcome == "fail", summary


@pytest.mark.slow
def test_the_planted_faults_of_small_environments_are_found():
    assert len(mutants.FAULTS) >= 40
    missed = [name for name in mutants.FAULTS if not audit_env(AuditSubject(env_id=name)).failed]
    # A fault that is missed is one to mend in the audit, and not in the list.
    assert len(missed) <= 2, missed


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.SOUND_SMALL)
def test_a_small_sound_environment_has_no_fault(name):
    assert audit_env(AuditSubject(env_id=name)).failed == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "stated"),
    [("FrozenLake-v1", {"oracle": 0.74}), ("Taxi-v4", {}), ("Blackjack-v1", {})],
)
def test_an_environment_of_numbers_is_judged_by_the_same_rules(env_id, stated):
    report = audit_env(AuditSubject(env_id=env_id, statement=Statement(**stated)))
    assert report.failed == ()
    assert report.counts["pass"] > 15


def test_a_search_is_the_same_each_time():
    subject = AuditSubject(env_id="small/PaidForProse-v0")
    one, other = (CHECKS["scores/search"](subject) for _ in range(2))
    assert one == other


def test_what_is_mended_in_other_packages_is_found_without_the_mend(monkeypatch):
    pytest.importorskip("reasoning_gym")
    pytest.importorskip("textarena")
    checks = {
        "ludic/rg-syllogism-v0": "truths/solved",
        "ludic/ta-Bandit-v0": "truths/arms",
    }
    for env_id, check in checks.items():
        assert CHECKS[check](AuditSubject(env_id=env_id, budget_s=60.0))[0] == "pass"
    reasoning_gym_env.puzzle.cache_clear()
    monkeypatch.setattr(reasoning_gym_env, "ENTRIES", {})
    monkeypatch.setattr(textarena, "GAMES", {})
    for env_id, check in checks.items():
        assert CHECKS[check](AuditSubject(env_id=env_id, budget_s=60.0))[0] == "fail"
    reasoning_gym_env.puzzle.cache_clear()


def test_truths_that_no_solver_reads_are_not_judged():
    for name in ("small/Spelling-v0", "small/Hunt-v0"):
        assert CHECKS["truths/solved"](AuditSubject(env_id=name))[0] == "not judged"
    report = audit_env(AuditSubject(env_id="small/Spelling-v0", episodes=4))
    assert not report.truths_judged
    assert audit_env(AuditSubject(env_id="small/Sums-v0", episodes=8)).truths_judged


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


def test_what_the_audit_cannot_decide_is_not_judged():
    checks = {"scores/other-tasks", "leaks/canary", "levels/ordered", "grader/hedges"}
    report = audit_env(AuditSubject(env_id="ludic/ConnectFour-v0", episodes=4))
    assert checks <= {found.check for found in report.findings if found.outcome == "not judged"}


def test_an_error_of_the_environment_is_a_finding():
    report = audit_env(subject_of("mutant/RaisesOnText-v0", episodes=4))
    found = {f.check: f.summary for f in report.failed}
    assert "ValueError" in found["scores/search"]


def test_a_statement_moves_the_bounds():
    # A coin: a fixed reply is right in half of the episodes.
    coin = subject_of("mutant/YesIsRight-v0")
    assert CHECKS["scores/search"](coin)[0] == "fail"
    lenient = replace(coin, statement=Statement(floor=0.9))
    assert CHECKS["scores/search"](lenient)[0] == "pass"


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
