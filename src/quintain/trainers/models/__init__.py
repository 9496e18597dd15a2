"""Models and their files: loading, saving, adapters, quantised weights, and the heads and tokenizers beside them."""
