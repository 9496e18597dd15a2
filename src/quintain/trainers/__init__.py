"""Training and inference with local models: the only room that imports torch, transformers, tokenizers and peft.

No store, no jobs, no protocol: functions take records, tensors and a `Reporter`.
"""
