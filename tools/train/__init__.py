"""Train and ship the built-in models: tokenizer, data, model, optimizer, schedule, train, export.

The whole way, from the repository root, with `torch` installed:

    python -m tools.train.tokenizer          # runs/default/tokenizer.json, 8,192 entries
    python -m tools.train.data               # runs/default/{train,valid,test}.npy
    python -m tools.train.train default --hours 2
    python -m tools.train.train draft --hours 0.2
    python -m tools.train.export default     # writes src/paredown/assets/default/
    python -m tools.train.export draft

Training continues from its last checkpoint when the same command is given again.
"""
