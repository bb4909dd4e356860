// The Claude Agent SDK's `query()`, with a sandbox: its own tools that start programs or touch files are replaced by those
// of `ringfence mcp`, under a policy of this query.

/** @ts-ignore: an optional peer; without it these types are `any`, and nothing else here needs it before a query begins */
import type { CanUseTool, Options, Query, SDKMessage, SDKUserMessage, query as AgentQuery } from '@anthropic-ai/claude-agent-sdk';

import { findBinary } from './binary.js';
import { CouldNotRun } from './errors.js';
import { PolicyFile, type SandboxPolicy } from './policy.js';
import { SANDBOX_TOOLS, SERVER, judgeTool } from './tools.js';
import { folder, option, type Backend } from './words.js';

export interface SandboxQueryParams {
  prompt: string | AsyncIterable<SDKUserMessage>;
  /**
   * Options of the Agent SDK. Those that would let a tool run without being judged throw; those that this version does not
   * know throw, too.
   */
  options?: Options;
  /** The policy of this query: a file, or what would stand in one. Without it, the workspace's `sandbox.policy.yaml` holds. */
  sandboxPolicy?: string | SandboxPolicy;
  /** The folder that programs work in; `options.cwd`, or the current one, if it is not named. */
  workspace?: string;
  backend?: Backend;
  /** Tools besides the sandbox's own, by their exact names. Approving `Bash` means to run commands without a wall. */
  approvedTools?: readonly string[];
  binary?: string;
  /** The Agent SDK's `query`, where it is not to be imported. */
  query?: typeof AgentQuery;
}

/** Messages of a query, to be read with `for await`; `query` is the Agent SDK's own object, for its controls. */
export interface SandboxQuery extends AsyncGenerator<SDKMessage, void> {
  readonly query: Promise<Query>;
}

/** Options that cannot make a tool run unjudged. What is not listed, an SDK of tomorrow may have made into a way around. */
const PASSED = new Set([
  'abortController',
  'agent',
  'agents',
  'betas',
  'canUseTool',
  'continue',
  'cwd',
  'debug',
  'debugFile',
  'disallowedTools',
  'effort',
  'env',
  'executable',
  'fallbackModel',
  'forkSession',
  'hooks',
  'includeHookEvents',
  'includePartialMessages',
  'maxBudgetUsd',
  'maxThinkingTokens',
  'maxTurns',
  'mcpServers',
  'model',
  'onElicitation',
  'outputFormat',
  'pathToClaudeCodeExecutable',
  'permissionMode',
  'persistSession',
  'resume',
  'resumeSessionAt',
  'sessionId',
  'sessionStore',
  'settingSources',
  'stderr',
  'strictMcpConfig',
  'systemPrompt',
  'taskBudget',
  'thinking',
  'title',
  'tools',
  'verbatimPrompts',
]);

const WHY: Record<string, string> = {
  allowedTools: 'it lets tools run without being judged; name them in `approvedTools`',
  allowDangerouslySkipPermissions: 'it is for running without any check',
  permissionPromptToolName: 'it would be asked instead of the sandbox',
  permissionPrompts: 'the sandbox would not be asked',
  extraArgs: 'a flag could take the checks away',
  settings: 'settings can allow tools and switch hooks off',
  managedSettings: 'settings can switch hooks off',
  plugins: 'a plugin can start programs outside of the sandbox',
  toolAliases: 'it would give a tool the name of another',
  additionalDirectories: 'programs in the sandbox see the workspace only; mount folders in the policy',
};

/** A query of the Claude Agent SDK whose tools act in a sandbox only. */
export function sandboxQuery(params: SandboxQueryParams): SandboxQuery {
  const { options, dispose } = sandboxOptions(params);
  const started = (async () => {
    const query = params.query ?? (await agentQuery());
    return query({ prompt: params.prompt, options }) as Query;
  })();
  // Whoever reads the messages is told; a rejection that nobody has looked at yet must not end the process.
  started.catch(dispose);
  const messages = (async function* (): AsyncGenerator<SDKMessage, void> {
    try {
      const query = await started;
      try {
        for await (const message of query) {
          sandboxIsThere(message as Parameters<typeof sandboxIsThere>[0]);
          yield message;
        }
      } finally {
        query.close();
      }
    } finally {
      dispose();
    }
  })();
  return Object.assign(messages, { query: started });
}

