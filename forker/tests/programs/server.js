// An HTTP server, and a client that keeps its connection to it, in one process, with timers.
const fs = require("fs"), http = require("http");
let requests = 0, ticks = 0, answers = [];
const server = http.createServer((request, response) => response.end(`${++requests} ${request.url}`));
const finish = (text) => {
  fs.writeFileSync("verdict.part", text);
  fs.renameSync("verdict.part", "verdict");
};
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const ask = (port, path) => new Promise((resolve, reject) => {
  http.get({ port, path, agent, host: "127.0.0.1" }, (response) => {
    let text = "";
    response.on("data", (part) => { text += part; });
    response.on("end", () => resolve(text));
  }).on("error", reject);
});
setInterval(() => { ticks++; }, 5);
server.keepAliveTimeout = 600000;
server.listen(0, "127.0.0.1", async () => {
  const port = server.address().port;
  try {
    for (let round = 0; round < 5; round++) answers.push(await ask(port, `/${round}`));
    fs.writeFileSync("ready", "");
    const before = ticks;
    const wait = setInterval(async () => {
      if (!fs.existsSync("go")) return;
      clearInterval(wait);
      try {
        const text = await ask(port, "/after");
        const connections = await new Promise((resolve) => server.getConnections((_, n) => resolve(n)));
        const good = text === "6 /after" && answers.join() === "1 /0,2 /1,3 /2,4 /3,5 /4" &&
          connections === 1 && ticks > before;
        finish(good ? "ok" : `FAILED ${text} ${connections} ${ticks}`);
      } catch (error) { finish(`FAILED ${error}`); }
      process.exit(0);
    }, 5);
  } catch (error) { finish(`FAILED ${error}`); process.exit(1); }
});
