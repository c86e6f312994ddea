"""Names of the specification that are others here, with what to write in their place."""

from __future__ import annotations

from collections.abc import Mapping

_PRESETS = (
    "reinforce reinforce_baseline grpo dr_grpo gspo cispo scalerl dapo rloo ppo sft dpo self_play"
)
FORMER: Mapping[str, str] = {
    **{f"make_{name}": f"lt.{name}()" for name in _PRESETS.split()},
    "make_opd": "lt.distillation()",
    # Environments
    "LudicEnv": "gymnasium.Env or a PettingZoo AECEnv; lg.TextEnv and lg.GameAECEnv are ready ones",
    "SingleAgentEnv": "lg.TextEnv, with start and turn",
    "StepOutcome": "lg.end(...) and lg.proceed(...)",
    "DatasetQAEnv": "lg.DatasetEnv or lg.QAEnv",
    "TicTacToeEnv": 'gym.make("ludic/TicTacToe-v0")',
    "GSM8KEnv": 'gym.make("ludic/GSM8K-v0")',
    "MATHEnv": 'gym.make("ludic/MATH-v0")',
    "CodeExecEnv": 'gym.make("ludic/PythonFunctions-v0") or gym.make("ludic/StdinStdout-v0")',
    "CodeExecConfig": "arguments of gym.make, such as sandbox and partial_credit",
    "APPSTestAdapter": 'gym.make("ludic/StdinStdout-v0", split="train"), which reads rows of APPS',
    # Agents
    "Agent": "lg.Harness(...).policy(client, env), or lg.ChatPolicy",
    "ToolAgent": "lg.Harness(tools=...), or lg.ToolUse",
    "ReActAgent": 'lg.Harness.of("react"), or lg.ReAct',
    "ContextStrategy": "lg.Context",
    "ChatResponse": "lg.Completion",
    "SamplingConfig": "lg.Sampling",
    "SamplingParams": "lg.Sampling",
    "ReturnSpec": "nothing: clients for training return token ids and log-probs",
    # Rollouts
    "InteractionProtocol": "lg.run_episode, or lg.run_match for several agents",
    "SingleAgentProtocol": "lg.run_episode",
    "SingleAgentSyncProtocol": "lg.run_episode",
    "MultiAgentProtocol": "lg.run_match",
    "RolloutRequest": "lg.Task",
    "EnvSpec": "lg.Task(env_id=..., kwargs=...)",
    "ProtocolSpec": "lg.Task and lg.Harness",
    "InferenceSpec": "lg.Sampling",
    "RolloutEngine": "lg.run_episodes(tasks, make_policy)",
    "GRPORequestStrategy": "lg.grouped(tasks, 8), or group_size of a source",
    "RequestStrategy": "a function of an iterator of tasks",
    "IdentityStrategy": "the tasks themselves",
    "RequestsExhausted": "an iterator of tasks that ends",
    "make_dataset_queue_requests_fn": "lg.dataset_tasks(env_id, shuffle_seed=0)",
    "EngineEvaluator": "lg.evaluate(env_id, make_policy)",
    "run_eval": "lg.evaluate(env_id, make_policy)",
    # Training
    "ClippedSurrogateLoss": "lt.TokenClippedSurrogateLoss or lt.SequenceClippedSurrogateLoss",
    "ReinforceBaselineLoss": "lt.reinforce_baseline(), whose credit has the baseline",
    "KLLoss": "lt.TokenKLLoss",
    "ReverseKLLoss": "lt.DistillationLoss",
    "LossTerm": "lt.CompositeLoss(losses, weights=..., names=...)",
    "SampleFilter": "lt.Filter",
    "CheckpointConfig": "lt.CheckpointManager(folder, keep_last=2)",
    "PrintLogger": "lt.ConsoleLogger",
    "RichLiveLogger": "lt.ConsoleLogger, which is live in a terminal",
    "TeeLogger": "lt.MultiLogger",
    "Rank0OnlyPublisher": "nothing: rank 0 alone calls the publisher",
    "BroadcastPolicyPublisher": "lt.FilesPublisher",
    "create_vllm_publisher": "lt.FilesPublisher(urls)",
    "TeacherClient": "lt.VLLMTeacher",
}
"""Text that tells what to write, by the specification's name; `lg` and `lt` are the packages."""


def check_name(package: str, name: str) -> None:
    """Raise AttributeError for a name of the specification, with what to write in its place.

    >>> check_name("ludic_train", "make_grpo")
    Traceback (most recent call last):
    AttributeError: ludic_train has no make_grpo: write lt.grpo(); see docs/guides/migration.md
    """
    if name in FORMER:
        raise AttributeError(
            f"{package} has no {name}: write {FORMER[name]}; see docs/guides/migration.md"
        )
