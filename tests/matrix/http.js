// http.js serve PORT | ask PORT: node's http; the server sends back what it gets.
'use strict';
const http = require('http');

const HOST = process.env.ECHO_HOST || '127.0.0.1', REQUESTS = +(process.env.ECHO_REQUESTS || 400), ALONE = REQUESTS / 8;
const [, , role, port] = process.argv;
const body = (number) => Buffer.alloc(number % 10 === 0 ? 1000000 : 10 * number + 1, `request ${number} `);

function ask(number, agent) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: HOST, port, method: 'POST', agent, timeout: 30000 }, (answer) => {
      const parts = [];
      answer.on('data', (part) => parts.push(part));
      answer.on('end', () => (Buffer.concat(parts).equals(body(number)) ? resolve() : reject(new Error(`${number}: other bytes`))));
    });
    request.on('timeout', () => request.destroy(new Error('nothing comes any more')));
    request.on('error', reject);
    request.end(body(number));
  });
}

async function main() {
  const kept = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const numbers = Array.from({ length: REQUESTS }, (_, number) => number);
  await Promise.all(numbers.map((number) => ask(number, kept)));
  for (const number of numbers.slice(0, ALONE)) await ask(number, new http.Agent());
  kept.destroy();
  console.log(`${REQUESTS + ALONE} answers`);
}

if (role === 'serve') {
  http.createServer((request, answer) => {
    answer.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    request.pipe(answer);
  }).listen(port, HOST);
  process.on('SIGTERM', () => process.exit());
} else {
  main().catch((e) => { console.error(e); process.exit(1); });
}
