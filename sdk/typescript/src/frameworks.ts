// Tools in the form of the Vercel AI SDK. Whoever has it gives its own makers, so that nothing of it is needed here.

import { BinaryNotFound, RingfenceError } from './errors.js';
import { exitCodeOf, type Outcome } from './outcome.js';
import type { Session } from './session.js';
import type { Language } from './words.js';

/** What `import { jsonSchema, tool } from 'ai'` gives; their types are the SDK's own. */
export interface AiSdk<Tool> {
  tool(definition: any): Tool;
  jsonSchema(schema: any): unknown;
}

/** What a model is told of a run. */
export interface Told {
  exitCode?: number;
  stdout?: string;
  stderr?: string;
  timedOut?: boolean;
  /** What was refused or failed, and what to do instead. */
  error?: string;
  advice?: string;
}

const LANGUAGES: readonly Language[] = ['bash', 'python', 'javascript', 'typescript'];
const SECONDS = { type: 'number', description: 'How many seconds it may take.', exclusiveMinimum: 0 };

/**
 * Tools that run what a model writes in `session`:
 *
 *     const tools = aiSdkTools({ tool, jsonSchema }, session);
 *     await generateText({ model, tools, prompt });
 */
export function aiSdkTools<Tool>(ai: AiSdk<Tool>, session: Session): { run_command: Tool; run_code: Tool } {
  const made = <Input>(
    description: string,
    properties: Record<string, unknown>,
    run: (input: Input, signal: AbortSignal | undefined) => Promise<Outcome>,
  ): Tool =>
    ai.tool({
      description,
      inputSchema: ai.jsonSchema({
        type: 'object',
        properties: { ...properties, timeout: SECONDS },
        required: Object.keys(properties),
        additionalProperties: false,
      }),
      execute: (input: Input, more?: { abortSignal?: AbortSignal }) => tell(() => run(input, more?.abortSignal)),
    });
  return {
    run_command: made<{ command: string; timeout?: number }>(
      'Run a shell command in the sandbox. Returns its exit code and what it printed.',
      { command: { type: 'string', description: 'The command line.' } },
      async ({ command, timeout }, signal) => session.exec(text(command), { timeout: milliseconds(timeout), signal }),
    ),
    run_code: made<{ language: Language; code: string; timeout?: number }>(
      'Run a program in the sandbox. Returns its exit code and what it printed.',
      { language: { type: 'string', enum: LANGUAGES }, code: { type: 'string', description: 'The program.' } },
      async ({ language, code, timeout }, signal) => {
        if (!LANGUAGES.includes(language)) throw new TypeError(`the language is one of ${LANGUAGES.join(', ')}`);
        return session.execCode(language, text(code), { timeout: milliseconds(timeout), signal });
      },
    ),
  };
}

/** A list would be words that no shell reads; the schema has none, and a model may send one all the same. */
function text(given: unknown): string {
  if (typeof given !== 'string') throw new TypeError('it has to be a text');
  return given;
}

function milliseconds(seconds: number | undefined): number | undefined {
  return seconds === undefined || seconds === null ? undefined : seconds * 1000;
}

/** Whatever a model says becomes something that it can read. Only a missing binary is thrown: that is for a person. */
async function tell(run: () => Promise<Outcome>): Promise<Told> {
  try {
    const outcome = await run();
    const { stdout, stderr, timedOut } = outcome;
    return { exitCode: exitCodeOf(outcome), stdout, stderr, timedOut };
  } catch (error) {
    if (error instanceof RingfenceError && !(error instanceof BinaryNotFound)) {
      return { error: error.message, ...(error.advice === undefined ? {} : { advice: error.advice }) };
    }
    if (error instanceof TypeError || error instanceof RangeError) return { error: error.message };
    throw error;
  }
}
