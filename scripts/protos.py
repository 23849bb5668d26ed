"""Writes the descriptor sets (`.pb`) of all `.proto` files in gateway/, each beside its sources.

With a folder as argument they are written there, so that they can be compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent


def main() -> int:
    """Run `protoc` for each folder `gateway/systems/NAME/protos`."""
    includes = Path(protoc.__file__).parent / "_proto"
    for folder in sorted(ROOT.glob("gateway/systems/*/protos")):
        target = Path(sys.argv[1]) if len(sys.argv) > 1 else folder
        result = protoc.main(
            [
                "protoc",
                f"--proto_path={folder}",
                f"--proto_path={includes}",
                f"--descriptor_set_out={target / folder.parent.name}.pb",
                *(str(path.relative_to(folder)) for path in sorted(folder.rglob("*.proto"))),
            ]
        )
        if result != 0:
            return int(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
