//! What each tool is called by people, says of itself to models, takes, and gives.

use ringfence_policy::Overrides;
use rmcp::schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Kind;

type Schema = Map<String, Value>;

/// Title, description, input, output.
pub(super) fn of(kind: Kind) -> (&'static str, &'static str, Schema, Schema) {
    let (title, description) = words(kind);
    (title, description, input(kind), output(kind))
}

fn words(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Run => (
            "Run code in a sandbox",
            "Runs code, a shell line or a program behind a wall, in /workspace, and returns what it wrote, how it ended and what the \
             policy stopped. Give exactly one of `code` (with `language`), `command` or `argv`. Without `sandboxId` it runs in a fresh \
             sandbox that is gone afterwards; what it changed in the workspace is kept apart until it is applied. With `sandboxId` \
             files and background processes stay.",
        ),
        Kind::SandboxCreate => (
            "Open a sandbox",
            "Opens a sandbox that is kept for many calls: files and processes stay until it is closed, idle for too long, or the \
             connection ends.",
        ),
        Kind::SandboxList => ("List sandboxes", "Lists the sandboxes of this client that are open."),
        Kind::SandboxClose => (
            "Close a sandbox",
            "Ends a sandbox and everything in it. What was changed in its workspace is kept, to be looked at with changes_diff.",
        ),
        Kind::FilesRead => (
            "Read a file",
            "Reads a file of the workspace as it is in a sandbox, whole or some lines of it. Without `sandboxId` a fresh sandbox is \
             used.",
        ),
        Kind::FilesWrite => (
            "Write a file",
            "Writes a file in the workspace of a sandbox, with its folders. The host's file is not touched until changes_apply.",
        ),
        Kind::FilesList => (
            "List a folder",
            "Lists a folder of the workspace as it is in a sandbox; folders end in `/`. Without `sandboxId` a fresh sandbox is used.",
        ),
        Kind::FilesEdit => (
            "Edit a file",
            "Replaces a text in a file of a sandbox's workspace. `old` must be there exactly once, unless `all` is true.",
        ),
        Kind::FilesSearch => (
            "Search in files",
            "Searches the workspace of a sandbox for an extended regular expression, and returns file, line number and line. Without \
             `sandboxId` a fresh sandbox is used.",
        ),
        Kind::ChangesDiff => (
            "Show changes",
            "Shows what a run or a sandbox changed in the workspace, and what of it a person has to look at first. Give `runId` or \
             `sandboxId`.",
        ),
        Kind::ChangesApply => (
            "Apply changes",
            "Asks the person behind this client to bring what a run or a sandbox changed to the host's files, all or some paths, and \
             does it if they agree. What the host would execute later is held back and never applied this way.",
        ),
        Kind::Explain => (
            "Explain the policy",
            "Says what would become of code, a shell line or a program, or of a connection to a host, and by which rule. Nothing is \
             run.",
        ),
    }
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn sandbox() -> Value {
    text("A sandbox of sandbox_create")
}

fn overrides() -> Value {
    Overrides::json_schema(&mut SchemaGenerator::default()).to_value()
}

fn path() -> Value {
    text("Relative to the workspace, without `..`; or below /workspace")
}

fn work() -> Vec<(&'static str, Value)> {
    vec![
        ("code", text("Source text; needs `language`")),
        ("language", json!({ "type": "string", "enum": ["python", "javascript", "typescript", "bash"] })),
        ("command", text("One line for the shell")),
        (
            "argv",
            json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "description": "A program and its arguments; no shell sees them" }),
        ),
    ]
}

