//! What the policy says of a call, whoever's it is.

use std::ffi::OsString;
use std::path::PathBuf;

use ringfence::layers::Loaded;
use ringfence::workspace::named::Named;
use ringfence::{Refusal, StateFolder};
use ringfence_policy::NetMode;

use crate::call::{Answer, Call, Tool};
use crate::names::OUR_SERVER;
use crate::paths::{resolve, spellings};
use crate::{Agent, NotJudged, files, search, shell, web};

/// The server whose tools are our own, by the names that settings and the plugin give it.
pub(crate) const OURS: [&str; 3] = [OUR_SERVER, "plugin_ringfence_ringfence", "plugin:ringfence:ringfence"];

/// Where calls are judged. None of it comes from a model, or from a call.
#[derive(Debug)]
pub struct Ground {
    /// Whose calls they are.
    pub agent: Agent,
    /// The policy of the project that the agent was started in.
    pub loaded: Loaded,
    /// Where the project is, by its real path.
    pub workspace: PathBuf,
    /// The files that the policy was read from, by their real paths.
    pub own: Vec<PathBuf>,
    /// Where what outlives a run is kept.
    pub state: Option<StateFolder>,
    /// Our own binary, by which commands are run.
    pub program: PathBuf,
    /// What the hook's own command says of the wall, for the runs that commands become.
    pub flags: Vec<String>,
    /// Who chose the wall.
    pub wall: Wall,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The variable of that name.
    pub path: OsString,
    /// The user's number.
    pub user: u32,
}

/// Who chose the wall that commands run behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wall {
    /// The policy, which comes with a project.
    ByPolicy,
    /// Whoever wrote the hook's own command.
    ByHook,
}

/// Everything that decides.
pub struct Judge {
    pub(crate) ground: Ground,
    pub(crate) named: Named,
}

impl Judge {
    /// A judge of calls made on this ground.
    pub fn new(ground: Ground) -> Self {
        Self { named: Named::by(&ground.loaded.policy.fs), ground }
    }

    /// Where the agent stands: what relative paths are meant from.
    pub(crate) fn folder(&self, call: &Call) -> PathBuf {
        match &call.folder {
            Some(folder) => self.ground.workspace.join(folder),
            None => self.ground.workspace.clone(),
        }
    }

    /// What is said to a call; an error denies it.
    pub fn judge(&self, call: &Call) -> Result<Answer, NotJudged> {
        let answer = match &call.tool {
            Tool::Shell(wanted) => shell::judge(self, call, wanted)?,
            Tool::Files(files) => files::judge(self, call, files).unwrap_or(Answer::Free),
            Tool::Search(wanted) => search::judge(self, call, wanted)?,
            Tool::Fetch(addresses) => web::judge(&self.ground.loaded, addresses).unwrap_or(Answer::Free),
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
        let allow = &self.ground.loaded.policy.tools.allow;
        allow.iter().any(|listed| listed.value == name).then_some(Answer::Free)
    }

    /// Nobody knows which hosts a search engine asks, so the whole network has to be open, or a person has listed the tool.
    fn engine(&self, call: &Call) -> Answer {
        let mode = &self.ground.loaded.policy.net.mode;
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

    /// The paths below the workspace that `path` names where the case of letters does not count, as patterns of some tools have it.
    pub(crate) fn spellings(&self, call: &Call, path: &str) -> Result<Vec<String>, Refusal> {
        // An agent may be in the workspace by another name, which a link gives it: by each of them it is the same folder.
        let mut found = Vec::new();
        for name in self.all_names(call, path)?.iter().flatten() {
            found.extend(spellings(&self.ground.workspace, name).map_err(|reason| unreadable(path, reason))?);
        }
        found.sort();
        found.dedup();
        Ok(found.into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// For each reading of a path every name by which it could be meant, the real one last.
    pub(crate) fn all_names(&self, call: &Call, path: &str) -> Result<Vec<Vec<PathBuf>>, Refusal> {
        resolve(&self.folder(call), path, self.ground.home.as_deref()).map_err(|reason| unreadable(path, reason))
    }
}

fn unreadable(path: &str, reason: &str) -> Refusal {
    Refusal::new("fs.unreadable-path", format!("`{}`", files::shown(path)), reason)
        .instead("Name the file by a plain path.")
}

fn unknown(name: &str) -> Refusal {
    Refusal::new("tools.unknown", format!("`{}`", files::shown(name)), "nobody knows what this tool does")
        .hint("A person can permit it by its name under `tools: { allow: [ … ] }` in the policy.")
        .instead("Use a shell command, a file tool, or the tools of the MCP server `ringfence`.")
}
