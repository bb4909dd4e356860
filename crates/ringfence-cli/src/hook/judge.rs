//! What the policy says of a call, whoever's it is.

use std::path::PathBuf;

use ringfence::workspace::named::Named;
use ringfence::{Refusal, StateFolder};
use ringfence_policy::NetMode;

use super::call::{Answer, Call, Tool};
use super::paths::resolve;
use super::{Agent, Ground, NotJudged, files, search, shell, web};
use crate::args::LayerArgs;
use crate::setup::Context;

/// The server whose tools are our own, by the names that settings and the plugin give it.
const OURS: [&str; 3] = ["ringfence", "plugin_ringfence_ringfence", "plugin:ringfence:ringfence"];

/// Everything that decides.
pub(super) struct Judge<'a> {
    pub(super) ground: Ground<'a>,
    pub(super) named: Named,
    /// Where the project is, by its real path.
    pub(super) workspace: PathBuf,
    /// Where what outlives a run is kept.
    pub(super) state: Option<StateFolder>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(agent: Agent, layers: &'a LayerArgs, context: &'a Context, state: Option<StateFolder>) -> Self {
        let workspace = context.workspace.clone();
        let named = Named::by(&context.loaded.policy.fs);
        Self { ground: Ground { agent, layers, context }, named, workspace, state }
    }

    /// Where the agent stands: what relative paths are meant from.
    pub(super) fn folder(&self, call: &Call) -> PathBuf {
        match &call.folder {
            Some(folder) => self.workspace.join(folder),
            None => self.workspace.clone(),
        }
    }

    pub(super) fn judge(&self, call: &Call) -> Result<Answer, NotJudged> {
        let answer = match &call.tool {
            Tool::Shell(wanted) => shell::judge(self, call, wanted)?,
            Tool::Files(files) => files::judge(self, call, files).unwrap_or(Answer::Free),
            Tool::Search(wanted) => search::judge(self, call, wanted)?,
            Tool::Fetch(addresses) => web::judge(&self.ground.context.loaded, addresses).unwrap_or(Answer::Free),
            Tool::Engine => self.engine(call),
            Tool::Mcp { server } => self.mcp(call, server.as_deref()),
            Tool::Talk => Answer::Free,
            Tool::Unknown => self.listed(&call.name).unwrap_or_else(|| Answer::Deny(unknown(&call.name))),
            Tool::Refused(refusal) => Answer::Deny(refusal.clone()),
        };
        Ok(answer)
    }

    /// Nothing to say where the policy lists the tool.
    fn listed(&self, name: &str) -> Option<Answer> {
        let allow = &self.ground.context.loaded.policy.tools.allow;
        allow.iter().any(|listed| listed.value == name).then_some(Answer::Free)
    }

    /// Nobody knows which hosts a search engine asks, so the whole network has to be open, or a person has listed the tool.
    fn engine(&self, call: &Call) -> Answer {
        let mode = &self.ground.context.loaded.policy.net.mode;
        if mode.value == NetMode::Open {
            return Answer::Free;
        }
        self.listed(&call.name).unwrap_or_else(|| {
            let refusal = Refusal::new(
                "tools.search",
                format!("`{}` asks a search engine", call.name),
                "the policy does not leave the network open, and no rule can name its hosts",
            );
            Answer::Deny(
                refusal
                    .at(&mode.origin)
                    .hint(format!("A person can permit it by `tools: {{ allow: [{}] }}` in the policy.", call.name))
                    .instead("Work with what is in the workspace, or tell the person which page you need."),
            )
        })
    }

    /// Our own server is behind the same walls. Others do what they like, so each tool, or the server, has to be listed.
    fn mcp(&self, call: &Call, server: Option<&str>) -> Answer {
        let by_name = call.name.strip_prefix("mcp__").and_then(|name| name.split_once("__"));
        // No tool of ours has two such marks: it could be the end of another server's name.
        let ours = match (server, by_name) {
            (Some(server), _) => OURS.contains(&server),
            (None, Some((server, tool))) => OURS.contains(&server) && !tool.contains("__"),
            (None, None) => false,
        };
        let server = server.or(by_name.map(|(server, _)| server));
        if ours {
            return Answer::Free;
        }
        let whole = server.map(|server| format!("mcp__{server}"));
        if let Some(free) = self.listed(&call.name).or_else(|| self.listed(whole.as_deref()?)) {
            return free;
        }
        let refusal = Refusal::new(
            "tools.mcp",
            format!("`{}` belongs to an MCP server that runs outside of every wall", call.name),
            "the policy does not list it",
        );
        let listed = whole.unwrap_or_else(|| call.name.clone());
        Answer::Deny(
            refusal
                .hint(format!("A person can permit it by `tools: {{ allow: [{listed}] }}` in the policy."))
                .instead("Use the tools of the server `ringfence`, or do without."),
        )
    }

    /// For each reading of a path every name by which it could be meant, the real one last.
    pub(super) fn all_names(&self, call: &Call, path: &str) -> Result<Vec<Vec<PathBuf>>, Refusal> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        resolve(&self.folder(call), path, home.as_deref()).map_err(|reason| {
            Refusal::new("fs.unreadable-path", format!("`{}`", super::files::shown(path)), reason)
                .instead("Name the file by a plain path.")
        })
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::new("tools.unknown", format!("`{}`", super::files::shown(name)), "nobody knows what this tool does")
        .hint("A person can permit it by its name under `tools: { allow: [ … ] }` in the policy.")
        .instead("Use a shell command, a file tool, or the tools of the MCP server `ringfence`.")
}
