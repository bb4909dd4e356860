//! The server: what it says of itself, and the way from a request of the protocol to a tool.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use ringfence::layers::Loaded;
use ringfence::loop_guard::Ended;
use ringfence::request::Metadata;
use ringfence::{Engine, StateFolder};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, ErrorData, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsRequestMethod, ListPromptsResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::ask::{self, Signer};
use crate::call::{Call, Caller, Going, Progress, Way};
use crate::client::Client;
use crate::limits::Limits;
use crate::lines::Lines;
use crate::tools::{self, Kind, Names, Problem, Said};

/// How long a client may take the list of tools for the right one: it is made when the server starts.
const TOOLS_STAY: u64 = 60 * 60 * 1000;
/// Of a client's name in the ledger.
const MOST_NAME: usize = 100;
const INSTRUCTIONS: &str = "Runs code behind a wall. Start with sandboxed_code_run; use sandbox_create when several calls need the same \
    files or processes. The workspace is a private copy: what programs change reaches the host only by changes_apply, which asks a person. \
    When something is refused the result names the rule and what to do instead: do not try the same by another way.";

/// What a server is made from.
#[derive(Debug)]
pub struct Setup {
    /// Carries out every request.
    pub engine: Engine,
    /// Where changes are kept: the engine's own.
    pub state: StateFolder,
    /// The policy with its layers, for explanations.
    pub loaded: Loaded,
    /// The workspace, absolute.
    pub workspace: PathBuf,
    /// The user's home, for explanations.
    pub home: Option<PathBuf>,
    /// How tools are listed.
    pub names: Names,
    /// How much one client may have.
    pub limits: Limits,
    /// Of the program that this is a part of.
    pub version: &'static str,
}

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) setup: Setup,
    tools: Vec<Kind>,
    listed: Vec<Tool>,
    policy: String,
    pub(crate) signer: Signer,
    /// Cancelled when everything is to end.
    pub(crate) closing: CancellationToken,
}

impl Shared {
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let tools = tools::allowed(setup.engine.policy());
        let key = random::<32>().map_err(|error| io::Error::other(error.message))?;
        Ok(Self {
            listed: tools.iter().map(|kind| kind.listed(setup.names)).collect(),
            tools,
            policy: setup.engine.policy().hash_input(),
            signer: Signer::new(key),
            closing: CancellationToken::new(),
            setup,
        })
    }

    /// The tool of this name, in whichever form.
    fn find(&self, name: &str) -> Option<Kind> {
        self.tools.iter().copied().find(|kind| kind.name() == name || kind.dotted() == name)
    }
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], ErrorData> {
    let (mut bytes, mut filled) = ([0u8; N], 0);
    while filled < N {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).map_err(|errno| {
            ErrorData::internal_error(format!("there are no random numbers to be had: {errno}"), None)
        })?;
    }
    Ok(bytes)
}

/// One client's side of the server. Whatever comes in by it is that client's.
pub(crate) struct Door {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
}

impl Door {
    fn caller(&self, kind: Kind, arguments: &Value, context: &RequestContext<RoleServer>) -> Caller {
        let is_modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let capabilities = context.client_capabilities().unwrap_or_default();
        // A client that says no more than that it knows elicitation knows forms.
        let can_ask = capabilities.elicitation.as_ref().is_some_and(|it| it.form.is_some() || it.url.is_none());
        let way = match (can_ask, is_modern) {
            (false, _) => Way::Nobody,
            (true, false) => Way::Elicit,
            (true, true) => Way::Rounds,
        };
        Caller {
            shared: Arc::clone(&self.shared),
            client: Arc::clone(&self.client),
            peer: context.peer.clone(),
            token: context.meta.get_progress_token(),
            way,
            gone: context.ct.clone(),
            by: format!("the person behind {}", name_of(context)),
            bound: ask::name_call(kind.name(), arguments, &self.shared.policy),
            may_be_task: kind == Kind::Run && is_modern && capabilities.supports_tasks(),
        }
    }

