# tmux with two panes, each with a shell that has a variable.
import os, subprocess, time

def finish(text):
    with open("verdict.part", "w") as file:
        file.write(text)
    os.rename("verdict.part", "verdict")
    os._exit(0)

def tmux(*arguments):
    base = ["tmux", "-S", os.path.abspath("socket"), "-f", "/dev/null"]
    return subprocess.run(base + list(arguments), capture_output=True, text=True, timeout=50).stdout

def expect(pane, text):
    end = time.time() + 50
    while text not in (shown := tmux("capture-pane", "-p", "-t", pane)):
        if time.time() > end:
            finish(f"FAILED waiting for {text!r} in {pane}, saw {shown!r}")
        time.sleep(0.01)

try:
    shell = "env 'PS1=prompt> ' bash --norc --noprofile"
    tmux("new-session", "-d", "-s", "both", "-x", "80", "-y", "24", shell)
    tmux("split-window", "-t", "both:0", shell)
    for number in range(2):
        pane = f"both:0.{number}"
        expect(pane, "prompt>")
        tmux("send-keys", "-t", pane, f"kept=$((6*{number + 7})); echo set=$kept", "Enter")
        expect(pane, f"set={6 * (number + 7)}")
    open("ready", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.002)
    for number in range(2):
        pane = f"both:0.{number}"
        tmux("send-keys", "-t", pane, "echo still=$kept", "Enter")
        expect(pane, f"still={6 * (number + 7)}")
    tmux("kill-server")
    finish("ok")
except Exception as error:
    finish(f"FAILED {error!r}")
