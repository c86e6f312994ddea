"""Where updated params go: whatever samples from them."""

from ludic_train.publishers.base import PolicyPublisher
from ludic_train.publishers.control import PhaseLimits
from ludic_train.publishers.in_process import InProcessPublisher
from ludic_train.publishers.lora import LoRAPublisher
from ludic_train.publishers.nccl import NcclWire
from ludic_train.publishers.reload import ReloadPublisher
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.publishers.wires import FileWire, GlooWire

__all__ = [
    "FileWire",
    "GlooWire",
    "InProcessPublisher",
    "LoRAPublisher",
    "NcclWire",
    "PhaseLimits",
    "PolicyPublisher",
    "ReloadPublisher",
    "VLLMPublisher",
]
