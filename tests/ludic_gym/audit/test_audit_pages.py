import json
import re

import pytest

from envs_registry.catalog import CATALOG
from ludic_gym.audit.report import AuditReport, write_audit
from ludic_gym.audit.subject import AuditSubject, Finding
from ludic_gym.commands import audit as command
from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError

GOOD = Finding(check="a/good", outcome="pass", summary="fine", seconds=1.0)
BAD = Finding(
    check="a/bad", outcome="fail", summary="<script>x</script>", evidence={"text": "</pre><b>"}
)
OPEN = Finding(check="a/open", outcome="not judged", summary="no oracle", evidence={"obj": object})


def report(*findings):
    return AuditReport(subject=AuditSubject(env_id="my/A&B-v0"), findings=findings, ludic="0.1.0")


def test_the_report_is_json_with_all_evidence(tmp_path):
    write_audit(report(GOOD, BAD, OPEN), tmp_path / "new")
    found = json.loads((tmp_path / "new" / "audit.json").read_text())
    assert found["counts"] == {"pass": 1, "fail": 1, "not judged": 1}
    assert [f["check"] for f in found["findings"]] == ["a/good", "a/bad", "a/open"]
    assert found["findings"][1]["evidence"] == {"text": "</pre><b>"}


def test_the_command_writes_reports_and_exits_with_0(tmp_path, capsys):
    assert main(["audit", "ludic/ConnectFour-v0", "--episodes", "6", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("ok      ludic/ConnectFour-v0: ")
    # The oracle and the grader are the environment's own.
    assert " not judged, its truths among them\n" in text
    found = json.loads((tmp_path / "ludic-ConnectFour-v0" / "audit.json").read_text())
    assert found["env"] == "ludic/ConnectFour-v0"
    assert found["statement"]["random"] == 0.56


@pytest.mark.long
def test_all_are_the_environments_of_the_catalogue(capsys, monkeypatch):
    names = ("ludic/ConnectFour-v0", "ludic/KuhnPoker-v0")
    monkeypatch.setattr(command, "CATALOG", [each for each in CATALOG if each.id in names])
    assert main(["audit", "--all", "--episodes", "2"]) == 0
    assert sorted(re.findall(r"^ok +(\S+):", capsys.readouterr().out, re.MULTILINE)) == [*names]


def test_the_command_exits_with_1_for_a_fault_of_a_module(capsys, monkeypatch):
    monkeypatch.setattr(command, "env_name", lambda spec: spec.split(":")[1])
    import mutants

    mutants.register()
    assert main(["audit", "mutants:mutant/NothingWins-v0", "--episodes", "6"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("FAILED  mutant/NothingWins-v0: ")
    assert "scores/oracle: the oracle succeeds in 0% of 6 episodes, stated are 100.0%" in text


def test_statements_come_from_options_or_from_the_catalogue():
    args = command.AuditArgs(ids=(), floor=0.1, levels="digits=1,2", tasks=1, partial=0.3)
    stated = command.subject_of("ludic/TicTacToe-v0", args).statement
    assert (stated.random, stated.floor, stated.partial) == (0.3, 0.1, 0.3)
    assert stated.tasks == 1
    assert stated.levels == ("digits", (1, 2))
    # The catalogue's rates are those of the default arguments.
    args = command.AuditArgs(ids=(), env_kwargs=("opponent=perfect",))
    assert command.subject_of("ludic/TicTacToe-v0", args).statement.random is None


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "or all of this package with --all"),
        (["ludic/ConnectFour-v0", "--all"], "name at least one environment"),
        (["ludic/ConnectFive-v0"], "Did you mean: `ConnectFour`"),
        (["ludic/ConnectFour-v0", "--floor", "2"], "--floor is a rate from 0 to 1, got 2.0"),
        (["ludic/ConnectFour-v0", "--episodes", "0"], "--episodes is at least 1, got 0"),
        (["ludic/ConnectFour-v0", "--tasks", "0"], "--tasks is at least 1, got 0"),
        (
            ["ludic/ConnectFour-v0", "--levels", "opponent=random"],
            "two levels at least, got 'opponent=random'",
        ),
    ],
)
def test_bad_input_is_one_error(argv, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        command.main(argv)
