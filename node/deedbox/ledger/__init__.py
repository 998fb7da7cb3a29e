"""The ledger: what this node will stand behind afterwards.

One log per node. Every entry is a small header whose one SHA-256 is both the link of the chain and the leaf of an
RFC 9162 tree; the tree's heads are signed as C2SP checkpoints and proved by C2SP proof files.
"""
