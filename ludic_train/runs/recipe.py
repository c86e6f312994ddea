"""Recipes: what is learned and measured, with settings, as data; one for any environment."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from envs_registry.catalog import CATALOG, SUITES, level_kwargs
from ludic_gym.envs.core.base import TextEnv
from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.making import make_env
from ludic_train.models.cache import OWN_MODELS
from ludic_train.runs.config import RunConfig
from ludic_train.sources.levels import LevelSchedule

# For a tiny model made from nothing: what it needs before rewards can teach it anything.
WARM_START: Mapping[str, Any] = {"demonstrations": 4_000, "sft_updates": 300}
# Models of `ludic model` have 2 million params or fewer: all of them fit, and take large steps.
OWN_MODEL: Mapping[str, Any] = {"lora_rank": 0, "lr": 4e-4}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainEnv:
    """An environment that is learned from.

    id: registered with Gymnasium, or with PettingZoo for self-play; "module:id" imports the module.
    kwargs: its arguments. weight: its share of the tasks, relative to the other environments'.
    Raises ConfigError for a weight that is not above 0.
    """

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ConfigError(f"{self.id} has the weight {self.weight}; it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTasks:
    """Held-out episodes that a policy is measured on.

    id: of the environment; that of the first one that is learned from if left out.
    kwargs: of the environment, such as {"split": "test"}.
    temperature: of sampling; 0 is greedy, and 1 measures the policy that is trained.
    """

    id: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrator:
    """Player of the episodes that are imitated first, in the environments that are learned from.

    policy: "oracle" plays as well as the environment knows, "random" any legal action.
    kwargs: further arguments of the environments, such as {"opponent": "random"}.
    reply: text of the model for an action, such as "<answer>{}</answer>"; "{}" is replaced by the
        action.
    Raises ConfigError for another policy.
    """

    policy: Literal["oracle", "random"]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reply: str = "{}"

    def __post_init__(self) -> None:
        if self.policy not in ("oracle", "random"):
            raise ConfigError(f'the demonstrator {self.policy!r} must be "oracle" or "random"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A training, as data: what is learned and measured, and the settings that suit it.

    name: of the command, `ludic train NAME`. summary: what is learned, as a phrase for its help.
    defaults: settings that options of the command line replace.
    envs: environments that are learned from.
    evals: sets of evaluation tasks, by name, none of which is ever trained on.
    demonstrator: None for recipes that need a `model`.
    self_play: one model plays all agents of PettingZoo environments, and learns from each.
    curriculum: levels that environments move through; each level's arguments replace their own.
    outcomes: values of the last info's "outcome" whose shares an evaluation reports, beside
        the success rate and the mean reward.
    curves: metrics that are drawn.
    try_it: arguments of `ludic` to use the policy, with "{out}" for the run's folder.
    """

    name: str
    summary: str
    defaults: RunConfig
    envs: Sequence[TrainEnv]
    evals: Mapping[str, EvalTasks]
    demonstrator: Demonstrator | None = None
    self_play: bool = False
    curriculum: LevelSchedule | None = None
    outcomes: Sequence[str] = ()
    curves: Sequence[str]
    try_it: str

    def __post_init__(self) -> None:
        if not self.envs or not self.evals:
            raise ConfigError(f"the recipe {self.name} has no environment to learn from or measure")
        if self.curriculum is not None:
            _check_curriculum(self, self.curriculum)


def _check_curriculum(recipe: Recipe, schedule: LevelSchedule) -> None:
    ids = [env.id for env in recipe.envs]
    if recipe.self_play:
        raise ConfigError(
            "a curriculum moves by the success of one player: leave it out, or leave out self-play"
        )
    if not schedule.levels or (unknown := [i for i in schedule.levels if i not in ids]):
        raise ConfigError(
            f"the curriculum has levels of {unknown if schedule.levels else 'nothing'}, and the "
            f"environments that are learned from are {ids}"
        )
    for env in recipe.envs:
        for level in schedule.levels.get(env.id, ()):
            if both := sorted(level.keys() & env.kwargs.keys()):
                raise ConfigError(
                    f"{both[0]} of {env.id} is an argument of its levels: leave out "
                    f"{both[0]}={env.kwargs[both[0]]!r}, or the curriculum"
                )


