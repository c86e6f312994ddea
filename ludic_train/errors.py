"""Errors that the trainer raises on purpose, on top of `ludic_gym.errors`.

Each message has the value that was wrong and the remedy. Catch the class whose remedy the caller
can carry out; `QueueUnavailable` is the only one after which the same call may succeed by itself.
"""

from ludic_gym.errors import ClientError, LudicError


class TrainError(LudicError):
    """Root of the errors that the trainer raises on purpose."""


class ModelNotFound(TrainError):
    """There is no loadable model at a path or under a hub name."""


class UnsupportedModel(TrainError):
    """A model has a part that the local engine, or the trainer, cannot compute exactly."""


class EngineError(TrainError, ClientError):
    """The local engine failed; every request that was waiting gets this."""


class CreditError(TrainError):
    """A credit assigner cannot weigh these rollouts, such as a group of one."""


class LossError(TrainError):
    """A loss was given a batch that it cannot be computed on."""


class MissingLogprobs(LossError):
    """A loss needs the sampler's log-probs, and the batch was sampled without them."""


class MissingAttachment(LossError):
    """A loss reads a per-token tensor that was not attached to the batch."""


class TeacherError(TrainError):
    """A teacher cannot judge these rows, or judged other tokens than those of the request."""


class CheckpointError(TrainError):
    """A checkpoint cannot be written, read, or applied to this model and optimizer."""


class CheckpointNotFound(CheckpointError):
    """There is no complete checkpoint at the path, or under the number, that was given."""


class DiskError(TrainError):
    """A file of a run cannot be written: the disk is full, or its folder is read-only."""


class MetricError(TrainError):
    """A metric changes its meaning between parts, or a record of metrics cannot be read."""


class UntrainableRollout(TrainError):
    """A completion has no token ids, or log-probs of another distribution than is trained."""


class OverlongRow(TrainError):
    """A row has more tokens than a micro-batch may hold."""


class EmptyBatch(TrainError):
    """A source has nothing to train on: its tasks ran out, or its filters leave no row."""


class CannotLearn(TrainError):
    """The first episodes show that a run would learn nothing: change what the message names."""


class OutOfMemory(TrainError):
    """A card has too little memory for an update: take what the message names."""


class Collapsed(TrainError):
    """Entropy or reward fell below its floor: resume from a checkpoint with other settings."""


class NonFiniteUpdate(TrainError):
    """Losses or gradients were NaN or infinite too often in a row; no params were changed."""


class SamplerMismatch(TrainError):
    """The sampler does not have the params whose version it names."""


class SessionOver(TrainError):
    """A session of the gateway is unknown, or has ended; so is what was to be found in it."""


class ServerError(TrainError):
    """A server cannot be started or has no port, or vLLM ended by itself: with its log's end."""


class PublishError(TrainError):
    """Params could not be brought to a sampler; the text says to which, and in what phase."""


class ParamsLost(PublishError):
    """A sampler was started again and has none of what was published: publish once more."""


class QueueError(TrainError):
    """A queue of groups cannot be used: a wrong URL, a wrong password, a group too large."""


class BadGroup(QueueError):
    """Bytes are no group, or a group that cannot be learned from; the text is the reason."""


class QueueUnavailable(QueueError):
    """The queue's server does not respond, or not yet; trying again later may help."""


class QueueReset(QueueError):
    """The queue forgot its reader: its server was restarted and lost what it last wrote."""


class Superseded(TrainError):
    """Another trainer has continued the run: it reads the queue, or writes checkpoints."""


class ActorError(TrainError):
    """An actor's episodes failed too often in a row; the text names the first failure."""


class RankError(TrainError):
    """Rank 0 failed, so this rank stops too."""


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; everything was saved.

    No TrainError, since nothing went wrong: a command ends with the usual code of a signal.
    """
