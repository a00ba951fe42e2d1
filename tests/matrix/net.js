// net.js serve PORT | ask PORT: node's net, many connections (ECHO_HOST, ECHO_CONNECTIONS, ECHO_ROUNDS: others than usual).
'use strict';
const net = require('net');

const HOST = process.env.ECHO_HOST || '127.0.0.1';
const CONNECTIONS = +(process.env.ECHO_CONNECTIONS || 20), ROUNDS = +(process.env.ECHO_ROUNDS || 40), SIZES = [1, 100, 4096, 70000, 400000];
const [, , role, port] = process.argv;

function message(connection, turn) {
  const part = `${connection}:${turn} `, size = SIZES[(connection + turn) % SIZES.length];
  return Buffer.alloc(size, part);
}

function talk(connection) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host: HOST, port });
    let turn = 0, expected, got, ended = false;
    const begin = () => {
      expected = message(connection, turn);
      got = [];
      socket.write(expected);
    };
    socket.setTimeout(30000, () => reject(new Error('nothing comes any more')));
    socket.on('connect', begin);
    socket.on('error', reject);
    socket.on('end', () => { if (!ended) reject(new Error('the server has ended a connection')); });
    socket.on('close', () => resolve());
    socket.on('data', (data) => {
      got.push(data);
      const all = got.reduce((sum, part) => sum + part.length, 0);
      if (all < expected.length) return;
      if (!Buffer.concat(got).equals(expected)) return reject(new Error('other bytes'));
      if (++turn < ROUNDS) return begin();
      ended = true;
      socket.end();
    });
  });
}

if (role === 'serve') {
  net.createServer({ allowHalfOpen: false }, (socket) => {
    socket.pipe(socket);
    socket.on('error', (e) => { console.error(e); process.exitCode = 1; });
  }).listen(port, HOST);
  process.on('SIGTERM', () => process.exit());
} else {
  Promise.all(Array.from({ length: CONNECTIONS }, (_, connection) => talk(connection))).then(
    () => console.log(`${CONNECTIONS} connections, ${CONNECTIONS * ROUNDS} echoes`),
    (e) => { console.error(e); process.exit(1); },
  );
}