def facts(recipe: Recipe) -> dict[str, Any]:
    """The recipe without its settings, as plain data."""
    return {name: value for name, value in asdict(recipe).items() if name != "defaults"}


def named_env(text: str) -> TrainEnv:
    """The environment "ID" or "ID=WEIGHT". Raises ConfigError for a weight that is no number.

    >>> named_env("ludic/Wordle-v0=2").weight
    2.0
    """
    name, equals, weight = text.partition("=")
    if not equals:
        return TrainEnv(id=name)
    try:
        return TrainEnv(id=name, weight=float(weight))
    except ValueError as error:
        raise ConfigError(f"{text!r}: {weight!r} is no weight; write ID=2") from error


def recipe_for(
    envs: Sequence[str | TrainEnv],
    *,
    model: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    eval_kwargs: Mapping[str, Any] | None = None,
    demonstrator: Literal["oracle", "random"] | None = None,
    self_play: bool = False,
    warm_start: bool | None = None,
) -> Recipe:
    """A recipe for environments, or for suites of them, with settings for such a model.

    envs: ids, "ID=WEIGHT", suites. env_kwargs: arguments of all of them, beside their own.
    eval_kwargs: further ones for the evaluation.
    warm_start: imitate a demonstrator first; without a model if left out.
    Nothing is loaded or looked up yet. Raises ConfigError for weights that are no numbers.

    >>> recipe = recipe_for(["ludic/Wordle-v0", "ludic/Maze-v0=2"])
    >>> recipe.name, [env.weight for env in recipe.envs], sorted(recipe.evals)
    ('Wordle+Maze', [1.0, 2.0], ['Maze', 'Wordle'])
    """
    shared = dict(env_kwargs or {})
    learned = [
        replace(env, kwargs={**env.kwargs, **shared}) for name in envs for env in _members(name)
    ]
    ids = list(dict.fromkeys(env.id for env in learned))
    evals = {
        _set_name(env.id, ids): EvalTasks(id=env.id, kwargs={**env.kwargs, **(eval_kwargs or {})})
        for env in learned
    }
    name = "+".join(short_name(env_id) for env_id in ids[:3]) + ("+..." if len(ids) > 3 else "")
    first = next(iter(evals))
    suited = dict(OWN_MODEL) if model in OWN_MODELS else {}
    if warm_start or (warm_start is None and model is None):
        suited |= WARM_START
    return Recipe(
        name=name,
        summary=f"a policy for {', '.join(ids)}",
        defaults=RunConfig(out=Path("runs") / name.lower().rstrip("+."), model=model).changed(
            **suited
        ),
        envs=tuple(learned),
        evals=evals,
        demonstrator=demonstrator and Demonstrator(policy=demonstrator),
        self_play=self_play,
        curves=("reward", f"eval/{first}/success", "entropy"),
        try_it=f"bench {ids[0]} --policy {{out}}{_options(learned[0], eval_kwargs or {})}",
    )


def with_model(recipe: Recipe, model: str) -> Recipe:
    """The recipe for a model that exists.

    One that makes a tiny model from demonstrations has settings for that: the model gets the usual
    ones in their place, and imitates nothing unless that is requested.
    """
    settings = recipe.defaults.changed(model=model)
    if recipe.demonstrator is not None and recipe.defaults.model is None:
        settings = settings.changed(demonstrations=0, sft_updates=0, lr=None, max_tokens=None)
    if model in OWN_MODELS:
        settings = settings.changed(**OWN_MODEL)
    return replace(recipe, defaults=settings)


