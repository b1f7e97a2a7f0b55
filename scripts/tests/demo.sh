#!/usr/bin/env bash
# Tests of scripts/demo.sh: however the command ends, the demo says so, with the command's exit code.
#
# Prints "N passed, N failed"; exit 1 if any failed.
# shellcheck disable=SC2016  # what the fake command does
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# ends NAME CODE PATTERN COMMAND: a command that does COMMAND.
ends() {
	local name=$1 code=$2 pattern=$3 status=0
	printf '#!/bin/bash\n%s\n' "$4" >"$work/dormouse"
	chmod +x "$work/dormouse"
	"$here/../demo.sh" "$work/dormouse" "$work/out" >"$work/said" 2>&1 || status=$?
	if [ "$status" = "$code" ] && grep -qE -- "$pattern" "$work/said"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "demo test: $name: exit code $status, not $code, or nothing said of '$pattern':"
		cat "$work/said"
	fi
}

ends a_good_demo_shows_the_timeline 0 'lab cycle.*|report' 'echo "$*"'
ends a_silent_failure_names_its_part 1 'the emulated machine: failed with exit code 1' 'exit 1'
ends a_failure_says_what_to_do_next 1 'next: .*doctor lab' 'exit 1'
ends a_machine_that_lacks_something_is_sent_to_doctor 3 "next: run .*doctor lab" 'exit 3'
ends data_that_differ_are_no_ordinary_failure 4 'data after waking differ' 'exit 4'
ends a_killed_command_is_named 137 'ended by signal 9' 'kill -KILL $$'
ends a_report_that_fails_is_named 1 'the timeline: failed' '[ "$1" = lab ]'
status=0
"$here/../demo.sh" "$work/nothing" "$work/out" >"$work/said" 2>&1 || status=$?
if [ "$status" = 3 ] && grep -q 'make build' "$work/said"; then
	passed=$((passed + 1))
else
	failed=$((failed + 1))
	echo "demo test: a_command_that_was_not_built_is_named: $status"
fi
echo "demo: $passed passed, $failed failed"
[ "$failed" = 0 ]
