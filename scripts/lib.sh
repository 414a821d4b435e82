# Helpers for scripts that mount a store: how to talk to the daemon, and how to leave nothing behind.
# Sourced after scripts/env.

# Runs `branchpoint` on the store in $1. Never waits for ever.
branchpoint_at() {
    local store=$1
    shift
    timeout --kill-after=5 "${BRANCHPOINT_TIMEOUT:-120}" "$BRANCHPOINT_BIN" --store "$store" "$@" </dev/null
}

# Whether this build of the program has the command $1.
has_command() { "$BRANCHPOINT_BIN" "$1" --help >/dev/null 2>&1; }

# Takes a checkpoint of branch $2 of the store in $1 and prints what the daemon says about it.
checkpoint_at() {
    local store=$1 branch=$2
    shift 2
    branchpoint_at "$store" checkpoint "$branch" --json "$@"
}

# Prints the field $1 of the JSON object on standard input; nothing if it is not there.
json_field() {
    python3 -c 'import json, sys
value = json.loads(sys.stdin.readline() or "{}").get(sys.argv[1])
print("" if value is None else value)' "$1"
}

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

is_mountpoint() { awk -v d="$1" '$2 == d { found = 1 } END { exit !found }' /proc/self/mounts; }

# Notes down in $2 which process serves the store in $1, for clean_work.
remember_daemon() {
    branchpoint_at "$1" stats --json | json_field daemon_pid >"$2/daemon_pid"
}

# Prints the pid of the daemon noted down in $1 if it still runs and still is the daemon.
daemon_of() {
    local pid
    pid=$(cat "$1/daemon_pid" 2>/dev/null) || return 1
    [ -n "$pid" ] || return 1
    case $(readlink "/proc/$pid/exe" 2>/dev/null) in
        */branchpoint | */branchpoint\ *) say "$pid" ;;
        *) return 1 ;;
    esac
}

# Prints the pids of the processes that have something open below directory $1.
processes_below() {
    find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe /proc/[0-9]*/fd \
        -maxdepth 1 -type l \( -lname "$1" -o -lname "$1/*" \) 2>/dev/null |
        cut -d/ -f3 | sort -un | grep -vx "$$" || true
}

# Ends what works below $1, unmounts what is mounted there, ends the daemon, and removes $1.
# Fails, with a message, if any of it had to be forced.
clean_work() {
    local work=$1 dir pid forced=0
    cd /
    for dir in $(awk -v d="$work/" 'index($2, d) == 1 { print $2 }' /proc/self/mounts | sort -r); do
        for pid in $(processes_below "$dir"); do kill -KILL "$pid" 2>/dev/null || true; done
        timeout 20 umount "$dir" 2>/dev/null && continue
        sleep 1
        timeout 20 umount "$dir" 2>/dev/null && continue
        warn "clean-up: $dir did not unmount, detaching it"
        umount -l "$dir" || true
        forced=1
    done
    if daemon_of "$work" >/dev/null; then
        BRANCHPOINT_TIMEOUT=20 branchpoint_at "$work/store" stop --force >/dev/null 2>&1 || true
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            daemon_of "$work" >/dev/null || break
            sleep 0.2
        done
        if pid=$(daemon_of "$work"); then
            warn "clean-up: the daemon $pid did not stop, killing it"
            kill -KILL "$pid" 2>/dev/null || true
            forced=1
        fi
    fi
    if awk -v d="$work/" 'index($2, d) == 1 { found = 1 } END { exit !found }' /proc/self/mounts; then
        warn "clean-up: something is still mounted below $work, which is left as it is"
        return 1
    fi
    rm -rf --one-file-system "$work"
    return "$forced"
}

# Waits for process $1 to end and cleans $2 up. The suite ends its guard itself if it comes that far.
guard() {
    tail --pid="$1" -f /dev/null
    sleep 1
    clean_work "$2"
}