/** The options that make a query of the Agent SDK a sandboxed one, for who calls `query()` alone. Call `dispose` when it has ended. */
export function sandboxOptions(params: Omit<SandboxQueryParams, 'prompt' | 'query'>): { options: Options; dispose: () => void } {
  const given: Options = params.options ?? {};
  refuseWaysAround(given);
  const approved = new Set([...SANDBOX_TOOLS, ...(params.approvedTools ?? [])]);
  const binary = findBinary(params.binary);
  const workspace = folder(params.workspace ?? given.cwd ?? process.cwd());
  const policy = new PolicyFile(params.sandboxPolicy);
  const args = ['mcp', `--workspace=${workspace}`, ...option('policy', policy.path), ...option('backend', params.backend)];

  const canUseTool: CanUseTool = async (name: string, input: Record<string, unknown>, more: Parameters<CanUseTool>[2]) => {
    const verdict = judgeTool(name, approved);
    if (!verdict.allowed) return { behavior: 'deny', message: verdict.message };
    // The caller's own check can only say no to more.
    return given.canUseTool ? given.canUseTool(name, input, more) : { behavior: 'allow', updatedInput: input };
  };
  const options: Options = {
    ...given,
    cwd: given.cwd ?? workspace,
    // Tools that are not approved are not even shown; what is called all the same is denied below.
    tools: given.tools ?? [...approved].filter((name) => !name.startsWith('mcp__')),
    permissionMode: given.permissionMode ?? 'default',
    // Settings in the workspace may have been written by a model, and can start programs on the host.
    settingSources: [],
    strictMcpConfig: true,
    // Otherwise `@/some/file` in a prompt is read from the host, by no tool that could be judged.
    verbatimPrompts: given.verbatimPrompts ?? true,
    mcpServers: {
      ...given.mcpServers,
      [SERVER]: { type: 'stdio', command: binary, args, env: ownVariables(), alwaysLoad: true },
    },
    hooks: {
      ...given.hooks,
      PreToolUse: [
        {
          // A hook comes before every rule that allows; if it fails, the tool does not run.
          onFailure: 'block',
          hooks: [
            async (input: { hook_event_name?: unknown; tool_name?: unknown }) => {
              const verdict = judgeTool(input.tool_name, approved);
              if (verdict.allowed) return { continue: true };
              return {
                hookSpecificOutput: {
                  hookEventName: 'PreToolUse' as const,
                  permissionDecision: 'deny' as const,
                  permissionDecisionReason: verdict.message,
                },
              };
            },
          ],
        },
        ...(given.hooks?.PreToolUse ?? []),
      ],
    },
    canUseTool,
  };
  return { options, dispose: () => policy.remove() };
}

/** A query whose sandbox did not start would go on without tools, and a model would make something up. */
function sandboxIsThere(message: { type?: unknown; subtype?: unknown; mcp_servers?: { name: string; status: string }[] }): void {
  if (message.type !== 'system' || message.subtype !== 'init') return;
  const status = message.mcp_servers?.find((server) => server.name === SERVER)?.status ?? 'missing';
  if (status !== 'connected' && status !== 'pending') {
    throw new CouldNotRun(`the sandbox of this query could not be started: its server is ${status}`, {
      kind: 'start',
      hint: 'run `ringfence mcp` by hand and look at what it says; `ringfence policy lint FILE` checks a policy',
    });
  }
}

function refuseWaysAround(given: Options): void {
  for (const [name, value] of Object.entries(given as Record<string, unknown>)) {
    if (value === undefined) continue;
    if (!PASSED.has(name)) {
      throw new TypeError(`options.${name} cannot be used with a sandbox: ${WHY[name] ?? 'it is not known to be harmless'}`);
    }
  }
  const mode: unknown = given.permissionMode;
  if (mode !== undefined && mode !== 'default' && mode !== 'plan') {
    throw new TypeError(`options.permissionMode '${String(mode)}' lets tools run without being judged; use 'default' or 'plan'`);
  }
  if (given.settingSources !== undefined && given.settingSources.length > 0) {
    throw new TypeError('options.settingSources: settings of a workspace can start programs outside of the sandbox; use []');
  }
  if (given.strictMcpConfig === false) {
    throw new TypeError('options.strictMcpConfig: servers of a workspace would be started outside of the sandbox; leave it out');
  }
  if (given.mcpServers !== undefined && Object.hasOwn(given.mcpServers, SERVER)) {
    throw new TypeError(`options.mcpServers.${SERVER} is the sandbox; give your server another name`);
  }
  for (const [name, agent] of Object.entries((given.agents ?? {}) as Record<string, Record<string, unknown>>)) {
    for (const key of ['permissionMode', 'mcpServers']) {
      if (agent[key] !== undefined) throw new TypeError(`options.agents.${name}.${key} cannot be used with a sandbox`);
    }
  }
}

/** Our own settings, where the server does not inherit all of the environment. */
function ownVariables(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter((entry): entry is [string, string] => entry[0].startsWith('RINGFENCE_') && entry[1] !== undefined),
  );
}

async function agentQuery(): Promise<typeof AgentQuery> {
  const name = '@anthropic-ai/claude-agent-sdk';
  try {
    const sdk = (await import(name)) as { query: typeof AgentQuery };
    return sdk.query;
  } catch (cause) {
    throw new CouldNotRun(`could not load ${name}`, { kind: 'start', hint: `npm install ${name}`, cause });
  }
}
