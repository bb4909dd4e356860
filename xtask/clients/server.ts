// Our own server over HTTP, and a front before it for clients that cannot bring a token.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { request as ask } from 'node:http';
import type { TestContext } from 'node:test';

import { listen } from './listen.ts';
import { binary, type Project } from './surroundings.ts';

export interface Server {
  url: string;
  token: string;
}

export async function serve(t: TestContext, where: Project): Promise<Server> {
  const child = spawn(binary, ['mcp', '--http', '127.0.0.1:0'], { cwd: where.work, env: where.env, stdio: ['ignore', 'ignore', 'pipe'] });
  t.after(async () => {
    const ended = once(child, 'exit');
    child.kill();
    await ended;
  });
  let said = '';
  return await new Promise((resolve, reject) => {
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
    child.stderr.on('data', (piece: Buffer) => {
      said += piece.toString();
      const found = /(http:\/\/\S+)[\s\S]*Bearer (\S+)\n/.exec(said);
      if (found) resolve({ url: found[1]!, token: found[2]! });
    });
  });
}

/** Passes everything on as it is, but for the token, and for its own address where the server's belongs. Returns its address. */
export async function front(t: TestContext, server: Server): Promise<string> {
  const { port, pathname } = new URL(server.url);
  const here: number = await listen(t, (incoming, answer) => {
    const words = incoming.rawHeaders.map((word, index) => {
      const isHost = index % 2 === 1 && incoming.rawHeaders[index - 1]!.toLowerCase() === 'host';
      return isHost && word.endsWith(`:${here}`) ? word.replace(`:${here}`, `:${port}`) : word;
    });
    const headers = [...words, 'Authorization', `Bearer ${server.token}`];
    const { method, url: path } = incoming;
    const passed = ask({ host: '127.0.0.1', port, method, path, headers }, (answered) => {
      answer.writeHead(answered.statusCode ?? 502, answered.rawHeaders);
      answered.pipe(answer);
    });
    passed.on('error', () => answer.destroy());
    answer.on('close', () => passed.destroy());
    incoming.pipe(passed);
  });
  return `http://127.0.0.1:${here}${pathname}`;
}
