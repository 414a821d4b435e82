# Shared by the suites in this folder. A suite is a script that says what it needs, defines `run` (and
# `fill_base`, if it wants something in the base), and ends with `suite "$@"`.
#
#   tests/suites/NAME [--on DIR] [--quick] [--keep-going]
#
# Without --on, `run` finds in $ROOT a directory of a freshly mounted branch; with it, a directory below
# DIR, so that a suite can be judged on a plain filesystem. $WORK is scratch space on the host's disk,
# $QUICK is 1 or 0. A suite that sets BOXES=1 gets no mount but a store over `/`. Exit status: 0 passed,
# 77 skipped, anything else failed.
#
# Nothing is left behind, however the suite ends: a trap cleans up, and a guard process does so if the
# suite itself is killed.

set -Eeuo pipefail
set -m # each step is a process group of its own, which can be ended as a whole
SUITE_FILE=$(readlink -f "$0")
SUITE=$(basename "$0")
SUITES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$SUITES/../../scripts/env"
. "$REPO/scripts/lib.sh"

QUICK=0 BOXES=0 ON='' WORK='' ROOT='' STORE='' BASE='' MOUNT='' STEP_PID='' GUARD_PID=''

skip() {
    say "SKIP $SUITE: $*"
    exit 77
}
needs() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || skip "$tool is not installed (scripts/setup test installs it)"
    done
}
fixtures() { "$REPO/scripts/fixtures" "$1" || die "the input '$1' could not be fetched"; }
mounted() { [ -n "$MOUNT" ]; }
bp() { branchpoint_at "$STORE" "$@"; }

# Runs a command or function as a step: prints its name and duration, its output only if it fails.
step() {
    local name=$1 started
    shift
    started=$EPOCHREALTIME
    "$@" >"$WORK/step.log" 2>&1 </dev/null &
    STEP_PID=$!
    if ! wait "$STEP_PID"; then
        STEP_PID=''
        say "  FAILED: $name (after $(seconds_since "$started") s); the end of its output:"
        tail -n 40 "$WORK/step.log" | sed 's/^/    | /'
        exit 1
    fi
    STEP_PID=''
    say "  $name: $(seconds_since "$started") s"
}

# Takes a checkpoint of the mounted branch every quarter of a second while a step runs; a checkpoint must
# never be noticed by the program that works on the mount. On a plain directory it only runs the step.
step_with_checkpoints() {
    if mounted; then step "$1, with checkpoints meanwhile" with_checkpoints "${@:2}"; else step "$@"; fi
}
with_checkpoints() {
    "$@" &
    local work=$! count=0
    while kill -0 "$work" 2>/dev/null; do
        bp_checkpoint main >/dev/null
        count=$((count + 1))
        sleep 0.25
    done
    say "$count checkpoints were taken"
    wait "$work"
}

bp_checkpoint() { checkpoint_at "$STORE" "$1"; }
# Mounts a new branch NAME, made from what `main` is now, and prints where.
branch_off() {
    local name=$1
    bp branch create "$name" --from main >/dev/null
    mkdir -p "$WORK/mnt-$name"
    bp mount "$name" "$WORK/mnt-$name" >/dev/null
    say "$WORK/mnt-$name"
}

start() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/branchpoint-suite-$SUITE.XXXXXX")
    chmod 755 "$WORK" # some programs run as another user
    setsid bash -c '. "$1/scripts/env"; . "$1/scripts/lib.sh"; guard "$2" "$3"' guard "$REPO" "$$" "$WORK" \
        </dev/null >/dev/null 2>&1 &
    GUARD_PID=$!
    disown "$GUARD_PID"
    if [ -n "$ON" ]; then
        ROOT=$(mktemp -d "$ON/suite-$SUITE.XXXXXX")
        chmod 755 "$ROOT"
        if declare -F fill_base >/dev/null; then step "set up" fill_base "$ROOT"; fi
        return
    fi
    [ -e /dev/fuse ] || skip "there is no /dev/fuse"
    [ -x "$BRANCHPOINT_BIN" ] || die "$BRANCHPOINT_BIN is not built (cargo build --release)"
    STORE="$WORK/store" BASE="$WORK/base"
    mkdir -p "$BASE" "$WORK/mnt"
    if declare -F fill_base >/dev/null; then step "set up the base" fill_base "$BASE"; fi
    if [ "$BOXES" = 1 ]; then
        bp init --base / >/dev/null
        bp branch list >/dev/null # starts the daemon
        remember_daemon "$STORE" "$WORK"
        return
    fi
    bp init --base "$BASE" >/dev/null
    bp mount main "$WORK/mnt" >/dev/null
    MOUNT="$WORK/mnt" ROOT="$WORK/mnt"
    remember_daemon "$STORE" "$WORK"
}

# What every suite ends with: the mount goes away at once, and the store is found undamaged.
finish() {
    mounted || [ "$BOXES" = 1 ] || return 0
    local dir
    for dir in "$WORK"/mnt*; do
        if is_mountpoint "$dir"; then step "unmount $(basename "$dir")" bp unmount "$dir"; fi
    done
    if has_command check; then
        step "check the store" bp check
    else
        say "  NOT DONE: this build has no 'branchpoint check', so the store was not verified"
    fi
    step "stop the daemon" bp stop
    # An idle daemon is given a moment to go; it must not need more.
    if daemon_of "$WORK" >/dev/null; then
        sleep 1
        if daemon_of "$WORK" >/dev/null; then die "the daemon still runs after 'branchpoint stop'"; fi
    fi
}

cleanup() {
    local status=$?
    trap - EXIT INT TERM HUP ERR
    set +e
    [ -z "$STEP_PID" ] || kill -KILL -- "-$STEP_PID" 2>/dev/null
    if [ -n "$WORK" ]; then
        clean_work "$WORK" || status=1
        [ -z "$ON" ] || [ -z "$ROOT" ] || rm -rf --one-file-system "$ROOT"
        [ -z "$GUARD_PID" ] || kill -- "-$GUARD_PID" 2>/dev/null
    fi
    case $status in
        0) say "PASS $SUITE" ;;
        77) ;;
        *) say "FAIL $SUITE" ;;
    esac
    exit "$status"
}

suite() {
    while [ $# -gt 0 ]; do
        case $1 in
            --on) ON=$(readlink -f "${2:?--on needs a directory}") && shift ;;
            --quick) QUICK=1 ;;
            -h | --help)
                sed -n '2,/^$/s/^# \{0,1\}//p' "$SUITE_FILE"
                say "usage: $SUITE [--on DIR] [--quick]"
                exit 0
                ;;
            *) warn "$SUITE: unknown argument '$1'" && exit 2 ;;
        esac
        shift
    done
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    trap 'say "  FAILED at $BASH_SOURCE line $LINENO: $BASH_COMMAND"' ERR
    start
    run
    finish
}