fn object(properties: Vec<(&'static str, Value)>, required: &[&str]) -> Schema {
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("required".to_owned(), json!(required));
    schema
}

fn input(kind: Kind) -> Schema {
    let mut schema = match kind {
        Kind::Run => {
            let mut properties = work();
            properties.extend([
                ("timeout", json!({ "type": ["number", "string"], "description": "Seconds, or such as `30s` or `2m`; at most what the policy allows" })),
                ("stdin", text("What the program reads from its standard input")),
                ("cwd", text("The folder to start in, below the workspace")),
                ("env", json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": "Variables for this run" })),
                (
                    "files",
                    json!({
                        "type": "array",
                        "maxItems": 256,
                        "description": "Files to put beside the code, not into the workspace",
                        "items": {
                            "type": "object",
                            "additionalProperties": false,
                            "required": ["path", "content"],
                            "properties": {
                                "path": text("Relative, without `..`"),
                                "content": { "type": "string" },
                                "encoding": { "type": "string", "enum": ["utf8", "base64"] }
                            }
                        }
                    }),
                ),
                ("artifacts", json!({ "type": "array", "maxItems": 8, "items": { "type": "string" }, "description": "With `sandboxId`: pictures in the workspace to return" })),
                ("policyOverrides", overrides()),
                ("sandboxId", sandbox()),
            ]);
            object(properties, &[])
        }
        Kind::SandboxCreate => object(
            vec![
                ("label", text("What to call it in the list")),
                (
                    "idle",
                    json!({ "type": "integer", "minimum": 1, "description": "Close it after so many seconds without a call" }),
                ),
                ("policyOverrides", overrides()),
            ],
            &[],
        ),
        Kind::SandboxList => object(Vec::new(), &[]),
        Kind::SandboxClose => object(vec![("sandboxId", sandbox())], &["sandboxId"]),
        Kind::FilesRead => object(
            vec![
                ("path", path()),
                ("offset", json!({ "type": "integer", "minimum": 1, "description": "The first line" })),
                ("limit", json!({ "type": "integer", "minimum": 1, "description": "How many lines" })),
                ("sandboxId", sandbox()),
            ],
            &["path"],
        ),
        Kind::FilesWrite => object(
            vec![
                ("path", path()),
                ("content", text("All of it")),
                ("encoding", json!({ "type": "string", "enum": ["utf8", "base64"] })),
                ("append", json!({ "type": "boolean", "description": "Add it to the end instead" })),
                ("sandboxId", sandbox()),
            ],
            &["path", "content", "sandboxId"],
        ),
        Kind::FilesList => object(vec![("path", path()), ("sandboxId", sandbox())], &[]),
        Kind::FilesEdit => object(
            vec![
                ("path", path()),
                ("old", text("The text to replace, exactly")),
                ("new", text("What stands there afterwards")),
                ("all", json!({ "type": "boolean", "description": "Replace it wherever it is" })),
                ("sandboxId", sandbox()),
            ],
            &["path", "old", "new", "sandboxId"],
        ),
        Kind::FilesSearch => object(
            vec![
                ("pattern", text("An extended regular expression, as grep takes it")),
                ("path", path()),
                ("ignoreCase", json!({ "type": "boolean" })),
                ("sandboxId", sandbox()),
            ],
            &["pattern"],
        ),
        Kind::ChangesDiff => object(which(), &[]),
        Kind::ChangesApply => object(which(), &[]),
        Kind::Explain => {
            let mut properties = work();
            properties.extend([
                ("host", text("A host, with a port or as an address such as https://pypi.org")),
                ("method", text("With `host`: the method of a request")),
                ("path", text("With `host`: the path of a request")),
            ]);
            object(properties, &[])
        }
    };
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}

fn which() -> Vec<(&'static str, Value)> {
    vec![
        ("runId", text("A run whose result named it")),
        ("sandboxId", sandbox()),
        (
            "paths",
            json!({ "type": "array", "items": { "type": "string" }, "description": "Only these, relative to the workspace; globs are understood" }),
        ),
    ]
}

fn output(kind: Kind) -> Schema {
    let (integer, boolean) = (json!({ "type": "integer" }), json!({ "type": "boolean" }));
    let string = json!({ "type": "string" });
    let maybe = |kind: &str| json!({ "type": [kind, "null"] });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let any = || json!({ "type": "object" });
    let mut properties = match kind {
        Kind::Run => vec![
            ("runId", string.clone()),
            (
                "status",
                json!({ "type": "string", "enum": ["exited", "signalled", "timedOut", "outOfMemory", "tooManyProcesses", "cancelled", "refused", "couldNotRun"] }),
            ),
            ("exitCode", maybe("integer")),
            ("signal", maybe("integer")),
            ("stdout", string.clone()),
            ("stderr", string.clone()),
            ("outputTruncated", boolean.clone()),
            ("timedOut", boolean.clone()),
            ("workspaceChanged", boolean.clone()),
            ("changes", maybe("object")),
            ("violations", list(any())),
            ("summary", string.clone()),
            ("notEnforced", list(string.clone())),
            ("refusal", maybe("object")),
            ("advice", maybe("string")),
            ("retryable", boolean.clone()),
            ("backend", maybe("string")),
            ("resourceUsage", any()),
            ("artifacts", list(any())),
        ],
        Kind::SandboxCreate => vec![
            ("sandboxId", string.clone()),
            ("backend", string.clone()),
            ("workspace", string.clone()),
            ("idleSeconds", integer.clone()),
            ("lifeSeconds", integer.clone()),
        ],
        Kind::SandboxList => vec![("sandboxes", list(any()))],
        Kind::SandboxClose => {
            vec![("closed", boolean.clone()), ("runId", string.clone()), ("changes", maybe("object"))]
        }
        Kind::FilesRead => vec![
            ("path", string.clone()),
            ("content", string.clone()),
            ("encoding", string.clone()),
            ("truncated", boolean.clone()),
        ],
        Kind::FilesWrite => vec![("path", string.clone()), ("bytes", integer.clone())],
        Kind::FilesList => {
            vec![("path", string.clone()), ("entries", list(string.clone())), ("truncated", boolean.clone())]
        }
        Kind::FilesEdit => vec![("path", string.clone()), ("replaced", integer.clone())],
        Kind::FilesSearch => {
            vec![("matches", list(string.clone())), ("truncated", boolean.clone()), ("partial", boolean.clone())]
        }
        Kind::ChangesDiff => vec![
            ("runId", string.clone()),
            ("counts", any()),
            ("changes", list(any())),
            ("diff", string.clone()),
            ("truncated", boolean.clone()),
        ],
        Kind::ChangesApply => vec![
            ("runId", string.clone()),
            ("applied", list(string.clone())),
            ("same", integer.clone()),
            ("left", list(any())),
            ("undo", maybe("string")),
        ],
        Kind::Explain => vec![
            ("verdict", string.clone()),
            ("subject", string.clone()),
            ("rule", string.clone()),
            ("reason", maybe("string")),
            ("hint", maybe("string")),
            ("findings", list(any())),
        ],
    };
    // Outcomes have an error of their own form, which says more.
    properties.push(("error", json!({ "type": ["object", "null"], "description": "Why it was not done" })));
    properties.push((
        "loop",
        json!({ "type": "object", "description": "That calls go in circles, and what to do about it" }),
    ));
    object(properties, &[])
}
