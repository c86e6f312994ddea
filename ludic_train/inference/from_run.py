"""Policies from folders: how a trained model is to be asked, beside the model itself."""

from __future__ import annotations

from pathlib import Path

import torch

from ludic_gym.types import MakePolicy
from ludic_train.inference.client import LocalChatClient
from ludic_train.inference.policy_spec import model_and_spec, policies
from ludic_train.models.load import load_model


def policy_from_run(path: str | Path) -> MakePolicy:
    """The policy of a run folder, or of any folder with a model in Hugging Face format.

    A run folder holds model/ and policy.json; a model alone sees the full dialog under the env's
    system prompt. All policies made share one sampler, on the GPU if there is one.
    Raises ModelNotFound for a folder that is neither.
    """
    folder, spec = model_and_spec(Path(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return policies(LocalChatClient(*load_model(folder, device=device)), spec)
