"""A service that asks for an API key, and what its clients are told without the right one."""

import hashlib
import json

KEY = "kb_" + "0123456789abcdef" * 3
WRONG = "kb_wrong"
UNKNOWN = "the API key is not known here"
ENTRY = json.dumps({"name": "clients", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["rank"]})
