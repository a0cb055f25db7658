# SPDX-License-Identifier: Apache-2.0
"""A Llama-like model of random weights on the card, for the workers of benchmarks: PyTorch and transformers."""
import torch
import transformers


def make_model(hidden, layers, vocabulary):
    """In bfloat16, with heads of 128."""
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=hidden // 128,
        num_key_value_heads=hidden // 128, vocab_size=vocabulary, max_position_embeddings=4096)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model
