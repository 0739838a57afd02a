"""KeyBlock's reading of texts and choice of blocks, compiled; only `keyblock.native` imports it."""

from keyblock_native._core import *  # noqa: F403
