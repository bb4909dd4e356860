// Which tools a query may use. One judge, asked twice: by a hook before every tool, and by `canUseTool`.

/** The key under which our MCP server is listed. */
export const SERVER = 'ringfence';

/** What our MCP server offers and a model may use without asking. `changes_apply` touches the host, so it is not listed. */
export const SANDBOX_TOOLS: readonly string[] = [
  'sandboxed_code_run',
  'sandbox_create',
  'sandbox_list',
  'sandbox_close',
  'files_read',
  'files_write',
  'files_list',
  'files_edit',
  'files_search',
  'changes_diff',
  'explain',
].map(sandboxTool);

/** The name by which a model knows a tool of our server. */
export function sandboxTool(name: string): string {
  return `mcp__${SERVER}__${name.replaceAll('.', '_')}`;
}

/** The tools that start programs, and what to use instead. */
const INSTEAD: Record<string, string> = {
  Bash: `${sandboxTool('sandboxed_code_run')} with \`command\``,
  BashOutput: sandboxTool('sandboxed_code_run'),
  KillShell: sandboxTool('sandboxed_code_run'),
  PowerShell: `${sandboxTool('sandboxed_code_run')} with \`command\``,
  Read: sandboxTool('files_read'),
  Write: sandboxTool('files_write'),
  Edit: sandboxTool('files_edit'),
  MultiEdit: sandboxTool('files_edit'),
  NotebookEdit: sandboxTool('files_edit'),
  Glob: sandboxTool('files_list'),
  LS: sandboxTool('files_list'),
  Grep: sandboxTool('files_search'),
};

export type Verdict = { allowed: true } | { allowed: false; message: string };

/** Allowed is what is named exactly; everything else, known or not, is denied with what to do instead. */
export function judgeTool(name: unknown, approved: ReadonlySet<string>): Verdict {
  if (typeof name === 'string' && approved.has(name)) return { allowed: true };
  const said = typeof name === 'string' ? `\`${name.slice(0, 100)}\`` : 'this tool';
  const instead = (typeof name === 'string' && Object.hasOwn(INSTEAD, name) && INSTEAD[name]) || sandboxTool('sandboxed_code_run');
  return {
    allowed: false,
    message:
      `${said} is not approved here: it would act outside of the sandbox. Use ${instead} instead. ` +
      'Do not look for another way around; if the task needs this tool, say so to the person you work for.',
  };
}
