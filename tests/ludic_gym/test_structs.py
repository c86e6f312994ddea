"""Data as structs of msgspec: as users see them, dataclasses."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace

import pytest

from ludic_gym import types
from ludic_gym.structs import as_struct
from ludic_gym.types import Completion, Decision, ModelCall, Sampling, Step, Task, ToolCall

CALL = ModelCall(model="m", messages=({"role": "user", "content": "a"},), seconds=2.0)
COMPLETION = Completion(
    text="a",
    finish_reason="stop",
    sampling=Sampling(seed=1),
    completion_ids=(5,),
    logprobs=(-0.5,),
    sampling_mask=b"x",
    tool_calls=(ToolCall(id="1", name="f", arguments="{}"),),
)
DECISION = Decision(action="a", completions=(COMPLETION,))
STEP = Step(observation="o", decision=DECISION, reward=1.0, info={"n": 1})
TASK = Task(env_id="ludic/ConnectFour-v0", kwargs={"a": [1]}, seed=3)
ROLLOUT = types.Rollout(task=TASK, steps=(STEP,))
EPISODE = types.Episode(index=0, task=TASK, rollouts=(ROLLOUT,))
DATA = [CALL, COMPLETION, DECISION, STEP, TASK, ROLLOUT, EPISODE, Sampling(seed=7)]
ALL = pytest.mark.parametrize("data", DATA, ids=lambda data: type(data).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A dataclass of each kind of field."""

    name: str
    parts: tuple[int, ...] = ()
    facts: dict[str, int] = field(default_factory=dict)
    hidden: bytes = field(default=b"", repr=False)
    seconds: float = field(default=0.0, compare=False)

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return sum(self.parts)


Struct = as_struct(Plain)


def test_a_struct_has_the_fields_signature_and_text_of_its_dataclass():
    assert is_dataclass(Struct)
    assert fields(Struct) == fields(Plain)
    assert [*inspect.signature(Struct).parameters] == [*inspect.signature(Plain).parameters]
    assert (Struct.__doc__, Struct.__module__) == (Plain.__doc__, Plain.__module__)
    given = {"name": "a", "parts": (1, 2), "hidden": b"x", "seconds": 1.0}
    assert repr(Struct(**given)) == repr(Plain(**given))
    assert asdict(Struct(**given)) == asdict(Plain(**given))
    assert Struct(**given).total == 3


def test_defaults_are_those_of_the_dataclass_and_factories_make_new_objects():
    assert asdict(Struct(name="a")) == asdict(Plain(name="a"))
    assert Struct(name="a").facts is not Struct(name="a").facts


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "other": 1}])
def test_missing_and_unknown_arguments_are_errors(wrong):
    for kind in (Struct, Plain):
        with pytest.raises(TypeError):
            kind(**wrong)


def test_no_argument_is_positional():
    with pytest.raises(TypeError):
        Sampling(1.0)


def test_equality_and_hash_leave_out_fields_that_are_not_compared():
    assert Struct(name="a", seconds=1.0) == Struct(name="a") != Struct(name="b")
    assert replace(CALL, seconds=3.0) == CALL != replace(CALL, model="n")
    assert hash(Sampling(seed=1)) == hash(Sampling(seed=1)) != hash(Sampling(seed=2))


@ALL
def test_data_is_frozen_and_has_slots(data):
    name = fields(data)[0].name
    with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(data, name, None)
    with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(data, name)
    assert not hasattr(data, "__dict__")


@ALL
def test_copies_pickles_and_replaced_data_are_equal(data):
    pickled = [pickle.loads(pickle.dumps(data, protocol)) for protocol in range(2, 6)]
    for other in (*pickled, copy.copy(data), copy.deepcopy(data), replace(data)):
        assert type(other) is type(data)
        assert (other, repr(other)) == (data, repr(data))


def test_a_deep_copy_shares_nothing_that_can_change():
    copied = copy.deepcopy(TASK)
    copied.kwargs["a"].append(2)
    assert TASK.kwargs == {"a": [1]}


def test_all_data_are_structs():
    # Without the decorator each would take ten times as long to make.
    kinds = [each for each in vars(types).values() if inspect.isclass(each)]
    data = [kind for kind in kinds if is_dataclass(kind)]
    assert [len(data), *(hasattr(kind, "__struct_fields__") for kind in data)] == [9] + 9 * [True]
