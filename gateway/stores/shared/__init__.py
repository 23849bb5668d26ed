"""The memory store that the workers of one gateway share."""
