"""Models in Hugging Face format: loaded, with or without adapters, and saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from ludic_gym.errors import ConfigError
from ludic_train.errors import ModelNotFound
from ludic_train.models.adapters import active_adapter, has_tied_head
from ludic_train.models.cache import resolved
from ludic_train.models.chat_profile import add_stops, chat_profile
from ludic_train.models.checkpoint_names import model_params
from ludic_train.models.modules import (
    VALUE_HEAD,
    decoder_of,
    is_adapted,
    limit_vocabulary,
    persistent_buffers,
)
from ludic_train.models.tokenizer import load_tokenizer, model_not_found

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


ALL_LINEAR = "all-linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRA:
    """Settings of new low-rank adapters (Hu et al. 2021, arXiv:2106.09685).

    rank: of the two matrices. alpha: the change is scaled by alpha / rank; None makes that 2.
    targets: modules that are adapted, by the last parts of their names, such as "q_proj,v_proj";
        "all-linear" is every linear layer but the head.
    Raises ConfigError for a rank below 1, and an alpha that is not positive.
    """

    rank: int
    alpha: float | None = None
    targets: str = ALL_LINEAR

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"lora_rank={self.rank} must be at least 1")
        if self.alpha is not None and not 0 < self.alpha < math.inf:
            raise ConfigError(f"lora_alpha={self.alpha}; it must be positive and finite")
        if not all(self.target_names):
            raise ConfigError(
                f"lora_targets={self.targets!r}; name modules as in q_proj,v_proj, or all-linear"
            )

    @property
    def target_names(self) -> list[str]:
        """The names in `targets`."""
        return [name.strip() for name in self.targets.split(",")]

    def config(self, model: PreTrainedModel) -> LoraConfig:
        """The settings for a model as peft has them."""
        # A factor of 2 for any rank, so that a learning rate suits all of them.
        alpha = 2.0 * self.rank if self.alpha is None else self.alpha
        named = {"target_modules": self.target_names}
        targets = _all_targets(model) if self.targets == ALL_LINEAR else named
        # Here and below where it is needed: importing it takes a third of a second.
        from peft import LoraConfig

        return LoraConfig(
            r=self.rank,
            lora_alpha=alpha,
            task_type="CAUSAL_LM",
            **targets,
        )


def load_model(
    name: str | Path,
    *,
    lora_rank: int | None = None,
    lora: LoRA | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer from a Hugging Face folder, a folder of `save_model`, or a hub id.

    name: "ludic-small" and "ludic-tiny" are those that `ludic model` has made.
    lora_rank: freezes the model and trains low-rank adapters on its linear layers
        (Hu et al. 2021, arXiv:2106.09685), drawn from `seed`; of a mixture of experts, on the
        linear layers of attention and on each expert, and not on the router. A folder that holds
        an adapter gives base and adapter, trainable. lora: the same with other settings of the
        adapters, in place of a rank alone.
    device: where the model is moved. dtype: of its params.
    Only safetensors are read, and no code from the hub is run. A model with towers for pictures is
    loaded whole, in the class it was published in; texts train what they reach.
    Raises ModelNotFound, or ConfigError for a tokenizer without a chat template, for a rank below
    1, for a rank with a folder that holds an adapter already, and for targets the model lacks.

    >>> import tempfile
    >>> from ludic_train import make_tiny_model, make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(make_tiny_model(tokenizer), tokenizer, folder)
    ...     model, _ = load_model(folder, lora_rank=4)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    9728
    """
    if lora is not None and lora_rank is not None:
        raise ConfigError(f"lora_rank={lora_rank} and lora={lora}: give one of them")
    if lora_rank is not None:
        lora = LoRA(rank=lora_rank)
    name = resolved(name)
    # A hub id is "name" or "owner/name".
    is_path = isinstance(name, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1
    if (is_path or Path(name).exists()) and not Path(name).is_dir():
        raise ModelNotFound(f"there is no model folder {str(name)!r}")
    # peft writes this file beside an adapter; a whole model has none.
    adapter = Path(name) / "adapter_config.json"
    if adapter.is_file() and lora is not None:
        raise ConfigError(
            f"{str(name)!r} already holds an adapter: leave out lora_rank={lora.rank}"
        )
    with quiet():
        tokenizer = load_tokenizer(name)
        model = _load_base(base_of(name), dtype)
        # The folder of an adapter has no generation config.
        add_stops(tokenizer, model.generation_config.eos_token_id)
        limit_vocabulary(model, chat_profile(tokenizer).vocab_size)
        if adapter.is_file():
            from peft import PeftModel

            try:
                model = PeftModel.from_pretrained(model, str(name), is_trainable=True)
            except (OSError, ValueError, SafetensorError) as error:
                raise model_not_found(name, error) from error
        model = model if lora is None else with_new_lora(model, lora, seed)
    return model.to(device), tokenizer


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    params: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write model and tokenizer in Hugging Face format; `load_model` reads them back equal.

    A LoRA model writes its adapter and the name of its base, not the base itself. A value head is
    left out: no engine that loads the model knows it.
    folder: made if it does not exist; files of the same names are replaced.
    params: written in place of the model's own, by the same names: copies, or shards made whole.
    """
    # Whoever copies the params need not know what else a model is made of.
    state = model.state_dict() if params is None else persistent_buffers(model) | dict(params)
    plain = {name: tensor for name, tensor in state.items() if VALUE_HEAD not in name}
    with quiet():
        # Its own state where nothing is left out, because transformers then knows what is tied.
        is_own = params is None and len(plain) == len(state)
        model.save_pretrained(folder, state_dict=None if is_own else plain)
        tokenizer.save_pretrained(folder)


def load_params(model: nn.Module, folder: str | Path) -> None:
    """Put the params that `save_model` wrote to `folder` into `model`, in place.

    A LoRA model gets its adapter; its base stays, and so does a value head.
    Raises ModelNotFound where there are none, and ConfigError where names or shapes do not match.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ModelNotFound(f"there are no *.safetensors in {str(folder)!r}")
    params = {name: tensor for file in files for name, tensor in load_file(file).items()}
    try:
        if is_adapted(model):
            from peft import set_peft_model_state_dict

            result = set_peft_model_state_dict(model, params, active_adapter(model))
            # The frozen base is never in the file of an adapter.
            trained = {name for name, param in model.named_parameters() if param.requires_grad}
            missing = trained.intersection(result.missing_keys)
        else:
            result = model.load_state_dict(model_params(model, params), strict=False)
            # Tied params are written once, under one of their names.
            tied = set(getattr(model, "all_tied_weights_keys", None) or ())
            missing = set(result.missing_keys) - tied
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ConfigError(f"the params are of a model of another shape: {reason}") from error
    missing = {name for name in missing if VALUE_HEAD not in name}
    if missing or result.unexpected_keys:
        raise ConfigError(
            f"the params in {str(folder)!r} are of another model: missing {sorted(missing)[:4]}, "
            f"unexpected {sorted(result.unexpected_keys)[:4]}"
        )


def _load_base(name: str | Path, dtype: torch.dtype) -> PreTrainedModel:
    try:
        # Safetensors alone: other weight files are pickles, which run code when they are read.
        auto = auto_class(AutoConfig.from_pretrained(str(name)))
        return auto.from_pretrained(str(name), dtype=dtype, use_safetensors=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise model_not_found(name, error) from error


def auto_class(config: PretrainedConfig) -> Any:  # noqa: ANN401 - it has no types
    """The class of transformers that makes a model of the class that it was published in.

    Models with towers for pictures have a class of their own, and some another one for text alone,
    whose params have other names: servers of the published one would know none of them.
    """
    kind = config.model_type
    whole = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(kind)
    is_text_alone = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if whole is not None and (whole in (config.architectures or ()) or not is_text_alone):
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def base_of(name: str | Path) -> str:
    """The model that a folder's adapter is for; the name itself where there is no adapter."""
    name = resolved(name)
    if not (Path(name) / "adapter_config.json").is_file():
        return str(name)
    from peft import PeftConfig

    return str(PeftConfig.from_pretrained(str(name)).base_model_name_or_path)


def with_new_lora(model: PreTrainedModel, lora: LoRA, seed: int = 0) -> PreTrainedModel:
    """The model, frozen, with new adapters, as `load_model` describes them.

    seed: of their values. Raises ConfigError for targets that it lacks.
    """
    if lora.targets != ALL_LINEAR:
        layers = {name: module for name, module in model.named_modules() if is_linear(module)}
        for target in lora.target_names:
            matched = [m for name, m in layers.items() if f".{name}".endswith(f".{target}")]
            if not matched:
                known = sorted({name.rpartition(".")[2] for name in layers})
                raise ConfigError(
                    f"lora_targets={lora.targets!r}: the model has no linear layer {target!r}; it "
                    f"has {', '.join(known)}"
                )
            if has_tied_head(model) and model.get_output_embeddings() in matched:
                raise ConfigError(
                    f"lora_targets={lora.targets!r}: the head {target!r} is tied to the embeddings "
                    "in this model, and an adapter on one of the two cannot be merged: leave it out"
                )
    from peft import get_peft_model

    # Adapters are drawn from torch's global generator, whose state belongs to the caller.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return get_peft_model(model, lora.config(model))
        except ValueError as error:
            raise ConfigError(f"lora_targets={lora.targets!r}: {error}") from error


def is_linear(module: nn.Module) -> bool:
    """True for linear layers, transformers' own kind of them included."""
    return isinstance(module, nn.Linear | Conv1D)


def _all_targets(model: PreTrainedModel) -> dict[str, Any]:
    """The settings of LoraConfig that give adapters to all linear layers, or to experts."""
    unfit = _unfit(model)
    # The last two parts of a name, such as "experts.down_proj", are equal in all layers.
    experts = {
        ".".join(name.rsplit(".", 2)[1:])
        for name, param in model.named_parameters()
        if param.ndim == 3 and ".experts." in name
    }
    if not experts:
        return {"target_modules": ALL_LINEAR, "exclude_modules": sorted(unfit)}
    # "all-linear" would train the router too, by which experts are chosen. Dense layers beside the
    # experts stay frozen, and so do gates of attention: peft takes their names for those of
    # experts.
    attention = {
        name
        for name, module in model.named_modules()
        if is_linear(module)
        and "attn" in name.rpartition(".")[0]
        and not name.endswith(".gate_proj")
    }
    return {"target_modules": attention - unfit, "target_parameters": experts}


def _unfit(model: PreTrainedModel) -> set[str]:
    """Names of linear layers that no text reaches, or that are no products with their weight alone.

    An adapter changes nothing there.
    """
    unfit = set()
    reached = {*decoder_of(model).modules(), model.get_output_embeddings()}
    for name, module in model.named_modules():
        # Those of Mamba, whose kernels read the weight and pass by the adapter.
        if "conv1d" in module._modules and "D" in module._parameters:
            unfit |= {f"{name}.out_proj", f"{name}.dt_proj"}
        # A product for each group of inputs, and the towers of pictures.
        if is_linear(module) and ("n_groups" in module.__dict__ or module not in reached):
            unfit.add(name)
    return unfit


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no advice from transformers inside the block."""
    # Both are global to the process, so they are put back for the caller.
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
