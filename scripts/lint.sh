#!/usr/bin/env bash
# Style of everything that rustfmt and clippy do not see: shell scripts, words, links and C.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

for tool in shellcheck git; do
	command -v $tool >/dev/null || missing "$tool is missing" "run 'make setup'"
done
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
shellcheck --external-sources "${scripts[@]}"
echo "lint: shellcheck: ${#scripts[@]} files clean"
scripts/checkpatch.sh
