#!/usr/bin/env bash
# Style of everything that rustfmt and clippy do not see: shell scripts, words, links and C.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

for tool in shellcheck codespell python3 git; do
	command -v $tool >/dev/null || missing "$tool is missing" "run 'make setup'"
done
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
shellcheck --external-sources "${scripts[@]}"
echo "lint: shellcheck: ${#scripts[@]} files clean"
# What it takes for misspelt and is not: a crate, DAMON, /dev/nd0 and the like. Patches and figures are not ours
# to spell.
mapfile -t texts < <(git ls-files -- . ':!Cargo.lock' ':!LICENSES' ':!*.svg' ':!*.patch' ':!*.proptest-regressions')
codespell --ignore-words scripts/codespell-ignore.txt "${texts[@]}"
echo "lint: codespell: ${#texts[@]} files clean"
scripts/lint-words.sh
python3 scripts/lint/links.py
scripts/checkpatch.sh
scripts/circles.py
echo "lint: no import circles"
