#!/usr/bin/env bash
# Words that are not the field's, in the rooms that scripts/words.txt enforces (--all: in all of them).
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
command -v python3 >/dev/null || missing "python3 is missing" "run 'make setup'"
exec python3 scripts/lint/words.py "$@"
