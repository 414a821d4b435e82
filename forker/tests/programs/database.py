# PostgreSQL with an open transaction in psql.
import glob, os, pwd, subprocess, time

def finish(text):
    with open("verdict.part", "w") as file:
        file.write(text)
    os.rename("verdict.part", "verdict")
    os._exit(0)

try:
    binaries = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    user = pwd.getpwnam("postgres")
    here = os.getcwd()
    os.chmod(here, 0o777)

    def other():
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    def run(program, *arguments, **more):
        return subprocess.run([f"{binaries}/{program}", *arguments], preexec_fn=other, check=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)

    run("initdb", "-D", f"{here}/data", "-A", "trust", "-N")
    log = open("server.txt", "w")
    server = subprocess.Popen([f"{binaries}/postgres", "-D", f"{here}/data", "-k", here, "-F",
                               "-c", "listen_addresses=127.0.0.1"],
                              preexec_fn=other, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    end = time.time() + 50
    while subprocess.run([f"{binaries}/pg_isready", "-h", here], stdout=subprocess.DEVNULL).returncode:
        if time.time() > end:
            finish("FAILED the server does not start")
        time.sleep(0.05)
    psql = {}
    for name, host in [("local", here), ("network", "127.0.0.1")]:
        psql[name] = subprocess.Popen([f"{binaries}/psql", "-h", host, "-qAtX", "-U", "postgres"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      bufsize=1)

    def ask(name, text):
        psql[name].stdin.write(text + "\n")
        psql[name].stdin.flush()
        return psql[name].stdout.readline().strip()

    ask("local", "create table kept (number int); select 1;")
    ask("local", "begin; insert into kept select generate_series(1, 1000); select 1;")
    ask("network", "begin; create temp table own (text text); insert into own values ('x'); select 1;")
    open("ready", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.002)
    if (other_sees := ask("network", "select count(*) from kept;")) != "0":
        finish(f"FAILED an open transaction shows {other_sees}")
    if (count := ask("local", "select count(*) from kept;")) != "1000":
        finish(f"FAILED the transaction has {count}")
    ask("local", "commit; select 1;")
    both = ask("network", "select count(*) || (select text from own) from kept;")
    if both != "1000x":
        finish(f"FAILED after the commit: {both}")
    ask("network", "commit; checkpoint; select 1;")
    for one in psql.values():
        one.stdin.close()
        one.wait()
    server.terminate()
    if server.wait(timeout=50) != 0:
        finish("FAILED the server ends badly")
    finish("ok")
except Exception as error:
    finish(f"FAILED {error!r}")
