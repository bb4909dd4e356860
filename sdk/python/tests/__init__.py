"""Tests against the real binary, which `RINGFENCE_BIN` names. Each has a ledger of its own, and no host's policy."""

import atexit
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))

_own = tempfile.TemporaryDirectory(prefix="ringfence-sdk-tests-")
atexit.register(_own.cleanup)
for _name in [name for name in os.environ if name.startswith("RINGFENCE_") and name != "RINGFENCE_BIN"]:
    del os.environ[_name]
os.environ["RINGFENCE_STATE_DIR"] = os.path.join(_own.name, "state")
os.environ["RINGFENCE_CONFIG_DIR"] = os.path.join(_own.name, "config")
if "RINGFENCE_BIN" not in os.environ:
    sys.exit("set RINGFENCE_BIN to the binary that is to be tested")
