#!/usr/bin/env bash
# Keep the package of a release for the tests that run it beside the present one.
#
#   scripts/yesterday.sh COMMIT
set -euo pipefail
cd "$(dirname "$0")/.."
git archive --format=tar "$1" gateway | xz -9e > tests/e2e/yesterday.tar.xz
