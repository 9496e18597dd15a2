"""Training and inference with local models: the only package that imports torch, transformers, tokenizers and peft.

No store, no jobs, no protocol: functions take records, tensors and a `Reporter`. Whatever loads torch through this package, a
worker, a rank of this or another machine, a script, gets the limit on spinning threads first.
"""

from quintain.threads import limit_spinning

limit_spinning()
