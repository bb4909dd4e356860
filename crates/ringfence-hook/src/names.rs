//! Names that are known: tools that touch nothing but the conversation, by what agents call them, and our own program. What such tools lead
//! to comes to us as calls of its own.

use std::path::Path;

pub(crate) const CLAUDE_CODE_TALK: [&str; 37] = [
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "Brief",
    "CronCreate",
    "CronDelete",
    "CronList",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "KillBash",
    "KillShell",
    "ListAgents",
    "ListPeers",
    "ReportFindings",
    "ScheduleWakeup",
    "SendMessage",
    "SendUserMessage",
    "Skill",
    "Sleep",
    "SlashCommand",
    "StructuredOutput",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "WaitForMcpServers",
    "exit_plan_mode",
];

pub(crate) const CODEX_TALK: [&str; 18] = [
    "close_agent",
    "followup_task",
    "get_goal",
    "interrupt_agent",
    "list_agents",
    "request_user_input",
    "resume_agent",
    "send_input",
    "send_message",
    "spawn_agent",
    "tool_search",
    "tool_suggest",
    "update_goal",
    "update_plan",
    "wait",
    "wait_agent",
    "write_stdin",
    "create_goal",
];

pub(crate) const GEMINI_TALK: [&str; 20] = [
    "activate_skill",
    "ask_user",
    "cli_help",
    "codebase_investigator",
    "complete_task",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_internal_docs",
    "generalist",
    "invoke_agent",
    "list_background_processes",
    "read_background_output",
    "tracker_add_dependency",
    "tracker_create_task",
    "tracker_get_task",
    "tracker_list_tasks",
    "tracker_update_task",
    "tracker_visualize",
    "update_topic",
    "write_todos",
];

pub(crate) const CURSOR_TALK: [&str; 12] = [
    "AskQuestion",
    "Await",
    "CreatePlan",
    "ReadTodos",
    "ReflectAndThink",
    "SwitchMode",
    "Task",
    "TodoRead",
    "TodoWrite",
    "UpdateCurrentStep",
    "UpdatePlan",
    "UpdateTodos",
];

/// What settings call our MCP server.
pub(crate) const OUR_SERVER: &str = "ringfence";

/// Whether a program is called as we are: by our name on `PATH`, or by a path from the root. One that is meant from the project is whatever
/// the project has there.
pub fn is_us(program: &str) -> bool {
    let path = Path::new(program);
    program == "ringfence" || path.is_absolute() && path.file_name().is_some_and(|name| name == "ringfence")
}