def short_name(env_id: str) -> str:
    """Name of an environment without its module, namespace and version.

    >>> short_name("my_envs:mine/Digits-v0")
    'Digits'
    """
    return re.sub(r"-v\d+$", "", env_id.rpartition(":")[2].rpartition("/")[2])


def with_curriculum(recipe: Recipe, schedule: LevelSchedule | None = None) -> Recipe:
    """The recipe with a curriculum, measured at the hardest level unless its `evals` name another.

    schedule: that of the catalogue, over all its levels, where it is left out.
    Raises ConfigError for an environment that has no levels in the catalogue, and for levels that
    do not fit the recipe.
    """
    schedule = schedule or _catalogued([env.id for env in recipe.envs])
    evals = {}
    for name, tasks in recipe.evals.items():
        levels = schedule.levels.get(tasks.id or recipe.envs[0].id, ({},))
        evals[name] = replace(tasks, kwargs={**levels[-1], **tasks.kwargs})
    return replace(recipe, curriculum=schedule, evals=evals)


def _catalogued(ids: Sequence[str]) -> LevelSchedule:
    """A schedule over the levels of the catalogue. Raises ConfigError where an id has none."""
    levels = {entry.id: level_kwargs(entry) for entry in CATALOG if entry.levels[1]}
    if lacking := [env_id for env_id in ids if env_id not in levels]:
        raise ConfigError(
            f"{lacking[0]} has no levels for a curriculum; these have: {', '.join(levels)}. Name "
            "levels of your own: --levels size=2 size=4, or in Python "
            "lt.train(curriculum=lt.LevelSchedule(levels={...}))"
        )
    return LevelSchedule(levels={env_id: list(levels[env_id]) for env_id in ids})


def with_demonstrator(recipe: Recipe, harness: Harness | None = None) -> Recipe:
    """The recipe with a demonstrator: the best that all its environments have.

    harness: of the policy; demonstrations are written so that its parser finds their actions.
    Raises ConfigError where an environment has none.
    """
    if recipe.demonstrator is not None:
        return recipe
    policies = {env.id: _demonstrator(env) for env in recipe.envs}
    if lacking := [env_id for env_id, policy in policies.items() if policy is None]:
        raise ConfigError(
            f"{lacking[0]} has no demonstrator (it knows neither its best nor its legal actions) "
            "from which a tiny model could be made: name a model with --model"
        )
    policy: Literal["oracle", "random"] = (
        "oracle" if {*policies.values()} == {"oracle"} else "random"
    )
    reply = harness.reply_form if harness else "{}"
    return replace(recipe, demonstrator=Demonstrator(policy=policy, reply=reply))


def _demonstrator(env: TrainEnv) -> Literal["oracle", "random"] | None:
    made = make_env(env.id, **env.kwargs)
    try:
        inner = made.unwrapped
        if not isinstance(inner, TextEnv):
            return "random" if made.has_wrapper_attr("legal_actions") else None
    finally:
        made.close()
    # The hooks of TextEnv raise NoOracle, or allow any text.
    if type(inner).best_action is not TextEnv.best_action:
        return "oracle"
    return None if type(inner).allowed_actions is TextEnv.allowed_actions else "random"


def _members(name: str | TrainEnv) -> list[TrainEnv]:
    """The environment, or those of a suite, which share its weight."""
    env = named_env(name) if isinstance(name, str) else name
    return [replace(env, id=env_id) for env_id in SUITES.get(env.id, (env.id,))]


def _set_name(env_id: str, ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return "test"
    same = [other for other in ids if short_name(other) == short_name(env_id)]
    return short_name(env_id) if len(same) == 1 else env_id


def _options(env: TrainEnv, eval_kwargs: Mapping[str, Any]) -> str:
    pairs = " ".join(
        shlex.quote(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
        for key, value in {**env.kwargs, **eval_kwargs}.items()
    )
    # Doubled, because the command is a template.
    braced = pairs.replace("{", "{{").replace("}", "}}")
    return f" --env-kwargs {braced}" if pairs else ""
