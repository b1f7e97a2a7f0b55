#!/usr/bin/env bash
# Style of everything that rustfmt and clippy do not see: shell scripts and C.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
shellcheck "${scripts[@]}"
echo "lint: shellcheck: ${#scripts[@]} files clean"
scripts/checkpatch.sh
