"""What the trainer raises on purpose, on top of `ludic_gym.errors`.

LudicError
└── TrainError             something between a model and its update went wrong
    ├── ModelNotFound      no model at a path or under a hub name
    ├── UnsupportedModel   a model has a part that the embedded sampler cannot compute
    ├── PromptTooLong      prompt and completion do not fit the model's positions
    └── SamplerError       the embedded sampler failed; every waiting request gets it
"""

from ludic_gym.errors import LudicError


class TrainError(LudicError):
    """Root of what the trainer raises on purpose."""


class ModelNotFound(TrainError):
    """There is no loadable model at a path or under a hub name."""


class UnsupportedModel(TrainError):
    """A model has a part that the embedded sampler cannot compute exactly."""


class PromptTooLong(TrainError):
    """A prompt and its completion do not fit into the model's positions."""


class SamplerError(TrainError):
    """The embedded sampler failed; every request that was waiting gets this."""