    /// Begins a call.
    fn begin(
        &self,
        kind: Kind,
        arguments: Map<String, Value>,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<Going, Problem> {
        let room = caller.client.begin_call()?;
        if kind == Kind::Run {
            caller.client.may_try()?;
        }
        let (questions, asked) = mpsc::channel(1);
        let (cancelled, progress) = (CancellationToken::new(), Progress::default());
        let labels = vec![("client".to_owned(), name_of(context)), ("tool".to_owned(), kind.name().to_owned())];
        let call = Call {
            shared: Arc::clone(&self.shared),
            client: Arc::clone(&caller.client),
            cancelled: cancelled.clone(),
            progress: progress.clone(),
            questions,
            metadata: Metadata { door: "mcp".to_owned(), labels },
        };
        let bound = caller.bound;
        let work = tokio::spawn(async move {
            let _room = room;
            let said = kind.carry_out(&call, arguments).await.unwrap_or_else(Problem::said);
            note(&call.client, kind, &bound, said).into_result()
        });
        Ok(Going::new(work, asked, cancelled, progress))
    }
}

/// Takes note of what a call brought, and tells when calls go in circles.
fn note(client: &Client, kind: Kind, call: &[u8], mut said: Said) -> Said {
    let ended = if said.well { Ended::Well(&said.mark) } else { Ended::Badly(&said.mark) };
    if kind == Kind::Run {
        client.note_run(ended);
    }
    if let Some(stuck) = client.note(call, ended) {
        said.text.push_str(&format!("\nloop: {}", stuck.advice));
        said.structured["loop"] = json!(stuck);
    }
    said
}

fn name_of(context: &RequestContext<RoleServer>) -> String {
    let Some(Implementation { name, version, .. }) = context.client_info() else { return "an MCP client".to_owned() };
    format!("{name} {version}").chars().filter(|letter| !letter.is_control()).take(MOST_NAME).collect()
}

/// Everything fits into one page.
fn one_page(request: Option<&PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor.as_ref()) {
        Some(_) => Err(ErrorData::invalid_params("there is no such page", None)),
        None => Ok(()),
    }
}

impl ServerHandler for Door {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let mut server = Implementation::new("ringfence", self.shared.setup.version);
        server.title = Some("Ringfence".to_owned());
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        one_page(request.as_ref())?;
        let listed = ListToolsResult::with_all_items(self.shared.listed.clone());
        Ok(listed.with_ttl_ms(TOOLS_STAY).with_cache_scope(CacheScope::Private))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.find(name).map(|kind| kind.listed(self.shared.setup.names))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(kind) = self.shared.find(&request.name) else {
            return Err(ErrorData::invalid_params("there is no such tool; tools/list names those that are", None));
        };
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let caller = self.caller(kind, &arguments, &context);
        if let Some(ticket) = &request.request_state {
            let Some(waiting) = caller.resume(ticket) else {
                let problem = Problem::fixable("the request state is not that of a question that waits for this call")
                    .advise(
                        "Each is good for one answer, for the same arguments, and for five minutes: call without it.",
                    );
                return Ok(problem.said().into_result().into());
            };
            let answer = request.input_responses.as_ref().and_then(|answers| answers.get(ask::APPROVAL));
            waiting.answer.send(ask::read_answer_json(answer, &caller.by)).ok();
            return caller.drive(waiting.going).await;
        }
        let Value::Object(arguments) = arguments else { return Err(ErrorData::invalid_params("no arguments", None)) };
        match self.begin(kind, arguments, &caller, &context) {
            Ok(going) => caller.drive(going).await,
            Err(problem) => Ok(problem.said().into_result().into()),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        one_page(request.as_ref())?;
        let resources = self.client.artifacts.lock().unwrap_or_else(PoisonError::into_inner).resources();
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = self.client.artifacts.lock().unwrap_or_else(PoisonError::into_inner).find(&request.uri);
        let state = self.shared.setup.state.clone();
        let read = tokio::task::spawn_blocking(move || found.and_then(|found| found.read(&state))).await;
        match read.ok().flatten() {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => {
                Err(ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": request.uri }))))
            }
        }
    }

    /// There are none, and an empty list would say that there could be.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.client.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(&self, request: UpdateTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.client.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.client.tasks.cancel_task(&request.task_id)
    }
}

/// Serves one client over two streams, until they end or `stop` does. Nothing of it is left then.
pub async fn serve_streams<R, W>(setup: Setup, from: R, to: W, stop: impl Future<Output = ()>) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let shared = Arc::new(Shared::new(setup)?);
    let client = Arc::new(Client::new(shared.setup.limits));
    let lines = Lines::new(from, to, shared.closing.clone());
    let door = Door { shared: Arc::clone(&shared), client: Arc::clone(&client) };
    let serving = async {
        match rmcp::serve_server(door, lines).await {
            // How it came to an end is of no interest: it is over.
            Ok(running) => running.waiting().await.map(|_| ()).map_err(io::Error::other),
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(io::Error::other(error)),
        }
    };
    let served = tokio::select! {
        served = serving => served,
        () = stop => Ok(()),
    };
    shared.closing.cancel();
    client.end().await;
    served
}
