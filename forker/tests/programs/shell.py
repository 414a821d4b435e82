# An interactive shell under a terminal, with a variable, history and a stopped job; its terminal is
# held by this process, which has threads and an asyncio loop besides.
import os, pty, select, threading, time

def finish(text):
    with open("verdict.part", "w") as file:
        file.write(text)
    os.rename("verdict.part", "verdict")
    os._exit(0)

try:
    pid, master = pty.fork()
    if pid == 0:
        os.environ["PS1"] = "prompt> "
        os.environ["HISTFILE"] = "/dev/null"
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])

    seen = b""

    def expect(text):
        global seen
        end = time.time() + 50
        while text not in seen:
            if time.time() > end:
                finish(f"FAILED waiting for {text!r}, saw {seen!r}")
            if select.select([master], [], [], 0.1)[0]:
                seen += os.read(master, 4096)
        seen = seen[seen.index(text) + len(text):]

    def say(line):
        os.write(master, line.encode() + b"\n")

    counter = [0]
    lock = threading.Condition()

    def work():
        while True:
            with lock:
                counter[0] += 1
                lock.notify_all()
            time.sleep(0.001)

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    expect(b"prompt> ")
    say("kept=$((6*7)); sleep 1000 & kill -STOP $!")
    expect(b"prompt> ")
    say("until jobs | grep Stopped; do :; done")
    expect(b"do :; done")
    expect(b"Stopped")
    expect(b"prompt> ")
    open("ready", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.002)
    say("echo kept=$kept; jobs")
    expect(b"kept=42")
    expect(b"Stopped")
    expect(b"prompt> ")
    say("fg")
    expect(b"sleep 1000")
    end = time.time() + 50
    while os.tcgetpgrp(master) == pid:
        if time.time() > end:
            finish("FAILED the job does not come to the foreground")
        time.sleep(0.01)
    os.write(master, b"\x03")
    expect(b"prompt> ")
    say("history | tail -5")
    expect(b"kept=$((6*7)); sleep 1000 &")
    with lock:
        before = counter[0]
        if not lock.wait_for(lambda: counter[0] > before + 10, timeout=50):
            finish("FAILED threads do not run")
    say("exit")
    os.waitpid(pid, 0)
    finish("ok")
except Exception as error:
    finish(f"FAILED {error!r}")
