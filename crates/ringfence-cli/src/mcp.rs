//! `ringfence mcp`: the front door for agents that speak the Model Context Protocol.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence::launcher::Launcher;
use ringfence::{Engine, Outcome};
use ringfence_mcp::{HttpError, Limits, Names, Setup, TokenError, Tokens, has_tools, serve_http, serve_streams};
use ringfence_policy::Mount;

use crate::args::{McpArgs, NamesArg};
use crate::setup::Context;
use crate::stop_signals::StopSignals;
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, setup, streams};

const MOST_TOKENS: u64 = 64 * 1024;
/// Requests wait for the disk while others go on.
const THREADS: usize = 2;
/// How long the last of it may take: somebody may never read what is still to be written.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How long the engine may take to remove what waited. What is left then ends by itself, and is found by its labels.
const DRAINS_WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
enum McpFailure {
    #[error("could not start the process that raises walls")]
    Launcher(#[source] io::Error),
    #[error("could not become the one who adopts orphans")]
    Adopt(#[source] io::Error),
    #[error("could not start the event loop")]
    Runtime(#[source] io::Error),
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    #[error("could not read the tokens in {}", path.display())]
    TokenFile { path: PathBuf, source: io::Error },
    #[error("others than you can read {}", .0.display())]
    OpenTokenFile(PathBuf),
    #[error("the tokens in {} lie in {}, which programs inside can read", path.display(), shown.display())]
    ShownTokenFile { path: PathBuf, shown: PathBuf },
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("could not serve the client")]
    Serve(#[source] io::Error),
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl Fatal for McpFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Token(_)
            | Self::OpenTokenFile(_)
            | Self::ShownTokenFile { .. }
            | Self::Http(HttpError::NotLoopback(_)) => 2,
            _ => crate::OUR_FAILURE,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::OpenTokenFile(path) => Some(format!("take that away from them: chmod 600 {}", path.display())),
            Self::ShownTokenFile { .. } => Some("move it out of there, and make new tokens".to_owned()),
            _ => None,
        }
    }
}

pub(crate) fn mcp(args: &McpArgs) -> Done {
    let context = setup::load(&args.layers, Vec::new())?;
    let tokens = match (args.http, &args.token_file) {
        (Some(_), Some(path)) => Some((Tokens::read(&read_tokens(path, &context)?).map_err(McpFailure::Token)?, None)),
        (Some(_), None) => {
            let (tokens, token) = Tokens::generate().map_err(McpFailure::Token)?;
            Some((tokens, Some(token)))
        }
        (None, _) => None,
    };
    // While there is one thread: from then on it raises the walls, and this process may have as many as it likes.
    let launcher = Launcher::process(Path::new("/proc/self/exe"), &[setup::LAUNCHER]).map_err(McpFailure::Launcher)?;
    ringfence::adopt_orphans().map_err(McpFailure::Adopt)?;
    if !has_tools(&context.loaded.policy) {
        chatter::say("the policy's tools.allow names none of this server's tools, so there are none");
    }
    let (loaded, workspace) = (context.loaded.clone(), context.workspace.clone());
    let warm = ringfence::engine::Setup { warm: args.warm.into(), ..setup::engine_setup(context, launcher)? };
    let server = Setup {
        engine: Engine::new(warm).map_err(setup::SetupFailure::from)?,
        state: setup::state().map_err(setup::SetupFailure::State)?,
        loaded,
        workspace,
        home: std::env::var_os("HOME").map(PathBuf::from),
        names: match args.tool_names {
            NamesArg::Plain => Names::Plain,
            NamesArg::Dotted => Names::Dotted,
        },
        limits: Limits {
            sandboxes: args.sandboxes.into(),
            runs: args.runs.into(),
            run_time: args.run_time.get(),
            retries: args.retries,
            ..Limits::default()
        },
        version: env!("CARGO_PKG_VERSION"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.map_err(McpFailure::Runtime)?;
    let served = runtime.block_on(with_warm_containers(server.engine.clone(), serve(server, args.http.zip(tokens))));
    // A thread may still wait for input that never comes.
    runtime.shutdown_timeout(ENDS_WITHIN);
    served.map(|()| 0).map_err(Into::into)
}

/// Serves, while containers wait for the calls; none waits any more when this is done.
async fn with_warm_containers<T>(engine: Engine, serving: impl Future<Output = T>) -> T {
    let warming = tokio::spawn({
        let engine = engine.clone();
        async move {
            // Calls are served all the same, and say for themselves what they could not do.
            if let Err(outcome) = engine.warm().await {
                let why = why_not(&outcome).replace('\n', " ");
                chatter::say(&format!("nothing can wait for calls yet: {}", harmless(&why)));
            }
        }
    });
    let served = serving.await;
    // An image may still be on its way, which nobody needs any more.
    warming.abort();
    let leaves_nothing = async {
        // It was ended by us, or is over; one that copies a workspace goes on until that is done.
        warming.await.ok();
        tokio::join!(engine.drain(), engine.tidy())
    };
    tokio::time::timeout(DRAINS_WITHIN, leaves_nothing).await.ok();
    served
}

/// Why none waits, in one line.
fn why_not(outcome: &Outcome) -> String {
    match (&outcome.error, &outcome.refusal) {
        (Some(failure), _) => failure.chain.join(": "),
        (None, Some(refusal)) => format!("{} ({})", refusal.reason, refusal.rule),
        (None, None) => "it was not said".to_owned(),
    }
}

async fn serve(server: Setup, http: Option<(SocketAddr, (Tokens, Option<String>))>) -> Result<(), McpFailure> {
    let mut signals = StopSignals::listen().map_err(McpFailure::Signals)?;
    let stop = async {
        signals.next().await;
    };
    match http {
        None => {
            let (input, output, _changed) = streams::standard().map_err(McpFailure::Serve)?;
            serve_streams(server, input, output, stop).await.map_err(McpFailure::Serve)
        }
        Some((address, (tokens, token))) => {
            let listening = |here: SocketAddr| {
                chatter::say(&format!("listening at http://{here}/mcp"));
                if let Some(token) = token {
                    chatter::say(&format!(
                        "clients send this header, which is not shown again: Authorization: Bearer {token}"
                    ));
                }
            };
            Ok(serve_http(server, address, tokens, listening, stop).await?)
        }
    }
}

/// What is in a file of tokens that nobody else can read, looked at on the open file.
fn read_tokens(path: &Path, context: &Context) -> Result<String, McpFailure> {
    let failed = |source| McpFailure::TokenFile { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let ours = [rustix::process::geteuid().as_raw(), 0].contains(&found.uid());
    if !ours || found.mode() & 0o077 != 0 {
        return Err(McpFailure::OpenTokenFile(path.to_owned()));
    }
    // The real path of what was opened, whatever led to it.
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)?;
    if let Some(shown) = shown_inside(context)?.into_iter().find(|shown| real.starts_with(shown)) {
        return Err(McpFailure::ShownTokenFile { path: path.to_owned(), shown });
    }
    let mut text = String::new();
    file.take(MOST_TOKENS).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Folders and files of the host that programs inside are shown, by their real paths.
fn shown_inside(context: &Context) -> Result<Vec<PathBuf>, McpFailure> {
    let mut shown = vec![context.workspace.clone()];
    for mount in &context.loaded.policy.fs.mounts {
        match &mount.value {
            Mount::Host { host, .. } => shown.push(context.workspace.join(host.as_path())),
            Mount::Tmpfs { .. } => {}
        }
    }
    let real = |path: PathBuf| match std::fs::canonicalize(&path) {
        Ok(real) => Ok(Some(real)),
        // What is not there shows nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(McpFailure::TokenFile { path, source }),
    };
    shown.into_iter().filter_map(|path| real(path).transpose()).collect()
}
